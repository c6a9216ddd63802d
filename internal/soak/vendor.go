package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxRequest bounds a request to the model, in bytes.
const maxRequest = 8 << 20

// vendor is a server of models that refuses what the vendors' refuse, and tells the
// report of it.
type vendor struct {
	URL    string
	server *http.Server
	report *report
}

func newVendor(r *report) (*vendor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &vendor{URL: "http://" + l.Addr().String() + "/v1", report: r}
	v.server = &http.Server{Handler: v}
	go func() { _ = v.server.Serve(l) }() // ended by Close
	return v, nil
}

// Close ends the server and its connections.
func (v *vendor) Close() { _ = v.server.Close() }

// request is what chat completions are asked with, as far as it is looked at.
type request struct {
	Stream   bool          `json:"stream"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

type chatMessage struct {
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

// ServeHTTP answers a request, or refuses it.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	var ask request
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil && r.Context().Err() != nil {
		return // it was taken back
	}
	if err == nil {
		err = json.Unmarshal(body, &ask)
	}
	if err == nil {
		err = ask.check()
	}
	if err != nil {
		v.report.violation("the vendor refuses a request: %v", err)
		http.Error(w, `{"error":{"message":"bad request","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	v.report.count("requests to a vendor")
	w.Header().Set("Content-Type", "text/event-stream")
	last := ask.Messages[len(ask.Messages)-1]
	call := ask.tool("sh")
	if last.Role == "tool" || !strings.Contains(string(last.Content), "call") || call == "" {
		say(w, `{"content":"I have "}`, `{"content":"heard it."}`)
		finish(w, "stop")
		return
	}
	id := fmt.Sprintf("call_%d", len(ask.Messages))
	say(w, fmt.Sprintf(`{"tool_calls":[{"index":0,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}]}`, id,
		call),
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"token\":"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"\"x\"}"}}]}`)
	finish(w, "tool_calls")
}

// tool is the first that is offered and whose name begins so.
func (r *request) tool(prefix string) string {
	for _, t := range r.Tools {
		if strings.HasPrefix(t.Function.Name, prefix) {
			return t.Function.Name
		}
	}
	return ""
}

// check says what a vendor would refuse.
func (r *request) check() error {
	if !r.Stream || len(r.Messages) == 0 {
		return errors.New("want a stream, and messages")
	}
	var owed []string
	for i, m := range r.Messages {
		if m.Role != "tool" && len(owed) > 0 {
			return fmt.Errorf("message %d: the calls %v have no results", i, owed)
		}
		switch m.Role {
		case "system", "developer":
			if i > 0 {
				return fmt.Errorf("message %d: %s behind the first", i, m.Role)
			}
		case "user":
			if len(m.Content) == 0 || string(m.Content) == `""` || string(m.Content) == "null" {
				return fmt.Errorf("message %d: a user says nothing", i)
			}
		case "assistant":
			if len(m.ToolCalls) == 0 && (len(m.Content) == 0 || string(m.Content) == `""` || string(m.Content) == "null") {
				return fmt.Errorf("message %d: an assistant says nothing", i)
			}
			for _, c := range m.ToolCalls {
				if c.ID == "" || slices.Contains(owed, c.ID) || !jsontext.Value(c.Function.Arguments).IsValid() ||
					c.Function.Name == "" {
					return fmt.Errorf("message %d: a bad call %+v", i, c)
				}
				owed = append(owed, c.ID)
			}
		case "tool":
			at := slices.Index(owed, m.ToolCallID)
			if at < 0 {
				return fmt.Errorf("message %d: a result of %q, which was not called", i, m.ToolCallID)
			}
			owed = slices.Delete(owed, at, at+1)
		default:
			return fmt.Errorf("message %d: the role %q", i, m.Role)
		}
	}
	if len(owed) > 0 {
		return fmt.Errorf("the calls %v have no results", owed)
	}
	if last := r.Messages[len(r.Messages)-1].Role; last != "user" && last != "tool" {
		return fmt.Errorf("the last message is of the role %s", last)
	}
	return nil
}

// say streams pieces of an answer.
func say(w http.ResponseWriter, deltas ...string) {
	for _, delta := range deltas {
		fmt.Fprintf(w,
			"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", delta)
		_ = http.NewResponseController(w).Flush()
	}
}

func finish(w http.ResponseWriter, reason string) {
	fmt.Fprintf(w,
		"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}\n\ndata: [DONE]\n\n", reason)
}
