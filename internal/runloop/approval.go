package runloop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/session"
)

type (
	// answerIn is a person's answer. who has sent it.
	answerIn struct {
		ticket     ticket
		approvalID string
		option     string
		reason     string
		who        person
		content    jsontext.Value // of a form; nil: none was given
	}
	// lateIn says that a question has waited as long as it may.
	lateIn struct{ approvalID string }
	// lookedIn has what was found out of the call.
	lookedIn struct {
		gen   int
		diff  string
		guard model.Verdict
	}
	approvalModeIn struct {
		ticket ticket
		mode   protocol.ApprovalMode
	}
)

// person is the process that answers for one.
type person struct {
	pid, uid int
	comm     string
	peer     string // on another machine; the process is nobody's then
}

// keptRule is a rule that holds from here on, wherever the rules say so.
type keptRule struct {
	rule       []byte
	approvalID string // of the answer that it is from
	title      string
}

// decideCall has the rules say whether the next call is made, and makes it, fails
// it or asks.
func (m *machine) decideCall(call model.ToolCall) {
	inv := m.invocation(call)
	v := m.leaving(call, m.judged(inv))
	if v.Failure != nil {
		m.failCall(call, *v.Failure, false)
		m.afterCall()
		return
	}
	if v.Guarded && v.Decision != model.Deny || v.Changes && v.Decision == model.Ask {
		as := *inv
		if v.Arguments != nil {
			as.Arguments = v.Arguments
		}
		m.await(looking, work{look: &precheck{inv: as, guarded: v.Guarded, change: v.Changes}})
		return
	}
	m.act(inv, v, "")
}

// act does what was decided about the next call.
func (m *machine) act(inv *model.Invocation, v model.Verdict, diff string) {
	m.auditRule(inv.ToolCall, v)
	switch v.Decision {
	case model.Deny:
		m.failCall(inv.ToolCall, model.Failed(v.Code, v.Why), false)
		m.afterCall()
	case model.Ask:
		m.askCall(inv.ToolCall, v, diff)
	default:
		inv.Allowed = v.Decision == model.Allow
		m.startCall(inv, v)
	}
}

// stricter is the stricter verdict of the rules and the orchestrators, and that of
// the rules where both agree. The approval mode decides what orchestrators would ask.
func (m *machine) stricter(rules, guard model.Verdict) model.Verdict {
	switch mode := m.approvals(); {
	case guard.Decision != model.Ask:
	case mode == protocol.ApprovalsAuto:
		guard = model.Verdict{}
	case mode == protocol.ApprovalsDeny:
		guard.Decision, guard.Code, guard.Why = model.Deny, model.Denied,
			guard.Rule+", and nobody can approve it here; see --approvals"
	}
	if guard.Decision == model.Deny || guard.Decision == model.Ask && rules.Decision != model.Ask {
		guard.Changes, guard.Arguments, guard.Path, guard.Linked = rules.Changes, rules.Arguments, rules.Path, rules.Linked
		guard.Delegates, guard.Host = rules.Delegates, rules.Host
		return guard
	}
	return rules
}

// startCall makes a call that may be made; one that reads changes nothing.
func (m *machine) startCall(inv *model.Invocation, v model.Verdict) {
	if v.Delegates {
		m.delegate(inv.ToolCall)
		return
	}
	m.call, m.said, m.filling.spent = inv.ToolCall, false, 0
	q := m.s.Run.Question
	filled := q != nil && q.CallID == m.call.ID && len(q.Arguments) > 0 // the message has others
	reads := v.Reads || m.searches(inv.ToolCall) || m.hosted()
	m.record(session.ToolStarted{RunID: m.s.Run.ID, CallID: m.call.ID, Reads: reads})
	m.publish(m.toolStart(m.call))
	w := work{tool: inv, before: m.recordFirst(reads)}
	m.call.Arguments, m.msg.calls = nil, nil
	if len(inv.Arguments) > longArguments && !filled {
		w.made, w.size, inv.Arguments = m.s.Calling(), len(inv.Arguments), nil
	}
	if m.searches(m.call) {
		set := m.toolset()
		w.search = &set
	}
	m.await(calling, w)
}

