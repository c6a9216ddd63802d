package tuitest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// OldCore is a v1 core from before anything was added: it knows the frozen
// commands and their frozen keys only, numbers no events, and leaves alone what
// is sent to its event socket. Its model says back what it is told, a word at a
// time. A text that starts with "hold" is answered only when the run is steered,
// gets a follow-up, or is aborted; one that starts with "tool" runs a tool first.
type OldCore struct {
	Socket string

	habits    Habits
	t         testing.TB
	listeners []net.Listener
	wg        sync.WaitGroup

	mu        sync.Mutex
	conns     map[net.Conn]bool
	readers   map[net.Conn]bool // of events
	listening chan struct{}     // cap 1: there is a reader
	sessions  map[string]*oldSession
	active    *oldSession
	ids       int
	closed    bool
}

// Habits are what a v1 core may leave out, as the contract does not ask for it.
type Habits struct {
	NoEnds       bool // message_end says neither who nor what
	NoUserTexts  bool // message_start of a user has no text
	NoSession    bool // the state has session_id ""
	NoErrorIDs   bool // errors have id ""
	NoToolResult bool // the end of a tool has its ids only: what it said is in the updates
	NoIDs        bool // of an event's ids there are its own and the run's; it has no time
	NoRoles      bool // message_start does not say who
	Terse        bool // of a command that it does not know it says "invalid_command: NAME"
	Mute         bool // commands that it does not know are not answered
}

// AllHabits leaves out everything at once, but answers.
var AllHabits = Habits{
	NoEnds: true, NoUserTexts: true, NoSession: true, NoErrorIDs: true, NoToolResult: true,
	NoIDs: true, NoRoles: true, Terse: true,
}

// EachHabit runs a test for a core that leaves out nothing, one for each thing
// that a core may leave out, and one for all of them together.
func EachHabit(t *testing.T, test func(*testing.T, Habits)) {
	t.Helper()
	for name, habits := range map[string]Habits{
		"none": {}, "NoEnds": {NoEnds: true}, "NoUserTexts": {NoUserTexts: true}, "NoSession": {NoSession: true},
		"NoErrorIDs": {NoErrorIDs: true}, "NoToolResult": {NoToolResult: true}, "NoIDs": {NoIDs: true},
		"NoRoles": {NoRoles: true}, "Terse": {Terse: true}, "all": AllHabits,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, habits)
		})
	}
}

// StartOldCore listens on a socket of its own until the test ends.
func StartOldCore(t testing.TB, habits Habits) *OldCore {
	t.Helper()
	dir, err := os.MkdirTemp("", "old") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	c := &OldCore{
		Socket: filepath.Join(dir, "s"), t: t, habits: habits,
		listening: make(chan struct{}, 1),
		conns:     map[net.Conn]bool{}, readers: map[net.Conn]bool{}, sessions: map[string]*oldSession{},
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

// Listened waits until somebody reads events.
func (c *OldCore) Listened() {
	<-c.listening
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
			select {
			case c.listening <- struct{}{}:
			default:
			}
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
		if typ == "accepted" && cmd.Type == "prompt" && (p.Wait == nil || *p.Wait) {
			typ, reply = c.result()
		}
		if wrong != nil && c.habits.Mute && wrong.Code == protocol.InvalidCommand {
			continue
		}
		id := cmd.ID
		if c.habits.NoErrorIDs {
			id = ""
		}
		out := protocol.AppendError(nil, id, wrong)
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
	Wait      *bool    `json:"wait"`
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
		return "state", s.state(c.habits), nil
	case "new_session":
		c.active = c.newSession()
		return "session", fmt.Sprintf(`{"session_id":%q,"active":true}`, c.active.id), nil
	}
	if !slices.Contains([]string{"get_messages", "switch_session", "branch_session"}, command) {
		why := fmt.Sprintf("unknown_command: %q", command)
		if c.habits.Terse {
			why = "invalid_command: " + command
		}
		return "", "", &protocol.Error{Code: protocol.InvalidCommand, Message: why}
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
	default: // branch_session
		c.active = c.newSession()
		c.active.entries = slices.Clone(s.entries)
		return "session", fmt.Sprintf(`{"session_id":%q,"parent_id":%q,"active":true}`, c.active.id, s.id), nil
	}
}

func (c *OldCore) prompt(s *oldSession, text string) (typ, reply string, e *protocol.Error) {
	if s.run != "" {
		return "", "", protocol.Rejectf(protocol.RunInProgress, "%s", s.run)
	}
	s.run = c.id("run")
	s.last = s.run
	s.aborting, s.done, s.said = false, make(chan struct{}), nil
	done, run := s.done, s.run
	c.wg.Go(func() { c.work(s, run, text, done) })
	return "accepted", object("command", "prompt", "run_id", s.run, "session_id", s.id), nil
}

// result waits for the end of the run and is the answer to one who did, too.
func (c *OldCore) result() (typ, reply string) {
	c.mu.Lock()
	s := c.active
	run, done := s.last, s.done
	c.mu.Unlock()
	<-done
	c.mu.Lock()
	defer c.mu.Unlock()
	output := ""
	if n := len(s.entries); n > 0 {
		output = s.entries[n-1].Text
	}
	events, err := json.Marshal(s.said)
	if err != nil {
		c.t.Error(err)
	}
	return "result", fmt.Sprintf(`{"output":%q,"events":%s,"session_id":%q,"run_id":%q}`, output, events, s.id, run)
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

func (c *OldCore) id(kind string) string {
	c.ids++
	return fmt.Sprintf("%s-%d", kind, c.ids)
}

func (c *OldCore) newSession() *oldSession {
	s := &oldSession{id: c.id("ses"), nudge: make(chan struct{}, 1), modes: map[string]string{}}
	c.sessions[s.id] = s
	return s
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
