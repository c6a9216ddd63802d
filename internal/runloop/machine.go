package runloop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/queue"
	"noused/internal/session"
)

// Bounds of what one session may hold or do.
const (
	maxPending      = 1000     // texts waiting for delivery
	maxPendingBytes = 64 << 20 // of those texts together
	maxState        = 1 << 20  // bytes that tools have patched together
	maxAssets       = 1 << 20  // bytes that are known of files that tools have made
	maxSteps        = 500      // model calls in one turn, unless configured
	maxCrashes      = 3        // resumptions of one run after crashes
	maxFaults       = 8        // and after disk faults, without getting on
	keptTokens      = 20_000   // a compaction leaves about so many
	fullPercent     = 80       // of its context window, and a session is compacted
	readPercent     = 70       // of it is what a summary is made from at most
	// of it is what a request has at most, as far as results can be cut: what JSON adds is not counted
	sentPercent = 80
	maxRequest  = 64 << 20 // bytes of the conversation in a request, images aside: no window is as large
	// bytes of a conversation that are read from the journal for its summary: of the rest the texts' ends
	maxSummarised = 4 << 20
	// compactions in one turn because the provider refused its length, and shorter requests for one summary
	maxOverflows = 3
	maxAgain     = 2 // times in one turn that an answer which broke off is asked for again
)

// machine decides. It is a pure function of the facts folded so far and its
// inputs: no clock, no I/O, no goroutine; every input appends its
// effects to out. Facts are applied to the session the moment they are
// recorded, so the session it reads is always the fold of its journal.
type machine struct {
	s        *session.State
	ownModel func() model.Choice // the daemon's
	maxSteps int                 // model calls in one turn
	limits   Limits
	today    int64                                                                   // spent by all sessions, as of now
	judge    func(inv model.Invocation, mode string, answers [][]byte) model.Verdict // nil: the caller decides
	// the context size of a model that sets none
	windowOf func(model.Choice) int64
	// why a model cannot be asked; nil: all can
	missing func(model.Choice) error
	// the models that answer while the session's cannot; nil: there are none
	fallbacks func() []model.Choice
	away      map[string]time.Time // until when models are not asked first, by their Key
	// whether hooks may send a run back; nil: none can
	stopHooks func(workdir string) bool
	agents    Agents // nil: there are none
	agent     Agent  // of a hosted session; nil in one that is only read
	records   bool   // what turns do to the folder is recorded
	rewind    rewind // that is under way
	change    change // of the open turn, to the folder
	late      lateRecord
	outside   outsideCall
	serves    func(callID string) bool // whether the hosted agent calls a tool of ours so; nil: never
	turnCut   bool                     // the agent may have been sent the turn's texts by a former daemon
	cutCalls  []string                 // names of calls that were under way when the hosted agent ended
	// Keeper's; nil: there is none
	takeUp   func(runID string, turn int) (kept, shown bool)
	quieting bool   // the hosted agent is being paused
	filesDir string // where the session's images are
	// what the hosted agent has told last; nil: nothing since it was started
	offer *model.AgentOffer
	// the daemon's folder, for a session that names none
	home  string
	newID func(prefix string) string
	// hosts says why no session can have a hosted agent of that name. Nil: none can.
	hosts func(name string) error
	// bounds are those of child sessions; the zero Bounds: there are none.
	bounds Bounds
	// reserve counts one more child below the run at the root, the nth, and reports whether there
	// may be one. Nil: always.
	reserve func(root, runID string) (nth int, ok bool)
	// named returns a named agent of a folder. Nil: there are none.
	named func(workdir, name string) (*model.NamedAgent, error)
	// treesKnown reports that the runs are counted that a former daemon has left. Nil: they are.
	treesKnown func() bool
	// beside is what the other runs of the run's tree have used by now. Nil: there are none.
	beside func(root string, run *session.Run) model.Usage

	now       time.Time
	out       effects
	phase     phase
	gen       int // of the model call or tool call being awaited; others are stale
	msg       message
	call      model.ToolCall
	since     time.Time // when what is awaited was begun
	lacks     string    // why a modelless run waits, as people have been told
	said      bool      // the call has had an update that people can read
	filling   filling
	compact   *compaction
	trouble   trouble          // with the model, in the open turn
	asked     model.Choice     // the model that was asked last
	ladder    requestFallbacks // of the run
	leftOut   []string         // of the instructions, as people have been told
	waiters   []ticket         // answered when the run ends
	postponed []input          // stepped again when the session becomes idle
	watchers  []ticket         // of a parent: answered when the run ends
	skipping  bool             // the child that is waited for was stopped for a steer
	givesUp   *protocol.Error  // why that child was stopped, as the run ends when it has
	draining  bool
	deleted   bool // takes no further input
	reopens   bool // nor does this one: the session is opened anew, with another agent
}

