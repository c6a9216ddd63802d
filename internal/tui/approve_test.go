package tui

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/approvals"
	"noused/internal/tui/tuitest"
)

func init() {
	for name, code := range map[string]rune{
		"f5": tea.KeyF5, "f6": tea.KeyF6, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
	} {
		named[name] = tea.KeyPressMsg{Code: code}
	}
}

// outside is a text that has the offline model run a command outside the sandbox,
// which asks.
func outside(t testing.TB, command string) string {
	t.Helper()
	args, err := json.Marshal(map[string]any{
		"command": command, "outside_sandbox": true,
		"reason": "the sandbox has refused it",
	})
	if err != nil {
		t.Fatal(err)
	}
	return "!bash " + string(args)
}

// asks has the session on the screen ask whether a command may run.
func (h *hand) asks(command string) {
	h.t.Helper()
	beside(h, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: h.state.SessionID},
		Text:  outside(h.t, command), Wait: new(bool),
	})
	h.sees("Allow bash to run OUTSIDE", command)
}

// An approval takes nothing of what is being typed, is answered with a key once one
// has turned to it, and the input keeps what was typed.
func TestAApprovalIsAnsweredOnTheScreen(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.write("half a sent")
	h.asks("touch " + filepath.Join(d.Dir, "made"))
	h.sees("the sandbox has refused it", "why", "it runs outside the sandbox", "this call", "waits for your answer",
		"F5 answer")
	h.until("rest", func() bool { return !h.ticking })
	h.write("o a d s ence")
	if got, want := h.input.Text(), "half a sento a d s ence"; got != want {
		t.Fatalf("got %q in the input, want %q: the approval took keys", got, want)
	}
	if len(h.state.PendingApprovals) != 1 || h.answeredHere != "" {
		t.Fatal("answered by typing")
	}
	h.press("f5", "enter")
	h.send(tea.PasteMsg{Content: "o"})
	if h.answeredHere != "" {
		t.Fatal("answered by Enter or a paste")
	}
	h.press("esc")
	if h.approval.Focused() || !h.running() || len(h.unsent) > 0 {
		t.Fatal("Esc is to go back to the input, no more")
	}
	h.press("f5")
	h.write("o")
	h.until("the end of the run", func() bool { return !h.running() })
	h.sees("approval: allowed")
	if _, err := os.Stat(filepath.Join(d.Dir, "made")); err != nil {
		t.Error(err)
	}
	if got, want := h.input.Text(), "half a sento a d s ence"; got != want {
		t.Errorf("got %q in the input, want what was typed", got)
	}
	if h.approval.ID() != "" || strings.Contains(h.screen(), "Allow bash to run OUTSIDE") {
		t.Error("the approval is still there")
	}
}

// With nothing in the input the approval's keys answer it, but not one that was meant for what
// stood there before. A lone y is no answer, and no message either.
func TestAApprovalIsAnsweredFromTheEmptyInput(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.asks("touch " + filepath.Join(d.Dir, "made"))
	at := time.Now()
	h.opts.Now = func() time.Time { return at }
	h.letters.since = at
	for _, key := range []string{"y", "o"} { // which came up under somebody's fingers
		h.write(key)
		h.send(letterStayed{h.letters.keys})
		h.press("enter")
		h.sees("has keys of its own")
		if len(h.state.PendingApprovals) != 1 || !h.running() || len(h.unsent) > 0 || !h.input.Empty() {
			t.Fatalf("a lone %s has gone somewhere", key)
		}
		h.write(" ")
		h.press("ctrl+c")
	}
	h.later()
	h.write("o")
	if h.answeredHere != "" || h.input.Text() != "o" {
		t.Fatal("answered by a letter that may begin a text")
	}
	h.until("the end of the run", func() bool { return !h.running() })
	if _, err := os.Stat(filepath.Join(d.Dir, "made")); err != nil || !h.input.Empty() {
		t.Errorf("%v, and %q in the input", err, h.input.Text())
	}
}