// judged is what the rules and the session's answers say of a call.
func (m *machine) judged(inv *model.Invocation) model.Verdict {
	if m.judge == nil {
		return model.Verdict{}
	}
	answers := make([][]byte, len(m.s.Answers))
	for i, rule := range m.s.Answers {
		answers[i] = rule
	}
	v := m.judge(*inv, string(m.approvals()), answers)
	inv.Path = v.Path
	if v.Code == model.Denied {
		v.Why = m.whyDenied(inv.Name)
	}
	return v
}

// whyDenied says why a call is denied that has to be asked about.
func (m *machine) whyDenied(name string) string {
	if m.s.ApprovalMode == protocol.ApprovalsDeny {
		return name + " needs your approval, and the approval mode of this session is deny; see nous set-approval-mode"
	}
	return name + " needs your approval and there is no terminal; see --approvals"
}

// approvals is the approval mode of the run.
func (m *machine) approvals() protocol.ApprovalMode {
	if m.s.Run.Approvals == protocol.ApprovalsDeny {
		return protocol.ApprovalsDeny
	}
	return m.s.ApprovalMode
}

func (m *machine) askCall(call model.ToolCall, v model.Verdict, diff string) {
	var options []session.ApprovalOption
	if !v.NotOnce {
		options = append(options, session.ApprovalOption{ID: protocol.OptionOnce, Decision: protocol.DecisionAllow})
	}
	if v.Offer != nil {
		for _, id := range []string{protocol.OptionSession, protocol.OptionAlways} {
			options = append(options, session.ApprovalOption{
				ID: id, Decision: protocol.DecisionAllow, Pattern: v.Offer.Pattern,
				Rule: jsontext.Value(v.Offer.Rule),
			})
		}
	}
	if f := v.ForSession; f != nil {
		options = append(options, session.ApprovalOption{
			ID: protocol.OptionSession, Decision: protocol.DecisionAllow, Pattern: f.Pattern, Rule: jsontext.Value(f.Rule),
		})
	}
	if v.Always != "" {
		options = append(options, session.ApprovalOption{
			ID: protocol.OptionAlways, Decision: protocol.DecisionAllow, Pattern: v.Always,
		})
	}
	rule := v.Rule
	if v.Why != "" {
		rule += " (" + v.Why + ")"
	}
	m.openApproval(session.ApprovalAsked{
		Kind: protocol.ApprovalTool, CallID: call.ID, Arguments: jsontext.Value(v.Arguments), Reason: v.Reason, Rule: rule,
		Diff: diff, Path: v.Path, Linked: v.Linked, Host: v.Host,
		Options: append(options, session.ApprovalOption{ID: protocol.OptionDeny, Decision: protocol.DecisionDeny}),
	})
}

// overBudget asks whether a run that has reached a limit goes on, or ends it
// where nobody is to be asked. No mode lets it go on by itself.
func (m *machine) overBudget(why *protocol.Error) {
	if m.approvals() == protocol.ApprovalsDeny {
		m.endTurn(protocol.StopError, why)
		return
	}
	used := m.treeUsage()
	reached, _ := m.limitReached()
	m.openApproval(session.ApprovalAsked{
		Kind: protocol.ApprovalBudget, Reason: reached, Rule: "ask: [limits]",
		Options: []session.ApprovalOption{
			{ID: protocol.OptionContinue, Decision: protocol.DecisionAllow},
			{ID: protocol.OptionDeny, Decision: protocol.DecisionDeny},
		},
		Used: session.Used{Tokens: used.InputTokens + used.OutputTokens, Cost: used.Cost, DayCost: m.today},
	})
}

// openApproval puts a question and waits for its answer. Its id says whose it is, so that
// an answer finds its session at any time.
func (m *machine) openApproval(f session.ApprovalAsked) {
	m.raise(f)
	m.waitForAnswer()
	m.steered() // by one that came before
}

func (m *machine) raise(f session.ApprovalAsked) (id string) {
	f.ApprovalID = fmt.Sprintf("apr-%d-%s", m.s.Asked+1, m.s.ID)
	f.RunID, f.Workdir = m.s.Run.ID, m.workdir()
	m.record(f)
	return f.ApprovalID
}

// waitForAnswer reports the open question, now or again.
func (m *machine) waitForAnswer() {
	if m.park() {
		return
	}
	m.phase, m.since = waiting, m.now
	m.tellOpen()
}

func (m *machine) tellOpen() {
	shown := m.question()
	m.publish(protocol.Status{
		Ref: m.turnRef(), Code: protocol.StatusApprovalRequested, Message: asks(shown),
		Approval: shown,
	})
}

