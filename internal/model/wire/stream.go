package wire

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noused/internal/model"
)

const (
	maxRetries    = 4
	maxRetryAfter = time.Minute
	patience      = 5 * time.Minute  // with a provider that has too much to do
	leastWait     = 5 * time.Second  // after maxRetries, whatever the provider says
	refusalTime   = 10 * time.Second // the longest silence in the body of an error
)

// Stream posts the request, a struct that becomes a JSON object, to the path
// below the base URL, and yields what decode makes of the answer (models.md).
// A request that fails before the first delta, in a way that may pass, is sent
// again up to four times, or for five minutes where the provider has too much to
// do; a Notice says so before each wait. An answer that the provider itself
// refused is asked for once more. Stream ends as
// soon as ctx does, with its cause, and when the consumer breaks. Every other
// error is an *Error.
func (c *Client) Stream(ctx context.Context, path string, header http.Header, request any, decode Decoder) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		body, err := c.body(request)
		if err != nil {
			yield(model.Delta{}, c.tell(err, 1))
			return
		}
		post := func(ctx context.Context) (*http.Request, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.JoinPath(path).String(), bytes.NewReader(body))
			if err != nil {
				return nil, err
			}
			req.Header = header.Clone()
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "text/event-stream")
			req.Header.Set("User-Agent", "noused")
			c.addHeaders(req.Header)
			return req, nil
		}
		waits := backoff.ExponentialBackOff{InitialInterval: time.Second, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: maxRetryAfter}
		waited, garbled := time.Duration(0), false
		for attempt := 1; ; attempt++ {
			a := attempted{yield: yield}
			err := c.attempt(ctx, post, decode, &a)
			switch {
			case err == nil || a.broken:
				return
			case ctx.Err() != nil:
				yield(model.Delta{}, context.Cause(ctx))
				return
			}
			told := c.tell(err, attempt)
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
	if e.busy {
		return waited <= patience
	}
	return e.passing && attempts <= maxRetries
}

func retryNotice(e *Error, attempt int, delay time.Duration) *model.Notice {
	e.attempts = 0
	return &model.Notice{
		Code: model.NoticeRetry, Attempt: attempt, Delay: delay,
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
	delivered int  // deltas
	content   int  // bytes of text in them
	broken    bool // by the consumer
}

// attempt sends the request once and hands on the deltas of its answer. nil:
// the message is complete, or the consumer broke.
func (c *Client) attempt(parent context.Context, post func(context.Context) (*http.Request, error), decode Decoder, a *attempted) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	quiet := newSilence(c.options.Timeout, cancel)
	defer quiet.end()
	req, err := post(ctx)
	if err != nil {
		return err
	}
	quiet.begin()
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
		quiet.limit = min(quiet.limit, refusalTime)
		return refusal(resp, in, time.Now())
	}
	for d, err := range decode(in.events(ctx)) {
		if err != nil {
			return err
		}
		a.delivered++
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

// streams reports whether a response may be an event stream. Some servers send
// one without saying so.
func streams(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind != "text/html" && kind != "application/json"
}