// A sentence that begins with a key of the approval is text of the input, however slowly it is
// typed. Enter behind the letter answers at once. A letter for one approval
// answers no other.
func TestALetterAnswersAnApprovalOnlyWhereItStaysAlone(t *testing.T) {
	a := protocol.Approval{
		Kind: protocol.ApprovalTool, ToolName: "bash", Rule: "ask: bash", Arguments: []byte(`{"command":"true"}`),
		Options: options("bash: true"),
	}
	h := waiting(t, a, 80, 24)
	h.later()
	for _, text := range []string{"actually", "only read please", "status of it", "don't", "read it first"} {
		for _, r := range text {
			before := letterStayed{h.letters.keys}
			h.write(string(r))
			h.send(before) // as late as can be
		}
		if h.answeredHere != "" || h.approval.Focused() || h.input.Text() != text {
			t.Fatalf("%q answered %q, and left %q in the input", text, h.answeredHere, h.input.Text())
		}
		h.press("ctrl+c")
	}
	h.write("oo")
	h.press("backspace")
	h.send(letterStayed{h.letters.keys})
	if h.answeredHere != "" || h.input.Text() != "o" {
		t.Fatal("answered by what is left of a text")
	}
	h.press("ctrl+c")
	h.write("a")
	a.ApprovalID, a.SessionID = "apr-2-ses-1", "ses-1"
	h.send(said{h.link, follow.Changed{State: protocol.State{
		SessionID: "ses-1", RunState: protocol.StateRunning, PendingApprovals: []protocol.Approval{a},
	}}})
	h.later()
	h.send(letterStayed{h.letters.keys})
	if h.answeredHere != "" || h.input.Text() != "a" {
		t.Fatal("a letter for one approval has answered another")
	}
	h.press("ctrl+c")
	h.write("r")
	h.press("enter")
	if !strings.Contains(h.screen(), "why not, for the model") {
		t.Fatalf("r and Enter do not ask for a reason:\n%s", h.screen())
	}
	h.press("esc", "esc")
	h.write("a")
	h.press("enter")
	if h.answeredHere != "apr-2-ses-1" || !h.input.Empty() {
		t.Fatalf("Enter behind the letter answered %q, and left %q", h.answeredHere, h.input.Text())
	}
}

// An approval that comes while one looks for a text takes none of that text, is
// answered with its keys, and the search goes on.
func TestAApprovalIsAnsweredWhileOneLooksForAText(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.press("ctrl+f")
	h.write("out")
	h.asks("touch " + filepath.Join(d.Dir, "made"))
	h.write("side o")
	h.sees("find: outside o", "of", "Allow bash to run OUTSIDE")
	if h.answeredHere != "" {
		t.Fatal("answered by what was looked for")
	}
	h.press("f5")
	h.write("o")
	h.until("the end of the run", func() bool { return !h.running() })
	if _, err := os.Stat(filepath.Join(d.Dir, "made")); err != nil {
		t.Error(err)
	}
	h.write("f")
	h.sees("find: outside of")
	h.press("esc")
	if h.find != nil || h.approval.Focused() {
		t.Error("Esc is to end the search")
	}
}

// A screen that is opened while an approval waits shows the call as one that waits,
// as the screens do that were there when it was asked.
func TestACallThatAsksDoesNotRunOnAScreenOpenedLater(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.asks("id -un")
	h.sees("id -un  waiting")
	late := useDaemon(t, d.Socket)
	late.sees("Allow bash to run OUTSIDE", "id -un  waiting")
	late.until("rest", func() bool { return !late.ticking })
}

// The reason of a denial is typed where the approval is, and the model reads it.
func TestADenialWithAReason(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.asks("touch not-made")
	h.press("f5")
	h.write("r")
	h.sees("why not")
	h.write("not on a sunday")
	h.press("enter")
	h.until("the end of the run", func() bool { return !h.running() })
	all := beside(h, protocol.GetMessages, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: h.state.SessionID}})
	if text := fmt.Sprintf("%s", all.Messages); !strings.Contains(text, "not on a sunday") {
		t.Errorf("the model does not read the reason: %s", text)
	}
}

