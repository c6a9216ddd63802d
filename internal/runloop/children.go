package runloop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A call of the tool agent has a child: a run of another session (children.md). The machine
// journals which one before anything of it is there, has it started, and waits for its end as
// it does for a tool's. The calls of one answer that follow each other are started together,
// and are told and waited for one after the other.

// Bounds are those of the tree of runs below one that has no parent. The zero Bounds: no
// session has children.
type Bounds struct {
	Depth    int // sessions above the deepest
	Parallel int // children that work at a time
	Total    int // children
}

// childWork starts a child, or stops one.
type childWork struct {
	child session.Child
	stop  bool
	again bool // a former daemon may have started it
	birth birth
}

// birth is what a child is made with, of its parent.
type birth struct {
	created session.Created
	facts   []session.Fact
	root    string // run
	entry   *session.Entry
	start   childStart
	most    int // bytes of its result, in the background
}

// childStart is how its run begins.
type childStart struct {
	text      string
	root      string
	approvals protocol.ApprovalMode
	terms     session.Terms
	late      []session.Late // what its parent keeps of its tree
}

// childWait waits for the end of a call's child. The result has at most so many bytes.
type childWait struct {
	callID string
	most   int
}

// agentArgs are the arguments of the tool agent.
type agentArgs struct {
	Prompt      string `json:"prompt"`
	Description string `json:"description"`
	Agent       string `json:"agent"`
	Model       string `json:"model"`
	Worktree    bool   `json:"worktree"`
	Background  bool   `json:"background"`
	SessionID   string `json:"session_id"`
}

// agentTool is the name of that tool.
const agentTool = "agent"

const maxDescription = 200 // bytes that are kept of it

func readAgentArgs(arguments []byte) (a agentArgs, err error) {
	if err := json.Unmarshal(arguments, &a, json.RejectUnknownMembers(true)); err != nil {
		return a, fmt.Errorf(`arguments: want {"prompt":"…"} and what else the tool's schema has`)
	}
	switch {
	case strings.TrimSpace(a.Prompt) == "":
		return a, fmt.Errorf("prompt: is empty")
	case a.SessionID != "" && (a.Agent != "" || a.Model != "" || a.Worktree):
		return a, fmt.Errorf("session_id: a child session that is there keeps its agent, model and folder")
	}
	a.Description = format.Clip(format.Line(cmp.Or(a.Description, a.Prompt)), maxDescription)
	if a.Agent == protocol.OwnAgent {
		a.Agent = ""
	}
	return a, nil
}

// leaving has people asked before another agent works outside of our sandbox and rules.
func (m *machine) leaving(call model.ToolCall, v model.Verdict) model.Verdict {
	if !v.Delegates || v.Decision == model.Deny {
		return v
	}
	a, err := readAgentArgs(call.Arguments)
	if err != nil {
		return v
	}
	host := m.hostOf(a.Agent)
	if host == "" {
		return v
	}
	why := hostRule(host)
	v = m.stricter(v, model.Verdict{Decision: model.Ask, Rule: "ask: " + why})
	if v.Decision == model.Ask {
		v.Host = host
		if v.Rule == "" {
			v.Rule = "ask: " + why
		} else if v.Rule != "ask: "+why {
			v.Rule += "; " + why
		}
	}
	return v
}

// delegate makes a call of the tool agent, and those that follow it with it.
func (m *machine) delegate(call model.ToolCall) {
	if m.treesKnown != nil && !m.treesKnown() { // or it would not count those that a former daemon has left
		m.await(looking, work{look: &precheck{trees: true}})
		return
	}
	m.delegateNow(call)
}

func (m *machine) delegateNow(call model.ToolCall) {
	child, why := m.newChild(call)
	if why != nil {
		m.failCall(call, *why, false)
		m.afterCall()
		return
	}
	for _, next := range m.s.Run.Calls[1:] {
		if _, begun := m.s.Run.Child(next.ID); begun {
			continue
		}
		if !m.maySoon(next) {
			break
		}
		if a, err := readAgentArgs(next.Arguments); err == nil && a.Background { // a steer may come first
			continue
		}
		if _, why := m.newChild(next); why != nil { // its turn tells
			break
		}
	}
	m.callChild(call, child)
}

