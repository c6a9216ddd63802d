package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// These tests see what a user sees: the real nous in a terminal of its own,
// with a real daemon behind it.

// built are the folder that the programs under test are built in, by name.
var built struct {
	sync.Mutex
	dir   string
	paths map[string]string
}

// program builds a command of this module, once for all tests.
func program(t testing.TB, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "built")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.paths = dir, map[string]string{}
	}
	path, err := daemontest.Build(built.dir, name)
	if err != nil {
		t.Fatal(err)
	}
	built.paths[name] = path
	return path
}

const wordSlowly = "[model]\ndelay = \"10ms\"\n"

// screen is a nous in a terminal.
type screen struct {
	*tuitest.Terminal
	t *testing.T
	d *daemontest.Daemon
}

// look says what differs from a dark terminal of 100 by 30.
type look struct {
	cols, rows int
	light      bool
	socket     string
	env        []string
	args       []string
}

// openScreen starts nous and waits until it shows a session.
func openScreen(t *testing.T, d *daemontest.Daemon, l look) *screen {
	t.Helper()
	s := startScreen(t, d, l)
	s.Wait("connected", "idle")
	return s
}

func startScreen(t *testing.T, d *daemontest.Daemon, l look) *screen {
	t.Helper()
	if l.cols == 0 {
		l.cols, l.rows = 100, 30
	}
	cmd := exec.Command("nous", l.args...)
	cmd.Dir = d.Dir
	cmd.Env = d.Env(l.env...)
	if l.socket != "" {
		cmd.Env = append(cmd.Env, "NOUSED_SOCKET="+l.socket)
	}
	return &screen{tuitest.Start(t, cmd, l.cols, l.rows, l.light), t, d}
}

func startDaemon(t *testing.T, config string) *daemontest.Daemon {
	t.Helper()
	d := newDaemon(t, config)
	d.Start()
	return d
}

// newDaemon has the tools hold, which says that it holds and waits for a Write
// to go, and shout, which says something at once.
func newDaemon(t *testing.T, config string) *daemontest.Daemon {
	t.Helper()
	d := daemontest.New(t, program(t, "noused"), config)
	d.Fifo("go")
	d.Tool("hold", `read -r request
echo '{"version":"0","type":"log","level":"info","message":"holding on"}'
read -r line < go
echo '{"version":"0","type":"done","ok":true,"summary":"let go"}'
`)
	d.Tool("shout", `read -r request
echo '{"version":"0","type":"done","ok":true,"summary":"LOUD"}'
`)
	return d
}

// say types a line and sends it, as fast as can be.
func (s *screen) say(text string) {
	s.t.Helper()
	if strings.HasPrefix(text, "!") { // for the model, not for the shell
		text = " " + text
	}
	s.Type(text)
	s.Press("enter")
}

// newSession makes a session and waits until it is the one that is shown: what is
// sent before goes to the one before.
func (s *screen) newSession(title string) {
	s.t.Helper()
	s.say("/new " + title)
	s.Wait("script · " + title)
}

// noQueue waits until nothing waits.
func (s *screen) noQueue() {
	s.t.Helper()
	s.WaitFor("empty queue", func(screen string) bool { return !queued.MatchString(screen) })
}

var queued = regexp.MustCompile(`[0-9] queued`)

