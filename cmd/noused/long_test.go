package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// longWindow is what the strict server can read, in tokens of four bytes: about
// thirty of the turns.
const longWindow = 32_000

// A session of NOUSED_TURNS turns, 120 unless that is set, in each of which the
// model calls tools, against servers that refuse what the vendors refuse: it is
// summarised as often as it has to be, every request is in order and fits, and
// the daemon does not grow with what it no longer sends.
func TestLongSession(t *testing.T) {
	testenv.Long(t)
	turns := 120
	if text := os.Getenv("NOUSED_TURNS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 {
			t.Fatalf("NOUSED_TURNS is %q, want a number, 100 or more", text)
		}
		turns = n
	}
	t.Setenv("TEST_KEY", "none")
	for wire, read := range map[string]func([]byte) (heardRequest, error){
		"chat": readOpenAI, "messages": readAnthropic,
		"responses": readItems,
	} {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			strict := &strictServer{wire: wire, read: read}
			window := longWindow
			if wire == "chat" { // it reports more than it has, as happens with local servers
				window += window / 2
			}
			server := httptest.NewServer(unlisted(strict.ServeHTTP))
			t.Cleanup(server.Close)
			v := strictVendor{wire: wire}
			d := newDaemon(t, "--event-buffer", "1MiB", "--config", modelConfig(t, v.provider(), server.URL, testKey,
				v.wireLine(), fmt.Sprintf("context_window = %d", window)))
			d.write("page.txt", strings.Repeat("what the page says\n", 80), 0o600)
			d.write("book.txt", strings.Repeat("what the book says\n", 1500), 0o600)
			c, compacted, early := d.dial(), 0, int64(0)
			for n := 1; n <= turns; n++ {
				r, err := client.Call(context.Background(), c, protocol.Prompt,
					protocol.PromptParams{Text: fmt.Sprintf("turn %d", n)})
				if err != nil {
					t.Fatalf("turn %d: %v", n, err)
				}
				if want := fmt.Sprintf("turn %d is done", n); r.Result.Output != want {
					t.Fatalf("got %q, want %q", r.Result.Output, want)
				}
				for _, ev := range r.Result.Events {
					if strings.Contains(string(ev), `"code":"compaction_failed"`) ||
						strings.Contains(string(ev), `"code":"request_repaired"`) {
						t.Fatalf("turn %d: %s", n, ev)
					}
					if strings.Contains(string(ev), `"code":"compacted"`) {
						compacted++
					}
				}
				if n == turns/10 {
					early = resident(t, d.Cmd.Process.Pid)
				}
			}
			late := resident(t, d.Cmd.Process.Pid)
			strict.mu.Lock()
			defer strict.mu.Unlock()
			t.Logf("%d turns in %d requests, the longest of %d tokens; %d refused as too long, %d summaries; resident %d MB "+
				"after a tenth of it, %d MB at the end",
				turns, strict.requests, strict.longest, strict.refused, strict.summaries, early>>20, late>>20)
			if compacted < turns/100 || compacted != strict.summaries {
				t.Errorf("compacted %d times with %d summaries", compacted, strict.summaries)
			}
			if window > longWindow && strict.refused == 0 {
				t.Error("no request was too long: the test asks for too little")
			}
			// What the session says stays in memory, about 5 KB a turn; each request is
			// 100 KB.
			if limit := early + 48<<20 + int64(turns)*(8<<10); late > limit {
				t.Errorf("%d MB are resident, want at most %d", late>>20, limit>>20)
			}
		})
	}
}

// resident is the memory that a process has, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// heardMessage is a message of either wire; results are the ids of the calls
// that a message of role tool answers.
type heardMessage struct {
	role, text     string
	calls, results []string
}

type heardRequest struct {
	messages []heardMessage
	tools    int
}

// strictServer refuses what the vendors refuse. It has the daemon call a tool in
// each turn, two in every third, with a long result in every fortieth.
type strictServer struct {
	wire string
	read func([]byte) (heardRequest, error)

	mu                                    sync.Mutex
	requests, refused, summaries, longest int
	summary                               string // the newest one
}