// treesKnownIn says that the runs are there that a former daemon has left, or it has taken too long.
type treesKnownIn struct{ gen int }

func (in treesKnownIn) step(m *machine) {
	if in.gen != m.gen || m.phase != looking || m.park() {
		return
	}
	// What is allowed may be less by now. What was asked is not asked again.
	inv := m.invocation(m.s.Run.Calls[0])
	why, refused := m.refusal(inv.ToolCall)
	if v := m.judged(inv); !refused && v.Decision == model.Deny {
		why, refused = model.Failed(v.Code, v.Why), true
	}
	if refused {
		m.failCall(inv.ToolCall, why, false)
		m.afterCall()
		return
	}
	m.delegateNow(inv.ToolCall)
}

// maySoon reports that a call is one of the tool agent that nobody has to be asked about.
func (m *machine) maySoon(call model.ToolCall) bool {
	if _, refused := m.refusal(call); refused {
		return false
	}
	v := m.leaving(call, m.judged(m.invocation(call)))
	if !v.Delegates || v.Failure != nil || v.Guarded || v.Decision == model.Ask || v.Decision == model.Deny {
		return false
	}
	m.auditRule(call, v)
	return true
}

// newChild journals a call's child and has it started, or says why there is none.
func (m *machine) newChild(call model.ToolCall) (c session.Child, why *model.ToolResult) {
	fail := func(code, text string, args ...any) (session.Child, *model.ToolResult) {
		res := model.Failed(code, fmt.Sprintf(text, args...))
		return c, &res
	}
	a, err := readAgentArgs(call.Arguments)
	run, depth, host := m.s.Run, m.s.Depth()+1, m.hostOf(a.Agent)
	switch {
	case m.hosted(), run.Outside && run.Turn == 1:
		return fail(model.Forbidden, "only the daemon's own agent has child sessions")
	case err != nil:
		return fail(model.BadRequest, "%v", err)
	case depth > m.bounds.Depth:
		return fail(model.AtLimit, "depth in [children] is %d, and this session has %d above it: do the work here",
			m.bounds.Depth, depth-1)
	case a.SessionID != "" && !slices.Contains(m.s.Children, a.SessionID):
		return fail(model.BadRequest, "session_id: %.80q is no child session of this one", a.SessionID)
	case a.SessionID != "" && m.works(a.SessionID):
		return fail(model.BadRequest, "session_id: %s still works for an earlier call", a.SessionID)
	}
	if host != "" && !m.mayHost(call, host) {
		return fail(model.Forbidden, "agent: %.80s has its turns made by %s now, and was allowed without: call again",
			a.Agent, host)
	}
	nth, ok := 0, true
	if m.reserve != nil {
		nth, ok = m.reserve(m.root(), run.ID)
	}
	if !ok {
		return fail(model.AtLimit, "total in [children] is %d, and the run has had so many: do the work here",
			m.bounds.Total)
	}
	f := session.ChildStarted{
		RunID: run.ID, CallID: call.ID, ChildID: a.SessionID, ChildRunID: m.newID("run-"), Description: a.Description,
		New: a.SessionID == "", Background: a.Background, Within: run.Terms.As, Nth: nth, Host: host,
	}
	if e := m.s.Calling(); e != nil {
		f.MessageID = e.ID
	}
	if f.Background { // the run may be over by then
		f.Root, f.Approvals, f.MaxCost = run.Root, run.Approvals, run.Terms.MaxCost
	}
	if f.New {
		f.ChildID = m.newID("ses-")
	}
	m.record(f)
	c, _ = m.s.Run.Child(call.ID)
	m.startChild(c)
	return c, nil
}

// works reports that a child session has not answered an earlier call.
func (m *machine) works(id string) bool {
	is := func(c session.Child) bool { return c.ChildID == id }
	return m.s.Run != nil && slices.ContainsFunc(m.s.Run.Awaited(), is) || slices.ContainsFunc(m.s.Background, is)
}