// askDaemon sends one command to a daemon.
func askDaemon[P protocol.Params, R protocol.Reply](t *testing.T, socket string, def protocol.Def[P, R], p P) R {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := client.Call(t.Context(), c, def, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func state(t *testing.T, socket string) protocol.State {
	t.Helper()
	return askDaemon(t, socket, protocol.GetState, protocol.GetStateParams{})
}

// Checklist 1: asynchronous prompts are what nous sends, and all it needs. While
// one is answered the input goes on.
func TestChecklist1PromptDoesNotWait(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	s := openScreen(t, d, look{socket: p.Socket})
	s.say("!hold.run")
	s.Wait("running", "holding on")
	s.Type("written meanwhile")
	s.Wait("written meanwhile", "running")
	d.Write("go", "\n")
	s.Wait("idle", "let go", "written meanwhile")
	prompts := 0
	for _, line := range p.Commands() {
		cmd, e := protocol.DecodeCommand(line)
		if e != nil {
			t.Fatal(e)
		}
		if cmd.Type == "prompt" {
			prompts++
			if !bytes.Contains(cmd.Payload, []byte(`"wait":false`)) {
				t.Errorf("nous waits: %s", line)
			}
		}
	}
	if prompts != 1 {
		t.Errorf("got %d prompts, want 1", prompts)
	}
}

// Checklist 2: the screen shows the run, its turns, what is said as it is said,
// and tools from their start over their output to their end.
func TestChecklist2LifecycleIsShown(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "[model]\ndelay = \"500ms\"\n")
	s := openScreen(t, d, look{})
	long := strings.Repeat("and so on ", 20)
	s.say("first " + long + "last")
	s.WaitFor("half an answer", func(screen string) bool {
		said := strings.Count(screen, "and so on")
		return strings.Contains(screen, "running") && said > 20 && said < 40
	})
	s.Press("esc") // who waits for the whole of it waits for half a minute
	s.Wait("idle")
	s.say("!hold.run")
	s.Wait("running", "hold.run", "holding on")
	d.Write("go", "\n")
	s.Wait("idle", "let go")
}

// Checklist 3: steer, follow-up and abort, while a run is active.
func TestChecklist3SteerFollowUpAbort(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{})
	s.say("!hold.run")
	s.Wait("holding on")
	s.say("turn left")
	s.Wait("1 queued")
	s.Type("and after that rest")
	s.Wait("and after that rest")
	s.Press("tab")
	s.Wait("2 queued", "steer turn left", "follow-up and after that rest")
	s.Press("esc")
	s.Wait("idle")
	s.noQueue()
	// What was handed back is in the input, and goes out as one prompt.
	s.Wait("turn left", "and after that rest")
	s.Press("ctrl+c")
	s.WaitGone("turn left")

	s.say("!hold.run")
	s.Wait("running", "holding on")
	s.say("steered away")
	s.Wait("1 queued")
	d.Write("go", "\n")
	s.WaitFor("the steer's answer", func(screen string) bool {
		return strings.Count(screen, "steered away") >= 2 && strings.Contains(screen, "idle")
	})

	s.say("!hold.run")
	s.Wait("running")
	s.Type("at the end")
	s.Wait("at the end")
	s.Press("tab")
	s.Wait("1 queued")
	d.Write("go", "\n")
	s.WaitFor("the follow-up's answer", func(screen string) bool {
		return strings.Count(screen, "at the end") >= 2 && strings.Contains(screen, "idle")
	})
}

// Checklist 4: the queue modes are on the screen, and keys and commands set them
// at the daemon.
func TestChecklist4QueueModes(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{args: []string{"--active"}})
	s.Wait("idle")
	s.Type("\x1bOQ") // F2
	s.Wait("steering: all")
	if got := state(t, d.Socket).SteeringMode; got != "all" {
		t.Errorf("got steering mode %s, want all", got)
	}
	s.say("/mode follow-up all")
	s.Wait("F2 steering: all", "F3 follow-up: all")
	if got := state(t, d.Socket).FollowUpMode; got != "all" {
		t.Errorf("got follow-up mode %s, want all", got)
	}
	s.Type("\x1bOR") // F3
	s.WaitGone("F3 follow-up: all")
	// What another client sets is shown, too.
	askDaemon(t, d.Socket, protocol.SetSteeringMode, protocol.SetModeParams{Mode: "one-at-a-time"})
	s.WaitGone("steering:") // the default is not told
}

