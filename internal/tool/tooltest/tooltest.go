// Package tooltest lets a test binary be the tool that it tests with: real
// processes that misbehave on purpose.
//
// Concurrency properties: a [Log] may be used from any goroutine; the rest
// belongs to the test's own. Tests that count children or descriptors must not
// run in parallel with others.
//
// It refuses to wait by the clock: what a test waits for is a file or a FIFO.
package tooltest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/testenv"
)

// Mode is the variable that turns the test binary into a tool.
const Mode = "NOUSED_TEST_TOOL"

// FIFO is the variable that tells a tool which FIFO to hold open.
const FIFO = "NOUSED_TEST_FIFO"

// Daemon is the name of the fake that the test binary is when it is started as
// the daemon starts itself, with "noused" as its own name: for [tool.Helper],
// which this package cannot import.
const Daemon = "noused"

// Main runs the tests, or one of the fakes where the environment names it, and
// fails when the tests leave a goroutine behind.
func Main(m *testing.M, fakes map[string]func() int) {
	if os.Args[0] == Daemon {
		syscall.Exit(fakes[Daemon]())
	}
	if mode := os.Getenv(Mode); mode != "" {
		// os.Exit sleeps for a second under the race detector.
		syscall.Exit(fakes[mode]())
	}
	goleak.VerifyTestMain(testenv.M{M: m})
}

// Block waits to be killed.
func Block() int {
	for {
		time.Sleep(time.Hour) // select {} would be a deadlock, and the process end
	}
}

// Hold opens the FIFO that the environment names, for as long as the process
// lives. It blocks until the test has opened it too.
func Hold() {
	if path := os.Getenv(FIFO); path != "" {
		if _, err := syscall.Open(path, syscall.O_WRONLY, 0); err != nil {
			panic(err)
		}
	}
}

// NewFIFO makes a FIFO. The second function waits until a process holds it, and
// returns one that waits until no process does.
func NewFIFO(t *testing.T) (path string, held func() (released func())) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() func() {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			defer f.Close()
			if _, err := io.Copy(io.Discard, f); err != nil {
				t.Error(err)
			}
		}
	}
}

// Self is the path of the test binary, see [testenv.Self].
func Self(t testing.TB) string {
	t.Helper()
	self, err := filepath.EvalSymlinks(testenv.Self())
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// Descriptor is a descriptor file's content.
type Descriptor map[string]any

// New is a descriptor whose tool is the test binary in a mode.
func New(t testing.TB, name, protocol, mode string) Descriptor {
	t.Helper()
	return Descriptor{
		"name": name, "kind": "tool", "protocol": protocol, "capabilities": []string{},
		"transport":  map[string]any{"type": "stdio", "command": []string{Self(t)}},
		"operations": map[string]any{"run": map[string]any{}},
		"env":        map[string]string{Mode: mode},
		"cwd":        "session", // where it leaves its traces
	}
}

// Env adds a variable.
func (d Descriptor) Env(name, value string) Descriptor {
	d["env"].(map[string]string)[name] = value
	return d
}

// Set sets a field.
func (d Descriptor) Set(field string, value any) Descriptor {
	if d[field] = value; field == "workdir" {
		delete(d, "cwd")
	}
	return d
}

// Write puts the descriptor into dir, named after its module.
func (d Descriptor) Write(t testing.TB, dir string) {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, d["name"].(string)+".json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Invocation is a call of a tool.
func Invocation(name, args string) model.Invocation {
	return model.Invocation{ToolCall: model.ToolCall{ID: "call-1", Name: name, Arguments: []byte(args)}}
}

// Log collects what a tool says.
type Log struct {
	mu      sync.Mutex
	updates []model.ToolUpdate
	// On is called for each update, if set.
	On func(model.ToolUpdate)
}

// Add is a progress function.
func (l *Log) Add(u model.ToolUpdate) {
	l.mu.Lock()
	l.updates = append(l.updates, u)
	l.mu.Unlock()
	if l.On != nil {
		l.On(u)
	}
}

// Updates returns what has been said so far.
func (l *Log) Updates() []model.ToolUpdate {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]model.ToolUpdate(nil), l.updates...)
}

// Deltas returns the texts, those of warnings marked.
func (l *Log) Deltas() []string {
	var all []string
	for _, u := range l.Updates() {
		if u.Warning != "" {
			u.Delta = "warning " + u.Warning + ": " + u.Delta
		}
		all = append(all, u.Delta)
	}
	return all
}

// NoChildren fails the test if a child is left, running or a zombie. What has died in the
// test's own process group is what a shell of the test's left behind: no tool is in that.
func NoChildren(t testing.TB) {
	t.Helper()
	for {
		if pid, err := unix.Wait4(0, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
			break
		}
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if !errors.Is(err, unix.ECHILD) {
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			pids, _ := os.ReadFile(list)
			for pid := range strings.FieldsSeq(string(pids)) {
				stat, _ := os.ReadFile("/proc/" + pid + "/stat")
				args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				t.Logf("%q: %s", args, stat)
			}
		}
		t.Errorf("a child process is left (waitid says %v)", err)
	}
}

// FDs counts the process's own open files. Those in /proc are not counted: they
// are open for an instant, whenever a child ends.
func FDs(t testing.TB) (n int) {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && !strings.HasPrefix(to, "/proc/") {
			n++
		}
	}
	return n
}

// Lines returns the lines of a file that tools append to, none if it is absent.
func Lines(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// Append adds a line to a file, for tools to leave a trace.
func Append(file, line string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
}
