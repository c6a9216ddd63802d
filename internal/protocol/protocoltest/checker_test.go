package protocoltest

import (
	"testing"

	"noused/internal/protocol"
)

// A steer that comes after a call was denied skips nothing: the call is told as denied,
// though the daemon ended in between (found by the simulator).
func TestSteerAfterAnAnswer(t *testing.T) {
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1", TurnID: "1"}
	run := protocol.Ref{SessionID: "ses-1", RunID: "run-1"}
	told := []protocol.Event{
		protocol.AgentStart{Ref: run},
		protocol.TurnStart{Ref: ref, Kind: protocol.KindPrompt, InputIDs: []string{"in-1"}},
		protocol.MessageStart{Ref: ref, MessageID: "msg-1", Role: "assistant"},
		protocol.MessageEnd{Ref: ref, MessageID: "msg-1", Role: "assistant", ToolCalls: []protocol.ToolCall{
			{ID: "call-1"}, {ID: "call-2"}, {ID: "call-3"},
		}},
		protocol.ToolStart{Ref: ref, ToolCallID: "call-1"},
		protocol.ToolEnd{Ref: ref, ToolCallID: "call-1", OK: true},
		protocol.Status{Ref: ref, Code: protocol.StatusApprovalRequested, Approval: &protocol.Approval{
			ApprovalID: "apr-1", Kind: protocol.ApprovalTool, ToolCallID: "call-2",
			Options: []protocol.ApprovalOption{{ID: protocol.OptionDeny, Decision: protocol.DecisionDeny}},
		}},
		protocol.Status{
			Ref: ref, Code: protocol.StatusApprovalResolved, ApprovalID: "apr-1", Outcome: protocol.OutcomeDenied,
			By: protocol.ByProcess(1, "nous"),
		},
		protocol.Status{Ref: ref, Code: protocol.StatusSteerQueued, InputID: "in-2"},
		protocol.Status{Ref: ref, Code: protocol.StatusRunResumed},
		protocol.ToolStart{Ref: ref, ToolCallID: "call-2"},
		protocol.ToolEnd{Ref: ref, ToolCallID: "call-2"},
		protocol.ToolStart{Ref: ref, ToolCallID: "call-3"},
	}
	c := NewChecker()
	for _, ev := range told {
		if err := c.Event(ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Event(protocol.ToolEnd{Ref: ref, ToolCallID: "call-3"}); err == nil {
		t.Error("a call after the denied one is not skipped, and the checker takes it")
	}
}

// A steer that comes when the child of a call was begun already skips the calls behind that one alone, though the
// daemon ended before the call was told (found by the simulator).
func TestSteerAfterTheBeginningOfAChild(t *testing.T) {
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1", TurnID: "1"}
	run := protocol.Ref{SessionID: "ses-1", RunID: "run-1"}
	for _, skipped := range []bool{false, true} { // it was begun, or was not
		c := NewChecker()
		for _, ev := range []protocol.Event{
			protocol.AgentStart{Ref: run},
			protocol.TurnStart{Ref: ref, Kind: protocol.KindPrompt, InputIDs: []string{"in-1"}},
			protocol.MessageStart{Ref: ref, MessageID: "msg-1", Role: "assistant"},
			protocol.MessageEnd{Ref: ref, MessageID: "msg-1", Role: "assistant", ToolCalls: []protocol.ToolCall{
				{ID: "call-1"}, {ID: "call-2"}, {ID: "call-3"},
			}},
			protocol.ToolStart{Ref: ref, ToolCallID: "call-1"},
			protocol.ToolEnd{Ref: ref, ToolCallID: "call-1", OK: true},
			protocol.Status{Ref: ref, Code: protocol.StatusSteerQueued, InputID: "in-2"},
			protocol.Status{Ref: ref, Code: protocol.StatusRunResumed},
			protocol.ToolStart{Ref: ref, ToolCallID: "call-2"},
			protocol.ToolEnd{Ref: ref, ToolCallID: "call-2", OK: !skipped, Skipped: skipped},
			protocol.ToolStart{Ref: ref, ToolCallID: "call-3"},
		} {
			if err := c.Event(ev); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Event(protocol.ToolEnd{Ref: ref, ToolCallID: "call-3", OK: true}); err == nil {
			t.Errorf("skipped %v: the call behind it is not skipped, and the checker takes it", skipped)
		}
	}
}

// A text whose message a crash took waits again where its run is given up: until that has
// ended it can be withdrawn, and has one fate all the same (found by the simulator).
func TestATextOfARunThatIsGivenUpWaitsAgain(t *testing.T) {
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1", TurnID: "1"}
	run, second := ref, ref
	run.TurnID, second.TurnID = "", "2"
	told := []protocol.Event{
		protocol.AgentStart{Ref: run},
		protocol.TurnStart{Ref: ref, Kind: protocol.KindPrompt, InputIDs: []string{"in-1"}},
		protocol.MessageStart{Ref: ref, MessageID: "msg-1", Role: "user", Text: "go"},
		protocol.MessageEnd{Ref: ref, MessageID: "msg-1", Role: "user", Text: "go"},
		protocol.Status{Ref: ref, Code: protocol.StatusFollowUpQueued, InputID: "in-2"},
		protocol.TurnEnd{Ref: ref, StopReason: protocol.StopEnd},
		protocol.TurnStart{Ref: second, Kind: protocol.KindFollowUp, InputIDs: []string{"in-2"}},
		protocol.Status{Ref: second, Code: protocol.StatusRunResumed},
		protocol.TurnEnd{Ref: second, StopReason: protocol.StopError},
		protocol.Status{Ref: run, Code: protocol.StatusInputWithdrawn, InputID: "in-2"},
	}
	c := NewChecker()
	c.Accepted("in-2", "run-1")
	for _, ev := range told {
		if err := c.Event(ev); err != nil {
			t.Fatal(err)
		}
	}
	twice := []protocol.DiscardedInput{{InputID: "in-2"}}
	end := protocol.AgentEnd{Ref: run, StopReason: protocol.StopError, Turns: 2, Discarded: twice}
	if err := c.Event(end); err == nil {
		t.Error("the text is withdrawn and handed back, and the checker takes it")
	}
}

// A steer may be withdrawn while the calls behind it are skipped, which takes as long as their children take to
// stop: the turn after it is then a follow-up's. One that waits goes first (found by the simulator).
func TestASteerThatIsWithdrawnWhileItSkips(t *testing.T) {
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1", TurnID: "1"}
	run, second := ref, ref
	run.TurnID, second.TurnID = "", "2"
	told := func(withdrawn bool) (err error) {
		c := NewChecker()
		for _, ev := range []protocol.Event{
			protocol.AgentStart{Ref: run},
			protocol.TurnStart{Ref: ref, Kind: protocol.KindPrompt, InputIDs: []string{"in-1"}},
			protocol.MessageStart{Ref: ref, MessageID: "msg-1", Role: "assistant"},
			protocol.MessageEnd{Ref: ref, MessageID: "msg-1", Role: "assistant", ToolCalls: []protocol.ToolCall{
				{ID: "call-1"}, {ID: "call-2"},
			}},
			protocol.Status{Ref: ref, Code: protocol.StatusFollowUpQueued, InputID: "in-2"},
			protocol.Status{Ref: ref, Code: protocol.StatusSteerQueued, InputID: "in-3"},
			protocol.ToolStart{Ref: ref, ToolCallID: "call-1"},
			protocol.ToolEnd{Ref: ref, ToolCallID: "call-1", OK: true},
			protocol.ToolStart{Ref: ref, ToolCallID: "call-2"},
			protocol.Status{Ref: ref, Code: protocol.StatusInputWithdrawn, InputID: "in-3"},
			protocol.ToolEnd{Ref: ref, ToolCallID: "call-2", Skipped: true},
			protocol.TurnEnd{Ref: ref, StopReason: protocol.StopSteered},
			protocol.TurnStart{Ref: second, Kind: protocol.KindFollowUp, InputIDs: []string{"in-2"}},
		} {
			if s, ok := ev.(protocol.Status); ok && s.Code == protocol.StatusInputWithdrawn && !withdrawn {
				continue
			}
			err = c.Event(ev)
		}
		return err
	}
	if err := told(true); err != nil {
		t.Error(err)
	}
	if told(false) == nil {
		t.Error("a follow-up goes before the steer, and the checker takes it")
	}
}

// A call of a hosted agent may be told after a restart, as one that was cut, and the run be given up, as it is not
// to go on: then a steer waits in vain, and is handed back (found by the simulator).
func TestAHostedRunIsGivenUpBehindACallThatWasCut(t *testing.T) {
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1", TurnID: "1"}
	run := protocol.Ref{SessionID: "ses-1", RunID: "run-1"}
	told := func(hosted bool) (err error) {
		c := NewChecker()
		c.Hosted = hosted
		for _, ev := range []protocol.Event{
			protocol.AgentStart{Ref: run},
			protocol.TurnStart{Ref: ref, Kind: protocol.KindPrompt, InputIDs: []string{"in-1"}},
			protocol.MessageStart{Ref: ref, MessageID: "msg-1", Role: "assistant"},
			protocol.MessageEnd{
				Ref: ref, MessageID: "msg-1", Role: "assistant", ToolCalls: []protocol.ToolCall{{ID: "call-1"}},
			},
			protocol.Status{Ref: ref, Code: protocol.StatusSteerQueued, InputID: "in-2"},
			protocol.Status{Ref: ref, Code: protocol.StatusRunResumed},
			protocol.ToolStart{Ref: ref, ToolCallID: "call-1"},
			protocol.ToolEnd{Ref: ref, ToolCallID: "call-1"},
			protocol.TurnEnd{Ref: ref, StopReason: protocol.StopError},
		} {
			err = c.Event(ev)
		}
		return err
	}
	if err := told(true); err != nil {
		t.Error(err)
	}
	if told(false) == nil {
		t.Error("a turn of our own ends in an error, though a steer waits behind its call, and the checker takes it")
	}
}

// A steer that comes after a run was let go on past its limit ends the turn where the daemon ended before the model was
// asked: the next one looks at it first (found by the simulator).
func TestASteerAfterARunMayGoOn(t *testing.T) {
	ref := protocol.Ref{SessionID: "ses-1", RunID: "run-1", TurnID: "1"}
	run := protocol.Ref{SessionID: "ses-1", RunID: "run-1"}
	c := NewChecker()
	for _, ev := range []protocol.Event{
		protocol.AgentStart{Ref: run},
		protocol.TurnStart{Ref: ref, Kind: protocol.KindPrompt, InputIDs: []string{"in-1"}},
		protocol.MessageStart{Ref: ref, MessageID: "msg-1", Role: "assistant"},
		protocol.MessageEnd{Ref: ref, MessageID: "msg-1", Role: "assistant", ToolCalls: []protocol.ToolCall{{ID: "call-1"}}},
		protocol.ToolStart{Ref: ref, ToolCallID: "call-1"},
		protocol.ToolEnd{Ref: ref, ToolCallID: "call-1", OK: true},
		protocol.Status{Ref: ref, Code: protocol.StatusApprovalRequested, Approval: &protocol.Approval{
			ApprovalID: "apr-1", Kind: protocol.ApprovalBudget,
			Options: []protocol.ApprovalOption{{ID: protocol.OptionContinue, Decision: protocol.DecisionAllow}},
		}},
		protocol.Status{
			Ref: ref, Code: protocol.StatusApprovalResolved, ApprovalID: "apr-1", Outcome: protocol.OutcomeAllowed,
			By: protocol.ByProcess(1, "nous"),
		},
		protocol.Status{Ref: ref, Code: protocol.StatusSteerQueued, InputID: "in-2"},
		protocol.Status{Ref: ref, Code: protocol.StatusRunResumed},
		protocol.TurnEnd{Ref: ref, StopReason: protocol.StopSteered},
	} {
		if err := c.Event(ev); err != nil {
			t.Fatal(err)
		}
	}
}
