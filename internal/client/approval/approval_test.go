package approval_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/protocol"
)

func TestPendingFollowsTheEvents(t *testing.T) {
	var list []protocol.Approval
	step := func(e protocol.Status) []protocol.Approval {
		list = approval.Pending(list, e)
		return list
	}
	asked := protocol.Status{
		Ref: protocol.Ref{SessionID: "s", RunID: "r"}, Code: protocol.StatusApprovalRequested,
		Approval: &protocol.Approval{ApprovalID: "a"},
	}
	step(asked)
	if got := step(asked); len(got) != 1 || got[0].SessionID != "s" || got[0].RunID != "r" {
		t.Errorf("asked twice, as after a restart: got %+v", got)
	}
	before := list
	if got := step(protocol.Status{Code: protocol.StatusTitleSet}); len(got) != 1 {
		t.Errorf("got %+v after an event of something else", got)
	}
	if got := step(protocol.Status{Code: protocol.StatusApprovalResolved, ApprovalID: "a"}); len(got) != 0 ||
		before[0].ApprovalID != "a" {
		t.Errorf("resolved: got %+v, and the list before is %+v", got, before)
	}
}

func TestYesAndNo(t *testing.T) {
	for kind, want := range map[protocol.ApprovalKind]string{
		protocol.ApprovalTool: "once", protocol.ApprovalBudget: "continue", protocol.ApprovalQuestion: "accept",
	} {
		if got := approval.Yes(protocol.Approval{Kind: kind}); got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
	a := protocol.Approval{Options: []protocol.ApprovalOption{
		{ID: "once", Decision: protocol.DecisionAllow},
		{ID: "deny", Decision: protocol.DecisionDeny},
	}}
	if no := approval.No(a); no == nil || no.ID != "deny" {
		t.Errorf("got %+v", no)
	}
	if no := approval.No(protocol.Approval{}); no != nil {
		t.Errorf("got %+v of an approval without options", no)
	}
}

func TestWhoHasResolvedIt(t *testing.T) {
	for by, want := range map[string]struct {
		pid  int
		word string
	}{`{"pid":7,"comm":"nous"}`: {pid: 7}, `"timeout"`: {word: "timeout"}, `7`: {}, ``: {}, `{"pid":"x"}`: {}} {
		if program, word := approval.ResolvedBy(jsontext.Value(by)); program.PID != want.pid || word != want.word {
			t.Errorf("%s: got %+v, %q", by, program, word)
		}
	}
}
