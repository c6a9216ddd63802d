// Package protocoltest checks what a daemon announces against the invariants
// of wire-v1 §4, as an oracle for fuzzing the run loop and for tests against a
// running daemon.
//
// Concurrency: a Checker belongs to one goroutine.
//
// It refuses to be clever about time: it knows only the order of the events.
package protocoltest

import (
	"fmt"
	"slices"
	"strconv"

	"noused/internal/protocol"
)

// Checker follows the events of a daemon from its first, across its restarts:
// what was open when it was killed has to be ended by the next one. Feed it every event
// with Event, every accepted text with Accepted, every one handed back with
// HandedBack.
type Checker struct {
	// Hosted: the turns are those of hosted agents, in which a steer cuts what is said.
	Hosted bool

	sessions map[string]*track
	runs     map[string]bool // seen; true once ended
	ids      map[string]bool // message and tool call ids
	owed     map[string]string
	settled  map[string]bool   // inputs delivered, handed back or withdrawn
	asked    map[string]*asked // by their ids
	about    map[string]*asked // by the call, the latest
}

// asked is an approval, and how it ended.
type asked struct {
	session, call, arguments string
	outcome                  protocol.ApprovalOutcome // "" while it waits
}

// track is where one session stands.
type track struct {
	run       string
	turns     int
	turn      string
	message   string
	role      string
	calls     []string // of the last assistant message, not yet executed
	tool      string
	answered  bool // the latest whole thing is a tool's end
	skipping  bool // a steer waited when a tool finished, or when the run was resumed after it
	maySkip   bool // it was resumed then, and the next call may have begun before
	steered   bool // the last turn ended steered
	aborting  bool
	question  string   // that is open
	form      string   // that too, if the call that runs has asked it; over a daemon's end
	resumed   bool     // and nothing was started since
	steers    []string // queued and not delivered
	followUps []string
	kind      protocol.Kind // of the latest turn
	begun     []string      // inputs of that whose messages have not ended
}

// NewChecker returns a checker that has seen nothing.
func NewChecker() *Checker {
	return &Checker{
		sessions: map[string]*track{}, runs: map[string]bool{}, ids: map[string]bool{},
		owed: map[string]string{}, settled: map[string]bool{}, asked: map[string]*asked{}, about: map[string]*asked{},
	}
}

// Accepted notes a text that the daemon promised to deliver in a run.
func (c *Checker) Accepted(inputID, runID string) {
	if !c.settled[inputID] {
		c.owed[inputID] = runID
	}
}

// HandedBack notes texts that an abort returned.
func (c *Checker) HandedBack(inputs []protocol.DiscardedInput) error {
	for _, in := range inputs {
		if err := c.settle(in.InputID); err != nil {
			return err
		}
	}
	return nil
}

func (c *Checker) settle(inputID string) error {
	if c.settled[inputID] {
		return fmt.Errorf("input %s was delivered, handed back or withdrawn twice", inputID)
	}
	c.settled[inputID] = true
	delete(c.owed, inputID)
	return nil
}

// Done reports texts that were accepted and neither delivered nor handed back,
// and runs that have not ended.
func (c *Checker) Done() error {
	for run, ended := range c.runs {
		if !ended {
			return fmt.Errorf("run %s has not ended", run)
		}
	}
	for in, run := range c.owed {
		return fmt.Errorf("input %s of run %s was neither delivered nor handed back", in, run)
	}
	return nil
}

// Event takes the next event in. An error names the invariant that it breaks.
func (c *Checker) Event(ev protocol.Event) error {
	ref := ev.Where()
	if ref.RunID == "" {
		return nil
	}
	if ref.SessionID == "" {
		return fmt.Errorf("%s of %s names no session", ev.Type(), ref.RunID)
	}
	t := c.sessions[ref.SessionID]
	if t == nil {
		t = &track{}
		c.sessions[ref.SessionID] = t
	}
	if err := c.event(t, ev, ref); err != nil {
		return fmt.Errorf("%s of %s: %w", ev.Type(), ref.RunID, err)
	}
	return nil
}