// Of two screens one answers; on the other the approval goes away, and it says who
// has answered. A key that was meant for it goes nowhere else.
func TestAApprovalThatAnotherScreenAnswers(t *testing.T) {
	d := startNoused(t, "")
	one, two := useDaemon(t, d.Socket), useDaemon(t, d.Socket)
	one.asks("echo of both")
	two.sees("Allow bash to run OUTSIDE", "echo of both")
	two.press("f5")
	one.press("f5")
	one.write("d")
	two.until("no approval", func() bool { return two.approval.ID() == "" })
	two.sees(fmt.Sprintf("approval: denied by %s, process %d", comm(t), os.Getpid()))
	if two.approval.Focused() {
		t.Error("an approval that is gone has the keys")
	}
	one.until("the end of the run", func() bool { return !one.running() })
	two.until("the end of the run", func() bool { return !two.running() })
	// The next one has to be turned to anew.
	two.asks("echo the next")
	two.write("o")
	if two.answeredHere != "" || two.input.Text() != "o" {
		t.Error("a key that was meant for another approval has answered this one")
	}
}

func comm(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// An approval waits over the end of the daemon, and is there for who comes later.
func TestAApprovalOverTheDaemonsEnd(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.asks("echo after all")
	d.Kill()
	h.sees("the daemon is gone")
	h.press("f5")
	h.write("o")
	h.sees("the approval is not answered")
	d.Start()
	h.sees("the daemon was restarted", "Allow bash to run OUTSIDE", "echo after all")
	later := useDaemon(t, d.Socket)
	later.sees("Allow bash to run OUTSIDE", "echo after all")
	if !later.approval.Focused() {
		later.press("f5")
	}
	later.write("o")
	h.until("the end of the run", func() bool { return !h.running() && h.approval.ID() == "" })
	h.sees("after all")
}

// Approvals of other sessions are counted in the status line, and one key leads
// from each to the next.
func TestApprovalsElsewhere(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	off := false
	var others []string
	for _, command := range []string{"echo the first", "echo the second"} {
		id := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: command, Activate: &off}).SessionID
		beside(h, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: id}, Text: outside(t, command),
			Wait: new(bool),
		})
		others = append(others, id)
	}
	h.sees("2 approvals elsewhere")
	first := h.state.PendingApprovals[0].SessionID
	h.press("f6")
	h.until("the first", func() bool { return h.state.SessionID == first })
	h.sees("Allow bash to run OUTSIDE", "1 approval elsewhere")
	h.press("f6")
	h.until("the second", func() bool { return h.state.SessionID != first && h.goal == nil })
	h.sees("1 approval elsewhere")
	if h.state.SessionID != others[0] && h.state.SessionID != others[1] {
		t.Errorf("F6 leads to %s", h.state.SessionID)
	}
}

// An approval is answered in the preview of the board.
func TestAApprovalIsAnsweredOnTheBoard(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	off := false
	other := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "The other one", Activate: &off}).SessionID
	h.press("f4")
	h.sees("The other one")
	beside(h, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: other},
		Text:  outside(t, "echo from the board"), Wait: new(bool),
	})
	h.sees("1 needs you", "waits for approval")
	h.write("other")
	h.sees("Allow bash to run OUTSIDE", "echo from the board", "F5 answer")
	h.press("f5")
	h.write("o")
	h.until("the answer", func() bool { return len(h.state.PendingApprovals) == 0 })
	h.sees("1 done, unread")
	if h.shownBoard() == nil || h.state.SessionID == other {
		t.Error("the answer has left the board")
	}
}

