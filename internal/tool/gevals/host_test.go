package gevals

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

type bench struct {
	*registry.Registry
	t       *testing.T
	workdir string
	scenes  []string
	logged  *observer.ObservedLogs
	host    *host // of x
}

// script is the extension x, whose processes play these scenes.
func script(t *testing.T, scenes ...string) tooltest.Descriptor {
	d := tooltest.New(t, "x", "gevals", "player").Env("SCRIPT", strings.Join(scenes, "\n!next\n"))
	delete(d, "operations")
	return d
}

var environ = []string{
	"PATH=/usr/bin:/bin", "HOME=/home/me", "OPENAI_API_KEY=sk-secret-1", "ANTHROPIC_API_KEY=sk-secret-2",
	"MY_TOKEN=sk-secret-3", "NOTIFY_SOCKET=/run/sk-secret-4", "LISTEN_FDS=2", "WATCHDOG_USEC=1", "LD_PRELOAD=sk-secret-5",
}

// mount makes a registry of one extension.
func mount(t *testing.T, d tooltest.Descriptor, adapt ...func(*host)) *bench {
	t.Helper()
	dir := t.TempDir()
	d.Write(t, dir)
	core, logged := observer.New(zapcore.DebugLevel)
	b := &bench{t: t, workdir: t.TempDir(), logged: logged, scenes: []string{d["env"].(map[string]string)["SCRIPT"]}}
	b.Registry = registry.New(registry.Options{
		Dirs: []string{dir}, Workdir: b.workdir, OutputDir: t.TempDir(), Environ: environ, Logger: zap.New(core),
		Dialects: map[string]tool.Dialect{tool.Gevals: func(d *tool.Descriptor, s *proc.Supervisor,
			log *zap.Logger,
		) tool.Host {
			b.host = Dialect(d, s, log).(*host)
			for _, f := range adapt {
				f(b.host)
			}
			return b.host
		}},
	})
	t.Cleanup(func() { b.Close(context.Background()) })
	if errs := b.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	return b
}

// gone sees that nothing is left of the extension.
func (b *bench) gone() {
	b.t.Helper()
	b.Close(context.Background())
	tooltest.NoChildren(b.t)
}

func (b *bench) call() model.ToolResult {
	b.t.Helper()
	return b.Call(b.t.Context(), tooltest.Invocation("x.run", `{}`), nil)
}

func (b *bench) succeeds(text string) {
	b.t.Helper()
	if r := b.call(); !r.OK || r.Text != text {
		b.t.Fatalf("got %+v, want %q", r, text)
	}
}

func (b *bench) fails(r model.ToolResult, code string, texts ...string) {
	b.t.Helper()
	if r.OK || r.Error == nil || r.Error.Code != code {
		b.t.Fatalf("got %+v, want %s", r, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.Text, text) {
			b.t.Errorf("got text %q, want %q in it", r.Text, text)
		}
	}
}

// starts sees how many processes there were.
func (b *bench) starts(want int) {
	b.t.Helper()
	got := 0
	for _, word := range tooltest.Lines(b.t, filepath.Join(b.workdir, trace)) {
		if word == "start" {
			got++
		}
	}
	if got != want {
		b.t.Errorf("got %d processes, want %d", got, want)
	}
}

func TestLogsComeInOrderBeforeTheResult(t *testing.T) {
	b := mount(t, script(t, "!get\n!logs 500\n!ok"))
	var log tooltest.Log
	r := b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add)
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint("line ", i))
	}
	if diff := cmp.Diff(want, log.Deltas()); diff != "" || !r.OK {
		t.Errorf("got %+v: %s", r, diff)
	}
}