// Checklist 5: sessions are made, switched to and branched; each keeps what was
// said in it.
func TestChecklist5Sessions(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{})
	s.newSession("first one")
	s.say("pears")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "pears") >= 2 })
	s.Wait("idle")
	s.newSession("second one")
	s.WaitGone("pears")
	s.say("plums")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "plums") >= 2 })
	s.Wait("idle")
	s.say("/switch first")
	s.Wait("pears", "first one")
	s.WaitGone("plums")
	s.say("/branch")
	s.Wait("branch of ses-")
	s.Wait("pears")
	s.say("cherries")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "cherries") >= 2 })
	s.Wait("idle", "pears")

	s.Press("ctrl+r")
	s.Wait("second one", "first one")
	s.Type("second")
	s.Wait("1 of ")
	s.Press("enter")
	s.Wait("plums")
	s.WaitGone("cherries")
}

// Checklist 6: after the daemon was killed in the middle of an answer, and
// started again, the screen is right without a key being pressed.
func TestChecklist6ReconnectAfterKill(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, wordSlowly)
	s := openScreen(t, d, look{})
	s.say("said before")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "said before") >= 2 })
	s.Wait("idle")
	s.say("begin " + strings.Repeat("x ", 80) + "finish")
	s.WaitFor("the answer's beginning", func(screen string) bool { return strings.Count(screen, "begin x") >= 2 })
	d.Kill()
	s.WaitGone("● connected")
	s.Wait("said before") // what was shown stays
	s.Type("written while it was away")
	d.Start()
	s.Wait("● connected", "said before", "written while it was away")
	s.WaitFor("the resumed run's whole answer", func(screen string) bool {
		return strings.Contains(screen, "idle") && strings.Count(screen, "finish") >= 2
	})
	s.Press("ctrl+c")
	s.say("said after")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "said after") >= 2 })
}

// Checklist 7: everything nous sends is as the frozen document says.
func TestChecklist7WireShapes(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	s := openScreen(t, d, look{socket: p.Socket})
	s.newSession("shapes")
	s.say("!hold.run")
	s.Wait("holding on")
	s.say("a steer")
	s.Wait("1 queued")
	s.Type("a follow-up")
	s.Wait("a follow-up")
	s.Press("tab")
	s.Wait("2 queued")
	s.Press("esc")
	s.Wait("idle")
	s.noQueue()
	s.Press("ctrl+c")
	s.Type("\x1bOQ\x1bOR") // F2, F3
	s.Wait("steering: all", "follow-up: all")
	s.say("/tools none")
	s.Wait("0 tools")
	s.say("/branch")
	s.Wait("branch of")
	s.say("/switch shapes") // two are called so: a list
	s.Wait("branch of shapes", "enter choose")
	s.Press("enter")
	s.WaitGone("enter choose")
	s.say("a prompt")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "a prompt") >= 2 })

	valid := commandSchemas(t)
	seen := map[string]bool{}
	for _, line := range p.Commands() {
		cmd, e := protocol.DecodeCommand(line)
		if e != nil {
			t.Fatalf("%v in %s", e, line)
		}
		seen[cmd.Type] = true
		if err := valid(cmd.Type, cmd.Payload); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, want := range []string{
		"prompt", "steer", "follow_up", "abort", "get_state", "get_messages", "new_session", "switch_session",
		"branch_session", "set_active_tools", "set_steering_mode", "set_follow_up_mode",
	} {
		if !seen[want] {
			t.Errorf("nous sent no %s", want)
		}
	}
}

