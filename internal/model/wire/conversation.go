package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Entry is a message as a provider is to be sent it. The pieces of an assistant
// message are in order, and their calls have the ids to send; Own says that the
// one who is asked made it, so that each piece goes back with all it came with.
type Entry struct {
	model.Message
	Own    bool
	Pieces []model.Piece
}

// Conversation returns messages as every provider takes them. What comes in is
// whole already (session.Answered): after each message with tool calls their
// results, in the order of the calls. No assistant message is without content;
// what the user says in a row is one message; arguments are objects; a summary
// says that it is one. What the maker itself said goes back block by block, with
// the maker's ids; of what another one said go the text and the calls, with ids
// that everybody takes. What is handed in stays as it is.
func Conversation(messages []model.Message, maker string) []Entry {
	out := make([]Entry, 0, len(messages))
	var open []sent // calls whose results follow
	calls := 0
	for _, m := range messages {
		switch m.Role {
		case model.Tool:
			if i := slices.IndexFunc(open, func(c sent) bool { return c.ours == m.ToolCallID }); i >= 0 {
				m.ToolCallID = open[i].there
				open = slices.Delete(open, i, i+1)
				out = append(out, Entry{Message: m})
			}
		case model.Assistant:
			e := entry(m, maker)
			if open = e.address(&calls); len(e.Pieces) > 0 {
				out = append(out, e)
			}
		default:
			if m.Summary {
				m.Text = "The conversation so far, in summary:\n\n" + m.Text
			}
			if n := len(out); n > 0 && out[n-1].Role == model.User {
				out[n-1].Message = merged(out[n-1].Message, m)
				continue
			}
			out = append(out, Entry{Message: m})
		}
	}
	return out
}

// sent is a call by the session's id and by the one that is sent.
type sent struct{ ours, there string }

// address gives the calls the ids to send: the maker's own, or one that everybody
// takes, of which so many have been given.
func (e *Entry) address(given *int) (calls []sent) {
	for i := range e.Pieces {
		p := &e.Pieces[i]
		if p.Call == nil {
			continue
		}
		*given++
		id := p.ID
		if id == "" || slices.ContainsFunc(calls, func(c sent) bool { return c.there == id }) {
			id = callID(*given)
		}
		calls = append(calls, sent{p.Call.ID, id})
		p.Call = &model.ToolCall{ID: id, Name: p.Call.Name, Arguments: object(p.Call.Arguments)}
	}
	return calls
}

// entry is an assistant message with its pieces: none where nothing was said.
func entry(m model.Message, maker string) Entry {
	e := Entry{Message: m}
	if strings.TrimSpace(m.Text) == "" && len(m.ToolCalls) == 0 {
		return e // thinking alone is refused
	}
	if maker == "" || m.Maker != maker {
		m.Blocks = nil
	}
	e.Pieces, e.Own = m.Pieces()
	return e
}

// merged is one user message of two.
func merged(a, b model.Message) model.Message {
	a.Text = strings.TrimPrefix(a.Text+"\n\n"+b.Text, "\n\n")
	a.Attachments = append(slices.Clip(a.Attachments), b.Attachments...)
	return a
}

// object is what a model wrote for arguments as an object, which is all that
// some providers take back. Others refuse the whole conversation, for ever.
func object(arguments []byte) []byte {
	v := jsontext.Value(arguments)
	switch {
	case len(strings.TrimSpace(string(v))) == 0:
		return []byte("{}")
	case v.Kind() == jsontext.KindBeginObject && v.IsValid():
		return arguments
	}
	written := string(arguments)
	if v.Kind() == jsontext.KindString {
		_ = json.Unmarshal(v, &written, lenient) // as it is, where it is no string after all
	}
	wrapped, _ := json.Marshal(map[string]string{"not_an_object": written}, lenient)
	return wrapped
}

// Schema is a tool's parameters as every provider takes them: an object's
// schema that has properties, if only none.
func Schema(params []byte) jsontext.Value {
	members := map[string]jsontext.Value{}
	if len(params) > 0 && json.Unmarshal(params, &members) != nil || members == nil {
		members = map[string]jsontext.Value{}
	}
	if members["type"] != nil && members["properties"] != nil {
		return params
	}
	if members["type"] == nil {
		members["type"] = jsontext.Value(`"object"`)
	}
	if members["properties"] == nil {
		members["properties"] = jsontext.Value(`{}`)
	}
	schema, _ := json.Marshal(members, json.Deterministic(true))
	return schema
}

// Ask returns the system prompt, the messages and the tools of a request to a
// maker. One for a summary shows the conversation as a text, without tools:
// several providers refuse calls in a conversation where there are none to call,
// and a model that is shown turns goes on with them. How long that text may be,
// session.Fit has seen to.
func Ask(req model.Request, maker string) (system string, messages []Entry, tools []model.ToolSpec) {
	if !req.Summary {
		messages, tools, maker := repaired(req, maker)
		entries := Conversation(messages, maker)
		if req.Repair.Bridged {
			entries = bridged(entries)
		}
		return WithOutput(req, req.Repair.ToldOutput), entries, tools
	}
	var b strings.Builder
	b.WriteString("The conversation:\n")
	for _, m := range Conversation(req.Messages, "") {
		switch m.Role {
		case model.Tool:
			fmt.Fprintf(&b, "\n[%s answered] %s\n", m.ToolName, m.Text)
			for _, a := range m.Attachments {
				fmt.Fprintf(&b, "\n[%s showed] %s (%s)\n", m.ToolName, a.Title(), a.MediaType)
			}
		default:
			if m.Text != "" {
				fmt.Fprintf(&b, "\n[%s] %s\n", m.Role, m.Text)
			}
			for _, a := range m.Attachments {
				fmt.Fprintf(&b, "\n[%s attached] %s (%s)\n", m.Role, a.Title(), a.MediaType)
			}
			for _, c := range m.ToolCalls {
				fmt.Fprintf(&b, "\n[%s called %s] %s\n", m.Role, c.Name, c.Arguments)
			}
		}
	}
	return req.System, []Entry{{Message: model.Message{Role: model.User, Text: b.String()}}}, nil
}

// LeftOut stands for an attachment that a provider does not take.
func LeftOut(a model.Attachment) string {
	return fmt.Sprintf("[an attachment of type %s is not shown: this provider does not take it]", a.MediaType)
}