func TestLogsAreToldWhenTheyCome(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, script(t, "!get\n"+logLine("waiting")+"\n!hold\n!ok\n!waits").Env(tooltest.FIFO, fifo))
	var log tooltest.Log
	var released func()
	log.On = func(model.ToolUpdate) { released = held() } // only now can it go on
	if r := b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add); !r.OK {
		t.Errorf("got %+v, want ok", r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.Close(ended)
	released()
	b.gone()
}

func TestTheDaemonsSecretsReachNeitherTheExtensionNorTheLog(t *testing.T) {
	b := mount(t, script(t, "!get\n!env\n!get\nnoise\n!stderr \"oops\"\n!exit 3").Env("TOKEN", "mine"))
	r := b.call()
	for _, want := range []string{"PATH=/usr/bin:/bin", "HOME=/home/me", "TOKEN=mine"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("got %q, want %s in it", r.Text, want)
		}
	}
	crash := b.call()
	b.fails(crash, tool.Crashed)
	sent := strings.Join(tooltest.Lines(t, filepath.Join(b.workdir, trace)), " ")
	if !strings.Contains(sent, `"TOKEN":"mine"`) {
		t.Errorf("got %s, want the descriptor's own env in the context", sent)
	}
	said := r.Text + sent + crash.Text + string(crash.Error.Details)
	if b.logged.Len() == 0 {
		t.Error("want the failure in the log")
	}
	for _, e := range b.logged.All() {
		said += e.Message + fmt.Sprint(e.ContextMap())
	}
	for _, secret := range []string{
		"sk-secret", "OPENAI", "ANTHROPIC", "MY_TOKEN", "NOTIFY_SOCKET", "LISTEN_FDS",
		"WATCHDOG_USEC", "LD_PRELOAD",
	} {
		if strings.Contains(said, secret) {
			t.Errorf("%s got out: %s", secret, said)
		}
	}
}

func TestALateAnswerReachesNobody(t *testing.T) {
	b := mount(t, script(t, "!get\n!term\n"+result(`"success":true,"message":"late"`)+"\n"+
		strings.Replace(result(`"success":true,"message":"late"`), "$ID", "$NEXT", 1)+"\n!exit 0", ""))
	ctx, cancel := context.WithCancel(t.Context())
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { cancel() }
	b.fails(b.Call(ctx, tooltest.Invocation("x.run", `{}`), log.Add), tool.Aborted)
	for range 3 {
		b.succeeds("again")
	}
	b.starts(2)
	b.gone()
}

func TestAnExtensionThatLeavesBetweenCallsIsStartedAgain(t *testing.T) {
	b := mount(t, script(t, "!get\n!ok\n!exit 0"))
	for range 4 {
		b.succeeds("did it")
		var info unix.Siginfo
		for err := error(nil); !errors.Is(err, unix.ECHILD); { // until it is gone
			err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		}
	}
	b.starts(4)
}

func TestOneProcessDoesOneThingAtATime(t *testing.T) {
	b := mount(t, script(t, strings.Repeat("!get\n!logs 200\n!ok\n", 8)))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var log tooltest.Log
			r := b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add)
			if got := log.Deltas(); !r.OK || len(got) != 200 || got[0] != "line 0" || got[199] != "line 199" {
				t.Errorf("got %+v after %d logs, want ok after its own 200", r, len(got))
			}
		})
	}
	wg.Wait()
	b.starts(1)
}

func TestMoreProcessesDoMoreAtATime(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, script(t, "!get\n"+logLine("waiting")+"\n!hold\n!ok", "").Set("concurrency", 2).Env(tooltest.FIFO, fifo))
	waiting := make(chan struct{})
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { close(waiting) }
	var wg sync.WaitGroup
	wg.Go(func() {
		if r := b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add); !r.OK { // waits for us to read the FIFO
			t.Errorf("got %+v, want ok", r)
		}
	})
	<-waiting
	b.succeeds("again")
	released := held()
	wg.Wait()
	go b.Close(context.Background()) // its processes hold the FIFO
	released()
	b.starts(2)
}

func TestAWaitingCallCanBeAborted(t *testing.T) {
	b := mount(t, script(t, "!get\n"+logLine("hanging")+"\n!blocks"))
	hanging := make(chan struct{})
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { close(hanging) }
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.fails(b.Call(ctx, tooltest.Invocation("x.run", `{}`), log.Add), tool.Aborted) })
	<-hanging
	waiting, stop := context.WithCancel(t.Context())
	wg.Go(func() { b.fails(b.Call(waiting, tooltest.Invocation("x.run", `{}`), nil), tool.Aborted) })
	stop()
	cancel()
	wg.Wait()
}

func TestAFloodOfLogsCanBeAborted(t *testing.T) {
	b := mount(t, script(t, "!get\n!floods", ""))
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	var log tooltest.Log
	log.On = func(model.ToolUpdate) {
		if heard++; heard == 5000 {
			cancel()
		}
	}
	b.fails(b.Call(ctx, tooltest.Invocation("x.run", `{}`), log.Add), tool.Aborted)
	if heard != 5000 {
		t.Errorf("heard %d logs, want none after the abort", heard)
	}
	b.succeeds("again")
}

func TestStoppingTheDaemonDoesNotWaitForAnInitialize(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, script(t, "!cold\n!hold\n!blocks").Env(tooltest.FIFO, fifo))
	result := make(chan model.ToolResult, 1)
	go func() { result <- b.call() }()
	released := held()
	b.Close(t.Context())
	b.fails(<-result, tool.Aborted)
	released()
}

