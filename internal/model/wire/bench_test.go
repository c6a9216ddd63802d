package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// unanswered takes a request and refuses it at once.
type unanswered struct{ body []byte }

func (u *unanswered) RoundTrip(r *http.Request) (*http.Response, error) {
	u.body = slices.Grow(u.body[:0], int(r.ContentLength))[:r.ContentLength]
	if _, err := io.ReadFull(r.Body, u.body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// session is one of so many messages: prompts, answers that think and call a
// tool, results of 400 bytes, and final answers, with what the maker attached.
func session(maker, data string, messages int) (out []model.Message) {
	for n := 0; len(out) < messages; n++ {
		call := model.ToolCall{
			ID: fmt.Sprintf("call-%d", n), Name: "read",
			Arguments: []byte(`{"path":"internal/model/wire/bench_test.go","offset":12}`),
		}
		thinking := "I should read the file before I say anything about it."
		out = append(out,
			model.Message{Role: model.User, Text: fmt.Sprintf("Question %d: what does the file say, and why?", n), Opens: true},
			model.Message{
				Role: model.Assistant, Thinking: thinking, ToolCalls: []model.ToolCall{call}, Maker: maker,
				Blocks: []model.Block{
					{Kind: model.ThinkingBlock, Bytes: len(thinking), Data: []byte(data)},
					{Kind: model.CallBlock, ID: fmt.Sprintf("vendor_%d", n)},
				},
			},
			model.Message{
				Role: model.Tool, ToolCallID: call.ID, ToolName: "read",
				Text: strings.Repeat("a line of the file, with \"quotes\"\n", 12), OK: true,
			},
			model.Message{Role: model.Assistant, Text: strings.Repeat("It says a good deal. ", 10)},
		)
	}
	return out
}

// cpuTime is the processor time of this process so far: a machine that others
// use too says little by the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRequest is the making of a request of a session of 5000 messages,
// from the messages to the bytes that are sent. raw encodes JSON of the same
// bytes.
func BenchmarkRequest(b *testing.B) {
	attached := map[string]string{
		"openai": `{"member":"reasoning_content"}`, "anthropic": `{"signature":"EqQBCgIYAh"}`,
		"responses": `{"type":"reasoning","id":"rs_1","encrypted_content":"gAAAAAB","summary":[]}`,
	}
	for _, d := range dialects {
		sent := &unanswered{}
		p, err := d.make(wire.Options{BaseURL: "http://h/v1", Model: "m", Transport: sent})
		if err != nil {
			b.Fatal(err)
		}
		maker := map[string]string{"openai": "chat", "anthropic": "messages", "responses": "responses"}[d.name] + " h m"
		req := model.Request{
			System: "be brief", Messages: session(maker, attached[d.name], 5000),
			Tools: []model.ToolSpec{{Name: "read"}},
		}
		ask := func() {
			for range p.Stream(b.Context(), req) {
			}
		}
		ask()
		if !bytes.Contains(sent.body, []byte("vendor_7")) {
			b.Fatalf("the blocks did not go back: %.300s", sent.body)
		}
		b.Run(d.name+"/raw", func(b *testing.B) {
			b.SetBytes(int64(len(sent.body)))
			begun := cpuTime()
			for b.Loop() {
				if _, err := json.Marshal(jsontext.Value(sent.body)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-begun)/float64(b.N), "cpu-ns/op")
		})
		b.Run(d.name+"/noused", func(b *testing.B) {
			b.SetBytes(int64(len(sent.body)))
			b.ReportAllocs()
			begun := cpuTime()
			for b.Loop() {
				ask()
			}
			b.ReportMetric(float64(cpuTime()-begun)/float64(b.N), "cpu-ns/op")
		})
	}
}
