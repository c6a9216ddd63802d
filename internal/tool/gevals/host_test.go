package gevals

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

type bench struct {
	*tool.Registry
	t       *testing.T
	workdir string
}

func fake(t *testing.T, mode string) tooltest.Descriptor {
	d := tooltest.New(t, "x", "gevals", mode)
	delete(d, "operations")
	return d
}

// mount makes a registry of one extension, and sees that nothing is left of it.
func mount(t *testing.T, d tooltest.Descriptor, adapt ...func(*host)) *bench {
	t.Helper()
	dir := t.TempDir()
	d.Write(t, dir)
	b := &bench{t: t, workdir: t.TempDir()}
	b.Registry = tool.New(tool.Options{
		Dirs: []string{dir}, Workdir: b.workdir, OutputDir: t.TempDir(),
		Environ: []string{"PATH=/usr/bin:/bin", "OPENAI_API_KEY=sk-secret", "HOME=/home/me"},
		Dialects: map[string]tool.Dialect{tool.Gevals: func(d *tool.Descriptor, s *tool.Supervisor, log *zap.Logger) tool.Host {
			h := Dialect(d, s, log)
			for _, f := range adapt {
				f(h.(*host))
			}
			return h
		}},
	})
	if errs := b.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	t.Cleanup(func() {
		b.Close(context.Background())
		tooltest.NoChildren(t)
	})
	return b
}

func (b *bench) call(op string) model.ToolResult {
	b.t.Helper()
	return b.Call(b.t.Context(), tooltest.Invocation("x."+op, `{}`), nil)
}

func (b *bench) succeeds(op string) model.ToolResult {
	b.t.Helper()
	r := b.call(op)
	if !r.OK {
		b.t.Fatalf("%s: got %+v, want ok", op, r)
	}
	return r
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

// happened counts what the fakes noted.
func (b *bench) happened(what string) int {
	n := 0
	for _, line := range tooltest.Lines(b.t, filepath.Join(b.workdir, trace)) {
		if line == what {
			n++
		}
	}
	return n
}

func (b *bench) starts(want int) {
	b.t.Helper()
	if got := b.happened("start"); got != want {
		b.t.Errorf("got %d processes, want %d", got, want)
	}
}

func TestOneProcessAnswersManyCalls(t *testing.T) {
	b := mount(t, fake(t, "fake").Set("config", map[string]any{"namespace": "app"}))
	list := b.List(t.Context())
	if len(list) != len(operations) || !list[0].Healthy || list[0].Name != "x.both" || list[0].Description != "does both" {
		t.Fatalf("got %+v, want the operations of the manifest", list)
	}
	for range 5 {
		r := b.succeeds("ok")
		if diff := cmp.Diff(map[string]string{"n": "1"}, r.Outputs); diff != "" || r.Text != "did ok\nn: 1" {
			t.Errorf("got %+v: %s", r, diff)
		}
		if got, want := string(r.Value), `{"success":true,"message":"did ok","outputs":{"n":"1"}}`; got != want {
			t.Errorf("got value %s, want it verbatim", got)
		}
	}
	b.starts(1)
	if b.happened(`initialize:{"protocolVersion":"0.0.1","config":{"namespace":"app"}}`) != 1 {
		t.Error("want exactly one initialize, with the config")
	}
	b.Close(t.Context())
	if b.happened("shutdown") != 1 {
		t.Error("the process was not shut down in order")
	}
}

func TestFailuresKeepTheirKind(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	r := b.call("fail")
	b.fails(r, tool.ToolFailed, "not ready: timed out", "last: no")
	if r.Outputs["last"] != "no" || r.Value == nil {
		t.Errorf("got %+v, want the outputs and the value kept", r)
	}
	r = b.call("rpcerror")
	b.fails(r, "-32000", "broken")
	if string(r.Error.Details) != `{"x":1}` {
		t.Errorf("got details %s", r.Error.Details)
	}
	b.fails(b.call("both"), "-32601", "Unknown operation")
	b.succeeds("ok")
	b.starts(1)
}

func TestLogsComeInOrderBeforeTheResult(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	var log tooltest.Log
	r := b.Call(t.Context(), tooltest.Invocation("x.logs", `{}`), log.Add)
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint("line ", i))
	}
	if diff := cmp.Diff(want, log.Deltas()); diff != "" || !r.OK {
		t.Errorf("got %+v: %s", r, diff)
	}
	if got := string(log.Updates()[0].Update); got != `{"level":"info","message":"line 0"}` {
		t.Errorf("got update %s, want the log's params", got)
	}
}

