package mcp

import (
	"sync"

	jsonx "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"noused/internal/tool"
)

// maxAsked is how many requests of a server may wait for our answers.
const maxAsked = 64

// inbox keeps from the SDK what it would queue without end: notifications, which
// the link hears instead, and more requests than are answered.
type inbox struct {
	link *link

	mu    sync.Mutex
	asked map[jsonrpc.ID]bool // requests of the server's; true: cancelled
}

func newInbox(l *link) *inbox { return &inbox{link: l, asked: map[jsonrpc.ID]bool{}} }

// take returns a message that is the SDK's to answer, nil for any other one.
func (b *inbox) take(msg jsonrpc.Message) (jsonrpc.Message, error) {
	r, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok:
		return msg, nil
	case r.IsCall():
		if r.Method == "elicitation/create" {
			r.Params = keepForm(r.Params)
		}
		return msg, b.ask(r.ID)
	case r.Method == "notifications/cancelled" && b.cancels(r):
		return msg, nil
	}
	b.link.hear(r.Method, r.Params)
	return nil, nil
}

// ask counts a request of the server's.
func (b *inbox) ask(id jsonrpc.ID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asked) == maxAsked {
		return tool.Faultf(tool.ProtocolError, "the server asked %d things and did not wait for an answer", maxAsked)
	}
	b.asked[id] = false
	return nil
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
	cancelled, known := b.asked[id]
	if known {
		b.asked[id] = true
	}
	return known && !cancelled
}

// sent says that a message is on its way; an answer ends what the server asked.
func (b *inbox) sent(msg jsonrpc.Message) {
	if r, ok := msg.(*jsonrpc.Response); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.asked, r.ID)
	}
}