// question is the open question as an event has it, nil where there is none.
func (m *machine) question() *protocol.Approval {
	if m.s.Run == nil || !m.s.Run.Question.Open() {
		return nil
	}
	q := m.s.Run.Question
	out := &protocol.Approval{
		ApprovalID: q.ApprovalID, Kind: q.Kind, ToolCallID: q.CallID, Reason: q.Reason, Rule: q.Rule, Workdir: q.Workdir,
		CreatedAt: q.At.UTC(), Diff: q.Diff, Schema: q.Schema, Options: []protocol.ApprovalOption{},
	}
	if q.CallID != "" {
		call := m.s.Run.AskedFor(q)
		out.ToolName, out.Arguments = call.Name, rawObject(call.Arguments)
	}
	if q.Linked {
		out.Path = q.Path
	}
	if p := m.s.Parent; p != nil {
		out.SessionPath = append(slices.Clone(p.Titles), m.s.Title)
	}
	for _, o := range q.Options {
		out.Options = append(out.Options, protocol.ApprovalOption{ID: o.ID, Decision: o.Decision, Pattern: o.Pattern})
	}
	return out
}

// asks is a question as people read it, in one line that hides nothing.
func asks(a *protocol.Approval) string {
	switch a.Kind {
	case protocol.ApprovalBudget:
		return plaintext.RevealLine("continue this run? " + a.Reason)
	case protocol.ApprovalQuestion:
		return plaintext.RevealLine(a.ToolName + " asks: " + a.Reason)
	}
	text := "allow this call of " + a.ToolName + "? " + a.Because()
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return plaintext.RevealLine(text)
}

// decide ends the open question.
func (m *machine) decide(d session.ApprovalDecided) {
	q := m.s.Run.Question
	call := m.s.Run.Call(q.CallID)
	d.ApprovalID, d.RunID = q.ApprovalID, m.s.Run.ID
	m.record(d)
	by := protocol.ByWord(d.By)
	switch {
	case d.Peer != "":
		by = protocol.ByPeer(d.Peer)
	case d.By == "":
		by = protocol.ByProcess(d.PID, d.Comm)
	}
	message := string(d.Outcome)
	if d.Reason != "" {
		message += ": " + d.Reason
	}
	m.publish(protocol.Status{
		Ref: m.turnRef(), Code: protocol.StatusApprovalResolved, Message: message,
		ApprovalID: d.ApprovalID, Outcome: d.Outcome, Option: d.Option, By: by,
	})
	m.auditAnswer(q, call, d)
	if q.Form() {
		m.tellAsker(d)
	}
}

// withdraw ends the open question, if there is one, as nobody needs its answer any
// more.
func (m *machine) withdraw(by string) {
	if m.s.Run.Question.Open() {
		m.decide(session.ApprovalDecided{Outcome: protocol.OutcomeWithdrawn, By: by})
	}
}

// steered gives way to a steer that has come while a question waits. A call whose
// form is withdrawn goes on without the answer.
func (m *machine) steered() {
	switch {
	case !m.steerWaits():
	case m.phase == calling:
		m.withdraw(protocol.BySteer)
		m.out.steered = m.queues()
	case m.phase == waiting:
		m.withdraw(protocol.BySteer)
		m.afterQuestion()
	case m.phase == streaming && m.queues():
		m.out.steered = true
	case m.phase == streaming && m.hosted():
		m.steerAgent()
	case m.phase == ending: // the hooks are asked again when the run would end next
		m.cancel()
		m.nextTurn()
	}
}

// afterQuestion goes on from a question that has ended.
func (m *machine) afterQuestion() {
	q := m.s.Run.Question
	switch {
	case m.phase == parked: // the next daemon does
	case q == nil: // a limit that was lifted
		m.callModel()
	case q.Kind == protocol.ApprovalBudget && q.Decided.Outcome == protocol.OutcomeDenied:
		m.endTurn(protocol.StopError, cmp.Or(m.overLimit(), protocol.Errorf(protocol.OverBudget, "%s", q.Reason)))
	case q.Kind == protocol.ApprovalBudget:
		m.endTurn(protocol.StopSteered, nil)
	case q.Decided.Outcome == protocol.OutcomeAllowed:
		m.startAllowed(m.s.Run.AskedFor(q))
	case q.Decided.Outcome == protocol.OutcomeDenied:
		m.failCall(m.s.Run.Call(q.CallID), denied(q), false)
		m.afterCall()
	default:
		m.afterCall()
	}
}