func TestTheExtensionGetsItsContext(t *testing.T) {
	b := mount(t, fake(t, "fake").Env("KUBECONFIG", "{env.HOME}/.kube").Set("timeout", "5m"))
	inv := tooltest.Invocation("x.echo", `{}`)
	inv.Prompt, inv.Output = "make a pod", "made it"
	for phase, want := range map[string]string{
		"": `"phase":"setup"`, "cleanup": `"phase":"cleanup"`,
		"verify": `"phase":"verify","env":{"KUBECONFIG":"/home/me/.kube","NOUSED_TEST_TOOL":"fake"},"timeout":"5m0s","agent":{"prompt":"make a pod","output":"made it"}`,
	} {
		inv.Phase = phase
		var log tooltest.Log
		r := b.Call(t.Context(), inv, log.Add)
		if !r.OK || !strings.Contains(r.Text, want) || !strings.Contains(r.Text, `"workdir":"`+b.workdir+`"`) {
			t.Errorf("phase %q: got %q, want %s in it", phase, r.Text, want)
		}
		if phase != "verify" && strings.Contains(r.Text, "agent") {
			t.Errorf("phase %q: got %q, want no agent", phase, r.Text)
		}
		if diff := cmp.Diff([]string{`warning invalid_tool_event: output "odd" is not a string: [1, 2]`}, log.Deltas()); diff != "" || r.Outputs["odd"] != "[1, 2]" {
			t.Errorf("got outputs %q: %s", r.Outputs, diff)
		}
	}
}

