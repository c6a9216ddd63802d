package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Answers that come faster than anything can be done with them are whole.
func TestBurstsOfDeltasAreWhole(t *testing.T) {
	const sessions, deltas = 10, 3000
	var answer, want strings.Builder
	for n := range deltas {
		sse(&answer, fmt.Sprintf(`{"choices":[{"delta":{"content":"%d "}}]}`, n))
		fmt.Fprintf(&want, "%d ", n)
	}
	sse(&answer, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
	server := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(answer.String()))
	}))
	t.Cleanup(server.Close)
	t.Setenv("TEST_KEY", "none")
	d := newDaemon(t, "--config", modelConfig(t, "openai", server.URL, testKey))
	c := d.dial()
	var all sync.WaitGroup
	for range sessions {
		s, err := client.Call(context.Background(), c, protocol.NewSession, protocol.NewSessionParams{})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			r, err := client.Call(context.Background(), c, protocol.Prompt,
				protocol.PromptParams{Scope: protocol.Scope{SessionID: s.SessionID}, Text: "count"})
			if err != nil {
				t.Error(err)
				return
			}
			if r.Result.Output != want.String() {
				t.Errorf("%d bytes of an answer of %d came", len(r.Result.Output), want.Len())
			}
		})
	}
	all.Wait()
}