func (s *strictServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	body, err := io.ReadAll(r.Body)
	var got heardRequest
	if err == nil {
		got, err = s.read(body)
	}
	if err == nil {
		err = inOrder(got.messages)
	}
	size := len(body) / 4
	switch {
	case err != nil:
		s.refuse(w, "invalid_request", "this request is not valid: "+err.Error())
		return
	case size > longWindow:
		s.refused++
		s.refuse(w, "context_length_exceeded", fmt.Sprintf("prompt is too long: %d tokens > %d maximum", size, longWindow))
		return
	}
	s.longest = max(s.longest, size)
	last := got.messages[len(got.messages)-1]
	if asksSummary(body) {
		s.summaries++
		s.summary = fmt.Sprintf("Summary %d. %s", s.summaries, strings.Repeat("Pages and books were read. ", 40))
		s.say(w, size, s.summary)
		return
	}
	if s.summary != "" && !strings.Contains(got.messages[0].text, s.summary) {
		s.refuse(w, "invalid_request", "the summary that was given is not in the request")
		return
	}
	if last.role == "tool" {
		if !strings.Contains(last.text, "what the ") {
			s.refuse(w, "invalid_request", "the tool said "+last.text)
			return
		}
		s.say(w, size, fmt.Sprintf("turn %d is done", turnOf(got.messages)))
		return
	}
	turn := turnOf(got.messages)
	calls := []string{`{"path":"page.txt"}`}
	switch {
	case turn%40 == 0:
		calls[0] = `{"path":"book.txt"}`
	case turn%3 == 0:
		calls = append(calls, `{"path":"page.txt","limit":5}`)
	}
	s.call(w, size, calls)
}

// turnOf is the number in the newest text of the user's. A summary before it may
// be in the same message.
func turnOf(messages []heardMessage) int {
	for _, m := range slices.Backward(messages) {
		if at := strings.LastIndex(m.text, "turn "); m.role == "user" && at >= 0 {
			n, _ := strconv.Atoi(m.text[at+len("turn "):])
			return n
		}
	}
	return 0
}

func (s *strictServer) refuse(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	switch s.wire {
	case "chat", "responses":
		_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error","param":"messages","code":%q}}`, message,
			code)
	default:
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":%q}}`, message)
	}
}

func (s *strictServer) say(w http.ResponseWriter, size int, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	switch s.wire {
	case "chat":
		sse(w, fmt.Sprintf(`{"choices":[{"delta":{"content":%q}}]}`, text),
			`{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
			fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, size, len(text)/4), "[DONE]")
	case "responses":
		item := fmt.Sprintf(
			`{"type":"message","id":"m%d","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q}]}`,
			s.requests, text)
		sse(w,
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","role":"assistant","content":[]}}`,
			fmt.Sprintf(`{"type":"response.output_text.delta","output_index":0,"delta":%q}`, text),
			fmt.Sprintf(`{"type":"response.output_item.done","output_index":0,"item":%s}`, item),
			fmt.Sprintf(
				`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":%d,"output_tokens":%d}}}`,
				size, len(text)/4))
	default:
		sse(w, fmt.Sprintf(`{"type":"message_start","message":{"usage":{"input_tokens":%d,"output_tokens":1}}}`, size),
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, text),
			`{"type":"content_block_stop","index":0}`,
			fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}`, len(text)/4),
			`{"type":"message_stop"}`)
	}
}

func (s *strictServer) call(w http.ResponseWriter, size int, arguments []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	switch s.wire {
	case "chat":
		for i, a := range arguments {
			sse(w,
				fmt.Sprintf(
					`{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":"c%d-%[1]d","type":"function","function":{"name":"read","arguments":%[3]q}}]}}]}`, i, s.requests, a))
		}
		sse(w, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`,
			fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":9}}`, size), "[DONE]")
	case "responses":
		for i, a := range arguments {
			sse(w,
				fmt.Sprintf(
					`{"type":"response.output_item.done","output_index":%d,"item":{"type":"reasoning","id":"rs_%d_%[1]d","encrypted_content":"gAAA","summary":[]}}`, 2*i, s.requests),
				fmt.Sprintf(
					`{"type":"response.output_item.done","output_index":%d,"item":{"type":"function_call","id":"fc_%d_%[1]d","call_id":"call_%[2]d_%[1]d","name":"read","arguments":%[3]q,"status":"completed"}}`, 2*i+1, s.requests, a))
		}
		sse(w,
			fmt.Sprintf(
				`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":%d,"output_tokens":9}}}`,
				size))
	default:
		sse(w, fmt.Sprintf(`{"type":"message_start","message":{"usage":{"input_tokens":%d,"output_tokens":1}}}`, size))
		for i, a := range arguments {
			sse(w,
				fmt.Sprintf(
					`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"toolu_%d_%[1]d","name":"read","input":{}}}`, i, s.requests),
				fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, i,
					a),
				fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
		}
		sse(w, `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}`,
			`{"type":"message_stop"}`)
	}
}

// inOrder holds a conversation against what both vendors want: it begins and
// ends with somebody who is to be answered, each message of the model's answers
// one, and each of its calls has one result, in the calls' order, right behind.
func inOrder(messages []heardMessage) error {
	var before heardMessage
	ids := map[string]bool{}
	for i, m := range messages {
		switch {
		case m.role != "tool" && len(before.calls) > 0:
			return fmt.Errorf("message %d: the calls %s before it have no result", i, before.calls)
		case m.role == "tool" && (len(m.results) == 0 || !slices.Equal(m.results, before.calls)):
			return fmt.Errorf("message %d: results of %s after calls of %s", i, m.results, before.calls)
		case m.role == "assistant" && before.role != "user" && before.role != "tool":
			return fmt.Errorf("message %d: the model answers %q", i, before.role)
		case m.role != "tool" && strings.TrimSpace(m.text) == "" && len(m.calls) == 0:
			return fmt.Errorf("message %d: there is nothing in it", i)
		}
		for _, id := range m.calls {
			if id == "" || len(id) > 40 || ids[id] {
				return fmt.Errorf("message %d: %q is no id for a call", i, id)
			}
			ids[id] = true
		}
		before = m
	}
	if before.role != "user" && before.role != "tool" {
		return errors.New("there is nothing to answer")
	}
	return nil
}

