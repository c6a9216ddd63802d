package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/client/plain"
	"noused/internal/daemontest"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// asks begins a run on a terminal that asks about a command outside the sandbox.
func asks(t *testing.T, d *daemontest.Daemon, command string) *screen {
	t.Helper()
	cmd := exec.Command("nous", "prompt", `!bash {"command":"`+command+
		`","outside_sandbox":true,"reason":"the sandbox says no"}`)
	cmd.Dir = d.Dir
	cmd.Env = d.Env()
	s := &screen{tuitest.Start(t, cmd, 132, 30, false), t, d}
	s.Wait("Allow bash to run OUTSIDE the sandbox: it can change all your files? "+
		"asks because it runs outside the sandbox: the sandbox says no", "command: "+command,
		"nous approve apr-")
	s.Wait("y once, s session, a always, n [REASON] deny, and Enter; the approval waits:")
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
	s.Wait("allowed (once) by nous, process ", "✓ bash")
	s.Exit()

	s = asks(t, d, "echo two")
	s.Type("n not on a Sunday")
	s.Press("enter")
	s.Wait("denied by nous, process ", "not on a Sunday")
	s.Exit()

	s = asks(t, d, "echo three")
	s.Type("s")
	s.Press("enter")
	s.Wait("allowed (session) by nous, process ", "✓ bash")
	s.Exit()
}

// What children of the run ask is asked there, too, one after the other.
func TestAPromptAsksForItsChildren(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	child := func(title, command string) string {
		text, err := json.Marshal(map[string]string{
			"description": title,
			"prompt":      `!bash {"command":"` + command + `","outside_sandbox":true,"reason":"the sandbox says no"}`,
		})
		if err != nil {
			t.Fatal(err)
		}
		return "!agent " + string(text) + "\n"
	}
	cmd := exec.Command("nous", "prompt", child("first look", "echo one")+child("second look", "echo two"))
	cmd.Dir, cmd.Env = d.Dir, d.Env()
	s := &screen{tuitest.Start(t, cmd, 132, 40, false), t, d}
	s.Wait(" look", "y once, s session, a always, n [REASON] deny, and Enter; the approval waits:")
	s.Type("y")
	s.Press("enter")
	s.Wait("allowed (once) by nous, process ", "command: echo one", "command: echo two") // in either order
	s.Type("y")
	s.Press("enter")
	s.Wait("bash: one", "bash: two", "✓ agent")
	s.Exit()
}

// Once the input has ended, what is typed is no answer, and that is told.
func TestAPromptSaysThatItsInputHasEnded(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := asks(t, d, "echo one")
	waits := state(t, d.Socket).PendingApprovals
	s.Press("ctrl+d")
	s.Wait("the input has ended here: answer in another terminal with nous approve or nous deny")
	askDaemon(t, d.Socket, protocol.Approve, protocol.ApproveParams{ApprovalID: waits[0].ApprovalID, Option: "once"})
	s.Wait("allowed (once) by ", "✓ bash")
	s.Exit()
}

// The first answer from anywhere ends the asking: what is half typed then is no
// answer to the next approval.
func TestAnAnswerFromElsewhereEndsTheAsking(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := asks(t, d, "echo one")
	waits := state(t, d.Socket).PendingApprovals
	if len(waits) != 1 {
		t.Fatalf("open are %+v", waits)
	}
	askDaemon(t, d.Socket, protocol.FollowUp, protocol.FollowUpParams{
		Scope: protocol.Scope{SessionID: waits[0].SessionID},
		Text:  `!bash {"command":"echo two","outside_sandbox":true,"reason":"again"}`,
	})
	s.Type("y")
	s.Wait("the approval waits: y")
	askDaemon(t, d.Socket, protocol.Approve, protocol.ApproveParams{ApprovalID: waits[0].ApprovalID, Option: "deny"})
	s.Wait("denied by ",
		"Allow bash to run OUTSIDE the sandbox: it can change all your files? "+
			"asks because it runs outside the sandbox: again")
	s.Press("enter")
	s.Type("n")
	s.Press("enter")
	s.Exit()
	s.WaitGone("✓ bash")
}

// asked is an approval about a command.
func askedAbout(command, reason string) protocol.Approval {
	args, err := json.Marshal(map[string]string{"command": command}, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err)
	}
	return protocol.Approval{
		ApprovalID: "apr-1-ses-1", Kind: protocol.ApprovalTool, ToolName: "bash", Rule: "ask: bash outside the sandbox",
		Reason: reason, Arguments: args, Workdir: "/w",
		Options: []protocol.ApprovalOption{
			{ID: "once", Decision: protocol.DecisionAllow},
			{ID: "deny", Decision: protocol.DecisionDeny},
		},
	}
}

// shownAs is an approval as it is printed: in full, in a list, and as it is asked.
func shownAs(t *testing.T, q protocol.Approval) (full, listed, asked string) {
	t.Helper()
	print := func(f func(*app)) string {
		var out bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &out)
		a.socket = client.DefaultSocket()
		f(a)
		return out.String()
	}
	full = print(func(a *app) { a.printApproval(q, q.CreatedAt) })
	listed = print(func(a *app) { a.printWaiting("", q, protocol.SessionInfo{}, q.CreatedAt) })
	asked = print(func(a *app) { a.console().NewApprovalPrompt().Ask(q) })
	return full, listed, asked
}