func (c *Checker) event(t *track, ev protocol.Event, ref protocol.Ref) error {
	if _, start := ev.(protocol.AgentStart); !start && t.run != ref.RunID {
		return fmt.Errorf("invariant 1: the active run is %q", t.run)
	}
	if t.turn != ref.TurnID {
		if _, start := ev.(protocol.TurnStart); !start {
			return fmt.Errorf("invariant 3: says turn %q inside turn %q", ref.TurnID, t.turn)
		}
	}
	switch ev := ev.(type) {
	case protocol.AgentStart:
		return c.agentStart(t, ref)
	case protocol.AgentEnd:
		return c.agentEnd(t, ev)
	case protocol.TurnStart:
		return c.turnStart(t, ev)
	case protocol.TurnEnd:
		return c.turnEnd(t, ev)
	case protocol.MessageStart:
		return c.messageStart(t, ev)
	case protocol.MessageUpdate:
		return t.expectMessage(ev.MessageID, "assistant")
	case protocol.MessageEnd:
		return c.messageEnd(t, ev)
	case protocol.ToolStart:
		if err := c.mayStart(ev); err != nil {
			return err
		}
		return t.toolStart(ev, c.Hosted)
	case protocol.ToolUpdate:
		return t.expectTool(ev.ToolCallID)
	case protocol.ToolEnd:
		if t.form != "" {
			return fmt.Errorf("approvals: the call ends while its form %s is open", t.form)
		}
		if a := c.about[ev.ToolCallID]; a != nil && ev.OK && a.outcome != protocol.OutcomeAllowed && a.outcome != lost {
			return fmt.Errorf("approvals: the call went well, and its question was %q", a.outcome)
		}
		return t.toolEnd(ev)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusInputWithdrawn:
			return c.withdrawn(t, ev.InputID)
		case protocol.StatusApprovalRequested:
			return c.requested(t, ev)
		case protocol.StatusApprovalResolved:
			return c.resolved(t, ev)
		case protocol.StatusRunResumed:
			c.lose(t)
		}
		t.status(ev)
	}
	return nil
}

func (c *Checker) agentStart(t *track, ref protocol.Ref) error {
	if _, seen := c.runs[ref.RunID]; seen {
		return fmt.Errorf("invariant 1: the run started twice")
	}
	if t.run != "" {
		return fmt.Errorf("invariant 1: run %s has not ended", t.run)
	}
	c.runs[ref.RunID] = false
	*t = track{run: ref.RunID}
	return nil
}

// aborted reports that a stop reason does not fit whether an abort was asked for. A hosted
// agent may also cancel its turn by itself.
func (c *Checker) aborted(t *track, stop protocol.StopReason) bool {
	return t.aborting != (stop == protocol.StopAborted) && (t.aborting || !c.Hosted)
}

func (c *Checker) agentEnd(t *track, ev protocol.AgentEnd) error {
	switch {
	case t.turn != "":
		return fmt.Errorf("invariant 3: turn %s is open", t.turn)
	case t.question != "":
		return fmt.Errorf("approvals: question %s was never answered", t.question)
	case ev.Turns != t.turns:
		return fmt.Errorf("invariant 2: says %d turns, there were %d", ev.Turns, t.turns)
	case c.aborted(t, ev.StopReason):
		return fmt.Errorf("stop reason %s, abort requested: %t", ev.StopReason, t.aborting)
	case ev.StopReason == protocol.StopCompleted && len(t.steers)+len(t.followUps) > 0:
		return fmt.Errorf("%d steers and %d follow-ups still wait", len(t.steers), len(t.followUps))
	}
	for _, id := range t.begun { // a crash took their messages, and the run goes on no more
		delete(c.settled, id)
	}
	if err := c.HandedBack(ev.Discarded); err != nil {
		return err
	}
	for _, id := range t.begun {
		c.settled[id] = true
	}
	c.runs[t.run] = true
	t.run = ""
	return nil
}