// denied is the result of a call that a person has denied.
func denied(q *session.Question) model.ToolResult {
	return model.Failed(model.Denied, cmp.Or(q.Decided.Reason, "the user does not allow this call"))
}

// startAllowed makes a call that a person has allowed, on the file that was asked about,
// unless something has been forbidden since, or the call's path leads elsewhere.
func (m *machine) startAllowed(call model.ToolCall) {
	if m.park() {
		return
	}
	inv := m.invocation(call)
	why, refused := m.refusal(call)
	v := m.judged(inv)
	asked := m.s.Run.Question.Path
	switch {
	case refused:
	case asked != "" && v.Path != "" && v.Path != asked:
		why, refused = model.Failed(model.Denied,
			fmt.Sprintf("the path leads to %s now, and led to %s when the user was asked: call it again", v.Path, asked)), true
	case v.Failure != nil:
		why, refused = *v.Failure, true
	case v.Decision == model.Deny && v.Code == model.Forbidden:
		why, refused = model.Failed(v.Code, v.Why), true
	case v.Arguments != nil:
		why, refused = model.Failed(model.Denied,
			"the tool has other defaults now than when the user was asked: call it again"), true
	}
	if refused {
		m.failCall(call, why, false)
		m.afterCall()
		return
	}
	inv.Allowed, inv.Path = v.Decision != "", cmp.Or(v.Path, asked)
	inv.Option = m.s.Run.Question.Decided.Option
	m.startCall(inv, v)
}

// resumeQuestion goes on where a former daemon asked something. What was answered
// is not asked again.
func (m *machine) resumeQuestion() {
	m.deliver(m.undelivered())
	if m.s.Run.Question.Open() && m.steerWaits() {
		m.withdraw(protocol.BySteer)
	}
	if m.s.Run.Question.Open() {
		m.waitForAnswer()
		return
	}
	m.afterQuestion()
}

func (in answerIn) step(m *machine) {
	if m.s.Run == nil || !m.s.Run.Question.Open() || m.s.Run.Question.ApprovalID != in.approvalID {
		m.answeredAlready(in)
		return
	}
	q := m.s.Run.Question
	o, ok := q.Option(in.option)
	if !ok {
		m.refuse(in.ticket, protocol.Errorf(protocol.InvalidPayload, "option: this approval has no %.40q, only %s", in.option,
			optionsOf(q)))
		return
	}
	if q.Form() {
		m.fill(in, o)
		return
	}
	d := session.ApprovalDecided{
		Outcome: protocol.OutcomeAllowed, Option: o.ID, PID: in.who.pid, UID: in.who.uid,
		Comm: in.who.comm, Peer: in.who.peer,
	}
	switch {
	case in.content != nil:
		m.refuse(in.ticket, protocol.Errorf(protocol.InvalidPayload, "content: this approval has no form"))
		return
	case o.Decision != protocol.DecisionAllow:
		d.Outcome, d.Reason = protocol.OutcomeDenied, in.reason
	case o.ID == protocol.OptionSession:
		d.Rule = o.Rule
	case o.ID == protocol.OptionAlways:
		d.Keep = o.Rule
	}
	m.decide(d)
	m.keepRules()
	m.reply(in.ticket, protocol.ApproveAccepted{
		Command: protocol.Approve.Name(), ApprovalID: in.approvalID,
		Outcome: d.Outcome,
	})
	m.afterQuestion()
}

// keepRules has the rules kept that answers have made for every session, also what
// a former daemon has not come to.
func (m *machine) keepRules() {
	for _, d := range m.s.Unkept {
		m.out.rules = append(m.out.rules, keptRule{rule: d.Keep, approvalID: d.ApprovalID, title: m.s.Title})
	}
}

func optionsOf(q *session.Question) string {
	ids := make([]string, len(q.Options))
	for i, o := range q.Options {
		ids[i] = o.ID
	}
	return strings.Join(ids, ", ")
}

