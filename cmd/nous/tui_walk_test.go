package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// shortWalk is how long the test is unless it is asked for more (make long).
const shortWalk = 30

var (
	walkSteps = flag.Int("walk-steps", shortWalk, "actions of TestTwoScreensShowTheSameAfterEveryAction")
	walkSeed  = flag.Uint64("walk-seed", 1, "its seed")
)

// walk does random things to one session that two screens show, with the keys of
// one of them, or as another client.
type walk struct {
	t       *testing.T
	d       *daemontest.Daemon
	rand    *rand.Rand
	screens [2]*screen
	session string
	step    int
	waits   bool // a run waits for the tool hold to be let go
	queued  int  // texts, for it
	log     []string
}

// Two screens of one session show the same, character by character, after
// whatever was done to it: by the keys of one of them, or by another client. Only
// what a screen says to its own user is left out, and how long a run goes on so
// far. After each action the session gets a name: a screen that shows it has taken
// in everything before.
func TestTwoScreensShowTheSameAfterEveryAction(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes long")
	}
	w := &walk{t: t, d: startDaemon(t, ""), rand: rand.New(rand.NewPCG(*walkSeed, 0))}
	for i := range w.screens {
		w.screens[i] = openScreen(t, w.d, look{args: []string{"--active"}})
	}
	w.both(askDaemon(t, w.d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last of %d actions of seed %d:\n%s", w.step, *walkSeed, strings.Join(w.log[max(0, len(w.log)-12):],
				"\n"))
		}
	})
	for w.step = range *walkSteps {
		w.act()
		w.compare()
	}
}

// act does one thing.
func (w *walk) act() {
	idle := []func(){
		w.prompt, w.prompt, w.prompt, w.shell, w.hold, w.hold, w.branch, w.leaf, w.compact, w.model, w.renew,
		w.resize, w.modes, w.answerApproval, w.answerApproval,
	}
	busy := []func(){
		w.steer, w.steer, w.followUp, w.followUp, w.withdraw, w.abort, w.release, w.awayAndBack, w.model,
		w.resize,
	}
	choices := idle
	if w.waits {
		choices = busy
	}
	choices[w.rand.IntN(len(choices))]()
}

func (w *walk) did(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%3d ", w.step)+fmt.Sprintf(format, args...))
}

// one is one of the screens, by chance.
func (w *walk) one() *screen { return w.screens[w.rand.IntN(2)] }

func (w *walk) scope() protocol.Scope { return protocol.Scope{SessionID: w.session} }

func (w *walk) state() protocol.State {
	return askDaemon(w.t, w.d.Socket, protocol.GetState, protocol.GetStateParams{Scope: w.scope()})
}

// compare waits until both screens show everything, and the same.
func (w *walk) compare() {
	w.t.Helper()
	title := fmt.Sprintf("step %d.", w.step)
	askDaemon(w.t, w.d.Socket, protocol.SetTitle, protocol.SetTitleParams{Scope: w.scope(), Title: title})
	for _, s := range w.screens {
		s.WaitFor("title "+title, func(screen string) bool {
			lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
			return len(lines) > 1 && strings.Contains(lines[len(lines)-2], title)
		})
		s.Press("ctrl+c", "ctrl+l") // what came back to one's input, and what is said to one alone
	}
	one, two := w.screens[0], w.screens[1]
	one.WaitFor("same text as the other screen", func(string) bool { return shared(one.Screen()) == shared(two.Screen()) })
}

var (
	spinning = regexp.MustCompile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
	ticking  = regexp.MustCompile(`\b[0-9.]+ ?(ms|min [0-9]+ s|m[0-9]+s|s)\b| +`)
)

// shared is a screen without the time that a run has been going on so far.
func shared(screen string) string {
	lines := strings.Split(screen, "\n")
	for i, line := range lines {
		if spinning.MatchString(line) {
			lines[i] = ticking.ReplaceAllString(spinning.ReplaceAllString(line, "*"), " ")
		}
	}
	return strings.Join(lines, "\n")
}

