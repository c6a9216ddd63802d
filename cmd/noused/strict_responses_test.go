package main

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// responsesItem is what a server of the Responses API reads of an item.
type responsesItem struct {
	Type      string         `json:"type"`
	Role      string         `json:"role"`
	ID        string         `json:"id"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Arguments string         `json:"arguments"`
	Output    string         `json:"output"`
	Content   jsontext.Value `json:"content"`
}

func (s *vendorServer) readResponses(body []byte) (a asked, err error) {
	r, err := of[struct {
		Input   []jsontext.Value `json:"input"`
		Tools   []jsontext.Value `json:"tools"`
		Store   bool             `json:"store"`
		Include []string         `json:"include"`
		Key     string           `json:"prompt_cache_key"`
	}](body)
	if err != nil {
		return a, err
	}
	if r.Store || len(r.Include) != 1 || r.Include[0] != "reasoning.encrypted_content" || r.Key == "" {
		return a, fmt.Errorf("store %t, include %s, prompt_cache_key %q", r.Store, r.Include, r.Key)
	}
	a.messages, a.tools = r.Input, len(r.Tools)
	a.head = string(body[:strings.Index(string(body), `"input":[`)+len(`"input":[`)])
	var owed []jsontext.Value // that must follow, byte by byte
	for i, raw := range a.messages {
		it, err := of[responsesItem](raw)
		if err != nil {
			return a, fmt.Errorf("input[%d]: %w", i, err)
		}
		if back := s.given[it.ID]; it.ID != "" && back != nil && owed == nil {
			owed = back
		}
		switch {
		case owed != nil && string(owed[0]) != string(raw):
			return a,
				fmt.Errorf("Item of type 'reasoning' was provided without its required following item: input[%d] is %s, not %s", i,
					raw, owed[0]) //nolint:staticcheck // the vendor's words
		case owed != nil:
			if owed = owed[1:]; len(owed) == 0 {
				owed = nil
			}
		case it.ID != "" || it.Type == "reasoning":
			return a, fmt.Errorf("The encrypted content of item %q could not be verified",
				it.ID) //nolint:staticcheck // the vendor's words
		}
		a.hear(it)
	}
	return a, nil
}

// hear adds an item to what was said. Items of the model that follow each other
// are one message.
func (a *asked) hear(it responsesItem) {
	h := heardMessage{role: it.Role}
	if it.Content.Kind() == jsontext.KindString {
		h.text, _ = of[string](it.Content)
	}
	parts, _ := of[[]struct {
		Text string `json:"text"`
	}](it.Content)
	for _, p := range parts {
		h.text += p.Text
	}
	switch it.Type {
	case "function_call_output":
		h.role, h.results, h.text = "tool", []string{it.CallID}, it.Output
	case "function_call":
		h.role, h.calls = "assistant", []string{it.CallID}
	case "reasoning":
		h.role = "assistant"
	}
	if n := len(a.heard); n > 0 && a.heard[n-1].role == h.role && h.role != "user" {
		last := &a.heard[n-1]
		last.text, last.calls, last.results = last.text+h.text, append(last.calls, h.calls...),
			append(last.results, h.results...)
		return
	}
	a.heard = append(a.heard, h)
}

// sayResponses streams an answer in two pieces, and is what has to come back of
// it: every item, byte by byte.
func (s *vendorServer) sayResponses(a say, ids []string) (begun, rest string, back []jsontext.Value) {
	id := fmt.Sprintf("rs_%d", s.calls*10+len(s.given))
	n := -1
	added := func(item string) string {
		n++
		return data(fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, n, item))
	}
	delta := func(kind, text string) string {
		return data(fmt.Sprintf(`{"type":"response.%s.delta","output_index":%d,"delta":%s}`, kind, n, quoted(text)))
	}
	done := func(item string) string {
		back = append(back, jsontext.Value(item))
		return data(fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, n, item))
	}
	begun = data(`{"type":"response.created","response":{"status":"in_progress"}}`) +
		added(`{"id":"`+id+`","type":"reasoning","summary":[]}`) + delta("reasoning_summary_text", a.thinking) +
		done(`{"id":"`+id+
			`","type":"reasoning","encrypted_content":"gAAAAABo\u002fQ==","summary":[{"type":"summary_text","text":`+
			quoted(a.thinking)+`}]}`)
	if a.text != "" {
		first, second := halves(a.text)
		begun += added(`{"id":"msg_`+id+`","type":"message","status":"in_progress","content":[],"role":"assistant"}`) +
			delta("output_text", first)
		rest = delta("output_text", second) +
			done(`{"id":"msg_`+id+
				`","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":`+
				quoted(a.text)+`}],"phase":"commentary","role":"assistant"}`)
	}
	for i, arguments := range a.calls {
		call := func(status, arguments string) string {
			return fmt.Sprintf(`{"id":"fc_%s","type":"function_call","status":%q,"arguments":%s,"call_id":%q,"name":%q}`, ids[i],
				status, quoted(arguments), ids[i], a.called())
		}
		rest += added(call("in_progress", "")) + delta("function_call_arguments", arguments) +
			done(call("completed", arguments))
	}
	s.given[id] = back
	return begun,
		rest +
			data(
				`{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":10,"output_tokens":7}}}`),
		back
}
