package tui

import (
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/slash"
)

// told takes in what the link says.
func (m *model) told(u follow.Update) {
	if _, off := u.(follow.Disconnected); !off {
		if m.opts.Host != "" {
			defer m.sendNext()
		}
		m.offline = nil
		if m.board != nil {
			m.board.connected(m.site)
		}
	}
	defer m.arrive(u)
	switch u := u.(type) {
	case follow.Snapshot:
		m.restore(u)
	case follow.Events:
		for _, ev := range u.List {
			m.event(ev)
		}
	case follow.Gap:
		m.talk.Notice("info", "too much happened at once; the conversation is read again")
	case follow.Changed:
		m.setState(u.State)
	case follow.Refused:
		m.refused(u)
	case follow.Disconnected:
		m.offline = &u
		if u.NoDaemon && !m.known {
			m.askForService()
		}
	}
}

// refused says why the session that was asked for cannot be shown.
func (m *model) refused(u follow.Refused) {
	text := slash.CannotShow(u.SessionID, u.Err)
	m.talk.Notice("error", text)
	m.notices = append(m.notices, text)
}

// follow asks for a session to be shown.
func (ob *outbox) follow(id string) {
	ob.goal = &id
	ob.link.Follow(id)
}

// arrive goes on with what waited for the session that is to be shown, once it
// is, or will not be.
func (ob *outbox) arrive(u follow.Update) {
	if ob.goal == nil {
		return
	}
	switch u := u.(type) {
	case follow.Snapshot:
		if !ob.reached(u) {
			return
		}
		ob.goal = nil
	case follow.Refused:
		if *ob.goal != u.SessionID {
			return
		}
		ob.goal = nil
		ob.stay()
	}
	ob.goOn()
}

// reached tells whether the session that is shown is the one asked for. The one
// before may be read once more on the way there.
func (ob *outbox) reached(s follow.Snapshot) bool {
	return ob.goal == nil || *ob.goal == "" || *ob.goal == s.State.SessionID
}

// restore shows a session as it is at one moment.
func (m *model) restore(s follow.Snapshot) {
	first, other := !m.known, m.state.SessionID != s.State.SessionID
	m.known, m.lacks, m.attention.unseen = true, s.Lacks, true
	m.offer = offer{}
	if m.children != nil {
		m.children.failed = false
	}
	if other {
		m.talk.Clear()
		m.find, m.astray = nil, ""
		if s.Lost != nil {
			m.strays(s)
		}
	}
	if err := m.talk.Load(s.Messages, s.Runs, s.State.Partial); err != nil {
		m.talk.Notice("error", err.Error())
	}
	if first || other {
		m.tools, m.ours, m.waiting, m.took, m.rewrite = nil, nil, nil, 0, nil
		m.lastLine, m.counting = "", ""
	}
	m.setState(s.State)
	if !m.running() {
		m.returnUndelivered(s.Messages)
	}
	if approval.Of(m.state, m.state.SessionID) == nil { // else no call runs before the answer
		m.talk.SetRunning(m.running())
	}
	if last := m.state.LastRun; last != nil && !m.running() {
		m.talk.SetLastRun(*last)
		if first || other {
			m.countChanges(last.RunID)
		}
	}
	m.since = beganAt(s.Messages, s.State.RunID)
	switch {
	case s.New:
		m.talk.Notice("info", "the daemon was restarted")
	case first && s.Lacks != nil:
		m.talk.Notice("info", s.Lacks.Error())
	}
	if text := m.opts.OtherVersion(s.State.Daemon); text != "" && (first || s.New) {
		m.talk.Notice("warning", text)
	}
	if m.reached(s) { // they are of that session
		for _, text := range m.notices {
			m.talk.Notice("info", text)
		}
		m.notices = nil
	}
	if other && !m.comeBack() {
		m.talk.End()
	}
	if of := m.changesOf; other {
		if m.changesOf = ""; of == m.state.SessionID && m.over == nil {
			m.openChanges()
		}
	}
}

// strays takes in that another session is shown, as the one before is no more. What was written for that
// one stays in the input.
func (ob *outbox) strays(s follow.Snapshot) {
	ob.notices = append(ob.notices, slash.Lost(ob.state.SessionID, s.Lost))
	if ob.goal != nil { // it was left already, and what is written is for that one
		return
	}
	ob.giveBack()
	ob.astray = s.State.SessionID
}

// holdsBack tells whether what is written was meant for another session than the one that is shown, and
// says so. It does so once.
func (m *model) holdsBack(action string) bool {
	if m.astray == "" || m.astray != m.state.SessionID {
		return false
	}
	m.astray = ""
	m.talk.Notice("info", "this was written for another session: "+m.keyed(action, "again")+" sends it to "+
		cell.Line(m.title(), 40))
	m.talk.End()
	return true
}

