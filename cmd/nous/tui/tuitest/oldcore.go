package tuitest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// OldCore is a v1 core from before anything was added: it knows the frozen
// commands and their frozen keys only, numbers no events, and leaves alone what
// is sent to its event socket. Its model says back what it is told, a word at a
// time. A text that starts with "hold" is answered only when the run is steered,
// gets a follow-up, or is aborted.
type OldCore struct {
	Socket string

	t         testing.TB
	listeners []net.Listener
	wg        sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	readers  map[net.Conn]bool // of events
	sessions map[string]*oldSession
	active   *oldSession
	ids      int
	closed   bool
}

type oldSession struct {
	id       string
	entries  []oldEntry
	run      string // "" while idle
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

// StartOldCore listens on a socket of its own until the test ends.
func StartOldCore(t testing.TB) *OldCore {
	t.Helper()
	dir, err := os.MkdirTemp("", "old") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	c := &OldCore{
		Socket: filepath.Join(dir, "s"), t: t,
		conns: map[net.Conn]bool{}, readers: map[net.Conn]bool{}, sessions: map[string]*oldSession{},
	}
	c.active = c.newSession()
	for i, path := range []string{c.Socket, protocol.EventSocket(c.Socket)} {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.listeners = append(c.listeners, l)
		c.wg.Go(func() { c.accept(l, i == 1) })
	}
	t.Cleanup(func() {
		c.stop()
		os.RemoveAll(dir)
	})
	return c
}

func (c *OldCore) stop() {
	for _, l := range c.listeners {
		l.Close()
	}
	c.mu.Lock()
	c.closed = true
	for conn := range c.conns {
		conn.Close()
	}
	for _, s := range c.sessions {
		s.aborting = true
		s.wake()
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// accept serves the connections of one socket; it ends with its listener.
func (c *OldCore) accept(l net.Listener, events bool) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.conns[conn] = true
		if events {
			c.readers[conn] = true
		}
		if c.closed {
			conn.Close()
		}
		c.mu.Unlock()
		c.wg.Go(func() {
			c.serve(conn, events)
			c.mu.Lock()
			delete(c.conns, conn)
			delete(c.readers, conn)
			c.mu.Unlock()
			conn.Close()
		})
	}
}

func (c *OldCore) serve(conn net.Conn, events bool) {
	lines := protocol.NewLineReader(conn, protocol.DefaultMaxLine)
	for {
		line, err := lines.Next()
		if err != nil {
			return
		}
		if events {
			continue
		}
		cmd, wrong := protocol.DecodeCommand(line)
		var p oldParams
		var reply string
		if wrong == nil && json.Unmarshal(cmd.Payload, &p) != nil {
			wrong = protocol.Errorf(protocol.InvalidPayload, "payload: not as documented")
		}
		typ := ""
		if wrong == nil {
			typ, reply, wrong = c.execute(cmd.Type, p)
		}
		out := protocol.AppendError(nil, cmd.ID, wrong)
		if wrong == nil {
			if out, err = protocol.AppendResponse(nil, cmd.ID, typ, jsontext.Value(reply)); err != nil {
				c.t.Errorf("%s: %v in %s", cmd.Type, err, reply)
				return
			}
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// oldParams are the frozen keys of all commands; others are ignored.
type oldParams struct {
	Text      string   `json:"text"`
	Mode      string   `json:"mode"`
	SessionID string   `json:"session_id"`
	ParentID  string   `json:"parent_id"`
	Tools     []string `json:"tools"`
}

func (c *OldCore) execute(command string, p oldParams) (typ, reply string, e *protocol.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.active
	switch command {
	case "ping":
		return "pong", `{"message":"pong"}`, nil
	case "prompt":
		return c.prompt(s, p.Text)
	case "steer", "follow_up", "abort":
		return c.during(s, command, p.Text)
	case "set_steering_mode", "set_follow_up_mode":
		s.modes[command] = p.Mode
		return "accepted", object("command", command, "mode", p.Mode), nil
	case "set_active_tools":
		return "accepted", fmt.Sprintf(`{"command":"set_active_tools","count":%d}`, len(p.Tools)), nil
	case "extension_command":
		return "", "", protocol.Rejectf(protocol.ExtensionNotFound, "there is none")
	case "get_state":
		return "state", s.state(), nil
	case "new_session":
		c.active = c.newSession()
		return "session", fmt.Sprintf(`{"session_id":%q,"active":true}`, c.active.id), nil
	}
	if p.SessionID != "" {
		s = c.sessions[p.SessionID]
	}
	if s == nil {
		return "", "", protocol.Errorf(protocol.SessionNotFound, "no session %q", p.SessionID)
	}
	switch command {
	case "get_messages":
		return "messages", s.messages(), nil
	case "switch_session":
		c.active = s
		return "session", fmt.Sprintf(`{"session_id":%q,"active":true}`, s.id), nil
	case "branch_session":
		c.active = c.newSession()
		c.active.entries = slices.Clone(s.entries)
		return "session", fmt.Sprintf(`{"session_id":%q,"parent_id":%q,"active":true}`, c.active.id, s.id), nil
	}
	return "", "", &protocol.Error{Code: protocol.InvalidCommand, Message: fmt.Sprintf("unknown_command: %q", command)}
}

func (c *OldCore) prompt(s *oldSession, text string) (typ, reply string, e *protocol.Error) {
	if s.run != "" {
		return "", "", protocol.Rejectf(protocol.RunInProgress, "%s", s.run)
	}
	s.run = c.id("run")
	s.aborting = false
	c.wg.Go(func() { c.work(s, s.run, text) })
	return "accepted", object("command", "prompt", "run_id", s.run, "session_id", s.id), nil
}

func (c *OldCore) during(s *oldSession, command, text string) (typ, reply string, e *protocol.Error) {
	if s.run == "" {
		return "", "", protocol.Rejectf(protocol.NoActiveRun, "nothing runs")
	}
	switch command {
	case "steer":
		s.steers = append(s.steers, text)
	case "follow_up":
		s.follows = append(s.follows, text)
	case "abort":
		s.steers, s.follows, s.aborting = nil, nil, true
	}
	s.wake()
	return "accepted", object("command", command, "run_id", s.run), nil
}

func (s *oldSession) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// work is one run.
func (c *OldCore) work(s *oldSession, run, text string) {
	ref := protocol.Ref{RunID: run, SessionID: s.id}
	c.say(protocol.AgentStart{Ref: ref})
	kind, stop, turns := "prompt", "completed", 0
	for more := true; more; {
		turns++
		ref.TurnID = fmt.Sprint(turns)
		c.say(protocol.TurnStart{Ref: ref, Kind: kind})
		c.message(s, ref, "user", text)
		if strings.HasPrefix(text, "hold") {
			c.hold(s)
		}
		c.message(s, ref, "assistant", text)
		c.mu.Lock()
		switch {
		case s.aborting:
			stop, more = "aborted", false
		case len(s.steers) > 0:
			kind, text, s.steers = "steer", s.steers[0], s.steers[1:]
		case len(s.follows) > 0:
			kind, text, s.follows = "follow_up", s.follows[0], s.follows[1:]
		default:
			more = false
		}
		c.mu.Unlock()
		c.say(protocol.TurnEnd{Ref: ref, StopReason: "end"})
	}
	c.mu.Lock()
	s.run = ""
	c.mu.Unlock()
	ref.TurnID = ""
	c.say(protocol.AgentEnd{Ref: ref, StopReason: stop, Turns: turns})
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

// say writes an event to all that listen, without a number.
func (c *OldCore) say(ev protocol.Event) {
	payload, err := protocol.EncodePayload(ev)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	line := fmt.Appendf(nil, `{"v":"1","id":%q,"type":%q,"payload":%s,"ts":%q}`+"\n", c.id("evt"), ev.Type(), payload, time.Now().UTC().Format(time.RFC3339Nano))
	for conn := range c.readers {
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		if _, err := conn.Write(line); err != nil && !errors.Is(err, net.ErrClosed) {
			conn.Close()
		}
	}
}

func (c *OldCore) id(kind string) string {
	c.ids++
	return fmt.Sprintf("%s-%d", kind, c.ids)
}

func (c *OldCore) newSession() *oldSession {
	s := &oldSession{id: c.id("ses"), nudge: make(chan struct{}, 1), modes: map[string]string{}}
	c.sessions[s.id] = s
	return s
}

func (s *oldSession) state() string {
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
	return fmt.Sprintf(`{"run_state":%q,"run_id":%q,"session_id":%q,"steering_mode":%q,"follow_up_mode":%q,"pending_counts":{"steer":%d,"follow_up":%d}}`,
		state, s.run, s.id, mode("set_steering_mode"), mode("set_follow_up_mode"), len(s.steers), len(s.follows))
}

func (s *oldSession) messages() string {
	entries, err := json.Marshal(s.entries)
	if err != nil || s.entries == nil {
		entries = []byte("[]")
	}
	return fmt.Sprintf(`{"session_id":%q,"messages":%s}`, s.id, entries)
}

// object is a JSON object of strings.
func object(keysAndValues ...string) string {
	m := map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		m[keysAndValues[i]] = keysAndValues[i+1]
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	if err != nil {
		return "{}"
	}
	return string(text)
}
