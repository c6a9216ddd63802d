package approval_test

import (
	"strings"
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

func TestTheHeadlineSaysThatACallLeavesTheSandbox(t *testing.T) {
	for args, want := range map[string]string{
		`bash {"command":"rm x"}`:                         "Allow bash to run this?",
		`bash {"command":"rm x","outside_sandbox":false}`: "Allow bash to run this?",
		`bash {"command":"rm x","outside_sandbox":true}`: "Allow bash to run OUTSIDE the sandbox: it can change all " +
			"your files?",
		`edit {"path":"a/b"}`:                               "Allow this edit of a/b?",
		`write {"path":"/etc/x","outside_sandbox":true}`:    "Allow this write OUTSIDE the sandbox, of /etc/x?",
		`git.push {"path":"/etc/x","outside_sandbox":true}`: "Allow this call of git.push?",
		`bash {"command":7}`:                                "Allow this call of bash?",
	} {
		name, raw, _ := strings.Cut(args, " ")
		a := protocol.Approval{Kind: protocol.ApprovalTool, ToolName: name, Arguments: jsontext.Value(raw)}
		if got := approval.Title(a); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}