func TestTheApprovalModeIsSetAndSeen(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	if strings.Contains(h.screen(), "approvals:") {
		t.Error("the mode is told where it is the usual one")
	}
	h.write("/set-approval-mode deny")
	h.press("enter")
	h.sees("what would be asked is denied", "approvals:deny")
	h.write("/set-approval-mode ask")
	h.press("enter")
	h.until("the usual mode", func() bool { return !strings.Contains(h.screen(), "approvals:deny") })
	h.write("/set-approval-mode never")
	h.press("enter")
	h.sees("want one of ask, auto, deny")
	h.write("/approvals auto")
	h.press("enter")
	h.sees("/approvals lists what waits", "want /set-approval-mode auto")
	h.write("/approvals")
	h.press("enter")
	h.sees("no approval waits")
}

var update = flag.Bool("update", false, "write the screens of testdata anew")

// waiting is a screen without a daemon that shows a session with an approval.
func waiting(t *testing.T, a protocol.Approval, width, height int) *hand {
	t.Helper()
	h := use(t, filepath.Join(t.TempDir(), "nobody"))
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	h.opts.Now = func() time.Time { return at }
	a.ApprovalID, a.SessionID, a.RunID, a.Workdir = "apr-1-ses-1", "ses-1", "run-1", "/home/me/proj"
	h.send(tea.WindowSizeMsg{Width: width, Height: height})
	h.send(said{h.link, follow.Snapshot{State: protocol.State{
		SessionID: "ses-1", Title: "A night's work", RunID: "run-1", RunState: protocol.StateRunning,
		ApprovalMode: protocol.ApprovalsAsk,
		SteeringMode: protocol.ModeOneAtATime, FollowUpMode: protocol.ModeOneAtATime,
		PendingApprovals: []protocol.Approval{a},
	}}})
	return h
}

func options(pattern string) []protocol.ApprovalOption {
	return []protocol.ApprovalOption{
		{ID: "once", Decision: protocol.DecisionAllow},
		{ID: "session", Decision: protocol.DecisionAllow, Pattern: pattern},
		{ID: "always", Decision: protocol.DecisionAllow, Pattern: pattern},
		{ID: "deny", Decision: protocol.DecisionDeny},
	}
}

func TestScreensOfApprovals(t *testing.T) {
	edit := "@@ -3,4 +3,5 @@\n      3\tfunc main() {\n-     4\t\tfmt.Println(\"hello\")\n+     4\t\tlog.SetFlags(0)\n+  " +
		"   5\t\tlog.Println(\"hello\")\n      6\t}"
	for name, a := range map[string]protocol.Approval{
		"bash": {
			Kind: protocol.ApprovalTool, ToolName: "bash", Rule: "ask: bash outside the sandbox",
			Reason: "the push needs the network",
			Arguments: []byte(
				`{"command":"git push origin main --follow-tags\n# and then\ngit log -1","outside_sandbox":true,"reason":"the push needs the network"}`),
			Options: options("bash: git push …"),
		},
		"edit": {
			Kind: protocol.ApprovalTool, ToolName: "edit", Rule: "ask: edit", Diff: edit,
			Arguments: []byte(
				`{"path":"main.go","old_text":"fmt.Println(\"hello\")","new_text":"log.SetFlags(0)\n\tlog.Println(\"hello\")"}`),
			Options: options("edit: main.go"),
		},
		"budget": {
			Kind: protocol.ApprovalBudget, Rule: "ask: [limits]",
			Reason: "the run has used 200000 tokens, run_tokens allows 200000",
			Options: []protocol.ApprovalOption{
				{ID: "continue", Decision: protocol.DecisionAllow},
				{ID: "deny", Decision: protocol.DecisionDeny},
			},
		},
		"form": stay,
	} {
		for _, size := range [][2]int{{120, 40}, {80, 24}, {40, 12}} {
			t.Run(fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), func(t *testing.T) {
				got := waiting(t, a, size[0], size[1]).screen() + "\n"
				golden(t, fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), got)
			})
		}
	}
}

