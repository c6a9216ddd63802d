package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"noused/internal/acp"
	"noused/internal/budget"
	"noused/internal/model"
)

// maxQueued is what of an agent's words waits to be taken in, in bytes. An agent that says
// more is not read on until somebody does.
const maxQueued = 1 << 20

// kind says what an event is.
type kind int

const (
	said    kind = iota // text
	thought             // thinking
	called              // something about a call
	asked               // whether a call may be made
	wanted              // a call of a tool of ours
	used                // how much of the window, and the cost
	ended               // the answer to the prompt
	gone                // the agent's process has ended
	steered             // a steer waits: what is told ends here, and the agent goes on
	choked              // nothing more is taken in of the turn
)

// event is something that an agent does in a turn.
type event struct {
	kind    kind
	line    int    // bytes of the line that said it, of a call with what is made of that
	id      string // of the message
	text    string
	call    *acp.ToolCall
	tool    string // the call's tool, where that is told
	options []acp.PermissionOption
	ask     *acp.Request
	usage   acp.Usage
	prompt  *prompt // of ended
	answer  acp.PromptAnswer
	err     error
	serving *serving // of wanted
}

// size is what an event counts for, in bytes.
func (e event) size() int { return 100 + e.line }

// errSilent says that an agent has said nothing for as long as it may.
var errSilent = errors.New("the agent says nothing")

// inbox holds what an agent has said and nobody has taken in, in order. It may be used
// from any goroutine; one takes from it at a time.
type inbox struct {
	mu    sync.Mutex
	list  []event
	bytes int
	held  int // of them, what the budget counts
	words *budget.Budget
	shut  bool
	full  bool          // it takes in no more than the end
	wide  bool          // there is always room
	more  chan struct{} // cap 1
	room  chan struct{} // cap 1
}

// freeWords of each inbox, in bytes, are not counted in the daemon's budget: what is short never
// waits for others.
const freeWords = 64 << 10

func newInbox(words *budget.Budget) *inbox {
	return &inbox{words: words, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// put adds an event, waiting for room as long as ctx. After shut it is thrown away. False: there
// was no room, and none was made for so long; 0 is for ever.
func (b *inbox) put(ctx context.Context, e event, patience time.Duration) bool {
	var late <-chan time.Time
	for !b.fits(e) {
		if late == nil && patience > 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-b.room:
			late = nil
		case <-late:
			return false
		case <-ctx.Done():
			return true
		}
	}
	return true
}

func (b *inbox) fits(e event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := e.kind == ended || e.kind == gone
	may := !b.wide && b.bytes > 0 && !end
	switch {
	case b.shut, b.full && !end:
	case may && b.bytes+e.size() > maxQueued, !b.count(b.bytes+e.size()) && may:
		return false
	default:
		b.list, b.bytes = append(b.list, e), b.bytes+e.size()
		signal(b.more)
	}
	return true
}

// count has the budget count so many bytes in the inbox, and reports whether it has room for them.
func (b *inbox) count(bytes int) bool {
	want := max(0, bytes-freeWords) - b.held
	if want > 0 && !b.words.Take(want) {
		return false
	}
	b.words.Give(max(0, -want))
	b.held += want
	return true
}

// unget puts events back before all others.
func (b *inbox) unget(events ...event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(append([]event{}, events...), b.list...)
	for _, e := range events {
		b.bytes += e.size()
	}
	b.count(b.bytes)
	signal(b.more)
}

// next returns the oldest event. It waits for one as long as ctx, and for at most
// idle, if that is not 0; the error is errSilent then. Once paused is closed, it is
// model.ErrPaused.
func (b *inbox) next(ctx context.Context, paused <-chan struct{}, idle time.Duration) (event, error) {
	var silent <-chan time.Time
	if idle > 0 {
		timer := time.NewTimer(idle)
		defer timer.Stop()
		silent = timer.C
	}
	for {
		select {
		case <-paused:
			return event{}, model.ErrPaused
		default:
		}
		if e, ok := b.pop(); ok {
			return e, nil
		}
		select {
		case <-b.more:
		case <-paused:
		case <-silent:
			return event{}, errSilent
		case <-ctx.Done():
			return event{}, context.Cause(ctx)
		}
	}
}

func (b *inbox) pop() (event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 {
		return event{}, false
	}
	e := b.list[0]
	b.list[0] = event{}
	b.list, b.bytes = b.list[1:], b.bytes-e.size()
	if max(0, b.bytes-freeWords) < b.held {
		b.count(b.bytes)
	}
	signal(b.room)
	return e, true
}

// choke adds an event after which nothing is taken in but the end.
func (b *inbox) choke(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.shut && !b.full {
		b.list, b.bytes, b.full = append(b.list, e), b.bytes+e.size(), true
		b.count(b.bytes)
		signal(b.more)
	}
}

// widen has put wait for room no more.
func (b *inbox) widen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wide = true
	signal(b.room)
}

// close throws away what is there, and all that comes.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list, b.bytes, b.shut = nil, 0, true
	b.count(0)
	signal(b.room)
}