// commandSchemas checks payloads against docs/protocol-openapi-like.json.
func commandSchemas(t *testing.T) func(command string, payload jsontext.Value) error {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol-openapi-like.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows struct {
		Commands map[string]struct {
			Payload struct {
				Ref string `json:"$ref"`
			} `json:"payload"`
		} `json:"x-commands"`
		Required map[string][]string `json:"x-command-payload-requirements"`
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("doc.json", doc); err != nil {
		t.Fatal(err)
	}
	return func(command string, payload jsontext.Value) error {
		row, ok := rows.Commands[command]
		if !ok {
			return fmt.Errorf("the document has no command %s", command)
		}
		schema, err := c.Compile("doc.json" + row.Payload.Ref)
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
}

// Two terminals on one session show the same, also the one that came while a
// tool ran.
func TestTwoScreensShowTheSame(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	one := openScreen(t, d, look{})
	one.newSession("both")
	one.say("!hold.run")
	one.Wait("running", "holding on")
	two := startScreen(t, d, look{})
	two.Wait("● connected", "running", "holding on")
	two.say("from the second")
	one.Wait("steer from the second")
	d.Write("go", "\n")
	for _, s := range []*screen{one, two} {
		s.WaitFor("the answer", func(screen string) bool {
			return strings.Count(screen, "from the second") >= 2 && strings.Contains(screen, "idle")
		})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("one:\n%s\ntwo:\n%s", steady(one.Screen()), steady(two.Screen()))
		}
	})
	// The same but for what differs from moment to moment.
	one.WaitFor("the same as the other screen", func(string) bool { return steady(one.Screen()) == steady(two.Screen()) })
}

// A branch that is made while a run is active shows the same in the terminal that
// made it and in one that comes later; and so does the session it was made of.
func TestTwoScreensShowTheSameAfterABranch(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	one := openScreen(t, d, look{})
	one.newSession("both")
	one.say("!hold.run")
	one.Wait("running", "holding on")
	parent := newest(t, d.Socket)
	one.say("/branch")
	one.Wait("this is a branch of")
	one.Wait("idle")
	branch := newest(t, d.Socket)
	two := openScreen(t, d, look{args: []string{"--session", branch}})
	one.say("/switch " + parent)
	one.Wait("running", "holding on")
	two.say("/switch " + parent)
	two.Wait("running", "holding on")
	for _, s := range []*screen{one, two} {
		if screen := s.Screen(); strings.Count(screen, "holding on") != 1 || strings.Contains(screen, "model call") {
			t.Errorf("the run is shown as over, or its output twice:\n%s", screen)
		}
	}
	d.Write("go", "\n")
	late := openScreen(t, d, look{args: []string{"--session", parent}})
	for _, s := range []*screen{one, two, late} {
		s.Wait("hold.run: let go", "(2 model calls)", "idle")
		if screen := s.Screen(); strings.Index(screen, "(2 model calls)") < strings.Index(screen, "hold.run: let go") {
			t.Errorf("the run ends before its answer:\n%s", screen)
		}
	}
	one.WaitFor("the same as the other screen", func(string) bool { return steady(one.Screen()) == steady(two.Screen()) })
}

// newest is the session that was made last.
func newest(t *testing.T, socket string) string {
	t.Helper()
	return askDaemon(t, socket, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions[0].SessionID
}

var changing = regexp.MustCompile(`\b[0-9.]+ ?(ms|s|m[0-9]+s)\b|ses-[0-9a-f-]+|run-[0-9a-f-]+`)

// steady is a screen without times and ids.
func steady(screen string) string {
	screen = changing.ReplaceAllStringFunc(screen, func(s string) string {
		if strings.HasPrefix(s, "ses-") || strings.HasPrefix(s, "run-") {
			return s[:4] + strings.Repeat("0", len(s)-4)
		}
		return "TIME"
	})
	screen = slow.ReplaceAllString(screen, "$1")
	return ruled.ReplaceAllStringFunc(screen, func(s string) string { return strings.TrimRight(s, "─ ") + " ─" })
}

// ruled is the line under a run, which is longer where its time is shorter.
var ruled = regexp.MustCompile(`TIME [^\n]* (─+|model calls?\) ?─*)`)

// slow is what a narrow status line says of a run that took a second or more, which depends on
// the machine.
var slow = regexp.MustCompile(`(?m)^(ctx .* out) · TIME`)

func TestResizeWhileItStreams(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "[model]\ndelay = \"3ms\"\n")
	s := openScreen(t, d, look{})
	s.Paste("first " + strings.Repeat("word ", 300) + "last")
	s.Press("enter")
	s.WaitFor("the run", func(screen string) bool { // it may be over by now
		return strings.Contains(screen, "running") || strings.Contains(screen, "(1 model call)")
	})
	for _, size := range [][2]int{{60, 20}, {140, 40}, {19, 5}, {20, 6}, {40, 10}, {100, 30}} {
		s.Resize(size[0], size[1])
		if size[0] >= 40 {
			s.WaitFor(fmt.Sprintf("line of %d", size[0]), func(screen string) bool {
				return strings.Contains(screen, strings.Repeat("─", size[0]))
			})
		}
	}
	s.WaitFor("the whole answer", func(screen string) bool {
		return strings.Count(screen, "last") >= 1 && strings.Contains(screen, "idle")
	})
	s.Wait("● connected")
}

