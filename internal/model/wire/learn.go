package wire

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"noused/internal/model"
)

// StreamLearning is Stream for a provider that may refuse a part of what it is
// sent. Each request has the body that encode makes. If that is refused as wrong,
// learn is told why, and reports whether the next body leaves the part out, which
// it must not do for ever. Before a refusal nothing has been yielded.
func StreamLearning[R any](ctx context.Context, c *Client, path string, header http.Header, encode func() R, decode Decoder, learn func(*Error, R) bool) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		for learned := true; learned; {
			learned = false
			body := encode()
			for d, err := range c.Stream(ctx, path, header, body, decode) {
				if why := refusedAsWrong(err); why != nil && learn(why, body) {
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

// refusedAsWrong is an answer that finds something wrong with the request, else nil.
func refusedAsWrong(err error) *Error {
	var e *Error
	if errors.As(err, &e) && (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) {
		return e
	}
	return nil
}