// What is asked is what runs: of a command nothing goes that is there, and nothing in
// it makes a line of the approval's own.
func TestWhatIsAskedIsShownWhole(t *testing.T) {
	for command, want := range map[string]string{
		"echo safe\rrm -rf x":             "echo safe⟨U+000D⟩rm -rf x",
		"rm -rf x\x1b[2K\x1b[1Gecho":      "rm -rf x⟨U+001B⟩[2K⟨U+001B⟩[1Gecho",
		"rm -rf x\x1b]8;;y\x1b\\":         "rm -rf x⟨U+001B⟩]8;;y⟨U+001B⟩\\",
		"rm -rf x\b\b\b\b":                "rm -rf x⟨U+0008⟩⟨U+0008⟩⟨U+0008⟩⟨U+0008⟩",
		"a\u202egnp.sh\u2066":             "a⟨U+202E⟩gnp.sh⟨U+2066⟩",
		"a\u200bb\u3164\ufe0f":            "a⟨U+200B⟩b⟨U+3164⟩⟨U+FE0F⟩",
		"a\u2028Allow this call of bash?": "a⟨U+2028⟩Allow this call of bash?",
		"a\U000e0041b\u0085\u009b2J":      "a⟨U+E0041⟩b⟨U+0085⟩⟨U+009B⟩2J",
		"ls \\ ":                          "ls \\⟨U+0020⟩",
		"x⟨U+202E⟩":                       "x⟨U+27E8⟩U+202E⟩",
		"z" + strings.Repeat("\u0301", 9): "z\u0301\u0301" + strings.Repeat("⟨U+0301⟩", 7),
	} {
		full, listed, asked := shownAs(t, askedAbout(command, "r"))
		for what, shown := range map[string]string{"in full": full, "asked": asked} {
			if !strings.Contains(shown, "\n  command: "+want+"\n") || !strings.Contains(shown, approval.Hidden) {
				t.Errorf("%s, %q is shown as %q", what, command, shown)
			}
		}
		if !strings.Contains(listed, "\n  bash "+want+"\n") {
			t.Errorf("in a list, %q is shown as %q", command, listed)
		}
	}
	lines := "ls\nAllow this call of bash? ask\n  command: true\nnous approve apr-1\n"
	full, listed, asked := shownAs(t, askedAbout(lines, "good\n  command: true\u2028x"))
	if !strings.Contains(listed, "\n  bash ls⟨U+000A⟩Allow this call") {
		t.Errorf("lines in a list: %q", listed)
	}
	for _, shown := range []string{full, asked} {
		for _, want := range []string{
			"Allow bash to run this? asks because it runs outside the sandbox: good⟨U+000A⟩  command: true⟨U+2028⟩x\n",
			"  command:\n    ls\n    Allow this call of bash? ask\n      command: true\n    nous approve apr-1⟨U+000A⟩\n",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("%q has no %q", shown, want)
			}
		}
	}

	q := askedAbout("x", "")
	q.Arguments = []byte(`{"n":1e3,"s":"1e3","a\nnous approve":"x","list":[ 1, 2 ]}`)
	q.ToolName, q.Workdir = "x.y\x1b[2J\nMay", "/w\u202e\n/x"
	full, listed, asked = shownAs(t, q)
	for _, want := range []string{
		"  n: 1e3\n  s: \"1e3\"\n", "\n  \"a\\nnous approve\": x\n", "  list: [1,2]\n",
		"Allow this call of x.y⟨U+001B⟩[2J⟨U+000A⟩May?",
	} {
		if !strings.Contains(full, want) || !strings.Contains(asked, want) {
			t.Errorf("got %q and %q, want %q", full, asked, want)
		}
	}
	if want := "/w⟨U+202E⟩⟨U+000A⟩/x"; !strings.Contains(full, want) || !strings.Contains(listed, want) {
		t.Errorf("got %q and %q, want %q", full, listed, want)
	}

	q = askedAbout(strings.Repeat("x", 500)+"; rm y", "")
	if _, listed, _ = shownAs(t, q); !strings.Contains(listed, "xxx … 411 bytes more: nous approvals apr-1-ses-1\n") {
		t.Errorf("a long one is listed as %q", listed)
	}
	path := protocol.Approval{
		Kind: protocol.ApprovalTool, ToolName: "write",
		Arguments: []byte(`{"content":"x","path":"a/b"}`),
	}
	if got := approval.Summary(path, plain.LineWidth); got != "write a/b" {
		t.Errorf("of a file: %q", got)
	}
	if got := plain.Fold("  command: "+strings.Repeat("y", 9)+"nous: yes\n", 20); got !=
		"  command: yyyyyyyyy\n  ⤷ nous: yes\n" {
		t.Errorf("folded: %q", got)
	}
}