// phase says what the machine waits for.
type phase int

const (
	idle       phase = iota // nothing: the next command
	streaming               // deltas of model call gen
	calling                 // the result of tool call gen, and meanwhile the answer to its form, if it has one
	looking                 // what the call would change, to ask about it
	waiting                 // the answer to the run's question
	compacting              // deltas of the summary gen
	modelless               // a model that can be asked
	ending                  // what hooks say to the end of the run
	recording               // what the turn has changed in the folder
	rewinding               // what a rewind does to the folder
	parked                  // nothing more: the daemon is stopping
)

// message is the assistant message being streamed.
type message struct {
	id             string
	model          string // that makes it
	started        bool
	text, thinking strings.Builder // until it has ended
	spoke          bool            // it has ended with a text
	calls          []model.ToolCall
	maker          string
	blocks         []model.Block
	stop           model.StopReason
	more           bool // another follows, of a hosted agent
	usage          model.Usage
	size           int // of what has come, as JSON
}

// compaction is a summary being made. A run that is begun meanwhile waits for a
// manual one; the others are part of a run, between two turns or in the place of the
// model call that was refused for why.
type compaction struct {
	ticket      ticket
	trigger     protocol.Trigger
	instruction string
	why         *protocol.Error
	firstKept   string
	before      int64
	refused     int // times that it was to be made from too much
	text        strings.Builder
	size        int // of the text, as JSON
	stop        model.StopReason
	usage       model.Usage
}

// input is one of the things that happen to a session.
type input interface{ step(m *machine) }

// step takes one input in.
func (m *machine) step(now time.Time, in input) {
	m.now = now
	in.step(m)
}

// drainEffects hands over the pending effects and starts afresh.
func (m *machine) drainEffects() effects {
	out := m.out
	m.out = effects{}
	return out
}

// runState is the wire's run_state.
func (m *machine) runState() protocol.RunState {
	switch {
	case m.s.Run == nil, m.s.ReadOnly != nil:
		return protocol.StateIdle
	case m.s.Run.Aborting:
		return protocol.StateAborting
	default:
		return protocol.StateRunning
	}
}

func (m *machine) record(f session.Fact) {
	r := session.Record{At: m.now, Fact: f}
	if err := m.s.Apply(r); err != nil {
		panic(fmt.Sprintf("a fact does not fit the session it was made from: %v", err))
	}
	m.out.records = append(m.out.records, r)
}

func (m *machine) publish(ev protocol.Event) { m.out.events = append(m.out.events, ev) }

func (m *machine) reply(to ticket, value any) {
	if to != nil {
		m.out.replies = append(m.out.replies, reply{to: to, value: value})
	}
}

func (m *machine) refuse(to ticket, err error) {
	if to != nil {
		m.out.replies = append(m.out.replies, reply{to: to, err: err})
	}
}

// runRef ties an event to the run, turnRef to the open turn as well.
func (m *machine) runRef() protocol.Ref {
	return protocol.Ref{RunID: m.s.Run.ID, SessionID: m.s.ID}
}

func (m *machine) turnRef() protocol.Ref {
	ref := m.runRef()
	if m.s.Run.TurnOpen {
		ref.TurnID = turnID(m.s.Run.Turn)
	}
	return ref
}