func anObject(v jsontext.Value) error {
	if v.Kind() != jsontext.KindBeginObject || !v.IsValid() {
		return fmt.Errorf("the arguments %s are no object", v)
	}
	return nil
}

func readOpenAI(body []byte) (h heardRequest, err error) {
	var r struct {
		Messages []struct {
			Role      string  `json:"role"`
			Content   *string `json:"content"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Type     string `json:"type"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
			ToolCallID string `json:"tool_call_id"`
		} `json:"messages"`
		Tools []jsontext.Value `json:"tools"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return h, err
	}
	h.tools = len(r.Tools)
	if len(r.Messages) == 0 || r.Messages[0].Role != "system" {
		return h, errors.New("the system prompt is not the first message")
	}
	for i, m := range r.Messages[1:] {
		said := heardMessage{role: m.Role}
		if m.Content != nil {
			said.text = *m.Content
		}
		switch m.Role {
		case "user":
		case "assistant":
			for _, c := range m.ToolCalls {
				if c.Type != "function" || c.Function.Name != "read" {
					return h, fmt.Errorf("message %d: the call %+v", i, c)
				}
				if err := anObject(jsontext.Value(c.Function.Arguments)); err != nil {
					return h, fmt.Errorf("message %d: %w", i, err)
				}
				said.calls = append(said.calls, c.ID)
			}
		case "tool":
			if n := len(h.messages); n > 0 && h.messages[n-1].role == "tool" {
				h.messages[n-1].results = append(h.messages[n-1].results, m.ToolCallID)
				h.messages[n-1].text += said.text
				continue
			}
			said.results = []string{m.ToolCallID}
		default:
			return h, fmt.Errorf("message %d has the role %q", i, m.Role)
		}
		h.messages = append(h.messages, said)
	}
	return h, nil
}

func readItems(body []byte) (h heardRequest, err error) {
	r, err := of[struct {
		Instructions string           `json:"instructions"`
		Input        []responsesItem  `json:"input"`
		Tools        []jsontext.Value `json:"tools"`
	}](body)
	var a asked
	for i, it := range r.Input {
		if it.Type == "function_call" {
			if err := anObject(jsontext.Value(it.Arguments)); err != nil {
				return h, fmt.Errorf("input[%d]: %w", i, err)
			}
		}
		if i > 0 && r.Input[i-1].Type == "reasoning" && it.Type != "function_call" {
			return h, fmt.Errorf("input[%d]: a reasoning item without its required following item", i)
		}
		a.hear(it)
	}
	return heardRequest{a.heard, len(r.Tools)}, err
}

func readAnthropic(body []byte) (h heardRequest, err error) {
	var r struct {
		MaxTokens int              `json:"max_tokens"`
		Tools     []jsontext.Value `json:"tools"`
		Messages  []struct {
			Role    string `json:"role"`
			Content []struct {
				Type      string         `json:"type"`
				Text      string         `json:"text"`
				ID        string         `json:"id"`
				Name      string         `json:"name"`
				Input     jsontext.Value `json:"input"`
				ToolUseID string         `json:"tool_use_id"`
				Content   string         `json:"content"`
			} `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return h, err
	}
	if r.MaxTokens <= 0 {
		return h, errors.New("max_tokens is missing")
	}
	h.tools = len(r.Tools)
	for i, m := range r.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return h, fmt.Errorf("message %d has the role %q, want %q", i, m.Role, want)
		}
		var said, results heardMessage
		said.role, results.role = m.Role, "tool"
		for _, b := range m.Content {
			switch {
			case b.Type == "text" && strings.TrimSpace(b.Text) != "":
				said.text += b.Text
			case b.Type == "tool_use" && m.Role == "assistant" && b.Name == "read":
				if err := anObject(b.Input); err != nil {
					return h, fmt.Errorf("message %d: %w", i, err)
				}
				said.calls = append(said.calls, b.ID)
			case b.Type == "tool_result" && m.Role == "user" && said.text == "":
				results.results = append(results.results, b.ToolUseID)
				results.text += b.Content
			default:
				return h, fmt.Errorf("message %d has %+v", i, b)
			}
		}
		if results.results != nil {
			h.messages = append(h.messages, results)
		}
		if results.results == nil || said.text != "" {
			h.messages = append(h.messages, said)
		}
	}
	return h, nil
}
