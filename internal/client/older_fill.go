package client

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// Bounds of what a Filler keeps of one message, of one tool call, and of texts
// that were sent and have not been delivered.
const (
	maxMessage = protocol.DefaultMaxLine
	maxOutput  = 1 << 20
	maxSent    = 100
)

// Filler completes the events of other v1 cores, which may leave out what was
// said before: who says a message and what it comes to, the text of a user, the
// result of a tool that was told in updates, ids. It goes by the events before,
// and by what its owner says was sent. A core that leaves out nothing is given
// back as it is.
//
// Concurrency: Fill and Lost belong to one goroutine; any may call Sent.
type Filler struct {
	run      string
	kind     protocol.Kind
	message  filled
	tools    map[string]*filled // that run
	tool     string             // the one that began last
	spoken   bool               // somebody has spoken in this turn
	lostUser bool
	lostTail bool

	mu   sync.Mutex
	sent map[protocol.Kind][]string // by kind
}

// filled is a message or a tool call that is not over. Began: its beginning was
// seen.
type filled struct {
	id, role, name string
	text           strings.Builder
	began          bool
}

func (f *filled) add(text string, most int) (whole bool) {
	if f.text.Len()+len(text) > most {
		return false
	}
	f.text.WriteString(text)
	return true
}

// Sent notes a text that is sent now with prompt, steer or follow_up.
func (f *Filler) Sent(command protocol.Kind, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent == nil {
		f.sent = map[protocol.Kind][]string{}
	}
	if command == protocol.KindPrompt { // there is one at a time
		f.sent[command] = nil
	}
	if len(f.sent[command]) < maxSent {
		f.sent[command] = append(f.sent[command], text)
	}
}

// Unsent takes back what Sent noted last: it was refused.
func (f *Filler) Unsent(command protocol.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.sent[command]); n > 0 {
		f.sent[command] = f.sent[command][:n-1]
	}
}

// deliveredText returns the text that a turn of some kind delivers; kind "" is not known.
func (f *Filler) deliveredText(kind protocol.Kind) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, command := range []protocol.Kind{protocol.KindPrompt, protocol.KindSteer, protocol.KindFollowUp} {
		if texts := f.sent[command]; len(texts) > 0 && (kind == "" || kind == command) {
			f.sent[command] = texts[1:]
			return texts[0], true
		}
	}
	return "", false
}

// told notes that a text has been delivered by its own words.
func (f *Filler) told(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for command, texts := range f.sent {
		if i := slices.Index(texts, text); i >= 0 {
			f.sent[command] = slices.Delete(texts, i, i+1)
			return
		}
	}
}

// forget drops the texts that a run can no longer deliver.
func (f *Filler) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, protocol.KindSteer)
	delete(f.sent, protocol.KindFollowUp)
}

// Lost reports, for the run of the last Fill, whether the text of a user,
// and whether that of an answer, could not be made whole. get_messages has them
// once the run is over.
func (f *Filler) Lost() (user, answer bool) { return f.lostUser, f.lostTail }

// Fill returns an event with what it leaves out.
func (f *Filler) Fill(env protocol.EventEnvelope, ev protocol.Event) protocol.Event {
	if run := ev.Where().RunID; run != "" && run != f.run {
		f.run, f.kind, f.spoken, f.message, f.tools, f.tool = run, "", false, filled{}, map[string]*filled{}, ""
		f.lostUser, f.lostTail = false, false
	}
	switch e := ev.(type) {
	case protocol.TurnStart:
		f.kind, f.spoken = e.Kind, false
	case protocol.MessageStart:
		return f.startMessage(env, e)
	case protocol.MessageUpdate:
		return f.updateMessage(env, e)
	case protocol.MessageEnd:
		return f.endMessage(env, e)
	case protocol.ToolStart:
		e.ToolCallID = cmp.Or(e.ToolCallID, "call "+env.ID)
		f.tool = e.ToolCallID
		f.call(f.tool).name = e.ToolName
		return e
	case protocol.ToolUpdate:
		e.ToolCallID = cmp.Or(e.ToolCallID, f.tool)
		c := f.call(e.ToolCallID)
		e.ToolName = cmp.Or(e.ToolName, c.name)
		c.add(strings.TrimSuffix(e.Delta, "\n")+"\n", maxOutput)
		return e
	case protocol.ToolEnd:
		return f.endTool(env, e)
	case protocol.AgentEnd:
		f.forget()
		if e.StopReason == "" {
			e.StopReason = protocol.StopCompleted
			if e.Error != nil {
				e.StopReason = protocol.StopError
			}
			return e
		}
	}
	return ev
}