func turnID(n int) string { return fmt.Sprint(n) }

func kindOf(in session.Input) protocol.Kind { return in.Kind }

func (m *machine) counts() protocol.PendingCounts {
	return protocol.PendingCounts{
		Steer:    queue.Count(m.s.Pending, kindOf, protocol.KindSteer),
		FollowUp: queue.Count(m.s.Pending, kindOf, protocol.KindFollowUp),
	}
}

// openRun opens the run that an accepted input is for.
func (m *machine) openRun(in session.Input) {
	m.ladder = requestFallbacks{}
	started := session.RunStarted{RunID: in.RunID, Approvals: in.Approvals}
	if own := m.model(); !m.hosted() && m.s.Model.Provider == "" && own.Provider != "" && plainly(own) != m.s.Answered {
		started.Model = plainly(own)
	}
	m.record(started)
	begun := protocol.AgentStart{Ref: m.runRef()}
	if as := m.s.Run.Terms.As; as != nil {
		begun.As = as.Name
	}
	m.publish(begun)
	m.startTurn(protocol.KindPrompt, []session.Input{in})
}

// startTurn delivers inputs and asks the model.
func (m *machine) startTurn(kind protocol.Kind, inputs []session.Input) {
	if m.park() {
		return
	}
	m.trouble, m.change = trouble{}, change{told: m.change.told}
	run := m.s.Run
	ids := make([]string, len(inputs))
	for i, in := range inputs {
		ids[i] = in.InputID
	}
	m.record(session.TurnStarted{RunID: run.ID, Turn: run.Turn + 1, Kind: kind, InputIDs: ids})
	m.publish(protocol.TurnStart{Ref: m.turnRef(), Kind: kind, InputIDs: ids})
	m.deliver(inputs)
	m.callModel()
}

func (m *machine) deliver(inputs []session.Input) {
	for _, in := range inputs {
		id := m.newID("msg-")
		m.record(session.MessageAdded{
			ID: id, ParentID: m.s.Leaf, RunID: m.s.Run.ID, TurnKind: m.s.Run.Kind, InputID: in.InputID,
			Message: model.Message{Role: model.User, Text: in.Text, Attachments: in.Attachments}, Child: in.Tells(),
		})
		m.publish(protocol.MessageStart{
			Ref: m.turnRef(), MessageID: id, Role: string(model.User), Text: in.Text, Attachments: wireAttachments(m.filesDir,
				in.Attachments),
			InputID: in.InputID, Child: wireChild(in.Tells()),
		})
		m.publish(protocol.MessageEnd{Ref: m.turnRef(), MessageID: id, Role: string(model.User), Text: in.Text})
	}
}

func (m *machine) callModel() {
	if m.phase == compacting { // by hand: endCompaction calls the model
		return
	}
	if m.park() {
		return
	}
	switch {
	case m.hosted():
		m.callAgent()
		return
	case m.s.Run.Outside && m.s.Run.Turn == 1:
		m.callOutside()
		return
	}
	if why := m.modelMissing(); why != nil {
		if m.phase != modelless || m.lacks != why.Error() {
			m.publish(protocol.Status{Ref: m.turnRef(), Code: protocol.StatusModelMissing, Message: "the run waits: " +
				why.Error()})
			m.since = m.now
		}
		m.phase, m.lacks = modelless, why.Error()
		if !m.s.Run.Parked { // to wait is nothing that a daemon could crash by
			m.record(session.RunParked{RunID: m.s.Run.ID})
		}
		return
	}
	if m.s.Run.Steps >= m.maxSteps {
		m.endTurn(protocol.StopError, &protocol.Error{
			Code:    protocol.StepLimit,
			Message: fmt.Sprintf("the turn took %d model calls", m.maxSteps),
		})
		return
	}
	if why := m.spentTerms(); why != nil {
		m.endTurn(protocol.StopError, why)
		return
	}
	if why := m.overLimit(); why != nil {
		m.overBudget(why)
		return
	}
	if m.crowded() {
		m.trouble.triedAt = m.s.Messages
		if m.summarise(&compaction{trigger: protocol.TriggerThreshold}) {
			return
		}
	}
	history, fit := m.s.Conversation(), m.fits()
	if n := history.Bytes(); n > maxRequest {
		m.endTurn(protocol.StopError, providerError(fmt.Errorf("the conversation has %d MiB, more than the %d MiB that a "+
			"request may have, and could not be summarised: choose another model, or go on in a branch from an earlier message",
			n>>20, maxRequest>>20)))
		return
	}
	m.asked = m.answering()
	m.msg = message{id: m.newID("msg-"), model: m.asked.Name}
	call := &modelCall{
		warm: m.records && !m.change.begun, choice: m.asked, req: model.Request{
			Repair: m.repair(), Effort: model.Effort{Level: m.asked.Effort},
			Output: []byte(m.s.Run.Terms.OutputSchema),
		}, toolset: m.toolset(), environment: m.s.Environment, history: history, fit: fit,
	}
	if as := m.s.Run.Terms.As; as != nil {
		call.as = as.Text
	}
	m.await(streaming, work{call: call})
}

