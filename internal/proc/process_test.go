package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap/zaptest"

	"noused/internal/protocol"
	"noused/internal/testenv"
	"noused/internal/tool/tooltest"
)

type fixture struct {
	*Supervisor
	t *testing.T
}

func supervise(t *testing.T) fixture {
	s := NewSupervisor(testenv.Self(), zaptest.NewLogger(t))
	t.Cleanup(func() {
		s.Close()
		tooltest.NoChildren(t)
	})
	return fixture{s, t}
}

func (f fixture) start(ctx context.Context, mode string, env ...string) *Process {
	f.t.Helper()
	self := tooltest.Self(f.t)
	p, err := f.Start(ctx, Command{
		Name: mode, Path: self, Args: []string{self}, Dir: f.t.TempDir(),
		Env: append(env, tooltest.Mode+"="+mode), MaxLine: 64 << 10,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func want(t *testing.T, p *Process, line string) {
	t.Helper()
	got, err := p.Next()
	if err != nil || string(got) != line {
		t.Fatalf("got line %q, %v, want %q", got, err, line)
	}
}

func TestAToolAnswersWhatItIsSent(t *testing.T) {
	p := supervise(t).start(t.Context(), "echo")
	for i := range 3 {
		if err := p.Send([]byte("hello " + strconv.Itoa(i) + "\n")); err != nil {
			t.Fatal(err)
		}
		want(t, p, "hello "+strconv.Itoa(i))
	}
	p.CloseInput()
	if _, err := p.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end of the input, want EOF", err)
	}
	if exit := p.Wait(); !exit.OK() || exit.Stopped {
		t.Errorf("got %+v, want an exit with status 0", exit)
	}
}

func TestNoOutputIsLostWhenTheToolExitsFirst(t *testing.T) {
	p := supervise(t).start(t.Context(), "lines")
	p.work.Wait() // exited and reaped, its time to drain over
	for i := range 5000 {
		want(t, p, strconv.Itoa(i))
	}
	if _, err := p.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
	p.Wait()
}

func TestExitStatusIsReportedPrecisely(t *testing.T) {
	f := supervise(t)
	for mode, text := range map[string]string{
		"early": "exit status 7", "suicide": "signal: killed", "lines": "exit status 0",
	} {
		p := f.start(t.Context(), mode)
		if got := p.Wait(); got.String() != text || got.Stopped {
			t.Errorf("%s: got %v (stopped by us: %v), want %s by itself", mode, got, got.Stopped, text)
		}
	}
}

func TestAToolThatNeverReadsHoldsUpNobody(t *testing.T) {
	p := supervise(t).start(t.Context(), "deaf")
	want(t, p, "ready")
	var err error
	for n := 0; err == nil && n < inputQueue+2; n++ {
		err = p.Send(bytes.Repeat([]byte("x"), 1<<20))
	}
	if !errors.Is(err, ErrInputFull) {
		t.Errorf("got %v, want %v", err, ErrInputFull)
	}
	p.Stop()
	if exit := p.Wait(); exit.Signal != syscall.SIGTERM || !exit.Stopped {
		t.Errorf("got %v, want it terminated by us", exit)
	}
}

func TestAToolThatExitsBeforeReadingIsNoError(t *testing.T) {
	p := supervise(t).start(t.Context(), "early")
	if err := p.Send(bytes.Repeat([]byte("x"), 4<<20)); err != nil {
		t.Fatal(err)
	}
	if exit := p.Wait(); exit.Code != 7 {
		t.Errorf("got %v, want exit status 7", exit)
	}
}

func TestAToolThatIgnoresSIGTERMIsKilled(t *testing.T) {
	p := supervise(t).start(t.Context(), "stubborn")
	want(t, p, "ready")
	p.Stop()
	if exit := p.Wait(); exit.Signal != syscall.SIGKILL || !exit.Stopped {
		t.Errorf("got %v, want it killed by us", exit)
	}
}

func TestAbortEndsTheToolAndTellsWhy(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	f, said := supervise(t), errors.New("the user said so")
	p := f.start(ctx, "deaf")
	want(t, p, "ready")
	cancel(said)
	if exit := p.Wait(); exit.Signal != syscall.SIGTERM {
		t.Errorf("got %v, want SIGTERM", exit)
	}
	if _, err := f.Start(ctx, Command{Name: "late", Path: "/bin/true"}); !errors.Is(err, said) {
		t.Errorf("got %v, want the cause of the abort", err)
	}
}

func TestAGrandchildThatHoldsThePipesIsNotWaitedForAndDies(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	p := supervise(t).start(t.Context(), "parent", tooltest.FIFO+"="+fifo)
	released := held()
	if _, err := p.Next(); err != nil { // the grandchild's number
		t.Fatal(err)
	}
	p.CloseInput()
	want(t, p, "last words")
	if _, err := p.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF once the tool itself has exited", err)
	}
	if exit := p.Wait(); !exit.OK() {
		t.Errorf("got %v, want exit status 0", exit)
	}
	released()
}

func TestAFloodingGrandchildOutsideTheGroupIsNotWaitedFor(t *testing.T) {
	p := supervise(t).start(t.Context(), "escape")
	want(t, p, strings.Repeat("x", 99))
	p.CloseInput()
	if exit := p.Wait(); !exit.OK() {
		t.Errorf("got %v, want exit status 0", exit)
	}
}

func TestInputThatOnlyAGrandchildHoldsIsGivenUp(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	p := supervise(t).start(t.Context(), "abandon", tooltest.FIFO+"="+fifo)
	if err := p.Send(bytes.Repeat([]byte("x"), 4<<20)); err != nil {
		t.Fatal(err)
	}
	want(t, p, strings.Repeat("x", 99))
	released := held()
	if exit := p.Wait(); !exit.OK() {
		t.Errorf("got %v, want exit status 0", exit)
	}
	released()
}

func TestAFloodIsNotBuffered(t *testing.T) {
	p := supervise(t).start(t.Context(), "flood")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 200_000 {
		if _, err := p.Next(); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop()
	p.Wait()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("reading 20 MB of lines allocated %d bytes, want a few buffers", got)
	}
}

func TestAnEndlessLineIsRefusedEarly(t *testing.T) {
	p := supervise(t).start(t.Context(), "longline")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := p.Next()
	var long *protocol.LineTooLongError
	if !errors.As(err, &long) {
		t.Fatalf("got %v, want the line refused", err)
	}
	p.Stop()
	exit := p.Wait()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("a line without an end cost %d bytes, want a few buffers", got)
	}
	if !exit.Stopped {
		t.Errorf("got %v, want it stopped", exit)
	}
}