func (f *Filler) startMessage(env protocol.EventEnvelope, e protocol.MessageStart) protocol.Event {
	e.MessageID = cmp.Or(e.MessageID, "msg "+env.ID)
	if e.Role == "" {
		e.Role = "assistant"
		if e.Text != "" || !f.spoken {
			e.Role = "user"
		}
	}
	if e.Role == "user" && e.Text == "" && len(e.Attachments) == 0 {
		e.Text, _ = f.deliveredText(f.kind)
	} else if e.Role == "user" {
		f.told(e.Text)
	}
	f.spoken = true
	f.message = filled{id: e.MessageID, role: e.Role, began: true}
	f.message.add(e.Text, maxMessage)
	return e
}

func (f *Filler) updateMessage(env protocol.EventEnvelope, e protocol.MessageUpdate) protocol.Event {
	if f.message.id == "" || e.MessageID != "" && e.MessageID != f.message.id {
		f.message = filled{id: cmp.Or(e.MessageID, "msg "+env.ID), role: "assistant"}
	}
	e.MessageID, f.spoken = f.message.id, true
	if !f.message.add(e.Delta, maxMessage) {
		f.message.began = false
	}
	return e
}

func (f *Filler) endMessage(env protocol.EventEnvelope, e protocol.MessageEnd) protocol.Event {
	m := &f.message
	if m.id == "" || e.MessageID != "" && e.MessageID != m.id {
		*m = filled{id: cmp.Or(e.MessageID, "msg "+env.ID), role: "assistant"}
		if !f.spoken && e.Role == "" && e.StopReason == "" && len(e.ToolCalls) == 0 {
			m.role = "user"
		}
	}
	e.MessageID, e.Role = m.id, cmp.Or(e.Role, m.role)
	if !has(env.Payload, "text") {
		e.Text = m.text.String()
		f.lostTail = f.lostTail || e.Role == "assistant" && !m.began
	}
	f.lostUser = f.lostUser || e.Role == "user" && e.Text == ""
	f.message, f.spoken = filled{}, true
	return e
}

func (f *Filler) call(id string) *filled {
	c := f.tools[id]
	if c == nil {
		c = &filled{id: id}
		if f.tools == nil || len(f.tools) >= maxSent {
			f.tools = map[string]*filled{}
		}
		f.tools[id] = c
	}
	return c
}

func (f *Filler) endTool(env protocol.EventEnvelope, e protocol.ToolEnd) protocol.Event {
	e.ToolCallID = cmp.Or(e.ToolCallID, f.tool)
	c := f.call(e.ToolCallID)
	delete(f.tools, e.ToolCallID)
	e.ToolName = cmp.Or(e.ToolName, c.name)
	if !has(env.Payload, "result") {
		e.Result = strings.TrimSuffix(c.text.String(), "\n")
	}
	if !has(env.Payload, "ok") {
		e.OK = e.Error == nil && !e.Skipped
	}
	return e
}

// has tells whether a payload has a member, and not null.
func has(payload jsontext.Value, name string) bool {
	var members map[string]jsontext.Value
	if json.Unmarshal(payload, &members) != nil {
		return false
	}
	v, ok := members[name]
	return ok && v.Kind() != 'n'
}
