package tuitest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

type oldSession struct {
	id       string
	done     chan struct{}    // closed when the run ends
	said     []jsontext.Value // by the run
	entries  []oldEntry
	run      string // "" while idle
	last     string
	steers   []string
	follows  []string
	modes    map[string]string
	nudge    chan struct{} // cap 1: something was queued, or the run is to end
	aborting bool
}

type oldEntry struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	ParentID string `json:"parent_id,omitzero"`
	Role     string `json:"role"`
	Text     string `json:"text"`
	RunID    string `json:"run_id"`
}

func (s *oldSession) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// work is one run.
func (c *OldCore) work(s *oldSession, run, text string, done chan<- struct{}) {
	ref := protocol.Ref{RunID: run, SessionID: s.id}
	c.say(protocol.AgentStart{Ref: ref})
	kind, stop, turns := protocol.KindPrompt, protocol.StopCompleted, 0
	for more := true; more; {
		turns++
		ref.TurnID = fmt.Sprint(turns)
		c.say(protocol.TurnStart{Ref: ref, Kind: kind})
		c.message(s, ref, "user", text)
		if strings.HasPrefix(text, "hold") {
			c.hold(s)
		}
		if strings.HasPrefix(text, "tool") {
			c.tool(s, ref)
		}
		c.message(s, ref, "assistant", text)
		c.mu.Lock()
		switch {
		case s.aborting:
			stop, more = protocol.StopAborted, false
		case len(s.steers) > 0:
			kind, text, s.steers = protocol.KindSteer, s.steers[0], s.steers[1:]
		case len(s.follows) > 0:
			kind, text, s.follows = protocol.KindFollowUp, s.follows[0], s.follows[1:]
		default:
			more = false
		}
		c.mu.Unlock()
		c.say(protocol.TurnEnd{Ref: ref, StopReason: "end"})
	}
	ref.TurnID = ""
	c.mu.Lock()
	s.run = ""
	c.mu.Unlock()
	c.say(protocol.AgentEnd{Ref: ref, StopReason: stop, Turns: turns})
	close(done)
}

// tool is a tool that says two lines, and is done.
func (c *OldCore) tool(s *oldSession, ref protocol.Ref) {
	c.message(s, ref, "assistant", "Let me look.")
	c.mu.Lock()
	id := c.id("call")
	c.mu.Unlock()
	c.say(protocol.ToolStart{Ref: ref, ToolCallID: id, ToolName: "look", Arguments: jsontext.Value(`{"path":"here"}`)})
	c.say(protocol.ToolUpdate{Ref: ref, ToolCallID: id, ToolName: "look", Delta: "there is a door"})
	c.say(protocol.ToolUpdate{Ref: ref, ToolCallID: id, ToolName: "look", Delta: "and a window"})
	c.say(protocol.ToolEnd{Ref: ref, ToolCallID: id, ToolName: "look", OK: true, Result: "there is a door\nand a window"})
}

// hold waits until there is something else to do than to answer.
func (c *OldCore) hold(s *oldSession) {
	for {
		c.mu.Lock()
		held := !s.aborting && len(s.steers)+len(s.follows) == 0
		c.mu.Unlock()
		if !held {
			return
		}
		<-s.nudge
	}
}

func (c *OldCore) message(s *oldSession, ref protocol.Ref, role, text string) {
	c.mu.Lock()
	e := oldEntry{Type: "message", ID: c.id("msg"), Role: role, Text: text, RunID: ref.RunID}
	if n := len(s.entries); n > 0 {
		e.ParentID = s.entries[n-1].ID
	}
	c.mu.Unlock()
	start := protocol.MessageStart{Ref: ref, MessageID: e.ID, Role: role}
	if role == "user" {
		start.Text = text
	}
	c.say(start)
	if role == "assistant" {
		for word := range strings.SplitAfterSeq(text, " ") {
			c.say(protocol.MessageUpdate{Ref: ref, MessageID: e.ID, Delta: word})
		}
	}
	c.mu.Lock()
	s.entries = append(s.entries, e)
	c.mu.Unlock()
	c.say(protocol.MessageEnd{Ref: ref, MessageID: e.ID, Role: role, Text: text})
}

// say writes an event to all that listen, without a number, and without what
// the core leaves out.
func (c *OldCore) say(ev protocol.Event) {
	payload, err := protocol.EncodePayload(ev)
	if err == nil {
		payload, err = c.habits.without(ev, payload)
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := fmt.Sprintf(`,"ts":%q`, time.Now().UTC().Format(time.RFC3339Nano))
	if c.habits.NoIDs {
		at = ""
	}
	line := fmt.Appendf(nil, `{"v":"1","id":%q,"type":%q,"payload":%s%s}`+"\n", c.id("evt"), ev.Type(), payload, at)
	for _, s := range c.sessions {
		if s.id == ev.Where().SessionID {
			s.said = append(s.said, line[:len(line)-1])
		}
	}
	for conn := range c.readers {
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := conn.Write(line); err != nil && !errors.Is(err, net.ErrClosed) {
			conn.Close()
		}
	}
}

// without is a payload without what the core leaves out.
func (h Habits) without(ev protocol.Event, payload jsontext.Value) (jsontext.Value, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(payload, &members); err != nil {
		return nil, err
	}
	leave := func(yes bool, names ...string) {
		for _, name := range names {
			if yes {
				delete(members, name)
			}
		}
	}
	leave(h.NoIDs, "session_id", "turn_id", "message_id", "tool_call_id", "input_ids")
	switch ev.(type) {
	case protocol.MessageStart:
		leave(h.NoUserTexts, "text")
		leave(h.NoRoles, "role")
	case protocol.MessageEnd:
		leave(h.NoEnds, "role", "text")
	case protocol.ToolEnd:
		leave(h.NoToolResult, "ok", "result", "tool_name", "duration_ms")
	case protocol.AgentEnd:
		leave(h.NoEnds, "turns", "usage")
	}
	return json.Marshal(members, json.Deterministic(true))
}

func (s *oldSession) state(h Habits) string {
	mode := func(command string) string {
		if m := s.modes[command]; m != "" {
			return m
		}
		return "one-at-a-time"
	}
	state := "idle"
	if s.run != "" {
		state = "running"
	}
	id := s.id
	if h.NoSession {
		id = ""
	}
	return fmt.Sprintf(
		`{"run_state":%q,"run_id":%q,"session_id":%q,"steering_mode":%q,"follow_up_mode":%q,"pending_counts":{"steer":%d,"follow_up":%d}}`,
		state, s.run, id, mode("set_steering_mode"), mode("set_follow_up_mode"), len(s.steers), len(s.follows))
}

func (s *oldSession) messages() string {
	entries, err := json.Marshal(s.entries)
	if err != nil || s.entries == nil {
		entries = []byte("[]")
	}
	return fmt.Sprintf(`{"session_id":%q,"messages":%s}`, s.id, entries)
}