func TestTheExtensionDoesNotSeeTheDaemonsSecrets(t *testing.T) {
	b := mount(t, fake(t, "fake").Env("TOKEN", "mine"))
	got := strings.Split(b.succeeds("env").Text, "\n")
	slices.Sort(got)
	if diff := cmp.Diff([]string{"HOME=/home/me", "NOUSED_TEST_TOOL=fake", "PATH=/usr/bin:/bin", "TOKEN=mine"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestACrashFailsTheCallAndTheNextOneWorks(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	var log tooltest.Log
	r := b.Call(t.Context(), tooltest.Invocation("x.crash", `{}`), log.Add)
	b.fails(r, tool.Crashed, "exit status 7", "panic: oh no")
	if diff := cmp.Diff([]string{"about to crash"}, log.Deltas()); diff != "" {
		t.Error(diff)
	}
	var details struct{ Exit, Stderr string }
	if err := json.Unmarshal(r.Error.Details, &details); err != nil || details.Exit != "exit status 7" || details.Stderr != "panic: oh no" {
		t.Errorf("got details %s", r.Error.Details)
	}
	b.succeeds("ok")
	b.starts(2)
}

func TestAfterThreeCrashesInARowItIsLeftAlone(t *testing.T) {
	b := mount(t, fake(t, "fake"), func(h *host) { h.crashes.Base, h.crashes.Max = time.Hour, time.Hour })
	b.call("crash")
	b.call("crash")
	b.succeeds("ok")
	for range 3 {
		b.fails(b.call("crash"), tool.Crashed)
	}
	for range 3 {
		b.fails(b.call("ok"), tool.Unreachable, "crashed 3 times in a row")
	}
	b.starts(5)
}

func TestALongRequestThatKillsItSaysSo(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	long := `{"text":"` + strings.Repeat("x", 70_000) + `"}`
	r := b.Call(t.Context(), tooltest.Invocation("x.ok", long), nil)
	b.fails(r, tool.Crashed, "exit status 1", "the request was a line of 70", "cannot read more than 65535")
	b.succeeds("ok")
}

func TestATimeoutReplacesTheProcess(t *testing.T) {
	b := mount(t, fake(t, "fake").Set("timeout", "1s"))
	b.fails(b.call("hang"), tool.Timeout, "no result within 1s")
	b.succeeds("ok")
	b.starts(2)
}

func TestALateAnswerReachesNobody(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	ctx, cancel := context.WithCancel(t.Context())
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { cancel() }
	b.fails(b.Call(ctx, tooltest.Invocation("x.late", `{}`), log.Add), tool.Aborted)
	for range 3 {
		if r := b.succeeds("ok"); strings.Contains(r.Text, "late") {
			t.Errorf("got %+v, the answer to another call", r)
		}
	}
	b.starts(2)
}

func TestNoiseIsToleratedTwice(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	b.succeeds("noise")
	b.starts(1)
	b.fails(b.call("noise"), tool.ProtocolError, "3 lines that are not JSON-RPC")
	b.fails(b.call("garbage"), tool.ProtocolError, "3 lines that are not JSON-RPC")
	b.fails(b.call("huge"), tool.ProtocolError, "line is longer than 1048576 bytes")
	b.succeeds("ok")
	b.starts(4)
}

func TestWhatNobodyAskedForIsIgnored(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	if r := b.succeeds("strange"); r.Text != "did strange\nn: 1" {
		t.Errorf("got %+v", r)
	}
	b.succeeds("stderr")
	b.starts(1)
}

func TestAnExtensionThatLeavesBetweenCallsIsStartedAgain(t *testing.T) {
	var h *host
	b := mount(t, fake(t, "fake"), func(made *host) { h = made })
	for range 4 {
		b.succeeds("leave")
		h.mu.Lock()
		free := slices.Clone(h.free)
		h.mu.Unlock()
		for _, c := range free {
			<-c.dead
		}
	}
	b.starts(4)
}

func TestOneProcessDoesOneThingAtATime(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r := b.call("logs"); !r.OK {
				t.Errorf("got %+v, want ok", r)
			}
		})
	}
	wg.Wait()
	b.starts(1)
}

func TestMoreProcessesDoMoreAtATime(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "fake").Set("concurrency", 2).Env(tooltest.FIFO, fifo))
	b.List(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if r := b.call("meet"); !r.OK { // waits for us to read the FIFO
			t.Errorf("got %+v, want ok", r)
		}
	})
	b.succeeds("ok")
	released := held()
	wg.Wait()
	go b.Close(context.Background()) // its processes hold the FIFO
	released()
}

func TestAWaitingCallCanBeAborted(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	hanging := make(chan struct{})
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { close(hanging) }
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.fails(b.Call(ctx, tooltest.Invocation("x.hang", `{}`), log.Add), tool.Aborted) })
	<-hanging
	waiting, stop := context.WithCancel(t.Context())
	wg.Go(func() { b.fails(b.Call(waiting, tooltest.Invocation("x.ok", `{}`), nil), tool.Aborted) })
	stop()
	cancel()
	wg.Wait()
}

func TestAFloodOfLogsCanBeAborted(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	var log tooltest.Log
	log.On = func(model.ToolUpdate) {
		if heard++; heard == 5000 {
			cancel()
		}
	}
	b.fails(b.Call(ctx, tooltest.Invocation("x.flood", `{}`), log.Add), tool.Aborted)
	if heard != 5000 {
		t.Errorf("heard %d logs, want none after the abort", heard)
	}
	b.succeeds("ok")
}

func TestARequirementThatIsNotMetFailsEveryCall(t *testing.T) {
	b := mount(t, fake(t, "needy"))
	for _, i := range b.List(t.Context()) {
		if i.Healthy || !strings.Contains(i.Problem, "no-such-command") {
			t.Errorf("got %+v, want it unhealthy", i)
		}
	}
	b.fails(b.call("ok"), "-32002", "no-such-command")
	b.starts(1)
}

