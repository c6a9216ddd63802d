package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noused/internal/model"
	"noused/internal/model/anthropic"
	"noused/internal/model/openai"
	"noused/internal/model/responses"
	"noused/internal/model/wire"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

const key = "sk-test-do/not+tell"

// provider is a model of one of the packages.
type provider interface {
	Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error]
	Close()
}

// dialect says the same things on one of the wires, each as one event with
// LF at the ends of its lines.
type dialect struct {
	name   string
	make   func(wire.Options) (provider, error)
	path   string
	list   func(context.Context, wire.Options) ([]wire.Listed, error)
	listed string // the path of list, and its query
	start  string // what comes first
	text   func(string) string
	think  func(string) string
	call   func(index int, id, name string, arguments ...string) string // the events of one call
	finish func(reason string) string                                   // "stop", "calls", "length"; to the end
	fail   func(code, message string) string
}

var dialects = []dialect{
	{
		name: "openai", path: "/v1/chat/completions", list: openai.Models, listed: "/v1/models",
		make: func(o wire.Options) (provider, error) { return openai.New(o) },
		start: `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}` +
			"\n\n",
		text: func(s string) string {
			return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s}}]}\n\n", quote(s))
		},
		think: func(s string) string {
			return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":%s}}]}\n\n", quote(s))
		},
		call: func(index int, id, name string, arguments ...string) string {
			const outer = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[%s]}}]}\n\n"
			out := fmt.Sprintf(outer, fmt.Sprintf(`{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}`,
				index, id, name))
			for _, a := range arguments {
				out += fmt.Sprintf(outer, fmt.Sprintf(`{"index":%d,"function":{"arguments":%s}}`, index, quote(a)))
			}
			return out
		},
		finish: func(reason string) string {
			reason = map[string]string{"stop": "stop", "calls": "tool_calls", "length": "length"}[reason]
			return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", reason) +
				`data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}}` + "\n\ndata: [DONE]\n\n"
		},
		fail: func(code, message string) string {
			return fmt.Sprintf("data: {\"error\":{\"message\":%q,\"type\":%q,\"code\":null}}\n\n", message, code)
		},
	},
	{
		name: "anthropic", path: "/v1/messages", list: anthropic.Models, listed: "/v1/models?limit=1000",
		make: func(o wire.Options) (provider, error) { return anthropic.New(o) },
		start: "event: message_start\n" +
			`data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":8,"cache_read_input_tokens":3,"output_tokens":1}}}` + "\n\n" +
			"event: ping\ndata: {\"type\": \"ping\"}\n\n",
		text: func(s string) string {
			return "event: content_block_start\n" +
				`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n" +
				fmt.Sprintf("event: content_block_delta\ndata: "+
					"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":%s}}\n\n", quote(s)) +
				"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n"
		},
		think: func(s string) string {
			return "event: content_block_start\n" +
				`data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}` + "\n\n" +
				fmt.Sprintf("event: content_block_delta\ndata: "+
					"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":%s}}\n\n",
					quote(s))
		},
		call: func(index int, id, name string, arguments ...string) string {
			out := "event: content_block_start\n" +
				fmt.Sprintf(
					`data: {"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q,"input":{}}}`,
					index, id, name) + "\n\n"
			for _, a := range arguments {
				out += "event: content_block_delta\n" +
					fmt.Sprintf(
						`data: {"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, index,
						quote(a)) + "\n\n"
			}
			return out
		},
		finish: func(reason string) string {
			reason = map[string]string{"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}[reason]
			return "event: message_delta\n" +
				fmt.Sprintf(`data: {"type":"message_delta","delta":{"stop_reason":%q},"usage":{"output_tokens":7}}`, reason) +
				"\n\n" +
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
		},
		fail: func(code, message string) string {
			return fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":%q,\"message\":%q}}\n\n", code,
				message)
		},
	},
	{
		name: "responses", path: "/v1/responses", list: openai.Models, listed: "/v1/models",
		make:  func(o wire.Options) (provider, error) { return responses.New(o) },
		start: `data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","output":[],"usage":null}}` + "\n\n",
		text: func(s string) string {
			return `data: {"type":"response.output_item.added","output_index":100,"item":{"type":"message","role":"assistant","content":[]}}` + "\n\n" +
				fmt.Sprintf("data: {\"type\":\"response.output_text.delta\",\"output_index\":100,\"delta\":%s}\n\n", quote(s)) +
				fmt.Sprintf(
					"data: {\"type\":\"response.output_item.done\",\"output_index\":100,\"item\":{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":%s}]}}\n\n", quote(s))
		},
		think: func(s string) string {
			return `data: {"type":"response.output_item.added","output_index":99,"item":{"type":"reasoning","summary":[]}}` +
				"\n\n" +
				fmt.Sprintf("data: {\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":99,\"delta\":%s}\n\n",
					quote(s))
		},
		call: func(index int, id, name string, arguments ...string) string {
			const item = `{"type":"function_call","call_id":%q,"name":%q,"arguments":%s}`
			out := fmt.Sprintf("data: {\"type\":\"response.output_item.added\",\"output_index\":%d,\"item\":"+item+"}\n\n",
				index, id, name, `""`)
			for _, a := range arguments {
				out += fmt.Sprintf(
					"data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":%d,\"delta\":%s}\n\n", index,
					quote(a))
			}
			return out + fmt.Sprintf("data: {\"type\":\"response.output_item.done\",\"output_index\":%d,\"item\":"+item+"}\n\n",
				index, id, name, quote(strings.Join(arguments, "")))
		},
		finish: func(reason string) string {
			status, why := "completed", "null"
			if reason == "length" {
				status, why = "incomplete", `{"reason":"max_output_tokens"}`
			}
			return fmt.Sprintf(
				`data: {"type":"response.%s","response":{"status":%q,"incomplete_details":%s,"usage":{"input_tokens":11,"output_tokens":7,"input_tokens_details":{"cached_tokens":3}}}}`, status, status, why) + "\n\n"
		},
		fail: func(code, message string) string {
			return fmt.Sprintf("data: {\"type\":\"error\",\"code\":%q,\"message\":%q,\"param\":null}\n\n", code, message)
		},
	},
}