// said are texts whose answers look like work: the offline model repeats them and
// does what lines with a ! say.
var said = []string{
	"a plain sentence", "# A title\n\n- one **bold**\n- two `code`\n\n```go\nfunc f() error { return nil }\n```",
	"?I have to think about it\nand this is it", "漢字 and 👩‍👩‍👧 and é, " + "word after word, and 漢字 again, ",
	"!bash {\"command\":\"seq 30\"}", "!bash {\"command\":\"seq 30; exit 3\"}", "!no.such {}",
	"!shout.run\nand that was that",
	"!write {\"path\":\"a.go\",\"content\":\"package a\\n\\nfunc A() {}\\n\"}",
	"!edit {\"path\":\"a.go\",\"old_text\":\"A()\",\"new_text\":\"B()\"}",
	"| a | b |\n|---|---|\n| 1 | 2 |", "a long one " + strings.Repeat("and so on ", 60),
}

// word marks a text, to find it and its answer on a screen.
func (w *walk) word() string { return fmt.Sprintf("word%d.", w.step) }

func (w *walk) prompt() {
	text := said[w.rand.IntN(len(said))] + "\n" + w.word()
	if w.rand.IntN(2) == 0 {
		wait := true
		w.did("prompt of another client: %q", text)
		askDaemon(w.t, w.d.Socket, protocol.Prompt, protocol.PromptParams{Scope: w.scope(), Text: text, Wait: &wait})
		return
	}
	w.did("prompt: %q", text)
	s, before := w.one(), w.lastRun()
	s.Paste(" " + text) // else the first line may be one for the shell
	s.Press("enter")
	s.WaitFor("end of the run", func(string) bool { return w.lastRun() != before })
}

// shell runs a line in the shell, which joins the conversation.
func (w *walk) shell() {
	w.did("shell")
	s := w.one()
	s.Type("!seq 3; echo " + w.word())
	s.Press("enter")
	s.WaitFor("the line and its output", func(screen string) bool { return strings.Count(screen, w.word()) >= 2 })
}

// lastRun is the id of the run that has ended last.
func (w *walk) lastRun() string {
	if last := w.state().LastRun; last != nil {
		return last.RunID
	}
	return ""
}

// hold begins a run that waits until it is let go.
func (w *walk) hold() {
	w.did("hold")
	s := w.one()
	s.say("!hold.run")
	s.Wait("running", "holding on")
	w.waits = true
}

// answerApproval begins a run that asks; both screens show it. It is answered with a key,
// by another client, or by an abort.
func (w *walk) answerApproval() {
	text := `!bash {"command":"echo ` + w.word() + `","outside_sandbox":true,"reason":"the sandbox says no"}`
	askDaemon(w.t, w.d.Socket, protocol.Prompt, protocol.PromptParams{Scope: w.scope(), Text: text, Wait: new(bool)})
	for _, s := range w.screens {
		s.Wait("Allow bash to run OUTSIDE", "echo "+w.word())
	}
	w.compare()
	answer := []string{"o", "d", "once", "deny", "abort"}[w.rand.IntN(5)]
	w.did("approval: %s", answer)
	switch answer {
	case "abort":
		askDaemon(w.t, w.d.Socket, protocol.Abort, protocol.AbortParams{Scope: w.scope()})
	case "once", "deny":
		askDaemon(w.t, w.d.Socket, protocol.Approve,
			protocol.ApproveParams{ApprovalID: w.state().PendingApprovals[0].ApprovalID, Option: answer})
	default:
		w.one().Type(keyF5 + answer)
	}
	w.idle()
}

func (w *walk) release() {
	w.did("let go")
	w.d.Write("go", "\n")
	w.idle()
}

// idle waits for the end of the run.
func (w *walk) idle() {
	for _, s := range w.screens {
		s.Wait("idle")
	}
	w.waits, w.queued = false, 0
}

func (w *walk) steer() {
	w.did("steer")
	s := w.one()
	s.say("steered " + w.word())
	w.queue(s)
}