// golden compares a screen with the one that is kept.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "approvals", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Whatever a command holds is on the screen as what runs, if one scrolls, and
// nothing of it drives the terminal.
func TestHostileApprovals(t *testing.T) {
	var diff strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&diff, "+%6d\tline %d of it\n", i+1, i+1)
	}
	bash := func(command string) protocol.Approval {
		args, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Approval{
			Kind: protocol.ApprovalTool, ToolName: "bash", Rule: "ask: bash", Arguments: args,
			Options: options("bash: x …"),
		}
	}
	long := strings.Repeat("0123456789abcdef", 4<<10) + " the end"
	for name, c := range map[string]struct {
		asked protocol.Approval
		want  []string // without white space
	}{
		"control characters": {
			bash("echo safe\rrm -rf ~\x1b[2K\x1b]0;title\a"),
			[]string{"echosafe⟨U+000D⟩rm-rf~⟨U+001B⟩[2K⟨U+001B⟩]0;title⟨U+0007⟩"},
		},
		"bidi": {bash("cat \u202egnp.sh\u2066 # \u200b"), []string{"cat⟨U+202E⟩gnp.sh⟨U+2066⟩#⟨U+200B⟩"}},
		"names of arguments": {protocol.Approval{
			Kind: protocol.ApprovalTool, ToolName: "bash",
			Arguments: []byte(`{"a\nrm -rf ~":1,"command":"true"}`), Options: options("bash: true"),
		}, []string{`"a\nrm-rf~":1`}},
		"64 KB": {bash(long), []string{unwrapped(long)}},
		"10,000 lines": {protocol.Approval{
			Kind: protocol.ApprovalTool, ToolName: "write", Diff: diff.String(),
			Arguments: []byte(`{"path":"x"}`), Options: options("write: x"),
		}, []string{
			"+1line1ofit", "+5000line5000ofit",
			"+10000line10000ofit",
		}},
		"names and patterns": {protocol.Approval{
			Kind: protocol.ApprovalTool, ToolName: "a\x1b[2Jb", Rule: "\u202erule",
			Reason: "r\reason", Options: options("bash: \u202ex\ny"),
		}, []string{
			"a⟨U+001B⟩[2Jb", "⟨U+202E⟩rule",
			"r⟨U+000D⟩eason", "bash:⟨U+202E⟩x⟨U+000A⟩y",
		}},
	} {
		for _, size := range [][2]int{{120, 40}, {40, 12}} {
			t.Run(fmt.Sprintf("%s %dx%d", name, size[0], size[1]), func(t *testing.T) {
				h := waiting(t, c.asked, size[0], size[1])
				h.press("f5", "home")
				seen := whole(h)
				for _, want := range c.want {
					if !strings.Contains(seen, want) {
						t.Errorf("%.80q is not on the screen, which has %.2000q", want, seen)
					}
				}
			})
		}
	}
}

// whole is all that can be scrolled to in an approval, without white space and what
// marks a line that goes on.
func whole(h *hand) string {
	var all []string
	look := func() []string { return h.approval.View(h.width, h.height*3/4, "F5") }
	lines := look()
	all = append(all, lines[0])
	for last := ""; lines[0] != last; lines = look() {
		last = lines[0]
		if all = append(all, lines[1]); !strings.Contains(last, "–") {
			break
		}
		h.press("down")
	}
	all = append(all, lines[2:]...)
	for i, line := range all {
		line = strings.TrimPrefix(ansi.Strip(line), "⤷ ")
		if strings.ContainsFunc(line, func(r rune) bool {
			return !unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r)
		}) {
			h.t.Errorf("line %d drives the terminal: %q", i, line)
		}
		all[i] = line
	}
	return unwrapped(strings.Join(all, ""))
}