func TestAnExtensionThatDoesNotStartIsUnhealthyAndLeftAlone(t *testing.T) {
	for mode, problem := range map[string]string{
		"nameless":  "the manifest has no name",
		"stillborn": "initialize: the extension ended before it answered: exit status 2",
	} {
		b := mount(t, fake(t, mode))
		for range 3 {
			list := b.List(t.Context())
			if len(list) != 1 || list[0].Name != "x" || list[0].Healthy || !strings.Contains(list[0].Problem, problem) {
				t.Errorf("%s: got %+v, want x, unhealthy: %s", mode, list, problem)
			}
		}
		b.starts(1)
	}
}

func TestStoppingTheDaemonDoesNotWaitForAnInitialize(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "sleepy").Env(tooltest.FIFO, fifo))
	result := make(chan model.ToolResult, 1)
	go func() { result <- b.call("ok") }()
	released := held()
	b.Close(t.Context())
	b.fails(<-result, tool.Aborted)
	released()
}

func TestStoppingTheDaemonAbortsCalls(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	var log tooltest.Log
	closed := make(chan struct{})
	log.On = func(model.ToolUpdate) {
		go func() {
			b.Close(context.Background())
			close(closed)
		}()
	}
	r := b.Call(t.Context(), tooltest.Invocation("x.hang", `{}`), log.Add)
	<-closed
	b.fails(r, tool.Aborted, "the daemon is stopping")
}

func TestAnIdleExtensionIsShutDown(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "fake").Env(tooltest.FIFO, fifo), func(h *host) { h.idle = time.Millisecond })
	b.List(t.Context())
	held()() // it holds the FIFO from its shutdown to its end
	if b.happened("shutdown") != 1 {
		t.Error("want one shutdown")
	}
}

func TestAnExtensionThatWillNotGoIsKilled(t *testing.T) {
	b := mount(t, fake(t, "clingy"))
	b.succeeds("ok")
	b.Close(t.Context())
	if b.happened("shutdown") != 1 || b.happened("clings") != 1 {
		t.Error("want it asked first")
	}
	tooltest.NoChildren(t)
}

func TestAPanicOfTheListenerReplacesTheProcess(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	var log tooltest.Log
	log.On = func(model.ToolUpdate) { panic("ouch") }
	b.fails(b.Call(t.Context(), tooltest.Invocation("x.logs", `{}`), log.Add), tool.Internal)
	b.succeeds("ok")
	b.starts(2)
}

func TestNothingIsLeftOfManyProcesses(t *testing.T) {
	b := mount(t, fake(t, "fake"), func(h *host) { h.crashes.Free = 100 })
	b.succeeds("ok")
	before := tooltest.FDs(t)
	for range 10 {
		b.fails(b.call("crash"), tool.Crashed)
		b.succeeds("ok")
	}
	if after := tooltest.FDs(t); after != before {
		t.Errorf("got %d open files after, %d before", after, before)
	}
}

func TestTheExampleExtension(t *testing.T) {
	workdir := t.TempDir()
	reg := tool.New(tool.Options{
		Dirs: []string{"../../../examples/tools"}, Workdir: workdir, OutputDir: t.TempDir(),
		Dialects: map[string]tool.Dialect{tool.Gevals: Dialect},
	})
	defer reg.Close(context.Background())
	call := func(name, args string) model.ToolResult {
		t.Helper()
		return reg.Call(t.Context(), tooltest.Invocation(name, args), nil)
	}
	if r := call("notes.add", `{"text":"buy lamp\noil"}`); !r.OK || r.Outputs["file"] != filepath.Join(workdir, "notes.md") {
		t.Fatalf("got %+v", r)
	}
	if r := call("notes.find", `{"word":"Lamp"}`); !r.OK || !strings.Contains(r.Text, "[note] buy lamp oil") || r.Outputs["count"] != "1" {
		t.Errorf("got %+v", r)
	}
	if r := call("notes.add", `{}`); r.OK || r.Error.Code != tool.BadRequest {
		t.Errorf("got %+v, want bad_request", r)
	}
}
