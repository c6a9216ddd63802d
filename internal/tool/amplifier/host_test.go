package amplifier

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

type bench struct {
	*registry.Registry
	t       *testing.T
	host    *host
	workdir string
}

func fake(t *testing.T, mode string) tooltest.Descriptor {
	d := tooltest.New(t, "x", "module", mode)
	delete(d, "operations")
	return d
}

// patient gives a process on a busy machine time to start.
func patient(h *host) { h.health, h.start = time.Minute, time.Minute }

// mount makes a registry of one module, and sees that nothing is left of it.
func mount(t *testing.T, d tooltest.Descriptor, adapt ...func(*host)) *bench {
	t.Helper()
	dir := t.TempDir()
	d.Write(t, dir)
	b := &bench{t: t, workdir: t.TempDir()}
	b.Registry = registry.New(registry.Options{
		Dirs: []string{dir}, Workdir: b.workdir, OutputDir: t.TempDir(),
		Environ: []string{"PATH=/usr/bin:/bin", "OPENAI_API_KEY=sk-secret", "HOME=/home/me"},
		Dialects: map[string]tool.Dialect{tool.Amplifier: func(d *tool.Descriptor, s *proc.Supervisor,
			log *zap.Logger,
		) tool.Host {
			b.host = Dialect(d, s, log).(*host)
			patient(b.host)
			for _, f := range adapt {
				f(b.host)
			}
			return b.host
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

// call goes past the registry, which knows only what the module described.
func (b *bench) call(op string) model.ToolResult {
	b.t.Helper()
	return b.host.Call(b.t.Context(), op, tooltest.Invocation("x."+op, `{}`), nil)
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

// feels sets what the module answers to health, "" for ok.
func (b *bench) feels(health string) {
	b.t.Helper()
	file := filepath.Join(b.workdir, sick)
	err := os.Remove(file)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if health != "" { // never half a file
		err = errors.Join(os.WriteFile(file+".new", []byte(health), 0o600), os.Rename(file+".new", file))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// ways are all the ways to reach the fake; the result says whether it is a
// process.
var ways = map[string]func(t *testing.T, adapt ...func(*host)) (b *bench, process bool){
	"flat": func(t *testing.T, adapt ...func(*host)) (*bench, bool) {
		return mount(t, fake(t, "fake"), adapt...), true
	},
	"flat, under result": func(t *testing.T, adapt ...func(*host)) (*bench, bool) {
		return mount(t, fake(t, "wrapped"), adapt...), true
	},
	"jsonrpc": func(t *testing.T, adapt ...func(*host)) (*bench, bool) {
		return mount(t, fake(t, "fake").Set("framing", "jsonrpc"), adapt...), true
	},
	"http": func(t *testing.T, adapt ...func(*host)) (*bench, bool) {
		return serveFake(t, "tcp", adapt...), false
	},
	"unix": func(t *testing.T, adapt ...func(*host)) (*bench, bool) {
		return serveFake(t, "unix", adapt...), false
	},
}

func TestAModuleIsTheSameInEveryTransport(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			b, process := way(t)
			var names []string
			for _, i := range b.List(t.Context(), model.Scope{}) {
				if !i.Healthy || i.Module != "x" || i.Protocol != "module" {
					t.Errorf("got %+v", i)
				}
				names = append(names, i.Name)
			}
			want := []string{"x.count", "x.echo", "x.fail", "x.health", "x.null", "x.object", "x.text"}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Error(diff)
			}
			for _, c := range []struct{ op, args, code, text, value, details string }{
				{op: "text", text: "hello\nworld", value: `"hello\nworld"`},
				{op: "object", text: `{"a":[1,2]}`, value: `{"a":[1,2]}`},
				{op: "null", text: "null", value: "null"},
				{op: "health", text: "the operation, not the method", value: `"the operation, not the method"`},
				{op: "count", args: `{"n":12345678901234567890}`, text: "12345678901234567890", value: "12345678901234567890"},
				{op: "count", args: `{}`, code: tool.BadRequest, text: "missing property 'n'"},
				{op: "fail", code: "no_such_city", text: "never heard of it", details: `{"city":"X"}`},
				{op: "nowhere", code: tool.UnsupportedOp, text: `there is no tool "x.nowhere"`},
			} {
				r := b.Call(t.Context(), tooltest.Invocation("x."+c.op, c.args), nil)
				if c.code != "" {
					b.fails(r, c.code, c.text)
					if string(r.Error.Details) != c.details {
						t.Errorf("%s: got details %s, want %s", c.op, r.Error.Details, c.details)
					}
				} else if !r.OK || r.Text != c.text || string(r.Value) != c.value {
					t.Errorf("%s: got %+v, want %q and %s", c.op, r, c.text, c.value)
				}
			}
			for op, want := range map[string][]string{
				"forbidden": {tool.Forbidden, "not yours"},
				"unsaid":    {tool.Internal, "gave no message"},
				"nook":      {tool.Internal, "no ok"},
				"okstring":  {tool.Internal, `ok is "yes"`},
				"deep":      {tool.Internal, "nested deeper"},
				"unheard":   {tool.UnsupportedOp, "no unheard"},
			} {
				if op == "deep" && name == "jsonrpc" {
					continue // a line that cannot be read has no id: noise
				}
				b.fails(b.call(op), want[0], want[1])
			}
			if r := b.succeeds("surrogate"); r.Text != "a\uFFFDb" {
				t.Errorf("got %q", r.Text)
			}
			starts, healths := 0, 1
			if process {
				starts = 1
				if name != "jsonrpc" { // "deep" replaced it
					starts, healths = 2, 2
				}
			}
			b.starts(starts)
			if got := b.happened("health"); got != healths {
				t.Errorf("asked for its health %d times, want %d", got, healths)
			}
		})
	}
}

func TestWhatAModuleIsSent(t *testing.T) {
	args := `{"text":"a\nb","n":1}`
	for name, want := range map[string]string{
		"flat":    `{"method":"invoke","op":"echo","args":{"text":"a\nb","n":1},"session_id":"s-1"}`,
		"jsonrpc": `{"jsonrpc":"2.0","id":3,"method":"invoke","params":{"op":"echo","args":{"text":"a\nb","n":1},"session_id":"s-1"}}`,
		"http":    `{"op":"echo","args":{"text":"a\nb","n":1},"session_id":"s-1"}`,
		"unix":    `{"op":"echo","args":{"text":"a\nb","n":1},"session_id":"s-1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := ways[name](t)
			inv := tooltest.Invocation("x.echo", args)
			inv.SessionID = "s-1"
			r := b.Call(t.Context(), inv, nil)
			var got struct{ Request string }
			if err := json.Unmarshal(r.Value, &got); err != nil || got.Request != want {
				t.Errorf("got %s, %v, want %s", got.Request, r.Error, want)
			}
		})
	}
	b, _ := ways["flat"](t)
	if r := b.succeeds("echo"); strings.Contains(r.Text, "session_id") {
		t.Errorf("got %s, want no session_id where there is no session", r.Text)
	}
}

func TestEveryKindCanBeInvoked(t *testing.T) {
	for kind, op := range map[string]string{
		"tool": "echo", "agent": "run", "provider": "generate", "context": "transform", "orchestrator": "before_turn",
		"hook": "on_event",
	} {
		for name, way := range ways {
			t.Run(kind+" over "+name, func(t *testing.T) {
				b, _ := way(t, func(h *host) {
					h.desc.Kind, h.manifest = kind, Dialect(&tool.Descriptor{Kind: kind, Concurrency: 1}, nil, zap.NewNop()).(*host).
						manifest
				})
				var invoker tool.Invoker = b.host
				value, err := invoker.Invoke(t.Context(), op, jsontext.Value(`{"a":1}`), "s-1")
				if err != nil || !strings.Contains(string(value), `{"op":"`+op+`"`) ||
					!strings.Contains(string(value), `\"args\":{\"a\":1},\"session_id\":\"s-1\"`) {
					t.Errorf("got %s, %v", value, err)
				}
				m, err := b.host.Describe(t.Context())
				var ops []string
				for _, o := range m.Operations {
					ops = append(ops, o.Name)
				}
				want := map[string][]string{
					"agent": {"run"}, "tool": {"count", "echo", "fail", "health", "null", "object", "text"},
				}[kind]
				if diff := cmp.Diff(want, ops); diff != "" || err != nil {
					t.Errorf("got %v: %s", err, diff)
				}
			})
		}
	}
}

func TestAnAgentTakesAPlan(t *testing.T) {
	b := mount(t, fake(t, "fake").Set("kind", "agent").Set("description", "tidies up"))
	list := b.List(t.Context(), model.Scope{})
	if len(list) != 1 || list[0].Name != "x.run" || !list[0].Healthy || list[0].Description != "tidies up" {
		t.Fatalf("got %+v, want x.run", list)
	}
	call := func(args string) model.ToolResult {
		return b.Call(t.Context(), tooltest.Invocation("x.run", args), nil)
	}
	b.fails(call(`{"inputs":{}}`), tool.BadRequest, "goal")
	b.fails(call(`{"goal":"g","inputs":[]}`), tool.BadRequest, "/inputs")
	if r := call(`{"goal":"g","inputs":{"a":1}}`); !r.OK ||
		!strings.Contains(r.Text, `\"op\":\"run\",\"args\":{\"goal\":\"g\",\"inputs\":{\"a\":1}}`) {
		t.Errorf("got %+v", r)
	}
	if b.happened("describe") != 0 {
		t.Error("an agent was asked for its operations")
	}
}

func TestInvokeSaysWhatIsWrong(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	for _, c := range []struct{ op, args, code, details string }{
		{"on_event", `[]`, tool.BadRequest, ""},
		{"on_event", `{"a":`, tool.BadRequest, ""},
		{"on_event", "{\"a\":\"\xff\"}", tool.BadRequest, ""},
		{"fail", `{}`, "no_such_city", `{"city":"X"}`},
		{"fail", ``, "no_such_city", `{"city":"X"}`},
		{"forbidden", `{}`, tool.Forbidden, `{"details":[1]}`},
		{"crash", `{}`, tool.Crashed, `{"exit":"exit status 7","stderr":"panic: oh no"}`},
	} {
		_, err := b.host.Invoke(t.Context(), c.op, jsontext.Value(c.args), "")
		var f *tool.Fault
		if !errors.As(err, &f) || f.Code != c.code || string(f.Details) != c.details {
			t.Errorf("%s %s: got %+v, want %s %s", c.op, c.args, f, c.code, c.details)
		}
	}
	if value, err := b.host.Invoke(t.Context(), "echo", nil, ""); err != nil ||
		!strings.Contains(string(value), `\"args\":{}`) {
		t.Errorf("got %s, %v", value, err)
	}
}

func TestErrorsOfJSONRPCItself(t *testing.T) {
	b := mount(t, fake(t, "fake").Set("framing", "jsonrpc"))
	for op, want := range map[string][3]string{
		"rpc-32601": {tool.UnsupportedOp, "Method not found", `{"code":-32601}`},
		"rpc-32602": {tool.BadRequest, "Invalid params", `{"code":-32602,"data":{"at":"n"}}`},
		"rpc-32000": {tool.Internal, "JSON-RPC error -32000", `{"code":-32000}`},
	} {
		r := b.call(op)
		b.fails(r, want[0], want[1])
		if got := string(r.Error.Details); got != want[2] {
			t.Errorf("%s: got details %s, want %s", op, got, want[2])
		}
	}
	b.starts(1)
}

func TestTheModuleDoesNotSeeTheDaemonsSecrets(t *testing.T) {
	b := mount(t, fake(t, "fake").Env("TOKEN", "mine"))
	got := strings.Split(b.succeeds("env").Text, "\n")
	got = slices.DeleteFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "NOUSED_") })
	slices.Sort(got)
	if diff := cmp.Diff([]string{"HOME=/home/me", "PATH=/usr/bin:/bin", "TOKEN=mine"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestACrashFailsTheCallAndTheNextOneWorks(t *testing.T) {
	for op, want := range map[string][]string{
		"crash": {tool.Crashed, "exit status 7", "panic: oh no"},
		"oom":   {tool.OOM, "signal: killed", "memory"},
	} {
		for _, framing := range []string{"flat", "jsonrpc"} {
			t.Run(op+" "+framing, func(t *testing.T) {
				b := mount(t, fake(t, "fake").Set("framing", framing))
				b.fails(b.call(op), want[0], want[1:]...)
				b.succeeds("text")
				b.starts(2)
			})
		}
	}
}

func TestAfterThreeCrashesInARowItIsLeftAlone(t *testing.T) {
	b := mount(t, fake(t, "fake"), func(h *host) { h.pool.Crashes.Base, h.pool.Crashes.Max = time.Hour, time.Hour })
	b.call("crash")
	b.call("oom")
	b.succeeds("text")
	for range 3 {
		b.fails(b.call("crash"), tool.Crashed)
	}
	for range 3 {
		b.fails(b.call("text"), tool.Unreachable, "crashed 3 times in a row")
	}
	b.starts(5)
}

func TestATimeoutReplacesTheProcess(t *testing.T) {
	for _, framing := range []string{"flat", "jsonrpc"} {
		t.Run(framing, func(t *testing.T) {
			b := mount(t, fake(t, "fake").Set("timeout", "100ms").Set("framing", framing))
			for range 2 {
				b.fails(b.call("hang"), tool.Timeout, "no result within 100ms")
			}
			b.starts(2)
		})
	}
}

func TestALateAnswerReachesNobody(t *testing.T) {
	for _, framing := range []string{"flat", "jsonrpc"} {
		t.Run(framing, func(t *testing.T) {
			fifo, held := tooltest.NewFIFO(t)
			b := mount(t, fake(t, "fake").Set("framing", framing).Env(tooltest.FIFO, fifo))
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan model.ToolResult, 1)
			go func() { result <- b.host.Call(ctx, "late", tooltest.Invocation("x.late", `{}`), nil) }()
			released := held()
			cancel()
			b.fails(<-result, tool.Aborted)
			for range 3 {
				if r := b.succeeds("text"); r.Text != "hello\nworld" {
					t.Errorf("got %+v, the answer to another call", r)
				}
			}
			b.starts(2)
			released()
			b.Close(t.Context())
		})
	}
}

func TestAFlatReplyThatIsNoJSONIsTheReply(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	b.fails(b.call("garbage"), tool.Internal, "this is no JSON")
	b.fails(b.call("noise"), tool.Internal, "starting up")
	b.fails(b.call("huge"), tool.Internal, "line is longer than 1048576 bytes")
	if r := b.succeeds("text"); r.Text != "hello\nworld" {
		t.Errorf("got %+v, the answer to another call", r)
	}
	b.starts(4)
}

func TestAFlatModuleThatAnswersTwiceIsReplaced(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	for range 3 {
		if r := b.succeeds("twice"); r.Text != "first" {
			t.Errorf("got %+v", r)
		}
		if r := b.succeeds("text"); r.Text != "hello\nworld" {
			t.Errorf("got %+v, the answer to another call", r)
		}
	}
	b.starts(4)
}

func TestAJSONRPCModuleMayBeNoisyTwice(t *testing.T) {
	b := mount(t, fake(t, "fake").Set("framing", "jsonrpc"))
	b.succeeds("strange") // other ids, notifications, requests
	b.succeeds("stderr")
	b.succeeds("noise")
	b.starts(1)
	b.fails(b.call("more noise"), tool.Internal, "3 lines that cannot be read")
	b.fails(b.call("huge"), tool.Internal, "line is longer than 1048576 bytes")
	b.succeeds("text")
	b.starts(3)
}

func TestABannerIsNoReply(t *testing.T) {
	b := mount(t, fake(t, "banner"))
	if r := b.succeeds("text"); r.Text != "hello\nworld" {
		t.Errorf("got %+v", r)
	}
	b.starts(1)
}

func TestOneProcessDoesOneThingAtATime(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r := b.call("text"); !r.OK {
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
	result := make(chan model.ToolResult, 1)
	ctx, stop := context.WithCancelCause(t.Context())
	go func() { result <- b.host.Call(ctx, "hang", tooltest.Invocation("x.hang", `{}`), nil) }()
	released := held()
	first := b.succeeds("pid")
	for range 3 {
		if r := b.succeeds("pid"); r.Text != first.Text {
			t.Errorf("got process %s, want %s again", r.Text, first.Text)
		}
	}
	b.starts(2)
	stop(errors.New("the daemon is stopping"))
	b.fails(<-result, tool.Aborted, "the daemon is stopping")
	b.Close(t.Context())
	released()
}

func TestAWaitingCallCanBeAborted(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "fake").Env(tooltest.FIFO, fifo))
	hanging, stop := context.WithCancel(t.Context())
	result := make(chan model.ToolResult, 1)
	go func() { result <- b.host.Call(hanging, "hang", tooltest.Invocation("x.hang", `{}`), nil) }()
	released := held()
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	b.fails(b.host.Call(waiting, "text", tooltest.Invocation("x.text", `{}`), nil), tool.Aborted)
	stop()
	b.fails(<-result, tool.Aborted)
	released()
	if b.happened("invoke:text") != 0 {
		t.Error("the aborted call was made")
	}
}