// What nous scrolls by the old size of a terminal that has grown already does not
// keep the new rows from being drawn.
func TestScrollWhileItIsResized(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	wait := true
	askDaemon(t, d.Socket, protocol.Prompt, protocol.PromptParams{Text: "!bash {\"command\":\"seq 30\"}", Wait: &wait})
	s := openScreen(t, d, look{cols: 90, rows: 20})
	s.Wait("2 model calls")
	s.ResizeLate(100, 30, func() {
		before := len(s.Output())
		s.Press("alt+enter")
		s.WaitFor("scrolling by 20 rows", func(string) bool { return strings.Contains(s.Output()[before:], "\x1b[1;20r") })
	})
	s.Press("ctrl+c")
	fresh := openScreen(t, d, look{})
	s.WaitFor("same as of a fresh one", func(screen string) bool { return screen == fresh.Screen() })
}

// A shell suspends nous and takes it back: between the two the terminal is the
// shell's, and after it as nous left it. Then nous ends, and the terminal is as
// it was before.
func TestSuspendResumeAndLeave(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	cmd := exec.Command("sh", "-i")
	cmd.Dir, cmd.Env = d.Dir, d.Env("PS1=shell> ", "ENV=")
	s := &screen{tuitest.Start(t, cmd, 80, 20, false), t, d}
	s.Wait("shell>")
	s.Type("sh -c 'echo its id is $$; exec nous'\n")
	s.Wait("● connected")
	s.say("hello there")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "hello there") >= 2 })
	if s.Cooked() || !s.Mode(1049) || !s.Mode(2004) {
		t.Errorf("nous runs: cooked %t, other screen %t, bracketed paste %t", s.Cooked(), s.Mode(1049), s.Mode(2004))
	}
	shell := func() {
		t.Helper()
		s.WaitFor("the shell's prompt", func(screen string) bool {
			return strings.HasSuffix(strings.TrimSpace(screen), "shell>")
		})
	}
	s.Press("ctrl+z")
	shell()
	s.Type("echo I am the shell\n")
	s.WaitFor("the shell's answer", func(screen string) bool { return strings.Contains(screen, "\nI am the shell") })
	s.asBefore()
	s.Type("fg\n")
	s.Wait("● connected", "hello there")
	var pid int
	if _, id, ok := strings.Cut(s.Output(), "\nits id is "); !ok {
		t.Fatal("no process id")
	} else if _, err := fmt.Sscan(id, &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTSTP); err != nil { // from elsewhere
		t.Fatal(err)
	}
	s.Wait("Stopped")
	shell()
	s.asBefore()
	s.Type("fg\n")
	s.WaitGone("Stopped")
	s.Wait("● connected", "hello there")
	if s.Cooked() || !s.Mode(1049) {
		t.Errorf("nous goes on: cooked %t, other screen %t", s.Cooked(), s.Mode(1049))
	}
	s.say("/quit")
	shell()
	s.Type("echo and $? was its status\n")
	s.WaitFor("the shell's answer", func(screen string) bool { return strings.Contains(screen, "\nand 0 was its status") })
	s.asBefore()
	s.Type("exit\n")
	s.Exit()
}