// FuzzApprovals: two commands, or two reasons, never look the same, on a terminal of
// whatever width neither, and no line is one of the approval's own.
func FuzzApprovals(f *testing.F) {
	f.Add("ls\n", "ls", 20)
	f.Add("a\x1b[2Kb", "ab", 9)
	f.Add("ls\n⤷ x", "ls   ⤷ x", 12)
	f.Add("\u202ea\tb ", "⟨U+202E⟩a⇥   b", 40)
	f.Fuzz(func(t *testing.T, one, other string, width int) {
		one, other = strings.ToValidUTF8(one, "\u202e"), strings.ToValidUTF8(other, "\u202e")
		width = 12 + max(width, 0)%200
		x := plain.Fold(approval.Text(askedAbout(one, "r")), width)
		y := plain.Fold(approval.Text(askedAbout(other, "r")), width)
		if (x == y) != (one == other) {
			t.Errorf("%q and %q are shown as %q and %q", one, other, x, y)
		}
		p, q := approval.WhyAsked(askedAbout("c", one)), approval.WhyAsked(askedAbout("c", other))
		if (p == q) != (one == other) {
			t.Errorf("the reasons %q and %q are shown as %q and %q", one, other, p, q)
		}
		head, _, _ := strings.Cut(plain.Fold(approval.Text(askedAbout("c", "r")), width), "  command: c")
		for line := range strings.Lines(strings.TrimPrefix(x, head)) {
			if !strings.HasPrefix(line, "  ") || plaintext.Clean(line) != line {
				t.Errorf("%q has the line %q", one, line)
			}
		}
	})
}

// Events report approvals and their ends in one line.
func TestEventsOfApprovals(t *testing.T) {
	asked := protocol.Approval{
		ApprovalID: "apr-1", Kind: protocol.ApprovalTool, ToolName: "bash",
		Arguments: []byte(`{"command":"git push"}`),
	}
	for want, ev := range map[string]protocol.Status{
		"approval_requested: apr-1 bash git push": {
			Code:     protocol.StatusApprovalRequested,
			Approval: &asked,
		},
		"approval_resolved: apr-1 allowed (session) by nous, process 7": {
			Code:       protocol.StatusApprovalResolved,
			ApprovalID: "apr-1", Outcome: protocol.OutcomeAllowed, Option: "session", By: protocol.ByProcess(7, "nous"),
		},
		"approval_resolved: apr-1 denied: nobody answered in time": {
			Code:       protocol.StatusApprovalResolved,
			ApprovalID: "apr-1", Outcome: protocol.OutcomeDenied, By: protocol.ByWord(protocol.ByTimeout),
		},
		"approval_resolved: apr-1 withdrawn: a hand that is not known": {
			Code:       protocol.StatusApprovalResolved,
			ApprovalID: "apr-1", Outcome: protocol.OutcomeWithdrawn, By: protocol.ByWord("a hand that is not known"),
		},
	} {
		if got := plain.Event(ev); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// In the background of a terminal an approval is shown, and nothing is read: that
// would stop nous.
func TestAPromptInTheBackgroundIsNotStopped(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	cmd := exec.Command("bash", "-c",
		`set -m; nous prompt '!bash {"command":"echo one","outside_sandbox":true,"reason":"r"}' </dev/tty & wait $!; echo status $?`)
	cmd.Dir = d.Dir
	cmd.Env = d.Env()
	s := &screen{tuitest.Start(t, cmd, 132, 30, false), t, d}
	s.Wait("nous deny apr-")
	askDaemon(t, d.Socket, protocol.Approve,
		protocol.ApproveParams{ApprovalID: state(t, d.Socket).PendingApprovals[0].ApprovalID, Option: "once"})
	s.Wait("allowed (once) by ", "status 0")
	s.Exit()
}

// A form is filled in on the terminal, field by field: what does not fit is asked
// again, Enter alone takes the default, and what is typed goes nowhere else.
func TestAFormOnATerminal(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	d.Asker("hotel", "Your stay",
		`{"type":"object","properties":{"guests":{"type":"integer","title":"How many","minimum":1,"maximum":9},"name":{"type":"string","default":"Ada"},"sea":{"type":"boolean"},"room":{"type":"string","enum":["s","d"],"enumNames":["Single","Double"]}},"required":["guests","room"]}`)
	d.Start()
	prompt := func() *screen {
		cmd := exec.Command("nous", "prompt", "!hotel.run")
		cmd.Dir, cmd.Env = d.Dir, d.Env()
		s := &screen{tuitest.Start(t, cmd, 132, 40, false), t, d}
		s.Wait("hotel.run asks: Your stay", "guests (How many): a whole number, at least 1, at most 9", "2 d (Double)",
			"y fill in, n decline, c cancel, and Enter; the approval waits:")
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
	s.Wait("allowed (accept) by nous, process ")
	s.Exit()
	s = prompt()
	s.Type("n")
	s.Press("enter")
	s.Wait("denied (decline) by nous, process ", `"action":"decline"`)
	s.Exit()
}