// await starts a piece of work; only what carries its generation counts.
func (m *machine) await(p phase, w work) {
	m.gen++
	w.gen = m.gen
	m.phase, m.since = p, m.now
	m.out.work = append(m.out.work, w)
}

// cancel ends the running piece of work and turns what it still says stale.
func (m *machine) cancel() {
	m.gen++
	m.out.work = append(m.out.work, work{gen: m.gen})
}

func (m *machine) startMessage() {
	if !m.msg.started {
		m.msg.started = true
		m.record(session.MessageStarted{ID: m.msg.id, RunID: m.s.Run.ID, Model: m.msg.model})
		m.publish(protocol.MessageStart{Ref: m.turnRef(), MessageID: m.msg.id, Role: string(model.Assistant)})
	}
}

// endMessage keeps the assistant message as it has come so far.
func (m *machine) endMessage(stop model.StopReason) {
	usage, text := m.msg.usage, m.msg.text.String()
	defer func() { // an idle session has them in its history alone
		m.msg.spoke = text != ""
		m.msg.text.Reset()
		m.msg.thinking.Reset()
		m.msg.blocks = nil
		m.out.said = nil // the record has it
	}()
	said := model.Message{Role: model.Assistant, Text: text, Thinking: m.msg.thinking.String()}
	if cut := stop == model.StopAborted || stop == model.StopError; cut && len(said.Thinking) > maxCutThinking {
		said.Thinking = strings.Clone(format.Clip(said.Thinking, maxCutThinking))
	}
	if stop != model.StopAborted && stop != model.StopError { // of what was cut only the text is kept
		said.ToolCalls, said.Maker, said.Blocks = m.msg.calls, m.msg.maker, soundBlocks(m.msg.blocks)
	}
	m.record(session.MessageAdded{
		ID: m.msg.id, ParentID: m.s.Leaf, RunID: m.s.Run.ID, TurnKind: m.s.Run.Kind,
		Message:    said,
		StopReason: stop, Usage: &usage, Model: m.msg.model,
	})
	m.publish(protocol.MessageEnd{
		Ref: m.turnRef(), MessageID: m.msg.id, Role: string(model.Assistant), Text: text,
		ToolCalls: wireCalls(said.ToolCalls), StopReason: protocol.StopReason(stop), Usage: wireUsage(&usage),
	})
}

// nextCall runs the next tool call of the last assistant message, or asks the
// model again when all have their results.
func (m *machine) nextCall() {
	run := m.s.Run
	if len(run.Calls) == 0 {
		m.callModel()
		return
	}
	if m.park() {
		return
	}
	if child, ok := run.Child(run.Calls[0].ID); ok {
		m.callChild(run.Calls[0], child)
		return
	}
	if why, ok := m.refusal(run.Calls[0]); ok {
		m.failCall(run.Calls[0], why, false)
		m.afterCall()
		return
	}
	m.decideCall(run.Calls[0])
}