// waitsFor reports that a call of the session waits for that run of a child, or has it in the background.
func (m *machine) waitsFor(run string) bool {
	is := func(c session.Child) bool { return c.ChildRunID == run && !c.Ended }
	return m.s.Run != nil && slices.ContainsFunc(m.s.Run.Children, is) || slices.ContainsFunc(m.s.Background, is)
}

// root is the run at the root of the run's tree.
func (m *machine) root() string { return m.s.Run.Tree() }

// startChild has a child started, or waited for where it has been.
func (m *machine) startChild(c session.Child) {
	s := m.s
	b := birth{
		created: session.Created{
			SessionID: c.ChildID, Title: c.Description, Workdir: m.workdir(), Servers: s.Servers, Rules: s.Answers,
			Parent: &session.Parent{
				SessionID: s.ID, RunID: c.RunID, ToolCallID: c.CallID, Depth: s.Depth() + 1,
			},
		},
		entry: s.Entry(c.MessageID), root: cmp.Or(c.Root, c.RunID), most: m.maxResult(),
	}
	if s.Parent != nil {
		b.created.Parent.Titles = slices.Clone(s.Parent.Titles)
	}
	b.created.Parent.Titles = append(b.created.Parent.Titles, s.Title)
	b.start = childStart{root: b.root, approvals: c.Approvals, terms: c.Terms()}
	if run := s.Run; run != nil && run.ID == c.RunID {
		b.root, b.start.root = m.root(), m.root()
		b.start.approvals, b.start.terms.MaxCost = run.Approvals, run.Terms.MaxCost
	}
	if s.ToolsChosen {
		b.facts = append(b.facts, session.ToolsSet{Tools: s.Tools})
	}
	if s.ApprovalMode != protocol.ApprovalsAsk {
		b.facts = append(b.facts, session.ApprovalModeSet{Mode: s.ApprovalMode})
	}
	if choice := m.inheritedModel(); choice != (model.Choice{}) {
		b.facts = append(b.facts, session.ModelSet{Model: choice})
	}
	m.out.children = append(m.out.children, childWork{child: c, birth: b})
}

// inheritedModel is what answers in this session, the zero Choice for the daemon's own.
func (m *machine) inheritedModel() model.Choice {
	choice := m.s.Model
	if choice.Provider == "" && m.s.Answered.Provider != "" {
		choice = m.s.Answered
		choice.Effort = m.s.Model.Effort
	}
	return choice
}

// childTold is the update that names the child of a call.
type childTold struct {
	Type        string `json:"type"`
	SessionID   string `json:"session_id"`
	RunID       string `json:"run_id"`
	Description string `json:"description"`
	Background  bool   `json:"background,omitzero"`
}

// tellChild tells that a call with a child has begun, unless people know.
func (m *machine) tellChild(call model.ToolCall, c session.Child) {
	again := m.s.Run.Started == call.ID
	m.call, m.said, m.msg.calls = model.ToolCall{ID: call.ID, Name: call.Name}, false, nil
	if again {
		return
	}
	m.record(session.ToolStarted{RunID: m.s.Run.ID, CallID: call.ID, Reads: true})
	m.publish(m.toolStart(call))
	update, _ := json.Marshal(childTold{"child_session", c.ChildID, c.ChildRunID, c.Description, c.Background})
	m.publish(protocol.ToolUpdate{Ref: m.turnRef(), ToolCallID: call.ID, ToolName: call.Name, Update: update})
}

// callChild tells a call whose child was started, and waits for it, unless it is in the
// background.
func (m *machine) callChild(call model.ToolCall, c session.Child) {
	if c.Background {
		m.callBackground(call, c)
		m.afterCall()
		return
	}
	if m.park() {
		return
	}
	m.tellChild(call, c)
	m.await(calling, work{child: &childWait{call.ID, m.maxResult()}})
	m.since = m.s.Run.StartedAt
}