func (c *Checker) turnStart(t *track, ev protocol.TurnStart) error {
	t.turns++
	switch {
	case t.turn != "":
		return fmt.Errorf("invariant 3: turn %s is open", t.turn)
	case ev.TurnID != strconv.Itoa(t.turns):
		return fmt.Errorf("invariant 2: turn %q, want %d", ev.TurnID, t.turns)
	case (ev.Kind == protocol.KindPrompt) != (t.turns == 1):
		return fmt.Errorf("invariant 2: turn %d is a %s", t.turns, ev.Kind)
	case ev.Kind == protocol.KindFollowUp && len(t.steers) > 0:
		return fmt.Errorf("invariant 4: a follow-up goes while %d steers wait", len(t.steers))
	case t.steered && ev.Kind != protocol.KindSteer:
		return fmt.Errorf("invariant 4: a %s follows a steered turn", ev.Kind)
	case t.aborting:
		return fmt.Errorf("a turn starts after the abort")
	case len(ev.InputIDs) == 0:
		return fmt.Errorf("the turn delivers nothing")
	}
	t.turn, t.calls, t.answered, t.skipping, t.maySkip, t.steered = ev.TurnID, nil, false, false, false, false
	t.begun, t.kind = slices.Clone(ev.InputIDs), ev.Kind
	for _, id := range ev.InputIDs {
		if err := c.settle(id); err != nil {
			return err
		}
		queue := &t.steers
		if ev.Kind == protocol.KindFollowUp {
			queue = &t.followUps
		}
		if ev.Kind == protocol.KindPrompt {
			continue
		}
		if len(*queue) == 0 || (*queue)[0] != id {
			return fmt.Errorf("invariant 4: delivers %s, the queue is %v", id, *queue)
		}
		*queue = (*queue)[1:]
	}
	return nil
}

func (c *Checker) turnEnd(t *track, ev protocol.TurnEnd) error {
	if c.Hosted && ev.StopReason == protocol.StopSteered && len(t.steers) > 0 {
		t.skipping = true
	}
	switch {
	case t.turn == "":
		return fmt.Errorf("invariant 3: no turn is open")
	case t.message != "":
		return fmt.Errorf("invariant 3: message %s is open", t.message)
	case t.tool != "":
		return fmt.Errorf("invariant 3: tool call %s is open", t.tool)
	case t.question != "":
		return fmt.Errorf("approvals: question %s is open", t.question)
	// a crash loop is given up
	case t.skipping != (ev.StopReason == protocol.StopSteered) && !(t.resumed && ev.StopReason == protocol.StopError):
		return fmt.Errorf("invariant 4: stop reason %s, a steer waited when a tool finished: %t", ev.StopReason, t.skipping)
	case len(t.calls) > 0 && (ev.StopReason == protocol.StopEnd || ev.StopReason == protocol.StopSteered):
		return fmt.Errorf("invariant 2: tool calls %v have not been executed", t.calls)
	case c.aborted(t, ev.StopReason):
		return fmt.Errorf("stop reason %s, abort requested: %t", ev.StopReason, t.aborting)
	}
	t.turn, t.skipping = "", false
	t.steered = ev.StopReason == protocol.StopSteered && len(t.steers) > 0 // else they were withdrawn meanwhile
	if ev.StopReason == protocol.StopError {
		c.undeliver(t)
	}
	return nil
}

// undeliver has the texts of a turn wait again whose messages a crash took, and whose run goes
// on no more: they are withdrawn, or handed back.
func (c *Checker) undeliver(t *track) {
	for _, id := range t.begun {
		delete(c.settled, id)
		c.owed[id] = t.run
	}
	switch t.kind {
	case protocol.KindSteer:
		t.steers = append(t.begun, t.steers...)
	case protocol.KindFollowUp:
		t.followUps = append(t.begun, t.followUps...)
	}
	t.begun = nil
}

func (c *Checker) messageStart(t *track, ev protocol.MessageStart) error {
	switch {
	case t.turn == "":
		return fmt.Errorf("invariant 3: no turn is open")
	case t.message != "" || t.tool != "":
		return fmt.Errorf("invariant 3: message %q or tool call %q is open", t.message, t.tool)
	case ev.Role == "assistant" && len(t.calls) > 0:
		return fmt.Errorf("invariant 2: tool calls %v have not been executed", t.calls)
	case ev.Role == "assistant" && t.skipping:
		return fmt.Errorf("invariant 4: the model is asked while a steer waits")
	case ev.Role == "user" && ev.Text == "":
		return fmt.Errorf("a user message without text")
	case c.ids[ev.MessageID]:
		return fmt.Errorf("invariant 6: id %s is used twice", ev.MessageID)
	}
	c.ids[ev.MessageID] = true
	t.resumed = false
	t.message, t.role = ev.MessageID, ev.Role
	return nil
}

func (t *track) expectMessage(id, role string) error {
	if t.message != id || t.role != role {
		return fmt.Errorf("invariant 3: for %s %s, the open message is %s %q", role, id, t.role, t.message)
	}
	return nil
}