// In a terminal of its own nous has no shell that would let it go on.
func TestNoShellNoSuspension(t *testing.T) {
	t.Parallel()
	s := openScreen(t, startDaemon(t, ""), look{})
	s.Press("ctrl+z")
	s.Wait("cannot be suspended here")
	s.say("on we go")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "on we go") >= 2 })
}

// asBefore fails unless the terminal is as a program finds it.
func (s *screen) asBefore() {
	s.t.Helper()
	if !s.Cooked() {
		s.t.Error("the terminal does not edit lines")
	}
	if !s.Mode(25) {
		s.t.Error("the cursor is hidden")
	}
	for mode, name := range map[int]string{
		1049: "the other screen", 1000: "mouse", 1002: "mouse", 1003: "mouse",
		1006: "mouse", 1004: "focus", 2004: "bracketed paste", 2026: "frames",
	} {
		if s.Mode(mode) {
			s.t.Errorf("mode %d is still set: %s", mode, name)
		}
	}
}

// However nous ends, the terminal is as it was.
func TestEveryEndLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	for _, tc := range []struct {
		name   string
		end    func(*screen)
		status int
	}{
		{"Ctrl-D", func(s *screen) { s.Press("ctrl+d") }, 0},
		{"Ctrl-C twice", func(s *screen) { s.Press("ctrl+c"); s.Wait("again leaves"); s.Press("ctrl+c") }, 0},
		{"SIGTERM", func(s *screen) { s.Signal(syscall.SIGTERM) }, 0},
		{"SIGHUP", func(s *screen) { s.Signal(syscall.SIGHUP) }, 0},
		{"SIGQUIT", func(s *screen) { s.Signal(syscall.SIGQUIT) }, 0},
		{"Ctrl-Backslash", func(s *screen) { s.Press("ctrl+\\") }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := openScreen(t, d, look{})
			tc.end(s)
			if got := s.Exit(); got != tc.status {
				t.Errorf("got exit status %d, want %d", got, tc.status)
			}
			s.asBefore()
		})
	}
}

var comesBack = regexp.MustCompile(`to come back: nous --session ses-[0-9a-f-]{36}\b`)

// Who leaves is told, on the shell's own screen, how to come back and whether the
// run goes on.
func TestLeavingSaysHowToComeBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	for _, during := range []bool{false, true} {
		s := openScreen(t, d, look{})
		if during {
			s.say("!hold.run")
			s.Wait("holding on")
		}
		s.Press("ctrl+d")
		s.Exit()
		_, after, _ := strings.Cut(s.Output(), "\x1b[?1049l")
		if !comesBack.MatchString(after) || during != strings.Contains(after, "the run goes on; ") {
			t.Errorf("during a run %t: the shell's screen has %q", during, after)
		}
	}
}

var coloured = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

// colours are the SGR sequences of an output that set a colour.
func colours(output string) []string {
	var out []string
	for _, seq := range coloured.FindAllString(output, -1) {
		for _, param := range strings.FieldsFunc(seq[2:len(seq)-1], func(r rune) bool { return r == ';' || r == ':' }) {
			if len(param) > 1 && strings.ContainsAny(param[:1], "349") || len(param) == 3 && param[:2] == "10" {
				out = append(out, seq)
				break
			}
		}
	}
	return out
}