func TestStoppingTheDaemonAbortsCalls(t *testing.T) {
	b := mount(t, script(t, "!get\n"+logLine("hanging")+"\n!blocks"))
	var log tooltest.Log
	closed := make(chan struct{})
	log.On = func(model.ToolUpdate) {
		go func() {
			b.Close(context.Background())
			close(closed)
		}()
	}
	r := b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add)
	<-closed
	b.fails(r, tool.Aborted, "the daemon is stopping")
	b.gone()
}

func TestStoppingInHasteKillsAtOnce(t *testing.T) {
	b := mount(t, script(t, "!immortal\n!get\n!ok\n!blocks"), func(h *host) { h.waits.ack = time.Hour })
	b.succeeds("did it")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	b.Close(over)
	b.gone()
}

func TestAnIdleExtensionIsShutDownAndStartedAgain(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, script(t, "").Env(tooltest.FIFO, fifo), func(h *host) { h.pool.Idle = time.Millisecond })
	b.List(t.Context(), model.Scope{})
	held()() // it holds the FIFO from its shutdown to its end
	if sent := tooltest.Lines(t, filepath.Join(b.workdir, trace)); !strings.Contains(sent[len(sent)-1],
		`"method":"shutdown"`) {
		t.Errorf("got %q, want a shutdown", sent)
	}
}

func TestAPanicOfTheListenerReplacesTheProcess(t *testing.T) {
	b := mount(t, script(t, "!get\n!logs 10\n!ok", ""))
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { panic("ouch") }
	b.fails(b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add), tool.Internal)
	b.succeeds("again")
	b.starts(2)
}

func TestNothingIsLeftOfManyProcesses(t *testing.T) {
	b := mount(t, script(t, "!get\n!ok\n!get\n!exit 1"), func(h *host) { h.crashes.Free = 100 })
	b.succeeds("did it")
	b.fails(b.call(), tool.Crashed)
	before := tooltest.FDs(t)
	for range 10 {
		b.succeeds("did it")
		b.fails(b.call(), tool.Crashed)
	}
	if after := tooltest.FDs(t); after != before {
		t.Errorf("got %d open files after, %d before", after, before)
	}
}

func TestAHundredCallsAcrossTwentyExtensionsAllGetTheirTurn(t *testing.T) {
	const extensions, calls = 20, 100
	dir := t.TempDir()
	for i := range extensions {
		d := tooltest.New(t, fmt.Sprint("x", i), "gevals", "player").Env("SCRIPT", "").Set("workdir", t.TempDir())
		delete(d, "operations")
		d.Write(t, dir)
	}
	b := &bench{t: t, Registry: registry.New(registry.Options{
		Dirs: []string{dir}, OutputDir: t.TempDir(),
		Dialects: map[string]tool.Dialect{tool.Gevals: Dialect},
	})}
	t.Cleanup(func() { b.Close(context.Background()) })
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			r := b.Call(t.Context(), tooltest.Invocation(fmt.Sprintf("x%d.run", i%extensions), `{}`), nil)
			if !r.OK || r.Text != "again" {
				t.Errorf("call %d: got %+v, want ok", i, r)
			}
		})
	}
	wg.Wait()
	b.gone()
}

func TestTheExampleExtension(t *testing.T) {
	workdir := t.TempDir()
	reg := registry.New(registry.Options{
		Dirs: []string{"../../../examples/tools"}, Workdir: workdir, OutputDir: t.TempDir(),
		Dialects: map[string]tool.Dialect{tool.Gevals: Dialect},
	})
	defer reg.Close(context.Background())
	call := func(name, args string) model.ToolResult {
		t.Helper()
		return reg.Call(t.Context(), tooltest.Invocation(name, args), nil)
	}
	if r := call("notes.add", `{"text":"buy lamp\noil"}`); !r.OK || r.Outputs["file"] != filepath.Join(workdir,
		"notes.md") {
		t.Fatalf("got %+v", r)
	}
	if r := call("notes.find", `{"word":"Lamp"}`); !r.OK || !strings.Contains(r.Text, "[note] buy lamp oil") ||
		r.Outputs["count"] != "1" {
		t.Errorf("got %+v", r)
	}
	if r := call("notes.add", `{}`); r.OK || r.Error.Code != tool.BadRequest {
		t.Errorf("got %+v, want bad_request", r)
	}
}