func quote(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}

// each runs a test on each wire.
func each(t *testing.T, test func(t *testing.T, d dialect)) {
	t.Helper()
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

// connect returns a model that asks the handler over TCP.
func (d dialect) connect(t *testing.T, h http.HandlerFunc, change ...func(*wire.Options)) provider {
	t.Helper()
	server := httptest.NewServer(bodyFirst(h))
	t.Cleanup(server.Close)
	return d.at(t, server.URL, change...)
}

// piped returns a model that asks the handler through pipes, so that time can
// be the test's own (synctest). end closes both.
func (d dialect) piped(t *testing.T, h http.HandlerFunc, change ...func(*wire.Options)) (p provider, end func()) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: bodyFirst(h)}}
	server.Start()
	p = d.at(t, server.URL, append(change, func(o *wire.Options) {
		o.Transport = &http.Transport{DialContext: l.dial}
	})...)
	return p, func() { p.Close(); server.Close() }
}

func (d dialect) at(t *testing.T, url string, change ...func(*wire.Options)) provider {
	t.Helper()
	o := wire.Options{BaseURL: url + "/v1", APIKey: key, Model: "m"}
	for _, c := range change {
		c(&o)
	}
	p, err := d.make(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("connection refused")
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "provider.test" }

// bodyFirst reads the request before it is handled: a server looks out for the
// end of a connection only when it has.
func bodyFirst(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}
}

// says answers every request with a stream.
func says(stream string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream)
	}
}

// refuses answers every request with a status and a body.
func refuses(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// write sends a part of an answer at once.
func write(w http.ResponseWriter, part string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	_, _ = io.WriteString(w, part)
	w.(http.Flusher).Flush()
}

var hello = model.Request{Messages: []model.Message{{Role: model.User, Text: "hello"}}}

// told is a stream as a text: what was said, then how it ended.
type told struct {
	said string
	err  error
	// notices are of retries, not part of said.
	notices []model.Notice
}

func read(ctx context.Context, p provider, req model.Request) (got told) {
	for d, err := range p.Stream(ctx, req) {
		got.add(d, err)
	}
	return got
}

func (g *told) add(d model.Delta, err error) {
	switch {
	case err != nil:
		g.err = err
	case d.Notice != nil:
		g.notices = append(g.notices, *d.Notice)
	case d.Text != "":
		g.said += d.Text
	case d.Thinking != "":
		g.said += "<" + d.Thinking + ">"
	case d.ToolCall != nil:
		g.said += fmt.Sprintf("[%s %s]", d.ToolCall.Name, d.ToolCall.Arguments)
	case d.Stop == "": // what an attempt has cost that failed
	default:
		g.said += fmt.Sprintf(" %s %d/%d/%d", d.Stop, d.Usage.InputTokens, d.Usage.OutputTokens, d.Usage.CachedTokens)
	}
}

func (g told) want(t *testing.T, said, problem string) {
	t.Helper()
	if g.said != said {
		t.Errorf("said %.300q, want %.300q", g.said, said)
	}
	switch {
	case problem == "" && g.err != nil:
		t.Errorf("got the error %v, want none", g.err)
	case problem != "" && g.err == nil:
		t.Errorf("got no error, want one with %q", problem)
	case problem != "" && !strings.Contains(g.err.Error(), problem):
		t.Errorf("got the error %v, want one with %q", g.err, problem)
	}
	if g.err != nil && (strings.Contains(g.err.Error(), key) || strings.Contains(g.err.Error(), "sk-test")) {
		t.Errorf("the key is in the error: %v", g.err)
	}
}

func limit(d time.Duration) func(*wire.Options) {
	return func(o *wire.Options) { o.Timeout = d }
}