func (m *machine) callBackground(call model.ToolCall, c session.Child) {
	m.tellChild(call, c)
	m.endCall(m.call, model.ToolResult{
		OK: true, Text: "The child session " + c.ChildID + " works in the background. A message comes when it has ended.",
		Outputs: map[string]string{"session_id": c.ChildID, "run_id": c.ChildRunID},
	}, false, 0)
	m.call = model.ToolCall{}
}

// stopChildren has the children stopped that the run waits for, and reports whether there
// are any.
func (m *machine) stopChildren() bool {
	awaited := m.s.Run.Awaited()
	for _, c := range awaited {
		m.out.children = append(m.out.children, childWork{child: c, stop: true})
	}
	return len(awaited) > 0
}

// awaitStopped waits for the next child of a run that is aborted, and reports whether there is
// one. After an abort no call is told to begin: those that were not keep their results alone.
func (m *machine) awaitStopped() bool {
	awaited := m.s.Run.Awaited()
	if len(awaited) == 0 {
		return false
	}
	call := m.s.Run.Call(awaited[0].CallID)
	switch {
	case m.s.Run.Started == call.ID:
		m.callChild(call, awaited[0])
	case m.park():
	default:
		m.call = model.ToolCall{ID: call.ID, Name: call.Name}
		m.await(calling, work{child: &childWait{call.ID, m.maxResult()}})
	}
	return true
}

// notRun keeps the result of a call that was not made, as its run was aborted or given up.
func (m *machine) notRun(call model.ToolCall) {
	why := "the run was aborted"
	if !m.s.Run.Aborting {
		why = "the run was given up"
	}
	text := "not run: " + why
	if c, ok := m.s.Run.Child(call.ID); ok {
		text = why + ", and the child session " + c.ChildID + " was stopped"
		if c.Background {
			text = why + "; the child session " + c.ChildID + " works in the background"
		}
	}
	m.record(session.MessageAdded{
		ID: m.newID("msg-"), ParentID: m.s.Leaf, RunID: m.s.Run.ID, TurnKind: m.s.Run.Kind,
		Message: model.Message{Role: model.Tool, ToolCallID: call.ID, ToolName: call.Name, Text: text},
		NotRun:  protocol.NotRunAborted,
	})
}

// skipRest skips the calls that are left, as a steer waits. Their children are stopped, and
// each call is told once its child has ended.
func (m *machine) skipRest() {
	m.stopChildren()
	for _, call := range m.s.Run.Calls {
		if c, ok := m.s.Run.Child(call.ID); ok {
			m.skipping = !c.Background
			m.callChild(call, c)
			return
		}
		m.failCall(call, model.ToolResult{Text: "skipped: the user steered the run before this call"}, true)
	}
	m.endTurn(protocol.StopSteered, nil)
}

// waitsForChild reports that nothing happens until a child has ended.
func (m *machine) waitsForChild() bool {
	run := m.s.Run
	stops := m.skipping || m.givesUp != nil
	return m.phase == calling && run != nil && !run.Aborting && !stops && run.WaitsForChild()
}

// resumeChildren has the children waited for that a former daemon, or this one before its
// disk failed, has started, and starts those that it has not come to.
func (m *machine) resumeChildren() {
	if run := m.s.Run; run != nil {
		for _, c := range run.Awaited() {
			m.startChild(c)
		}
	}
	for _, c := range m.s.Background {
		c.Ended = m.s.Run.Counts(c.ChildRunID) // and the line is lost that says what it came to
		m.startChild(c)
	}
	for i := range m.out.children {
		m.out.children[i].again = true
	}
	if run := m.s.Run; run != nil && run.Aborting {
		m.stopChildren()
	}
}

// treeUsage is what the runs of the tree have used together.
func (m *machine) treeUsage() model.Usage {
	below, _ := m.s.Run.Below()
	used := m.s.Run.Usage.Add(below)
	if m.beside != nil {
		used = used.Add(m.beside(m.root(), m.s.Run))
	}
	return used
}