// Line by line an approval is said in full, and answered by a command.
func TestAApprovalInPlainMode(t *testing.T) {
	d := startNoused(t, "")
	k := talk(t, d.Socket)
	k.types("/approve")
	k.hears("nothing waits for an answer")
	k.types(" " + outside(t, "echo aloud"))
	k.hears("Allow bash to run OUTSIDE the sandbox: it can change all your files?\n  echo aloud\n",
		"reason: the sandbox has refused it\n",
		"why: it runs outside the sandbox\n", "once: this call\n", "/approve [OPTION] allows it")
	k.types("/approve forever")
	k.hears("this approval takes once")
	k.types("/deny not today")
	k.hears("approval: denied by", "the run is completed")
	k.types(" " + outside(t, "echo again"))
	k.hears("  echo again\n")
	k.types("/approve")
	k.hears("approval: allowed (once) by")
	// Who comes later hears it, too.
	k.types(" " + outside(t, "echo for later"))
	k.hears("  echo for later\n")
	talk(t, d.Socket).hears("Allow bash to run OUTSIDE the sandbox: it can change all your files?\n  echo for later\n")
}

// Nothing of approvals appears with a core that asks none.
func TestAnOlderCoreAsksNothing(t *testing.T) {
	h := useDaemon(t, tuitest.StartOldCore(t, tuitest.Habits{}).Socket)
	h.sees("older one")
	if screen := h.screen(); strings.Contains(screen, "approvals") || strings.Contains(screen, "approval") {
		t.Errorf("the screen speaks of approvals:\n%s", screen)
	}
	h.press("f5")
	h.sees("nothing waits for an answer here")
	h.press("f6")
	h.sees("no other session has an approval")
	h.write("/set-approval-mode auto")
	h.press("enter")
	h.sees("does not know how to ask")
}

// An edit that asks is shown as what it changes, and as the call that makes it.
func TestAnEditThatAsks(t *testing.T) {
	d := startNoused(t, "[policy]\nask = [\"edit\"]\n")
	h := useDaemon(t, d.Socket)
	h.send(tea.WindowSizeMsg{Width: 80, Height: 60})
	file := filepath.Join(d.Dir, "notes")
	if err := os.WriteFile(file, []byte("package a\n\nfunc A() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.write(` !edit {"path":"notes","old_text":"A()","new_text":"B()"}`)
	h.press("enter")
	h.sees("Allow this edit of notes?", "func B() {}", "j shows the call as JSON", "waits for your answer")
	h.press("f5")
	h.write("j")
	h.sees(`"new_text": "B()"`)
	h.write("o")
	h.until("the end of the run", func() bool { return !h.running() && h.approval.ID() == "" })
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "func B()") {
		t.Errorf("allowed, and the file is %s %v", text, err)
	}
}

// The reason of a denial, and a field of a form, are taken whole, or refused as too long.
func TestAPasteIntoAnApprovalIsTakenWholeOrRefused(t *testing.T) {
	long := strings.Repeat("abc ", 750) + "end"
	for name, c := range map[string]struct {
		asked protocol.Approval
		key   string
		sent  func(approvals.Answer) string
	}{
		"reason": {protocol.Approval{
			Kind: protocol.ApprovalTool, ToolName: "bash", Arguments: []byte(`{"command":"git push"}`),
			Options: options("bash: git push …"),
		}, "r", func(a approvals.Answer) string { return a.Reason }},
		"field": {protocol.Approval{
			Kind: protocol.ApprovalQuestion, ToolName: "hotel.book", Arguments: []byte(`{}`), Options: stay.Options,
			Schema: []byte(`{"type":"object","properties":{"wishes":{"type":"string"}}}`),
		}, "a", func(a approvals.Answer) string { return a.Content }},
	} {
		h := waiting(t, c.asked, 80, 24)
		h.press("f5")
		h.write(c.key)
		h.send(tea.PasteMsg{Content: long})
		h.send(tea.PasteMsg{Content: strings.Repeat("x", 64<<10)})
		if !strings.Contains(h.screen(), "too long") {
			t.Errorf("%s: the screen is\n%s", name, h.screen())
		}
		a := h.approval.Update(named["enter"])
		if got := c.sent(a); !strings.Contains(got, long) || strings.Contains(got, "x") {
			t.Errorf("%s: got %q, want the %d bytes that were pasted", name, got, len(long))
		}
	}
}
