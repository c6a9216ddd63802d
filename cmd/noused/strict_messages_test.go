package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// messagesBlock is what a server of messages reads of a block.
type messagesBlock struct {
	Type         string         `json:"type"`
	Text         string         `json:"text"`
	ID           string         `json:"id"`
	Input        jsontext.Value `json:"input"`
	ToolUseID    string         `json:"tool_use_id"`
	Content      jsontext.Value `json:"content"`
	CacheControl jsontext.Value `json:"cache_control"`
}

func (s *vendorServer) readMessages(body []byte) (a asked, err error) {
	r, err := of[struct {
		MaxTokens int              `json:"max_tokens"`
		System    []messagesBlock  `json:"system"`
		Messages  []jsontext.Value `json:"messages"`
		Tools     []messagesBlock  `json:"tools"`
	}](body)
	if err != nil {
		return a, err
	}
	a.messages, a.tools = r.Messages, len(r.Tools)
	a.head = string(body[:strings.Index(string(body), `"messages":[`)+len(`"messages":[`)])
	for _, b := range append(r.System, r.Tools...) {
		a.marks += len(b.CacheControl) / len(`{"type":"ephemeral"}`)
	}
	if r.MaxTokens <= 0 {
		return a, errors.New("max_tokens: Field required")
	}
	for i, raw := range a.messages {
		m, err := of[struct {
			Role    string           `json:"role"`
			Content []jsontext.Value `json:"content"`
		}](raw)
		switch want := []string{"user", "assistant"}[i%2]; {
		case err != nil:
			return a, fmt.Errorf("messages.%d: %w", i, err)
		case m.Role != want:
			return a, fmt.Errorf("messages.%d: roles must alternate", i)
		case m.Role == "assistant":
			err = s.messagesAnswer(&a, m.Content)
		default:
			err = s.messagesUser(&a, m.Content)
		}
		if err != nil {
			return a, fmt.Errorf("messages.%d.%w", i, err)
		}
	}
	if a.marks > 4 || a.marks < 2 && a.tools > 0 {
		return a, fmt.Errorf("A maximum of 4 blocks with cache_control may be provided. Found %d",
			a.marks) //nolint:staticcheck // the vendor's words
	}
	return a, nil
}

func (s *vendorServer) messagesUser(a *asked, content []jsontext.Value) error {
	said, results := heardMessage{role: "user"}, heardMessage{role: "tool"}
	for i, raw := range content {
		b, err := of[messagesBlock](raw)
		if b.CacheControl != nil {
			a.marks++
		}
		switch {
		case err != nil:
			return fmt.Errorf("content.%d: %w", i, err)
		case b.Type == "text" && strings.TrimSpace(b.Text) != "":
			said.text += b.Text
		case b.Type == "tool_result" && said.text == "":
			results.results = append(results.results, b.ToolUseID)
			results.text += string(b.Content)
		default:
			return fmt.Errorf("content.%d: %s", i, raw)
		}
	}
	if results.results != nil {
		a.heard = append(a.heard, results)
	}
	if said.text != "" {
		a.heard = append(a.heard, said)
	}
	return nil
}

var toolUseID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// messagesAnswer checks a message of the assistant's.
func (s *vendorServer) messagesAnswer(a *asked, content []jsontext.Value) error {
	said := heardMessage{role: "assistant"}
	var back []jsontext.Value
	for i, raw := range content {
		b, err := of[messagesBlock](raw)
		switch {
		case err != nil:
			return fmt.Errorf("content.%d: %w", i, err)
		case b.CacheControl != nil && b.Type != "text" && b.Type != "tool_use":
			return fmt.Errorf("content.%d.%s.cache_control: Extra inputs are not permitted", i, b.Type)
		case b.CacheControl != nil:
			a.marks++
			content[i] = cacheMark.ReplaceAll(raw, nil)
		}
		said.text += b.Text
		if b.Type == "tool_use" {
			said.calls = append(said.calls, b.ID)
			if !toolUseID.MatchString(b.ID) {
				return fmt.Errorf("content.%d.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", i)
			}
		}
		if back == nil && (s.given[b.ID] != nil || s.given[b.Text] != nil) {
			if back = s.given[b.ID]; back == nil {
				back = s.given[b.Text]
			}
		}
	}
	a.heard = append(a.heard, said)
	for i, raw := range content {
		b, _ := of[messagesBlock](raw)
		switch {
		case back == nil && b.Type != "text" && b.Type != "tool_use":
			return fmt.Errorf("content.%d: Invalid `signature` in `thinking` block", i)
		case back != nil && (len(back) != len(content) || !same(back[i], raw)):
			return fmt.Errorf("content.%d: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "+
				"modified: %s, not %s", i, content, back)
		}
	}
	return nil
}

// sayMessages streams an answer in two pieces, and is what has to come back of
// it. Between the calls there is thinking that cannot be read.
func (s *vendorServer) sayMessages(a say, ids []string) (begun, rest string, back []jsontext.Value) {
	n := -1
	start := func(block string) string {
		n++
		return data(fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, n, block))
	}
	delta := func(kind, member, text string) string {
		return data(fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%s}}`, n, kind, member,
			quoted(text)))
	}
	end := func() string { return data(fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, n)) }
	keep := func(block string) { back = append(back, jsontext.Value(block)) }

	begun = data(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`)
	first, second := halves(a.thinking)
	signature := map[string]string{
		"absent": "", "empty": `,"signature":""`,
		"": `,"signature":"EqQBCgIYAh+/ab=="`,
	}[s.unsigned]
	open := `{"type":"thinking","thinking":""}`
	if s.unsigned != "absent" {
		open = `{"type":"thinking","thinking":"","signature":""}`
	}
	begun += start(open) + delta("thinking_delta", "thinking", first) + delta("thinking_delta", "thinking", second)
	if s.unsigned == "" {
		begun += delta("signature_delta", "signature", "EqQBCgIYAh+/ab==")
	}
	begun += end()
	keep(`{"type":"thinking","thinking":` + quoted(a.thinking) + signature + `}`)
	if a.text != "" {
		first, second = halves(a.text)
		begun += start(`{"type":"text","text":""}`) + delta("text_delta", "text", first)
		rest = delta("text_delta", "text", second) + end()
		keep(`{"type":"text","text":` + quoted(a.text) + `}`)
	}
	for i, arguments := range a.calls {
		if i > 0 {
			rest += start(`{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3pzix/LafPsn4a"}`) + end()
			keep(`{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3pzix/LafPsn4a"}`)
		}
		first, second = halves(arguments)
		rest += start(`{"type":"tool_use","id":"`+ids[i]+`","name":"`+a.called()+`","input":{},"caller":{"type":"direct"}}`) +
			delta("input_json_delta", "partial_json", first) + delta("input_json_delta", "partial_json", second) + end()
		keep(`{"type":"tool_use","id":"` + ids[i] + `","name":"` + a.called() + `","input":` + arguments +
			`,"caller":{"type":"direct"}}`)
	}
	reason := "end_turn"
	if a.calls != nil {
		reason = "tool_use"
	}
	return begun, rest + data(`{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":7}}`,
		`{"type":"message_stop"}`), back
}
