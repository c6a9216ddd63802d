package runloop

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/budget"
	"noused/internal/protocol"
)

const (
	// lineCost is what a kept line takes beside its text, in bytes.
	lineCost = 48

	firstPage, lastPage = 1 << 10, 64 << 10
)

// capture keeps copies of a run's events for the prompt that waits for its end:
// the first ones, until it has half as much as is left for others. The log's own
// lines would hold on to what lies beside them.
type capture struct {
	held      *budget.Budget
	call      *call // the prompt's
	lines     []jsontext.Value
	page      []byte // the next line goes behind what it has
	size      int
	truncated bool
	users     atomic.Int32 // the loop, and replies that are not written yet
}

func newCapture(held *budget.Budget, c *call) *capture {
	k := &capture{held: held, call: c}
	k.users.Store(1)
	return k
}

func (k *capture) add(line []byte) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	cost := len(line) + lineCost
	if k.truncated || k.size+cost > k.held.Spare()/2 || !k.held.Take(cost) {
		k.truncated = true
		return
	}
	k.size += cost
	if len(line) > cap(k.page)-len(k.page) {
		k.page = make([]byte, 0, max(len(line), min(max(2*cap(k.page), firstPage), lastPage)))
	}
	start := len(k.page)
	k.page = append(k.page, line...)
	k.lines = append(k.lines, k.page[start:len(k.page):len(k.page)])
}

// share is for a reply that is made of it. The function returned ends that; it
// may be called again.
func (k *capture) share() (release func()) {
	k.users.Add(1)
	return sync.OnceFunc(k.leave)
}

// leave gives back what it took, once its last user leaves.
func (k *capture) leave() {
	if k.users.Add(-1) == 0 {
		k.held.Give(k.size)
	}
}

// result is what a waiting prompt is answered with.
type result struct {
	*runEnd
	events    []jsontext.Value
	truncated bool
	release   func() // of the events; to be called once
}

// captureLine gives an event of a batch to those who wait for its run.
func (l *loop) captureLine(runID string, line []byte) {
	switch k := l.captures[runID]; {
	case k == nil:
	case k.call.left.Load():
		l.drop(runID)
	default:
		k.add(line)
	}
}

// drop ends a capture.
func (l *loop) drop(runID string) {
	if k := l.captures[runID]; k != nil {
		delete(l.captures, runID)
		k.leave()
	}
}

// result joins a run's end with its events: the captured ones, or for a client
// that came late the ones still kept.
func (l *loop) result(end *runEnd) result {
	if end.said != nil {
		if texts, err := l.env.texts(context.Background(), l.id, end.said); err != nil {
			l.env.Fault(l.id, err)
			failed := *end
			failed.err, end = &protocol.Error{
				Code:    protocol.SessionError,
				Message: "the run has ended, and its answer cannot be read", Cause: err.Error(),
			}, &failed
		} else {
			end.output = texts[0]
		}
	}
	if k := l.captures[end.runID]; k != nil {
		return result{end, k.lines, k.truncated, k.share()}
	}
	kept, whole := l.env.Events.Run(end.runID)
	k := newCapture(l.env.Held, nil)
	for _, line := range kept {
		k.add(line)
	}
	return result{end, k.lines, k.truncated || !whole, sync.OnceFunc(k.leave)}
}

// finish hands a run's end to a prompt that waits for it.
func (c *call) finish(r reply) {
	c.ended <- r
	if c.left.Load() {
		c.discard()
	}
}

// leave is called when nobody waits for the run's end any more.
func (c *call) leave() {
	c.left.Store(true)
	c.discard()
}

func (c *call) discard() {
	select {
	case r := <-c.ended:
		r.value.(result).release()
	default:
	}
}