func TestStderrIsReadAlwaysAndItsEndIsKept(t *testing.T) {
	p := supervise(t).start(t.Context(), "noisy")
	if exit := p.Wait(); exit.Code != 3 {
		t.Errorf("got %v, want exit status 3", exit)
	}
	got := p.Stderr(1 << 20)
	if len(got) > stderrTail || !strings.HasSuffix(got, "the end") {
		t.Errorf("got %d bytes ending in %q, want at most %d ending in the end", len(got), got[max(0, len(got)-20):],
			stderrTail)
	}
}

func TestNothingIsLeftOfManyCalls(t *testing.T) {
	f := supervise(t)
	f.start(t.Context(), "early").Wait()
	before := tooltest.FDs(t)
	for i := range 20 {
		p := f.start(t.Context(), []string{"early", "echo", "lines", "deaf"}[i%4])
		p.Stop()
		p.Wait()
	}
	if after := tooltest.FDs(t); after != before {
		t.Errorf("got %d open files after, %d before", after, before)
	}
}

func TestChildrenDieWithTheSupervisor(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	f := supervise(t)
	f.spawner.guardian = nil // the kernel alone has to do it
	p := f.start(t.Context(), "deaf", tooltest.FIFO+"="+fifo)
	released := held()
	f.Close()
	released()
	if exit := p.Wait(); exit.Signal != syscall.SIGKILL || exit.Stopped {
		t.Errorf("got %v, want it killed by the kernel", exit)
	}
	if _, err := f.Start(t.Context(), Command{Name: "late", Path: "/bin/true"}); err == nil {
		t.Error("a closed supervisor started a process")
	}
}

