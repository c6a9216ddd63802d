package wire

import (
	"context"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noused/internal/model"
)

const (
	maxRetries  = 4
	maxWait     = time.Minute      // of our own
	patience    = 5 * time.Minute  // of all waits for a provider that has too much to do, or says how long
	leastWait   = 5 * time.Second  // after maxRetries, whatever the provider says
	refusalTime = 10 * time.Second // for the body of an error
)

// stream posts the body of a request to the path below the base URL, and yields what
// decode makes of the answer (models.md).
// A request that fails before the first delta, in a way that may pass, is sent
// again up to four times, or for five minutes where the provider has too much to
// do; a Notice says so before each wait. An answer that the provider itself
// refused is asked for once more. stream ends as
// soon as ctx does, with its cause, and when the consumer breaks. Every other
// error is an *Error.
func (c *Client) stream(ctx context.Context, path string, header http.Header, body *body, hold func(bytes int) error,
	decode Decoder,
) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		defer body.drop()
		post := func(ctx context.Context) (*http.Request, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.JoinPath(path).String(), body.open())
			if err != nil {
				return nil, err
			}
			req.ContentLength = body.length
			req.GetBody = func() (io.ReadCloser, error) { return body.open(), nil }
			req.Header = header.Clone()
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "text/event-stream")
			req.Header.Set("User-Agent", "noused")
			c.addHeaders(req.Header)
			return req, nil
		}
		waits := backoff.ExponentialBackOff{
			InitialInterval: time.Second, RandomizationFactor: 0.5, Multiplier: 2,
			MaxInterval: maxWait,
		}
		waited, garbled := time.Duration(0), false
		for attempt := 1; ; attempt++ {
			a := attempted{yield: yield, hold: hold}
			err := c.attempt(ctx, post, decode, &a)
			if err == nil || a.broken {
				return
			}
			a.release()
			switch {
			case ctx.Err() != nil:
				yield(model.Delta{}, context.Cause(ctx))
				return
			}
			told := c.safeError(err, attempt)
			delay := waits.NextBackOff()
			switch {
			case told.after > 0 && attempt <= maxRetries:
				delay = told.after
			case told.after > 0:
				delay = max(told.after, leastWait)
			case told.garbled:
				delay = 0
			}
			if again := told.again(attempt, waited+delay) || told.garbled && !garbled; a.delivered > 0 || !again {
				if told.after > patience-waited {
					told.add("it wants to be asked again in " + told.after.Round(time.Second).String())
				}
				yield(model.Delta{}, told)
				return
			}
			waited, garbled = waited+delay, garbled || told.garbled
			if !yield(model.Delta{Notice: retryNotice(told, attempt+1, delay)}, nil) {
				return
			}
			if !pause(ctx, delay) {
				yield(model.Delta{}, context.Cause(ctx))
				return
			}
		}
	}
}

// again reports whether a request is sent once more after so many attempts and
// so long a wait.
func (e *Error) again(attempts int, waited time.Duration) bool {
	return e.passing && waited <= patience && (e.busy || attempts <= maxRetries)
}

func retryNotice(e *Error, attempt int, delay time.Duration) *model.Notice {
	e.attempts = 0
	most := 0
	switch {
	case e.garbled:
		most = attempt
	case !e.busy:
		most = maxRetries + 1
	}
	return &model.Notice{
		Code: model.NoticeRetry, Attempt: attempt, Most: most, Delay: delay,
		Message: fmt.Sprintf("attempt %d in %s: %s", attempt, delay.Round(10*time.Millisecond), e),
	}
}

// pause reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempted is what came of one attempt.
type attempted struct {
	yield     func(model.Delta, error) bool
	hold      func(bytes int) error // nil: nobody counts
	held      int                   // bytes
	delivered int                   // deltas with a piece of the message
	content   int                   // bytes of text in them
	broken    bool                  // by the consumer
}

// keep holds n bytes for as long as the attempt is good.
func (a *attempted) keep(n int) error {
	if a.hold == nil {
		return nil
	}
	err := a.hold(n)
	if err == nil {
		a.held += n
	}
	return err
}

// release gives back what an attempt has held that failed.
func (a *attempted) release() {
	if a.held > 0 {
		_ = a.hold(-a.held) // giving back is no error
		a.held = 0
	}
}

// attempt sends the request once and hands on the deltas of its answer. nil:
// the message is complete, or the consumer broke.
func (c *Client) attempt(parent context.Context, post func(context.Context) (*http.Request, error), decode Decoder,
	a *attempted,
) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	quiet := newSilence(c.options.Timeout, cancel)
	defer quiet.end()
	req, err := post(ctx)
	if err != nil {
		return err
	}
	quiet.start(c.options.Timeout)
	resp, err := c.http.Do(req)
	quiet.end()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return unreachable(err)
	}
	// The connection is closed, not read to its end: nobody knows when that comes.
	defer func() { cancel(nil); _ = resp.Body.Close() }()
	in := &answer{in: resp.Body, silence: quiet, left: maxStream}
	if resp.StatusCode != http.StatusOK || !streams(resp.Header) {
		defer time.AfterFunc(refusalTime, func() { cancel(nil) }).Stop()
		return refusal(resp, in, time.Now())
	}
	for d, err := range decode(Answer{in.events(ctx, a.keep, whole(resp)), a.keep, in.endIn}) {
		if err != nil {
			return err
		}
		if d.Usage == (model.Usage{}) || d.Stop != "" {
			a.delivered++
		}
		if a.content += len(d.Text) + len(d.Thinking); a.content > MaxContent {
			return TooMuch()
		}
		if !a.yield(d, nil) {
			a.broken = true
			return nil
		}
		if d.Stop != "" {
			return nil
		}
	}
	return Truncated("")
}

// whole reports whether the body of a response says where it ends.
func whole(resp *http.Response) bool {
	return resp.ContentLength >= 0 || resp.ProtoMajor >= 2 || slices.Contains(resp.TransferEncoding, "chunked")
}

// streams reports whether a response may be an event stream. Some servers send
// one without saying so.
func streams(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind != "text/html" && kind != "application/json"
}
