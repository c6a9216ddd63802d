package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// asks begins a run on a terminal that asks about a command outside the sandbox.
func asks(t *testing.T, d *tuitest.Daemon, command string) *screen {
	t.Helper()
	cmd := exec.Command("nous", "prompt", `!bash {"command":"`+command+`","outside_sandbox":true,"reason":"the sandbox says no"}`)
	cmd.Dir = d.Dir
	cmd.Env = d.Env()
	s := &screen{tuitest.Start(t, cmd, 132, 30, false), t, d}
	s.Wait("May bash be called? ask: bash outside the sandbox: the sandbox says no", "command: "+command, "nous approve apr-")
	s.Wait("y once, s session, a always, n [REASON] deny, and Enter; the question waits:")
	return s
}

// A prompt on a terminal asks there. What is no answer is asked again, and says
// nothing; an answer is told with who gave it.
func TestAPromptOnATerminalAsksThere(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := asks(t, d, "echo one")
	s.Press("enter")
	s.Type("perhaps")
	s.Press("enter")
	s.Type("y")
	s.Press("enter")
	s.Wait("allowed once, by nous (process ", "✓ bash")
	s.Exit()

	s = asks(t, d, "echo two")
	s.Type("n not on a Sunday")
	s.Press("enter")
	s.Wait("denied, by nous (process ", "not on a Sunday")
	s.Exit()

	s = asks(t, d, "echo three")
	s.Type("s")
	s.Press("enter")
	s.Wait("allowed session, by nous (process ", "✓ bash")
	s.Exit()
}

// The first answer from anywhere ends the asking: what is half typed then is no
// answer to the next question.
func TestAnAnswerFromElsewhereEndsTheAsking(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := asks(t, d, "echo one")
	waits := state(t, d.Socket).PendingApprovals
	if len(waits) != 1 {
		t.Fatalf("open are %+v", waits)
	}
	askDaemon(t, d.Socket, protocol.FollowUp, protocol.FollowUpParams{Scope: protocol.Scope{SessionID: waits[0].SessionID}, Text: `!bash {"command":"echo two","outside_sandbox":true,"reason":"again"}`})
	s.Type("y")
	s.Wait("the question waits: y")
	askDaemon(t, d.Socket, protocol.Approve, protocol.ApproveParams{ApprovalID: waits[0].ApprovalID, Option: "deny"})
	s.Wait("denied, by ", "May bash be called? ask: bash outside the sandbox: again")
	s.Press("enter")
	s.Type("n")
	s.Press("enter")
	s.Exit()
	s.WaitGone("✓ bash")
}

// A list shows where a command ends; a question in full hides nothing without
// saying so, and nothing that it shows drives the terminal.
func TestWhatIsAskedIsShownWhole(t *testing.T) {
	q := protocol.Approval{
		ApprovalID: "apr-1-ses-1", Kind: protocol.ApprovalTool, ToolName: "bash", Rule: "ask: bash outside the sandbox",
		Arguments: []byte(`{"command":"ls\nrm -rf x\u001b[2K\u202e","n":1e3}`),
		Options:   []protocol.ApprovalOption{{ID: "once", Decision: protocol.DecisionAllow}, {ID: "deny", Decision: protocol.DecisionDeny}},
	}
	if got := asksFor(q, lineWidth); got != "bash ls ⏎ rm -rf x" {
		t.Errorf("in one line: %q", got)
	}
	var out, errout bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errout)
	a.socket = client.DefaultSocket()
	a.printQuestion(q, q.CreatedAt)
	for _, want := range []string{"  command:\n    ls\n    rm -rf x\n", "  n: 1e3\n", "\nnous approve apr-1-ses-1\nnous deny apr-1-ses-1\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\u202e") || !strings.HasPrefix(errout.String(), "not shown: ") {
		t.Errorf("got %q, and said %q", out.String(), errout.String())
	}
	path := protocol.Approval{Kind: protocol.ApprovalTool, ToolName: "write", Arguments: []byte(`{"content":"x","path":"a/b"}`)}
	if got := asksFor(path, lineWidth); got != "write a/b" {
		t.Errorf("of a file: %q", got)
	}
}