// refusal is the result of a call that must not be run.
func (m *machine) refusal(call model.ToolCall) (model.ToolResult, bool) {
	switch {
	case m.s.Run.Stop == model.StopLength:
		return model.Failed(model.BadRequest, "not run: the model's message was cut off at its length limit"), true
	case m.hosted() && (m.serves == nil || !m.serves(call.ID)): // a tool of its own
	case m.s.ToolsChosen && !m.searches(call) && !slices.ContainsFunc(m.s.Tools, func(name string) bool {
		return model.Means(call.Name, name)
	}):
		return model.Failed(model.Forbidden, call.Name+" is not active in this session"), true
	case !m.searches(call) && !m.s.Run.Terms.As.May(call.Name):
		return model.Failed(model.Forbidden, call.Name+" is no tool of the agent "+m.s.Run.Terms.As.Name), true
	}
	return model.ToolResult{}, false
}

func (m *machine) invocation(call model.ToolCall) *model.Invocation {
	return &model.Invocation{ToolCall: call, Scope: m.scope(), Phase: "setup", MaxResult: m.maxResult()}
}

func (m *machine) toolStart(call model.ToolCall) protocol.Event {
	return protocol.ToolStart{
		Ref: m.turnRef(), ToolCallID: call.ID, ToolName: call.Name,
		Arguments: rawObject(call.Arguments),
	}
}

// maxCutThinking is how much is kept of what a model thought for an answer that was
// cut, in bytes: nobody sends it back.
const maxCutThinking = 64 << 10

// maxResultHead is how much of a result stands for what its tool did not say, in
// bytes.
const maxResultHead = 4 << 10

// sayResult has the head of a result told as an update, for clients that show
// nothing else of a tool.
func (m *machine) sayResult(call model.ToolCall, res model.ToolResult) {
	head := format.Cut(cmp.Or(res.Text, "no output"), maxResultHead)
	m.publish(protocol.ToolUpdate{Ref: m.turnRef(), ToolCallID: call.ID, ToolName: call.Name, Delta: head, OfResult: true})
}

// endCall keeps a call's result.
func (m *machine) endCall(call model.ToolCall, res model.ToolResult, skipped bool, took time.Duration) {
	if !m.said {
		m.sayResult(call, res)
	}
	m.tellCaller(call, res)
	var notRun protocol.NotRun
	if skipped {
		notRun = protocol.NotRunSteered
	}
	m.record(session.MessageAdded{
		ID: m.newID("msg-"), ParentID: m.s.Leaf, RunID: m.s.Run.ID, TurnKind: m.s.Run.Kind,
		Message: model.Message{
			Role: model.Tool, Text: res.Text, ToolCallID: call.ID, ToolName: call.Name, OK: res.OK,
			Attachments: res.Attachments,
		},
		Outputs: res.Outputs, DurationMS: took.Milliseconds(), NotRun: notRun,
	})
	m.publish(protocol.ToolEnd{
		Ref: m.turnRef(), ToolCallID: call.ID, ToolName: call.Name, OK: res.OK, Result: res.Text, Outputs: res.Outputs,
		Value: rawValue(res.Value), Skipped: skipped, Error: wireToolError(res.Error), DurationMS: took.Milliseconds(),
		Attachments: wireAttachments(m.filesDir, res.Attachments),
	})
}

// failCall gives a result to a call that is not run.
func (m *machine) failCall(call model.ToolCall, res model.ToolResult, skipped bool) {
	m.publish(m.toolStart(call))
	m.said = false
	m.endCall(call, res, skipped, 0)
}

// afterCall looks at the steers before anything else goes on (invariant 4).
func (m *machine) afterCall() {
	if queue.Count(m.s.Pending, kindOf, protocol.KindSteer) == 0 {
		m.nextCall()
		return
	}
	m.skipRest()
}