// answeredAlready replies to an answer that came second, or to nothing.
func (m *machine) answeredAlready(in answerIn) {
	d, ok := m.s.Decided(in.approvalID)
	switch {
	case !ok:
		m.refuse(in.ticket, noSuchApproval(in.approvalID))
	case d.Option != "" && d.Option == in.option && m.sameFilled(in, d):
		m.out.vouched = true
		m.reply(in.ticket, protocol.ApproveAccepted{
			Command: protocol.Approve.Name(), ApprovalID: in.approvalID,
			Outcome: d.Outcome,
		})
	default:
		m.refuse(in.ticket, protocol.Rejectf(protocol.ApprovalResolved, "%s: it was %s (%s) before%s", in.approvalID,
			d.Outcome, cmp.Or(d.Option, d.By), answeredBy(d)))
	}
}

// answeredBy names the process that has answered a question, where one has.
func answeredBy(d session.ApprovalDecided) string {
	if d.PID == 0 {
		return ""
	}
	return fmt.Sprintf(", by %s (process %d)", cmp.Or(d.Comm, "a program"), d.PID)
}

func noSuchApproval(id string) error {
	return protocol.Rejectf(protocol.NoSuchApproval, "approval_id: there is no approval %.80q", id)
}

func (in lateIn) step(m *machine) {
	if m.phase != waiting && m.phase != calling || !m.s.Run.Question.Open() ||
		m.s.Run.Question.ApprovalID != in.approvalID {
		return
	}
	m.decide(session.ApprovalDecided{
		Outcome: protocol.OutcomeDenied, By: protocol.ByTimeout,
		Reason: "nobody answered in time",
	})
	if m.phase == waiting {
		m.afterQuestion()
	}
}

func (in lookedIn) step(m *machine) {
	if in.gen == m.gen && m.phase == looking {
		if in.guard.Warning != "" {
			m.warnOfHooks([]string{in.guard.Warning})
		}
		m.afterLook(in)
	}
}

// afterLook decides anew: the mode, the rules and the tools may be others by now,
// and the daemon may be stopping.
func (m *machine) afterLook(in lookedIn) {
	if m.park() {
		return
	}
	inv := m.invocation(m.s.Run.Calls[0])
	why, refused := m.refusal(inv.ToolCall)
	v := m.judged(inv)
	if !refused && v.Failure != nil {
		why, refused = *v.Failure, true
	}
	if refused {
		m.failCall(inv.ToolCall, why, false)
		m.afterCall()
		return
	}
	m.act(inv, m.stricter(m.leaving(inv.ToolCall, v), in.guard), in.diff)
}

func (in approvalModeIn) step(m *machine) {
	was := m.s.ApprovalMode
	m.record(session.ApprovalModeSet{Mode: in.mode})
	m.tellSetting(in.mode == was, "approvals", string(in.mode))
	m.reply(in.ticket, protocol.ApprovalModeAccepted{Command: protocol.SetApprovalMode.Name(), Mode: in.mode})
}

// decision is the data of a policy:decision audit event.
type decision struct {
	Tool       string `json:"tool,omitzero"`
	Decision   string `json:"decision"`
	Rule       string `json:"rule,omitzero"`
	Pattern    string `json:"pattern,omitzero"`
	ApprovalID string `json:"approval_id,omitzero"`
	Option     string `json:"option,omitzero"`
	By         string `json:"by,omitzero"`
	PID        int    `json:"pid,omitzero"`
	UID        *int   `json:"uid,omitzero"`
	Peer       string `json:"peer,omitzero"`
}

func (m *machine) auditRule(call model.ToolCall, v model.Verdict) {
	if v.Decision != "" {
		m.out.audits = append(m.out.audits, ruleAudit(m.s.ID, call, v))
	}
}

// ruleAudit is what the audit journal keeps of what rules say of a call.
func ruleAudit(sessionID string, call model.ToolCall, v model.Verdict) model.AuditEvent {
	return audit(sessionID, call.ID, v.Decision != model.Deny, decision{
		Tool: call.Name, Decision: v.Decision,
		Rule: v.Rule, Pattern: v.Pattern,
	})
}

func (m *machine) auditAnswer(q *session.Question, call model.ToolCall, d session.ApprovalDecided) {
	data := decision{
		Tool: call.Name, Decision: string(d.Outcome), Rule: q.Rule, ApprovalID: d.ApprovalID,
		Option: d.Option, By: d.By,
	}
	if d.By == "" {
		data.PID, data.Peer = d.PID, d.Peer
		if d.Peer == "" {
			data.UID = &d.UID
		}
	}
	m.out.audits = append(m.out.audits, audit(m.s.ID, q.CallID, d.Outcome == protocol.OutcomeAllowed, data))
}
