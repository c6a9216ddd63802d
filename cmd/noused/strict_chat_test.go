package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// chatMessage is what a server of chat completions reads of a message.
type chatMessage struct {
	Role       string         `json:"role"`
	Content    jsontext.Value `json:"content"`
	Name       string         `json:"name"`
	ToolCallID string         `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	Members map[string]jsontext.Value `json:",embed"`
}

// text is a content: a string, parts, or nothing.
func (m chatMessage) text() (text string, marks int, err error) {
	if k := m.Content.Kind(); k == jsontext.KindNull || k == jsontext.KindInvalid {
		return "", 0, nil
	}
	if m.Content.Kind() == jsontext.KindString {
		text, err = of[string](m.Content)
		return text, 0, err
	}
	parts, err := of[[]struct {
		Type         string         `json:"type"`
		Text         string         `json:"text"`
		CacheControl jsontext.Value `json:"cache_control"`
	}](m.Content)
	for _, p := range parts {
		text += p.Text
		if p.CacheControl != nil {
			marks++
		}
	}
	return text, marks, err
}

func (s *vendorServer) readChat(body []byte) (a asked, err error) {
	r, err := of[struct {
		Messages []jsontext.Value `json:"messages"`
		Tools    []jsontext.Value `json:"tools"`
	}](body)
	if err != nil {
		return a, err
	}
	a.messages, a.tools = r.Messages, len(r.Tools)
	a.head = string(body[:strings.Index(string(body), `"messages":[`)+len(`"messages":[`)])
	exchange := false // a tool was called since the user spoke
	for i, raw := range a.messages {
		m, err := of[chatMessage](raw)
		if err != nil {
			return a, fmt.Errorf("messages[%d]: %w", i, err)
		}
		h := heardMessage{role: m.Role}
		marks := 0
		if h.text, marks, err = m.text(); err != nil {
			return a, fmt.Errorf("messages[%d].content: %w", i, err)
		}
		a.marks += marks
		exchange = exchange && m.Role != "user" || len(m.ToolCalls) > 0
		switch {
		case m.Role == "system" && i == 0:
			continue
		case m.Role == "assistant":
			if err = s.chatAnswer(raw, m, exchange); err != nil {
				return a, fmt.Errorf("messages[%d]: %w", i, err)
			}
			for _, c := range m.ToolCalls {
				h.calls = append(h.calls, c.ID)
			}
		case m.Role == "tool":
			if m.Name != "read" && !s.named[m.Name] {
				return a, fmt.Errorf("messages[%d]: the tool's name is %q", i, m.Name)
			}
			if last := &a.heard[len(a.heard)-1]; last.role == "tool" {
				last.results, last.text = append(last.results, m.ToolCallID), last.text+h.text
				continue
			}
			h.results = []string{m.ToolCallID}
		case m.Role != "user":
			return a, fmt.Errorf("messages[%d]: unexpected role %q", i, m.Role)
		case s.bridge && len(a.heard) > 0 && a.heard[len(a.heard)-1].role == "tool":
			return a, errors.New("Unexpected role 'user' after role 'tool'") //nolint:staticcheck // the vendor's words
		}
		a.heard = append(a.heard, h)
	}
	if want := 4; s.marked && (a.marks == 0 || a.marks > want) || !s.marked && a.marks > 0 {
		return a, fmt.Errorf("%d blocks with cache_control", a.marks)
	}
	return a, nil
}

var foreignID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// chatAnswer checks a message of the assistant's: one that was given here comes
// back as it was, one of another model brings nothing that it attached.
func (s *vendorServer) chatAnswer(raw jsontext.Value, m chatMessage, exchange bool) error {
	key, _, _ := m.text()
	if len(m.ToolCalls) > 0 {
		key = m.ToolCalls[0].ID
	}
	if back := s.given[key]; back != nil {
		if plain := jsontext.Value(cacheMark.ReplaceAll(raw, nil)); !same(plain, back[0]) {
			return fmt.Errorf("the assistant's message must come back as it was, %s, not %s", back[0], plain)
		}
		return nil
	}
	for _, name := range []string{"reasoning_content", "reasoning", "reasoning_text"} {
		there := m.Members[name] != nil
		switch want := s.needed && exchange && name == s.think; {
		case want && !there:
			return fmt.Errorf("The `%s` in the thinking mode must be passed back to the API",
				name) //nolint:staticcheck // the vendor's words
		case there && (name != s.think || string(m.Members[name]) != `""`):
			return fmt.Errorf("property '%s' is unsupported", name)
		}
		delete(m.Members, name)
	}
	if len(m.Members) > 0 {
		return fmt.Errorf("what another model attached: %s", raw)
	}
	for _, c := range m.ToolCalls {
		if !foreignID.MatchString(c.ID) {
			return fmt.Errorf("Tool call id was %s but must be a-z, A-Z, 0-9, with a length of 9",
				c.ID) //nolint:staticcheck // the vendor's words
		}
	}
	return nil
}

// sayChat streams an answer in two pieces, and is what has to come back of it.
func (s *vendorServer) sayChat(a say, ids []string) (begun, rest string, back []jsontext.Value) {
	delta := func(members string) string { return data(`{"choices":[{"index":0,"delta":{` + members + `}}]}`) }
	content, members := "", ""
	for _, half := range func() []string { x, y := halves(a.thinking); return []string{x, y} }() {
		switch s.think {
		case "parts":
			begun += delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":` + quoted(half) + `}]}]`)
		case "tags", "":
		default:
			begun += delta(quoted(s.think) + ":" + quoted(half))
		}
	}
	switch s.think {
	case "parts":
		content = `[{"type":"thinking","thinking":[{"type":"text","text":` + quoted(a.thinking) + `}]}`
		if a.text != "" {
			content += `,{"type":"text","text":` + quoted(a.text) + `}`
		}
		content += "]"
	case "tags":
		begun += delta(`"content":` + quoted("<think>\n"+a.thinking+"\n</think>\n\n"))
		content = quoted("<think>\n" + a.thinking + "\n</think>\n\n" + a.text)
	default:
		if s.think != "" {
			members = "," + quoted(s.think) + ":" + quoted(a.thinking)
		}
		if content = "null"; a.text != "" {
			content = quoted(a.text)
		}
	}
	first, second := halves(a.text)
	begun += delta(`"content":` + quoted(first))
	rest = delta(`"content":` + quoted(second))
	if s.pieces != "" {
		for piece := range strings.SplitSeq(fmt.Sprintf(s.pieces, first1(ids)), "\n") {
			rest += delta(piece)
		}
		members += "," + fmt.Sprintf(s.whole, first1(ids))
	}
	var calls []string
	for i, arguments := range a.calls {
		further := ""
		if i == 0 && s.call != "" {
			further = "," + s.call
		}
		rest += delta(
			fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%q,"type":"function"%s,"function":{"name":%q,"arguments":""}}]`, i,
				ids[i], further, a.called()))
		for _, half := range func() []string { x, y := halves(arguments); return []string{x, y} }() {
			rest += delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, i, quoted(half)))
		}
		calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function"%s,"function":{"name":%q,"arguments":%s}}`, ids[i],
			further, a.called(), quoted(arguments)))
	}
	finish := "stop"
	if calls != nil {
		finish = "tool_calls"
		members += `,"tool_calls":[` + strings.Join(calls, ",") + `]`
	}
	rest += data(`{"choices":[{"index":0,"delta":{},"finish_reason":"`+finish+
		`"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`, "[DONE]")
	return begun, rest, []jsontext.Value{jsontext.Value(`{"role":"assistant","content":` + content + members + `}`)}
}

// first1 is the first id, "none" where there is none.
func first1(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return ids[0]
}