// endTurn closes the turn and takes the next one, or ends the run.
func (m *machine) endTurn(stop protocol.StopReason, why *protocol.Error) {
	ended := session.TurnEnded{RunID: m.s.Run.ID, Turn: m.s.Run.Turn, StopReason: stop}
	if why != nil {
		ended.Code, ended.Error = why.Code, why.Message
	}
	ref := m.turnRef()
	goesOn := stop == protocol.StopEnd || stop == protocol.StopSteered && m.queues()
	m.out.cut = m.out.cut || m.hosted() && !goesOn
	m.record(ended)
	m.publish(protocol.TurnEnd{Ref: ref, StopReason: stop, Error: wireRunError(why)})
	m.afterTurn()
}

// afterTurn makes room for the next turn, if need be, and goes on, once it is recorded
// what the turn has changed.
func (m *machine) afterTurn() {
	if m.recordTurn(m.afterRecord) {
		return
	}
	m.afterRecord()
}

func (m *machine) afterRecord() {
	if m.full() && m.spent() == nil && m.summarise(&compaction{trigger: protocol.TriggerThreshold}) {
		return
	}
	m.nextTurn()
}

func (m *machine) nextTurn() {
	kind, batch := queue.Next(m.s.Pending, kindOf, m.s.SteeringMode, m.s.FollowUpMode)
	last := m.s.Run.Ended
	switch {
	case len(batch) > 0 && last.Code != protocol.OverBudget:
		m.startTurn(kind, batch)
	case last.StopReason == protocol.StopAborted:
		m.endRun(protocol.StopAborted, nil)
	case last.StopReason == protocol.StopError:
		m.endRun(protocol.StopError, &protocol.Error{Code: last.Code, Message: last.Error})
	case m.maySendBack():
		m.checkStop()
	default:
		m.endRun(protocol.StopCompleted, nil)
	}
}

// endRun closes the run, exactly once. What it still owes is handed back.
func (m *machine) endRun(stop protocol.StopReason, why *protocol.Error) {
	run := m.s.Run
	if run.Reported && m.park() { // the sessions that are to keep what it has used take in no more
		return
	}
	end := protocol.AgentEnd{
		Ref: m.runRef(), StopReason: stop, Turns: run.Turn, Usage: *wireUsage(&run.Usage),
		Discarded: discarded(slices.Concat(run.Unheard, m.s.Pending)), DurationMS: m.now.Sub(run.Began).Milliseconds(),
	}
	fact := session.RunEnded{
		RunID: run.ID, StopReason: stop, Unread: (!run.Outside || run.Turn > 1) && !run.IsChild(),
		Waits: len(m.s.Background) > 0,
	}
	if as := run.Terms.As; as != nil {
		fact.As = as.Name
	}
	if used, children := run.Below(); children > 0 {
		fact.Spent, fact.Children, fact.Counted = &used, children, run.Counted()
	}
	if why != nil {
		fact.Code, fact.Error, end.Error = why.Code, why.Message, wireRunError(why)
	}
	m.record(fact)
	m.publish(end)
	for _, w := range m.waiters {
		m.out.replies = append(m.out.replies, reply{to: w, ended: endOf(fact, run.Output, nil)})
	}
	m.waiters = nil
	for _, w := range m.watchers {
		m.reply(w, childEndOf(fact, run.Usage))
	}
	m.watchers = nil
	m.endOutside()
	m.becomeIdle()
}

// becomeIdle steps all that was put off, in order; what has to wait once more
// puts itself off again.
func (m *machine) becomeIdle() {
	m.phase, m.givesUp = idle, nil
	list := m.postponed
	m.postponed = nil
	for _, in := range list {
		in.step(m)
	}
}

// park leaves the run where it is when the daemon is stopping.
func (m *machine) park() bool {
	if !m.draining {
		return false
	}
	m.phase = parked
	m.record(session.RunParked{RunID: m.s.Run.ID})
	return true
}

// undelivered are the open turn's inputs that have no message yet.
func (m *machine) undelivered() []session.Input {
	var out []session.Input
	for _, in := range m.s.Pending {
		if slices.Contains(m.s.Run.Inputs, in.InputID) {
			out = append(out, in)
		}
	}
	return out
}