func TestColoursAreWhatTheTerminalHas(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	for _, tc := range []struct {
		name string
		env  []string
		ok   func(colours []string) bool
	}{
		{"NO_COLOR", []string{"NO_COLOR=1"}, func(c []string) bool { return len(c) == 0 }},
		{"16 colours", []string{"TERM=xterm-16color"}, func(c []string) bool {
			return len(c) > 0 && !strings.Contains(strings.Join(c, ""), "38;") && !strings.Contains(strings.Join(c, ""), "48;")
		}},
		{"256 colours", nil, func(c []string) bool {
			return strings.Contains(strings.Join(c, ""), "38;5;") && !strings.Contains(strings.Join(c, ""), "38;2;")
		}},
		{"all colours", []string{"COLORTERM=truecolor"}, func(c []string) bool {
			return strings.Contains(strings.Join(c, ""), "38;2;")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := openScreen(t, d, look{env: tc.env, cols: 80, rows: 24})
			s.say("/help")
			s.Wait("Alt+Enter")
			if got := colours(s.Output()); !tc.ok(got) {
				t.Errorf("got colours %q", got[:min(len(got), 20)])
			}
		})
	}
}

// Where no daemon runs, nous offers to start one, which outlives it.
func TestNoDaemonIsOfferedOne(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	s := startScreen(t, d, look{env: []string{"PATH=" + filepath.Dir(program(t, "noused")) + ":" + os.Getenv("PATH")}})
	s.Wait("no daemon", "start one")
	s.Press("s")
	s.Wait("● connected")
	pid := state(t, d.Socket).Daemon.PID
	t.Cleanup(func() { noneLeft(d.Socket) })
	s.say("hello new daemon")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "hello new daemon") >= 2 })
	s.Wait("idle")
	s.Press("ctrl+d")
	if got := s.Exit(); got != 0 {
		t.Errorf("got exit status %d, want 0", got)
	}
	if got := state(t, d.Socket).Daemon.PID; got != pid {
		t.Errorf("got daemon %d, want %d to go on", got, pid)
	}
}

// A session that was named and does not exist is told, though a daemon is there
// only later; another one is not shown in its place.
func TestASessionThatIsNoneIsNotReplacedByAnother(t *testing.T) {
	for name, args := range map[string][]string{"screen": nil, "plain": {"--plain"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, "")
			s := startScreen(t, d, look{args: append(args, "--session", "ses-nope")})
			s.Wait("no daemon runs")
			d.Start()
			if got := s.Exit(); got != 1 {
				t.Errorf("got exit status %d, want 1", got)
			}
			if screen := s.Screen(); !strings.Contains(screen, "session_not_found") ||
				strings.Contains(screen, "session ses-0") {
				t.Errorf("got:\n%s", screen)
			}
		})
	}
}

// An old core gets everything done that the frozen commands can do; what it
// lacks is said.
func TestOldCore(t *testing.T) {
	for name, habits := range map[string]tuitest.Habits{"none": {}, "all": tuitest.AllHabits} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testOldCore(t, habits)
		})
	}
}

func testOldCore(t *testing.T, habits tuitest.Habits) {
	c := tuitest.StartOldCore(t, habits)
	d := daemontest.New(t, "", "") // its folder only
	s := openScreen(t, d, look{socket: c.Socket})
	s.Wait("older one")
	s.say("good old days")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "good old days") >= 2 })
	s.Wait("idle")
	s.say("hold still")
	s.Wait("running")
	s.say("go on")
	s.WaitFor("the steer's answer", func(screen string) bool {
		return strings.Count(screen, "go on") >= 2 && strings.Contains(screen, "idle")
	})
	s.say("hold again")
	s.Wait("running")
	s.Press("esc")
	s.Wait("idle")
	s.Type("\x1bOQ") // F2
	s.Wait("steering: all")
	s.say("/tree")
	s.Wait("older one and does not know how")
	s.say("/new")
	s.WaitGone("good old days")
	s.say("/switch ses-1")
	s.Wait("good old days")
}

var update = flag.Bool("update-screens", false, "write the golden screens anew")

