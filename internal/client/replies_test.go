package client_test

import (
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// A reply is what its command promises, or an error: never half of one.
func TestRepliesThatAreNone(t *testing.T) {
	for _, line := range []string{
		`"type":"accepted","ok":true`,
		`"type":"accepted","ok":true,"payload":null`,
		`"type":"accepted","ok":true,"payload":[]`,
		`"type":"accepted","ok":true,"payload":"run"`,
		`"type":"accepted","ok":true,"payload":{"run_id":7}`,
		`"type":"result","ok":true,"payload":{"output":7}`,
		`"type":"error","ok":false`,
		`"type":"error","ok":false,"error":null`,
		`"type":"pong"`,
	} {
		c, _, conn := dial(t)
		go func() {
			id, _ := conn.Want("prompt")
			conn.Line(`{"v":"1","id":"` + id + `",` + line + `}`)
		}()
		if got, err := client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{Text: "x"}); err == nil {
			t.Errorf("%s: got %+v, want an error", line, got)
		}
	}
}

// FuzzReplies has any line for a reply: calls end with what was promised, or an
// error.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		`{"v":"1","id":"c1","type":"accepted","ok":true,"payload":null}`,
		`{"v":"1","id":"c1","type":"accepted","ok":true,"payload":{"run_id":"r"}}`,
		`{"v":"1","id":"c1","type":"result","ok":true,"payload":{"output":"x","events":[null]}}`,
		`{"id":"","ok":false,"error":{"code":"x"}}`,
		`{"id":"c1"}`, `null`, `[]`, `{"id":null,"ok":1}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, _, conn := dial(t)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			conn.Want("prompt")
			conn.Line(line)
			conn.Close() // should it answer nothing, or nobody
		}()
		got, err := client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{Text: "x"})
		if err == nil && (got.Accepted == nil) == (got.Result == nil) {
			t.Errorf("got neither or both of %+v", got)
		}
		<-answered
	})
}