func (c *Checker) messageEnd(t *track, ev protocol.MessageEnd) error {
	if err := t.expectMessage(ev.MessageID, ev.Role); err != nil {
		return err
	}
	t.message, t.calls, t.answered = "", nil, false
	if ev.Role == "user" && len(t.begun) > 0 {
		t.begun = t.begun[1:]
	}
	for _, call := range ev.ToolCalls {
		if c.ids[call.ID] {
			return fmt.Errorf("invariant 6: id %s is used twice", call.ID)
		}
		c.ids[call.ID] = true
		t.calls = append(t.calls, call.ID)
	}
	return nil
}

func (t *track) toolStart(ev protocol.ToolStart, hosted bool) error {
	switch {
	case t.message != "":
		return fmt.Errorf("invariant 3: message %s is open", t.message)
	case t.tool != "":
		return fmt.Errorf("invariant 3: tool call %s is open", t.tool)
	case len(t.calls) == 0 || t.calls[0] != ev.ToolCallID:
		return fmt.Errorf("invariant 2: call %s, want the first of %v", ev.ToolCallID, t.calls)
	case t.aborting:
		return fmt.Errorf("a tool starts after the abort")
	}
	t.resumed = t.resumed && hosted // whose calls that were cut are told to begin, where nobody has heard of them
	t.tool, t.calls, t.answered = ev.ToolCallID, t.calls[1:], false
	return nil
}

func (t *track) expectTool(id string) error {
	if t.tool != id || id == "" {
		return fmt.Errorf("invariant 3: for %s, the open tool call is %q", id, t.tool)
	}
	return nil
}

func (t *track) toolEnd(ev protocol.ToolEnd) error {
	if err := t.expectTool(ev.ToolCallID); err != nil {
		return err
	}
	t.tool, t.answered = "", true
	t.skipping, t.maySkip = t.skipping || t.maySkip && ev.Skipped, false
	if ev.Skipped != t.skipping {
		return fmt.Errorf("invariant 4: skipped is %t, a steer waited when a tool finished: %t", ev.Skipped, t.skipping)
	}
	if ev.Skipped && ev.OK {
		return fmt.Errorf("invariant 4: a skipped call is ok")
	}
	if len(t.steers) > 0 && !t.aborting {
		t.skipping = true
	}
	return nil
}

// withdrawn takes a text out of the queue. One that is there no more was delivered
// or handed back.
func (c *Checker) withdrawn(t *track, inputID string) error {
	waits := len(t.steers) + len(t.followUps)
	other := func(id string) bool { return id == inputID }
	t.steers, t.followUps = slices.DeleteFunc(t.steers, other), slices.DeleteFunc(t.followUps, other)
	if len(t.steers)+len(t.followUps) != waits-1 {
		return fmt.Errorf("input %s is withdrawn and does not wait", inputID)
	}
	if len(t.steers) == 0 {
		if c.Hosted && t.steered {
			return fmt.Errorf("invariant 4: the agent was stopped for %s, and it is withdrawn", inputID)
		}
		t.steered = false // no turn needs to be its
	}
	return c.settle(inputID)
}

func (t *track) status(ev protocol.Status) {
	switch ev.Code {
	case protocol.StatusSteerQueued:
		t.steers = append(t.steers, ev.InputID)
	case protocol.StatusFollowUpQueued:
		t.followUps = append(t.followUps, ev.InputID)
	case protocol.StatusRunResumed:
		t.resumed = true
		if t.turn != "" && t.message == "" && t.tool == "" && t.answered && len(t.steers) > 0 {
			t.maySkip = len(t.calls) > 0
			t.skipping = t.skipping || !t.maySkip
		}
	case protocol.StatusCompacted: // the steers were looked at before it
		t.answered = false
	case protocol.StatusAbortRequested:
		t.aborting, t.steers, t.followUps = true, nil, nil
		t.skipping, t.maySkip = false, false
	}
}

// Run tells whether a run has started, and ended.
func (c *Checker) Run(id string) (started, ended bool) {
	ended, started = c.runs[id]
	return started, ended
}

// Open lists the runs that have started and not ended.
func (c *Checker) Open() []string {
	var runs []string
	for run, ended := range c.runs {
		if !ended {
			runs = append(runs, run)
		}
	}
	return runs
}
