package mcp

import (
	"context"
	"sync"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/tool"
)

// maxAsked is how many requests of a server may wait for our answers.
const maxAsked = 64

// floodLines and floodBytes are how much is read in a second beside the answers
// that somebody waits for.
const floodLines, floodBytes = 1000, 8 << 20

// inbox keeps from the SDK what it would queue without end: notifications, which
// the link hears instead, and more requests than are answered.
type inbox struct {
	link *link

	mu    sync.Mutex
	asked map[jsonrpc.ID]*asking    // requests of the server's
	count int                       // of them all, and
	size  int                       // their bytes
	ours  map[jsonrpc.ID]*replyGate // of ours, those that somebody waits for
	hello jsonrpc.ID                // our handshake, until it is answered

	listing jsonrpc.ID // our last question for the server's tools, until it is answered

	// What nobody has waited for, in the second that began since.
	pacing       sync.Mutex
	since        time.Time
	lines, bytes int
	ended        <-chan struct{}
}

// asking are the requests of the server's with one id, which should be one.
type asking struct {
	count, size int
	cancelled   bool
}

// newInbox makes the inbox of a connection, until ended is closed.
func newInbox(l *link, ended <-chan struct{}) *inbox {
	return &inbox{link: l, asked: map[jsonrpc.ID]*asking{}, ours: map[jsonrpc.ID]*replyGate{}, ended: ended}
}

// receive returns a message that is the SDK's to answer, nil for any other one. It
// ends the turn, or has the goroutine that waits for a long answer do it once that has been
// taken in.
func (b *inbox) receive(msg jsonrpc.Message, size int, turn func()) (jsonrpc.Message, error) {
	if a, ok := msg.(*jsonrpc.Response); ok {
		answer := bounded(a, b.greets(a.ID))
		if b.lists(a.ID) && answer.Error == nil {
			b.link.readTasks(jsontext.Value(answer.Result))
		}
		t := b.replyGate(a.ID)
		if t == nil {
			turn()
			b.pace(size)
			return answer, nil
		}
		t.hand(turn)
		return answer, nil
	}
	turn()
	b.pace(size)
	r := msg.(*jsonrpc.Request)
	switch {
	case !r.IsCall() && size > maxNotice:
		b.link.log.Debug("server said something that is too long", zap.String("method", format.Clip(r.Method, maxToolName)),
			zap.Int("bytes", size))
		return nil, nil
	case r.IsCall():
		if err := b.countRequest(r.ID, size); err != nil {
			return nil, err
		}
		if r.Method == "elicitation/create" {
			r.Params = keepForm(r.Params)
		}
		return msg, nil
	case r.Method == "notifications/cancelled" && b.cancels(r), b.link.told(r.Method):
		return msg, nil
	}
	b.link.hear(r.Method, r.Params)
	return nil, nil
}

// countRequest counts a request of the server's.
func (b *inbox) countRequest(id jsonrpc.ID, size int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.count == maxAsked:
		return tool.Faultf(tool.ProtocolError, "the server asked %d things and did not wait for an answer", maxAsked)
	case b.size+size > maxRequests:
		return tool.Faultf(tool.ProtocolError,
			"the server asked for things of more than %d KiB in all and did not wait for an answer", maxRequests>>10)
	}
	a := b.asked[id]
	if a == nil {
		a = new(asking)
		b.asked[id] = a
	}
	a.count++
	a.size += size
	b.count++
	b.size += size
	return nil
}

// greets reports, once, that this is the answer to our handshake.
func (b *inbox) greets(id jsonrpc.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !id.IsValid() || id != b.hello {
		return false
	}
	b.hello = jsonrpc.ID{}
	return true
}

// cancels reports whether the server takes back what it has asked, for the first
// time.
func (b *inbox) cancels(r *jsonrpc.Request) bool {
	var params struct {
		ID any `json:"requestId"`
	}
	if jsonx.Unmarshal(r.Params, &params) != nil {
		return false
	}
	id, err := jsonrpc.MakeID(params.ID)
	if err != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.asked[id]
	if a == nil || a.cancelled {
		return false
	}
	a.cancelled = true
	return true
}

// sent says that a message is on its way; an answer ends what the server asked.
func (b *inbox) sent(msg jsonrpc.Message) {
	if r, ok := msg.(*jsonrpc.Response); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answered(r.ID)
	}
}

// answered forgets a request of the server's. The mutex is held.
func (b *inbox) answered(id jsonrpc.ID) {
	a := b.asked[id]
	if a == nil {
		return
	}
	b.count--
	if a.count--; a.count == 0 {
		b.size -= a.size
		delete(b.asked, id)
	}
}

// expect notes who waits for the answer to a request, and forgets those who have
// given up.
func (b *inbox) expect(ctx context.Context, msg jsonrpc.Message) {
	r, ok := msg.(*jsonrpc.Request)
	t, _ := ctx.Value(replyGateKey{}).(*replyGate)
	if ok && (r.Method == "initialize" || r.Method == "server/discover") {
		b.mu.Lock()
		b.hello = r.ID
		b.mu.Unlock()
	}
	if !ok || !r.IsCall() || t == nil {
		return
	}
	if r.Method == "tools/list" {
		b.mu.Lock()
		b.listing = r.ID
		b.mu.Unlock()
	}
	t.taken() // of what it asked before
	b.mu.Lock()
	defer b.mu.Unlock()
	for old, who := range b.ours {
		if who.over() {
			delete(b.ours, old)
		}
	}
	b.ours[r.ID] = t
}

// replyGate is who waits for a long answer, nil for nobody.
func (b *inbox) replyGate(id jsonrpc.ID) *replyGate {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.ours[id]
	delete(b.ours, id)
	return t
}

// pace counts a line that nobody has waited for, and has a server wait that floods
// us with them.
func (b *inbox) pace(size int) {
	b.pacing.Lock()
	defer b.pacing.Unlock()
	if now := time.Now(); now.Sub(b.since) >= time.Second {
		b.since, b.lines, b.bytes = now, 0, 0
	}
	b.lines++
	b.bytes += size
	if b.lines <= floodLines && b.bytes <= floodBytes {
		return
	}
	pause := time.NewTimer(time.Until(b.since.Add(time.Second)))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-b.ended:
	}
}