func TestAnIdleModuleIsShutDown(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "fake").Env(tooltest.FIFO, fifo), func(h *host) { h.pool.Idle = time.Millisecond })
	b.List(t.Context(), model.Scope{})
	held()() // it holds the FIFO from the end of its input to its own
	if b.happened("input") != 1 {
		t.Error("want its input closed")
	}
}

func TestAModuleThatWillNotGoIsKilled(t *testing.T) {
	b := mount(t, fake(t, "clingy"))
	b.succeeds("text")
	b.Close(t.Context())
	if b.happened("clings") != 1 {
		t.Error("want its input closed first")
	}
	tooltest.NoChildren(t)
}

func TestAModuleThatLeavesBetweenCallsIsStartedAgain(t *testing.T) {
	b := mount(t, fake(t, "fake"))
	for range 3 {
		pid, err := strconv.Atoi(b.succeeds("leave").Text)
		for err == nil { // until it is gone
			err = syscall.Kill(pid, 0)
		}
		if !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	b.starts(3)
}

func TestWhatCannotBeStartedIsUnreachable(t *testing.T) {
	b := mount(t, fake(t, "fake").Set("transport", map[string]any{"type": "stdio", "command": []string{"./nothing"}}))
	for range 2 {
		b.fails(b.call("text"), tool.Unreachable, "no such file")
	}
	list := b.List(t.Context(), model.Scope{})
	if len(list) != 1 || list[0].Healthy || !strings.Contains(list[0].Problem, "no such file") {
		t.Errorf("got %+v, want it unhealthy", list)
	}
}

func TestAModuleThatDiesAtOnceIsUnhealthyAndLeftAlone(t *testing.T) {
	b := mount(t, fake(t, "stillborn"))
	for range 3 {
		list := b.List(t.Context(), model.Scope{})
		if len(list) != 1 || list[0].Name != "x" || list[0].Healthy ||
			!strings.Contains(list[0].Problem, "health: the module ended before it answered: exit status 2") {
			t.Errorf("got %+v, want x, unhealthy", list)
		}
	}
	b.starts(1)
}

func TestStoppingTheDaemonDoesNotWaitForAStart(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "slow").Env(tooltest.FIFO, fifo))
	b.feels(`{"status":"ok"`) // and never more
	result := make(chan model.ToolResult, 1)
	go func() { result <- b.Call(t.Context(), tooltest.Invocation("x.text", `{}`), nil) }()
	released := held()
	b.Close(t.Context())
	b.fails(<-result, tool.Aborted)
	released()
}

func TestNothingIsLeftOfManyProcesses(t *testing.T) {
	b := mount(t, fake(t, "fake"), func(h *host) { h.pool.Crashes.Free = 100 })
	b.succeeds("text")
	before := tooltest.FDs(t)
	for range 10 {
		b.fails(b.call("crash"), tool.Crashed)
		b.succeeds("text")
	}
	if after := tooltest.FDs(t); after != before {
		t.Errorf("got %d open files after, %d before", after, before)
	}
}

func TestAModuleOfAFewLinesOfShell(t *testing.T) {
	script := `while read -r line; do case "$line" in
		*'"method":"health"'*) echo '{"status":"ok"}';;
		*'"method":"describe"'*) echo '{"name":"sh","version":"1","kind":"tool","capabilities":["hi"],"inputs":{},"outputs":{}}';;
		*) echo '{"ok":true,"result":"hi from the shell"}';;
	esac; done`
	b := mount(t, fake(t, "").Set("transport", map[string]any{"type": "stdio", "command": []string{"sh", "-c", script}}))
	if r := b.Call(t.Context(), tooltest.Invocation("x.hi", ""), nil); !r.OK || r.Text != "hi from the shell" {
		t.Errorf("got %+v", r)
	}
}
