package agent

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/format"
	"noused/internal/model"
)

// maxAsked is how many of an agent's requests may wait for an answer.
const maxAsked = 1000

// maxBeside bounds what an agent says of its plan, its title and what can be chosen, from one prompt to
// the next, in bytes: it is kept on the disk, also outside of a turn.
const maxBeside = 16 << 20

// handler takes in what an agent says by itself.
type handler struct{ p *process }

// Request answers what the agent asks.
func (h handler) Request(r *acp.Request) {
	if r.Method != acp.RequestPermission {
		r.Fail(acp.Errorf(acp.MethodNotFound, "%.80s: is not offered", r.Method))
		return
	}
	var p acp.PermissionParams
	if err := json.Unmarshal(r.Params, &p, jsontext.AllowDuplicateNames(true)); err != nil || !goodID(p.ToolCall.ID) {
		r.Fail(acp.Errorf(acp.InvalidParams, "toolCall: want one with a toolCallId"))
		return
	}
	tool, size := toolOf(r.Params), acp.Weight(r.Params)
	r.Params = nil // what is kept of it is in the event
	l := h.p.named(p.SessionID)
	if l == nil {
		r.Reply(acp.Selected(""))
		return
	}
	l.s.mu.Lock()
	t := l.turn()
	if t != nil && len(t.asked) >= maxAsked {
		t.asked = slices.DeleteFunc(t.asked, (*acp.Request).Answered)
	}
	crowded := t != nil && len(t.asked) >= maxAsked
	if t != nil && !crowded {
		t.asked = append(t.asked, r)
	}
	l.s.mu.Unlock()
	if crowded {
		r.Fail(acp.Errorf(acp.InvalidRequest, "more than %d requests have no answer yet", maxAsked))
		return
	}
	if t == nil { // nobody looks after what happens outside of a turn
		r.Reply(acp.Selected(""))
		return
	}
	t.hear(event{kind: asked, line: size, call: &p.ToolCall, tool: tool, ask: r, options: p.Options})
}

// turn is what is under way in a session, nil for nothing. It is called under the session's
// lock.
func (l *link) turn() *turn {
	t := l.s.turn
	if t == nil || t.cut || t.link != l {
		return nil
	}
	if t.answered() {
		return nil
	}
	return t
}

func goodID(id string) bool { return id != "" && len(id) <= maxID }

// Odd is a line that answers nothing.
func (handler) Odd(string) {}

// Notice takes in a notification.
func (h handler) Notice(method string, params jsontext.Value) {
	if method != acp.SessionUpdate {
		return
	}
	id, u, err := acp.ReadUpdate(params)
	if err != nil {
		return
	}
	switch u.Kind {
	case acp.CommandsUpdate, acp.CurrentModeUpdate, acp.ConfigOptionUpdate:
		if l := h.p.concerned(id); l != nil && l.s.mayTell(2*maxID) { // id and value of what was chosen
			l.s.learn(l.s.ctx, offeredIn(u.Raw))
		}
		return
	}
	l := h.p.named(id)
	if l == nil || l.replayed(u) {
		return
	}
	l.s.mu.Lock()
	t := l.turn()
	l.s.mu.Unlock()
	if news, ok := newsOf(u); ok {
		if l.s.mayTell(len(params)) {
			_ = l.s.report(l.s.ctx, news)
		}
		return
	}
	if t == nil {
		return
	}
	if e, ok := eventOf(u); ok {
		if e.line = len(params); e.call != nil {
			e.line = acp.Weight(params)
		}
		t.hear(e)
	}
}

// bytesOf is what options take, in bytes.
func bytesOf(options []acp.PermissionOption) (n int) {
	for _, o := range options {
		n += 50 + len(o.ID) + len(o.Name) + len(o.Kind)
	}
	return n
}

// mayTell reports whether there is room for a line about the session, and tells once that there is none.
func (s *Session) mayTell(line int) bool {
	s.mu.Lock()
	before := s.beside
	s.beside = min(before+event{line: line}.size(), maxBeside+1)
	fits, first := s.beside <= maxBeside, before <= maxBeside
	s.mu.Unlock()
	if !fits && first {
		_ = s.report(s.ctx, model.AgentNews{
			Code: "agent_updates_dropped",
			Warning: fmt.Sprintf("%s has sent more than %d MiB about its plan, its title and its options since the last "+
				"prompt: what it sends of these is left out until the next one", s.name, maxBeside>>20),
		})
	}
	return fits
}

// replayed takes in what an agent tells again of a session that is being loaded.
func (l *link) replayed(u acp.Heard) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replay == nil {
		return false
	}
	if u.Kind == acp.UserChunk {
		if text, ok := textOf(u.Content); ok {
			l.replay.add(l.last != u.Kind+u.MessageID, text)
		}
	}
	l.last = u.Kind + u.MessageID
	return true
}

func textOf(content jsontext.Value) (string, bool) {
	var block acp.ContentBlock
	if json.Unmarshal(content, &block, jsontext.AllowDuplicateNames(true)) != nil || block.Text == nil {
		return "", false
	}
	return *block.Text, true
}

// eventOf is what an update says of the turn.
func eventOf(u acp.Heard) (e event, ok bool) {
	switch u.Kind {
	case acp.AgentChunk, acp.ThoughtChunk:
		text, ok := textOf(u.Content)
		e = event{kind: said, id: u.MessageID, text: text}
		if u.Kind == acp.ThoughtChunk {
			e.kind = thought
		}
		return e, ok && text != ""
	case acp.NewToolCall, acp.ToolCallUpdate:
		var c acp.ToolCall
		if json.Unmarshal(u.Raw, &c, jsontext.AllowDuplicateNames(true)) != nil || !goodID(c.ID) {
			return e, false
		}
		return event{kind: called, call: &c, tool: toolOf(u.Raw)}, true
	case "usage_update":
		e.kind = used
		return e, json.Unmarshal(u.Raw, &e.usage, jsontext.AllowDuplicateNames(true)) == nil
	}
	return e, false
}

// newsOf is what an update says of the session, whatever the turn is.
func newsOf(u acp.Heard) (news model.AgentNews, ok bool) {
	switch u.Kind {
	case "plan":
		var plan struct {
			Entries jsontext.Value `json:"entries"`
		}
		if json.Unmarshal(u.Raw, &plan, jsontext.AllowDuplicateNames(true)) != nil || plan.Entries.Kind() != '[' {
			return news, false
		}
		patch, err := json.Marshal(map[string]jsontext.Value{"plan": plan.Entries})
		return model.AgentNews{Patch: []byte(patch)}, err == nil
	case "session_info_update":
		var info acp.Info
		if json.Unmarshal(u.Raw, &info) != nil || info.Title == "" {
			return news, false
		}
		return model.AgentNews{Title: format.Clip(info.Title, maxID)}, true
	}
	return news, false
}

// toolOf is the name of a call's tool, where an agent tells it: _meta.*.toolName.
func toolOf(raw jsontext.Value) string {
	var said struct {
		Meta map[string]struct {
			Tool string `json:"toolName"`
		} `json:"_meta"`
		Call struct {
			Meta map[string]struct {
				Tool string `json:"toolName"`
			} `json:"_meta"`
		} `json:"toolCall"`
	}
	if json.Unmarshal(raw, &said, jsontext.AllowDuplicateNames(true)) != nil {
		return ""
	}
	for _, meta := range said.Meta {
		if meta.Tool != "" {
			return oneLine(meta.Tool)
		}
	}
	for _, meta := range said.Call.Meta {
		if meta.Tool != "" {
			return oneLine(meta.Tool)
		}
	}
	return ""
}