func (w *walk) followUp() {
	w.did("follow-up")
	if w.rand.IntN(2) == 0 {
		askDaemon(w.t, w.d.Socket, protocol.FollowUp, protocol.FollowUpParams{Scope: w.scope(), Text: "followed " + w.word()})
		w.queued++
		return
	}
	s := w.one()
	s.Type("followed " + w.word())
	s.Wait("followed " + w.word())
	s.Press("tab")
	w.queue(s)
}

func (w *walk) queue(s *screen) {
	w.queued++
	s.Wait(fmt.Sprintf("%d queued", w.queued))
}

func (w *walk) withdraw() {
	inputs := w.state().Queued.Inputs
	if len(inputs) == 0 {
		return
	}
	in := inputs[w.rand.IntN(len(inputs))]
	w.did("withdraw %q", in.Text)
	askDaemon(w.t, w.d.Socket, protocol.Withdraw, protocol.WithdrawParams{Scope: w.scope(), InputID: in.InputID})
	w.queued--
}

func (w *walk) abort() {
	w.did("abort")
	s := w.one()
	s.Press("esc")
	if w.queued > 0 {
		s.Wait("your queued text is in the input again")
	}
	w.idle()
}

// awayAndBack has one screen make a branch of the session and return.
func (w *walk) awayAndBack() {
	w.did("a branch, and back")
	s := w.one()
	s.say("/branch")
	s.Wait("this is a branch of", "idle")
	s.say("/switch " + w.session)
	s.Wait("running", "holding on")
}

// both has both screens show a session.
func (w *walk) both(id string) {
	w.session = id
	title := fmt.Sprintf("session %d.", w.step)
	askDaemon(w.t, w.d.Socket, protocol.SetTitle, protocol.SetTitleParams{Scope: w.scope(), Title: title})
	for _, s := range w.screens {
		s.say("/switch " + id)
		s.Wait(title)
	}
}

func (w *walk) branch() {
	w.did("branch")
	w.both(askDaemon(w.t, w.d.Socket, protocol.BranchSession, protocol.BranchSessionParams{SessionID: w.session}).
		SessionID)
}

// renew deletes the session and goes on in a new one.
func (w *walk) renew() {
	w.did("delete, new")
	next := askDaemon(w.t, w.d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	if w.rand.IntN(2) == 0 {
		w.both(next)
		return
	}
	askDaemon(w.t, w.d.Socket, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: w.session})
	w.both(next)
}

func (w *walk) leaf() {
	nodes := askDaemon(w.t, w.d.Socket, protocol.GetTree, protocol.GetTreeParams{Scope: w.scope()}).Nodes
	if len(nodes) == 0 {
		return
	}
	id := nodes[w.rand.IntN(len(nodes))].ID
	w.did("leaf %s", id)
	if w.rand.IntN(2) == 0 {
		askDaemon(w.t, w.d.Socket, protocol.SetLeaf, protocol.SetLeafParams{Scope: w.scope(), LeafID: id})
		return
	}
	s := w.one()
	s.say("/leaf " + id)
	s.Wait("the session goes on from " + id)
}

func (w *walk) compact() {
	if w.state().Context.Tokens < 200 {
		return
	}
	w.did("compact")
	c, err := client.Dial(w.t.Context(), w.d.Socket)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_, err = client.Call(w.t.Context(), c, protocol.CompactSession, protocol.CompactSessionParams{Scope: w.scope()})
	w.did("compact: %v", err)
}

// model gives the session another model and, so that prompts are answered, its
// own again.
func (w *walk) model() {
	w.did("model")
	w.one().say("/model openai/tiny http://127.0.0.1:1/v1")
	for _, s := range w.screens {
		s.Wait("· openai/tiny ·")
	}
	w.one().say("/model default")
	for _, s := range w.screens {
		s.Wait("· offline/script ·")
	}
}

func (w *walk) modes() {
	w.did("modes")
	w.one().Type("\x1bOR") // F3
}

func (w *walk) resize() {
	sizes := [][2]int{{100, 30}, {120, 40}, {90, 20}, {132, 24}}
	size := sizes[w.rand.IntN(len(sizes))]
	w.did("resize %v", size)
	for _, s := range w.screens {
		s.Resize(size[0], size[1])
	}
}