func TestWhatCannotBeStartedSaysWhy(t *testing.T) {
	f := supervise(t)
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f.start(t.Context(), "early").Wait()
	before := tooltest.FDs(t)
	for _, c := range []struct{ path, reason string }{
		{filepath.Join(dir, "missing"), "no such file"},
		{script("noshebang", "hello"), "exec format error"},
		{script("nointerpreter", "#!/no/such/thing\n"), "its interpreter is missing"},
	} {
		_, err := f.Start(t.Context(), Command{Name: "broken", Path: c.path, Dir: dir})
		var e *Error
		if !errors.As(err, &e) || e.Forbidden || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%s: got %v, want …%s…", c.path, err, c.reason)
		}
	}
	if after := tooltest.FDs(t); after != before {
		t.Errorf("got %d open files after, %d before", after, before)
	}
}

// script starts a shell with a command.
func (f fixture) script(command string, env ...string) *Process {
	f.t.Helper()
	p, err := f.Start(f.t.Context(), Command{
		Name: "script", Path: "/bin/sh", Args: []string{"sh", "-c", command}, Dir: f.t.TempDir(),
		Env: append(env, "PATH="+os.Getenv("PATH")), MaxLine: 64 << 10, Script: true,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func TestAScriptHasNoInputAndOneOutput(t *testing.T) {
	p := supervise(t).script("echo 1; echo 2 >&2; echo 3; readlink /proc/self/fd/0; cat; exit 4")
	for _, line := range []string{"1", "2", "3", os.DevNull} {
		want(t, p, line)
	}
	if exit := p.Wait(); exit.Code != 4 || exit.Stopped {
		t.Errorf("got %v, want exit status 4 by itself", exit)
	}
}

func TestWhatAScriptLeavesEndsWithIt(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	p := supervise(t).script(stray+"sleep 1000 &", tooltest.FIFO+"="+fifo)
	released := held()
	want(t, p, "up")
	if _, err := p.Next(); !errors.Is(err, io.EOF) { // nobody holds the output
		t.Errorf("got %v, want EOF", err)
	}
	released()
	if exit := p.Wait(); !exit.OK() || exit.Stopped {
		t.Errorf("got %v, want exit status 0 by itself", exit)
	}
}

// What a script that is stopped has started has as long as the script to end in
// its own way.
func TestWhatAStoppedScriptLeavesMayCleanUp(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "go")
	check(t, syscall.Mkfifo(fifo, 0o600))
	idle := filepath.Join(dir, "idle") // read by the shell itself: of a child that SIGTERM ends it may say so
	check(t, syscall.Mkfifo(idle, 0o600))
	p := supervise(t).script(`sh -c 'trap "read -r _ <'"` + fifo +
		`"'; echo cleaned; exit" TERM; echo up; while :; do read -r _ <>'"` + idle + `"'; done' & wait`)
	want(t, p, "up")
	p.mu.Lock() // as Stop does, but for the SIGKILL that a busy machine may see too soon
	p.stopped = true
	check(t, syscall.Kill(-p.pid, syscall.SIGTERM))
	p.mu.Unlock()
	<-p.Exited()
	check(t, os.WriteFile(fifo, []byte("go\n"), 0))
	want(t, p, "cleaned")
	if exit := p.Wait(); exit.Signal != syscall.SIGTERM {
		t.Errorf("got %v, want SIGTERM", exit)
	}
}

// A program that is supervised and supervises others ends what they leave, and
// when it is killed itself, its own Supervisor does.
func TestNothingOutlivesANestedSupervisor(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	p := supervise(t).start(t.Context(), "nester", tooltest.FIFO+"="+fifo, "PATH="+os.Getenv("PATH"))
	released := held()
	want(t, p, "up <nil>")
	want(t, p, "waited")
	released()
	check(t, p.Send([]byte("go on\n"))) // not before: what is started next has the FIFO, too
	released = held()
	want(t, p, "up <nil>")
	p.Kill()
	p.Wait()
	released()
}
