package tui

import (
	"strings"

	"noused/internal/protocol"
	"noused/internal/tui/pick"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
)

// carryOut is what the session is told when its plan is to be done.
const carryOut = "Carry out the plan."

// planKey does a plan that is ready.
const planKey = "d"

// planMode is what is known here of the plans of sessions.
type planMode struct {
	sessions map[string]planned // by key
}

// began is the run whose beginning was seen last, and the named agent that makes it.
type began struct{ id, as string }

// planned is what is known of a session's.
type planned struct {
	on   bool   // texts are sent as plan
	done string // the run whose plan was carried out, or left
}

// setPlan turns plan mode on or off in the session that is shown.
func (ob *outbox) setPlan(on bool) {
	key := ob.key(ob.site, ob.state.SessionID)
	if ob.plans.sessions == nil {
		ob.plans.sessions = map[string]planned{}
	}
	is := ob.plans.sessions[key]
	if run := ob.plannedRun(); run != "" && !on {
		is.done = run
	}
	is.on = on
	ob.plans.sessions[key] = is
}

// plannedRun is the run whose plan the session has, and nobody has done or left here; "" is none.
func (ob *outbox) plannedRun() string {
	last := ob.state.LastRun
	if last == nil || last.As != slash.Plan || last.StopReason != protocol.StopCompleted || ob.running() ||
		last.RunID == ob.plans.sessions[ob.key(ob.site, ob.state.SessionID)].done {
		return ""
	}
	return last.RunID
}

// planning tells whether the session that is shown is in plan mode.
func (ob *outbox) planning() bool {
	return ob.known && (ob.plans.sessions[ob.key(ob.site, ob.state.SessionID)].on || ob.plannedRun() != "")
}

// sentAs is the named agent that a text of the input is sent as, "" for none.
func (ob *outbox) sentAs() string {
	if ob.planning() {
		return slash.Plan
	}
	return ""
}

// sentIn is sentAs in a session of the board.
func (ob *outbox) sentIn(at *site, session string) string {
	if at == ob.site && session == ob.state.SessionID {
		return ob.sentAs()
	}
	if ob.plans.sessions[ob.key(at, session)].on {
		return slash.Plan
	}
	return ""
}

// readyPlan is the run whose plan can be done now, "" is none.
func (m *model) readyPlan() string {
	if !m.known || m.offline != nil || m.running() || m.approval.ID() != "" || m.rewrite != nil ||
		len(m.unsent)+len(m.working) > 0 || m.goal != nil {
		return ""
	}
	return m.plannedRun()
}

// runBegins notes which agent makes a run. One as plan turns plan mode on, on every screen; another
// behind a plan that was ready carries it out.
func (m *model) runBegins(e protocol.AgentStart) {
	m.began = began{e.RunID, e.As}
	switch {
	case e.As == slash.Plan:
		m.setPlan(true)
	case e.As == "" && m.plannedRun() != "":
		m.setPlan(false)
	}
}

// runEnds notes how the run ended, before the state says so.
func (m *model) runEnds(e protocol.AgentEnd) {
	m.state.LastRun = nil
	if m.began.id == e.RunID {
		m.state.LastRun = &protocol.LastRun{RunID: e.RunID, StopReason: e.StopReason, Error: e.Error, As: m.began.as}
	}
}

// entersPlan tells whether Enter does the plan: its key is all that is written.
func (m *model) entersPlan() bool {
	return m.readyPlan() != "" && strings.TrimSpace(m.input.Text()) == planKey
}

// doPlan ends plan mode and has the plan carried out, with all tools.
func (m *model) doPlan() {
	if m.readyPlan() == "" {
		m.talk.Notice("info", "no plan is ready here: /plan TEXT has one made")
		m.talk.End()
		return
	}
	if m.input.Text() == planKey {
		m.input.Clear()
	}
	m.setPlan(false)
	m.submit(slash.Unsent{Text: carryOut})
	m.talk.End()
}

func (m *model) applyPlan(o slash.Outcome) {
	if o.DoPlan {
		m.doPlan()
		return
	}
	m.planCommand(*o.Plan)
}

// planCommand has a text planned, or, without one, turns plan mode on or off.
func (m *model) planCommand(text string) {
	err := slash.TakesNamed(m.place())
	switch {
	case err != nil:
		if text != "" {
			m.input.Prepend("/plan " + text)
		}
		m.talk.Notice("error", err.Error())
	case text != "":
		m.setPlan(true)
		m.sendAs(slash.Plan, text)
	case m.planning():
		m.leavePlan()
	default:
		m.setPlan(true)
		m.talk.Notice("info", "plan mode: what you send is planned and not done; /plan leaves it")
	}
	m.talk.End()
}

func (m *model) leavePlan() {
	m.setPlan(false)
	m.talk.Notice("info", "plan mode is off: what you send is done")
}

// sendAs sends a text as a named agent.
func (m *model) sendAs(name, text string) {
	u := slash.UnsentAs(name, text)
	u.Images, m.input.Images = m.input.Images, nil
	m.submit(u)
	m.talk.End()
}

// planReady is the line that says what can be done with a plan that is ready.
func (m *model) planReady() string {
	if m.readyPlan() == "" || !m.input.Empty() && m.input.Text() != planKey {
		return ""
	}
	return "the plan is ready: d does it, a text changes it, " + m.keyed("stop", "leaves plan mode")
}

// newNamed has the user choose the agent that a text is sent as.
func newNamed(m *model, list slash.NamedList) *overlay {
	p := pick.New("Send a text as", pick.Named(list.Agents), pick.With(m.pickLook()))
	return &overlay{box: p, picker: p, chosen: func(m *model, c pick.Choice) tea.Cmd {
		if !m.input.Empty() {
			m.remember(m.input.Text())
		}
		m.input.Set("/as " + c.IDs[0] + " ")
		return nil
	}}
}
