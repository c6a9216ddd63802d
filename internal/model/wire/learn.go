package wire

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"noused/internal/model"
)

// Wire is how a provider is asked.
type Wire[R Body] struct {
	Path   string // below the base URL
	Header http.Header
	// Encode makes the request that is sent, of one that has its messages.
	Encode func(req model.Request, names Names) R
	// Decode makes the decoder of its answer.
	Decode func(names Names) Decoder
	// Learn is told why a request was refused as wrong, and reports whether the next one
	// leaves that part out, which it must not do for ever. nil: no request does.
	Learn func(why *Error, sent R) bool
}

// Stream asks for one message (models.md). It has the messages of the request
// in memory only while its body is made. A request that is refused as wrong is made
// again where the provider learns of it; before a refusal nothing has been yielded.
func Stream[R Body](ctx context.Context, c *Client, w Wire[R], req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for learned := true; learned; {
			learned = false
			body, sent, decode, err := made(c, w, req)
			if err != nil {
				yield(model.Delta{}, err)
				return
			}
			for d, err := range c.stream(ctx, w.Path, w.Header, body, req.Room.Hold, decode) {
				if why := refusedAsWrong(err); why != nil && w.Learn != nil && w.Learn(why, sent) {
					learned = true
					break
				}
				if !yield(d, err) {
					return
				}
			}
		}
	}
}

// made is the body of a request, what explains a refusal, and the
// decoder of its answer. None of them has the messages.
func made[R Body](c *Client, w Wire[R], req model.Request) (b *body, sent R, decode Decoder, err error) {
	whole, done, err := req.Loaded(c.expected())
	if err != nil {
		return nil, sent, nil, err
	}
	defer done()
	names := NewNames(whole)
	sent = w.Encode(whole, names)
	if b, err = c.body(sent, req.Room); err != nil {
		return nil, sent, nil, c.safeError(err, 1)
	}
	return b, sent, w.Decode(names), nil
}

// refusedAsWrong is an answer that finds something wrong with the request, else nil.
func refusedAsWrong(err error) *Error {
	var e *Error
	if errors.As(err, &e) && (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) {
		return e
	}
	return nil
}