// Events tell of questions and their ends in one line.
func TestEventsOfQuestions(t *testing.T) {
	asked := protocol.Approval{ApprovalID: "apr-1", Kind: protocol.ApprovalTool, ToolName: "bash", Arguments: []byte(`{"command":"git push"}`)}
	for want, ev := range map[string]protocol.Status{
		"approval_requested: apr-1 bash git push":                         {Code: protocol.StatusApprovalRequested, Approval: &asked},
		"approval_resolved: apr-1 allowed session, by nous (process 7)":   {Code: protocol.StatusApprovalResolved, ApprovalID: "apr-1", Outcome: protocol.OutcomeAllowed, Option: "session", By: protocol.ByProcess(7, "nous")},
		"approval_resolved: apr-1 denied, by timeout":                     {Code: protocol.StatusApprovalResolved, ApprovalID: "apr-1", Outcome: protocol.OutcomeDenied, By: protocol.ByWord(protocol.ByTimeout)},
		"approval_resolved: apr-1 withdrawn, by a hand that is not known": {Code: protocol.StatusApprovalResolved, ApprovalID: "apr-1", Outcome: protocol.OutcomeWithdrawn, By: protocol.ByWord("a hand that is not known")},
	} {
		if got := describeEvent(ev); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// In the background of a terminal a question is shown, and nothing is read: that
// would stop nous.
func TestAPromptInTheBackgroundIsNotStopped(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	cmd := exec.Command("bash", "-c", `set -m; nous prompt '!bash {"command":"echo one","outside_sandbox":true,"reason":"r"}' </dev/tty & wait $!; echo status $?`)
	cmd.Dir = d.Dir
	cmd.Env = d.Env()
	s := &screen{tuitest.Start(t, cmd, 132, 30, false), t, d}
	s.Wait("nous deny apr-")
	askDaemon(t, d.Socket, protocol.Approve, protocol.ApproveParams{ApprovalID: state(t, d.Socket).PendingApprovals[0].ApprovalID, Option: "once"})
	s.Wait("allowed once, by ", "status 0")
	s.Exit()
}

// A form is filled in on the terminal, field by field: what does not fit is asked
// again, Enter alone takes the default, and what is typed goes nowhere else.
func TestAFormOnATerminal(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	d.Asker("hotel", "Your stay", `{"type":"object","properties":{"guests":{"type":"integer","title":"How many","minimum":1,"maximum":9},"name":{"type":"string","default":"Ada"},"sea":{"type":"boolean"},"room":{"type":"string","enum":["s","d"],"enumNames":["Single","Double"]}},"required":["guests","room"]}`)
	d.Start()
	prompt := func() *screen {
		cmd := exec.Command("nous", "prompt", "!hotel.run")
		cmd.Dir, cmd.Env = d.Dir, d.Env()
		s := &screen{tuitest.Start(t, cmd, 132, 40, false), t, d}
		s.Wait("hotel.run asks: Your stay", "guests (How many): a whole number, at least 1, at most 9", "2 d (Double)", "y fill in, n decline, c cancel, and Enter; the question waits:")
		return s
	}
	s := prompt()
	for _, step := range [][2]string{
		{"y", "at most 9"},
		{"", "this has to be filled in"},
		{"99", "got 99, want at most 9"},
		{"three", "this is no number"},
		{"3", "default Ada"},
		{"", "yes or no, may be left out"},
		{"y", "2 d (Double)"},
		{"triple", "none of the options"},
		{"2", `"content":{"guests":3,"name":"Ada","room":"d","sea":true}`},
	} {
		s.Type(step[0])
		s.Press("enter")
		s.Wait(step[1])
	}
	s.Wait("allowed accept, by nous (process ")
	s.Exit()
	s = prompt()
	s.Type("n")
	s.Press("enter")
	s.Wait("denied decline, by nous (process ", `"action":"decline"`)
	s.Exit()
}