// A screen of each size in all colours and in none, as testdata/screens has it:
// {look|text} is a run of characters that do not have the terminal's own look.
// nous is started anew for each, so they also say what a session looks like to
// one who comes later.
func TestGoldenScreens(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	talk := openScreen(t, d, look{})
	talk.newSession("A day at the lake")
	talk.Paste("?where to begin\n# Plan\n\nFirst **pack**, then *go*:\n\n- `boat`\n- oars\n\n```go\nfunc row() error { " +
		"return nil }\n```\n!shout.run\n")
	talk.Press("enter")
	talk.Wait("LOUD", "(2 model calls)", "idle")
	for _, size := range [][2]int{{44, 16}, {80, 24}, {132, 40}} {
		for _, way := range []struct {
			name string
			look look
		}{
			{"dark", look{env: []string{"COLORTERM=truecolor"}}},
			{"light-nocolor", look{env: []string{"NO_COLOR=1"}, light: true}},
		} {
			name := fmt.Sprintf("%dx%d-%s", size[0], size[1], way.name)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := way.look
				l.cols, l.rows = size[0], size[1]
				s := openScreen(t, d, l)
				path := filepath.Join("testdata", "screens", name+".txt")
				if *update {
					if err := os.WriteFile(path, []byte(steady(s.Styled())), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				s.WaitFor("look of "+path+"; it is\n"+steady(s.Styled()), func(string) bool {
					return steady(s.Styled()) == string(want)
				})
			})
		}
	}
}

// The client is small enough to be copied around.
func TestClientFitsItsSize(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	info, err := os.Stat(program(t, "nous"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("nous has %.1f MiB", float64(info.Size())/(1<<20))
	if most := int64(24 << 20); info.Size() > most {
		t.Errorf("nous has %d bytes, at most %d are wanted", info.Size(), most)
	}
}

// The first screen of a session comes within a tenth of a second; what the
// ratio leaves is the start of a process.
func BenchmarkStartToFirstScreen(b *testing.B) {
	d := daemontest.New(b, program(b, "noused"), "")
	d.Start()
	nous := program(b, "nous")
	for b.Loop() {
		cmd := exec.Command(nous)
		cmd.Dir, cmd.Env = d.Dir, d.Env()
		s := tuitest.Start(b, cmd, 100, 30, false)
		s.Wait("connected", "idle")
		b.StopTimer()
		s.Press("ctrl+d")
		s.Exit()
		b.StartTimer()
	}
}

func BenchmarkStartOfVersion(b *testing.B) {
	nous := program(b, "nous")
	for b.Loop() {
		if err := exec.Command(nous, "--version").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// A stream of a thousand deltas a second costs the terminal interface this
// share of one core.
func BenchmarkStreamOf1000DeltasASecond(b *testing.B) {
	d := daemontest.New(b, program(b, "noused"), "[model]\ndelay = \"1ms\"\n")
	d.Start()
	cmd := exec.Command(program(b, "nous"))
	cmd.Dir, cmd.Env = d.Dir, d.Env("COLORTERM=truecolor")
	s := tuitest.Start(b, cmd, 120, 40, false)
	s.Wait("connected", "idle")
	text := "begin " + strings.Repeat("some **words** of `text`, and on and on it goes\n", 500) + "done"
	var cpu, wall time.Duration
	for i := 0; b.Loop(); i++ {
		before, start := cpuOf(b, s.PID()), time.Now()
		s.Paste(fmt.Sprintf("%s%d", text, i))
		s.Press("enter")
		s.WaitFor("answer", func(screen string) bool {
			return strings.Contains(screen, fmt.Sprintf("done%d", i)) && strings.Contains(screen, "idle") &&
				time.Since(start) > time.Second
		})
		cpu += cpuOf(b, s.PID()) - before
		wall += time.Since(start)
	}
	b.ReportMetric(100*cpu.Seconds()/wall.Seconds(), "%core")
}

// cpuOf is the time that a process has spent on a core.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	var ticks time.Duration
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}