// returnUndelivered gives back the texts that the daemon has neither delivered nor will: its run
// is over, and the end of it was not seen.
func (ob *outbox) returnUndelivered(entries []jsontext.Value) {
	var said []string
	for _, raw := range entries {
		var e struct {
			Role string `json:"role"`
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &e) == nil && e.Role == "user" {
			said = append(said, e.Text)
		}
	}
	for _, text := range ob.waiting {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, text) }) {
			ob.input.Before(text)
		}
	}
	ob.waiting = nil
}

// beganAt is when a run said its first word: no core tells when it began.
func beganAt(entries []jsontext.Value, run string) time.Time {
	var at time.Time
	if run == "" {
		return at
	}
	for i := len(entries) - 1; i >= 0; i-- {
		var e struct {
			RunID     string    `json:"run_id"`
			CreatedAt time.Time `json:"created_at"`
		}
		if json.Unmarshal(entries[i], &e) != nil || e.RunID != run {
			break
		}
		at = e.CreatedAt
	}
	return at
}

func (m *model) setState(s protocol.State) {
	if s.SessionID != m.state.SessionID {
		m.input.Menu.Close()
	}
	m.state = s
	m.plan.read(s.SessionState)
	m.visit()
	m.locate()
	if m.board != nil {
		m.board.putShown()
	}
	if s.RunState == protocol.StateIdle {
		m.tools, m.since = nil, time.Time{}
	}
}

// event shows an event and keeps what the HUD says up to date until the state
// is asked for again.
func (m *model) event(ev follow.Event) {
	m.talk.Apply(ev.Event, ev.At)
	if where := ev.Where().SessionID; where != "" && where != m.state.SessionID {
		return
	}
	switch e := ev.Event.(type) {
	case protocol.AgentStart:
		m.runBegins(e)
		m.state.RunState, m.state.RunID, m.since, m.tools = protocol.StateRunning, e.RunID, ev.At, nil
		m.lastLine, m.counting = "", ""
	case protocol.AgentEnd:
		m.attention.unseen = true
		m.took = time.Duration(e.DurationMS) * time.Millisecond
		if e.DurationMS == 0 && !m.since.IsZero() { // an older daemon's
			m.took = ev.At.Sub(m.since)
		}
		m.state.RunState, m.state.RunID, m.since, m.tools = protocol.StateIdle, "", time.Time{}, nil
		m.runEnds(e)
		m.returned(e.Discarded)
		m.countChanges(e.RunID)
		if e.StopReason == protocol.StopAborted {
			m.input.Before(m.waiting...)
		}
		m.waiting, m.heard = nil, nil
	case protocol.ToolStart:
		m.tools = append(m.tools, tool{e.ToolCallID, e.ToolName})
		return
	case protocol.ToolEnd:
		m.tools = slices.DeleteFunc(m.tools, func(t tool) bool { return t.id == e.ToolCallID })
		return
	case protocol.Status:
		if e.Code == protocol.StatusOperationOutput {
			m.shellSays(e)
			return
		}
		if e.PendingCounts != nil {
			m.state.PendingCounts = *e.PendingCounts
		}
		m.approvalEvent(e)
		if e.Code == protocol.StatusAbortRequested {
			m.state.RunState = protocol.StateAborting
		}
	case protocol.MessageStart:
		m.delivered(e)
		return
	case protocol.ToolUpdate:
		if !changesPlan(e.Update) {
			return
		}
	case protocol.MessageUpdate:
		return
	}
	m.refresh()
}

// delivered notes, where the daemon does not name inputs, that a text does not wait any
// more.
func (ds *daemons) delivered(e protocol.MessageStart) {
	if e.Role != "user" || ds.lacks == nil {
		return
	}
	before := len(ds.waiting)
	ds.waiting = slices.DeleteFunc(ds.waiting, func(text string) bool { return strings.Contains(e.Text, text) })
	if len(ds.waiting) == before && len(ds.heard) < maxUnsent {
		ds.heard = append(ds.heard, e.Text)
	}
}

// returned puts texts that were sent from here, and given up by the daemon, into
// the input again.
func (ob *outbox) returned(texts []protocol.DiscardedInput) {
	var back []string
	for _, d := range texts {
		if i := slices.Index(ob.ours, d.InputID); i >= 0 {
			ob.ours = slices.Delete(ob.ours, i, i+1)
			back = append(back, d.Text)
		} else {
			ob.talk.Notice("warning", "not delivered: "+d.Text)
		}
	}
	ob.input.Before(back...)
}
