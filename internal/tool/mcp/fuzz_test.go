package mcp

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/tool"
)

// Whatever a server writes is a message or none, and what it says of a call can be
// told.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"call-1","progress":1,"total":1e400,"message":"\ud800"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"call-1","progress":0.5,"message":"half"}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":7,"data":{"a":[null]}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"requestedSchema":{"$ref":"#"}}}`,
		`{"jsonrpc":"2.0","id":"x","result":null}`, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{}`,
		`{"id":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		ended := make(chan struct{})
		close(ended)
		l := &link{log: zap.NewNop(), calls: map[string]*call{}}
		c := &call{l: l, token: "call-1", said: make(chan model.ToolUpdate, maxSaid), progress: func(u model.ToolUpdate) {
			if !utf8.ValidString(u.Delta) || len(u.Delta) > maxDelta+len("…") || u.Update != nil && !json.Valid(u.Update) {
				t.Errorf("got %+v", u)
			}
		}}
		l.calls[c.token] = c
		b, turns := newInbox(l, ended), 0
		msg, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			return
		}
		if _, err := b.receive(msg, len(line), func() { turns++ }); err != nil {
			t.Error(err)
		}
		if turns != 1 {
			t.Errorf("the turn was ended %d times", turns)
		}
		c.drain()
	})
}

// Whatever a result has in it becomes one that can be told.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		rich(), `{"content":[{"type":"resource"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"\u0000"}}],"isError":true}`,
		`{"content":[{"type":"image","data":"AA=="}],"structuredContent":[1e300]}`, `{"content":[],"structuredContent":"x"}`,
		`{}`,
	} {
		f.Add([]byte(seed))
	}
	h := &host{desc: &tool.Descriptor{Name: "x"}, files: &files{kept: tool.OpenOutputs(f.TempDir()), most: 4}}
	f.Fuzz(func(t *testing.T, text []byte) {
		var from sdk.CallToolResult
		if json.Unmarshal(text, &from) != nil {
			return
		}
		c := &call{l: &link{h: h}, inv: model.Invocation{ToolCall: model.ToolCall{ID: "call-1"}}}
		r, assets := c.made(&from)
		if r.Text == "" || r.OK == (r.Error != nil) || r.OK == from.IsError || r.Value != nil && !json.Valid(r.Value) {
			t.Errorf("got %+v", r)
		}
		if len(assets) > maxFiles || len(r.Images) > len(assets) {
			t.Errorf("got %d files, %d images", len(assets), len(r.Images))
		}
		for _, a := range assets {
			if a.Metadata != nil && !json.Valid(a.Metadata) || !utf8.ValidString(a.MediaType) {
				t.Errorf("got %+v", a)
			}
		}
	})
}
