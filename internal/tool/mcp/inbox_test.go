package mcp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.uber.org/zap"
)

// A server that writes what nobody has waited for is read no faster than so many
// lines a second, whatever they are.
func TestFloodsArePaced(t *testing.T) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newInbox(&link{log: zap.NewNop(), calls: map[string]*call{}}, nil)
			msg, err := jsonrpc.DecodeMessage([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			for range 3 * floodLines {
				if _, err := b.receive(msg, len(line), func() {}); err != nil {
					t.Fatal(err)
				}
				if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
					b.sent(&jsonrpc.Response{ID: r.ID})
				}
			}
			if took := time.Since(start); took < 2*time.Second {
				t.Errorf("%s: %d of them took %v", line, 3*floodLines, took)
			}
		})
	}
}
