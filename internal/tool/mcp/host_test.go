package mcp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/testenv"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

type bench struct {
	*registry.Registry
	t       *testing.T
	dir     string // of descriptors
	workdir string
	cache   string
	logged  *observer.ObservedLogs
	changed chan string // servers with other tools
}

// server is the server x, the test binary in a mode.
func server(t testing.TB, mode string) tooltest.Descriptor {
	d := tooltest.New(t, "x", "mcp", mode).Set("trust", "all")
	delete(d, "operations")
	return d
}

// mount makes a registry of servers.
func mount(t *testing.T, d tooltest.Descriptor, adapt ...func(*host)) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir(), workdir: t.TempDir(), cache: t.TempDir(), changed: make(chan string, 100)}
	d.Write(t, b.dir)
	b.open(adapt...)
	return b
}

func (b *bench) open(adapt ...func(*host)) {
	b.t.Helper()
	core, logged := observer.New(zapcore.DebugLevel)
	b.logged = logged
	dialect := Dialect(Options{Version: "test", OutputDir: b.t.TempDir(), CacheDir: b.cache})
	b.Registry = registry.New(registry.Options{
		Dirs: []string{b.dir}, Workdir: b.workdir, OutputDir: b.t.TempDir(), Logger: zap.New(core),
		Helper:  tooltest.Self(b.t),
		Changed: func(server string) { b.changed <- server },
		Dialects: map[string]tool.Dialect{tool.MCP: func(d *tool.Descriptor, s *proc.Supervisor, log *zap.Logger) tool.Host {
			h := dialect(d, s, log).(*host)
			h.waits.first, h.waits.ping = time.Minute, time.Minute // a busy machine's servers are not deaf
			for _, f := range adapt {
				f(h)
			}
			return h
		}},
	})
	b.t.Cleanup(func() { b.Close(context.Background()) })
	if errs := b.Errors(); len(errs) > 0 {
		b.t.Fatal(errs)
	}
}

// gone sees that nothing is left of the servers.
func (b *bench) gone() {
	b.t.Helper()
	b.Close(context.Background())
	tooltest.NoChildren(b.t)
}

// names are those of the tools that are listed, with what is wrong with them.
func (b *bench) names() (names []string) {
	b.t.Helper()
	for _, i := range b.List(b.t.Context(), model.Scope{}) {
		if names = append(names, i.Name); i.Problem != "" {
			names[len(names)-1] += ": " + i.Problem
		}
	}
	return names
}

func do(what string, n int) model.Invocation {
	return tooltest.Invocation("x.run", fmt.Sprintf(`{"do":%q,"n":%d}`, what, n))
}

func (b *bench) call(what string, n int) model.ToolResult {
	b.t.Helper()
	return b.Call(b.t.Context(), do(what, n), func(model.ToolUpdate) {})
}

func (b *bench) succeeds(what, text string) {
	b.t.Helper()
	if r := b.call(what, 0); !r.OK || r.Text != text {
		b.t.Fatalf("%q: got %+v, want %q", what, r, text)
	}
}

func (b *bench) ends(r model.ToolResult, code string, texts ...string) {
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

// traced is how often the fakes noted that.
func (b *bench) traced(what string) (n int) {
	b.t.Helper()
	for _, line := range tooltest.Lines(b.t, filepath.Join(b.workdir, trace)) {
		if line == what {
			n++
		}
	}
	return n
}

// awaits waits until the fakes have noted that so often.
func (b *bench) awaits(what string, n int) {
	b.t.Helper()
	said := fmt.Sprintf("the fakes have noted %s %d times", what, n)
	testenv.Until(b.t, said, func() bool { return b.traced(what) >= n })
}

func (b *bench) starts(want int) {
	b.t.Helper()
	if got := b.traced("start"); got != want {
		b.t.Errorf("got %d processes, want %d", got, want)
	}
}

// A descriptor is enough: the server's tools are listed with its name before
// theirs, and answer.
func TestAServersToolAnswers(t *testing.T) {
	for mode, want := range map[string]string{"sdk": "42", "rogue": "did it"} {
		t.Run(mode, func(t *testing.T) {
			b := mount(t, server(t, mode))
			if missing := b.Ready(t.Context(), model.Scope{}); missing != nil {
				t.Fatalf("%q are missing", missing)
			}
			list := b.List(t.Context(), model.Scope{})
			if len(list) != 1 || list[0].Name != "x.run" || !list[0].Healthy || list[0].Protocol != "mcp" ||
				list[0].ReadOnly != (mode == "sdk") {
				t.Fatalf("got %+v, want x.run", list)
			}
			r := b.Call(t.Context(), tooltest.Invocation("x.run", `{"n":21}`), nil)
			if !r.OK || r.Text != want {
				t.Errorf("got %+v, want %s", r, want)
			}
			b.gone()
		})
	}
}

// A server is asked one way, and started once more for the other where that fails.
func TestHandshakes(t *testing.T) {
	for shake, starts := range map[string]int{"refuse": 2, "exit": 2, "silent": 2, "loud": 1} {
		t.Run(shake, func(t *testing.T) {
			b := mount(t, server(t, "rogue").Env("HANDSHAKE", shake), func(h *host) {
				if shake == "silent" {
					h.waits.first = time.Second
				}
			})
			b.succeeds("", "did it")
			b.starts(starts)
			b.gone()
			b.open() // which way is known by now
			b.succeeds("", "did it")
			b.starts(starts + 1)
		})
	}
}

// What does not start is one clear error, is reported, and is left alone for a while
// after three failures.
func TestAServerThatDoesNotStart(t *testing.T) {
	for shake, want := range map[string]string{
		"dies":  "cannot start x: the server ended before it answered: exit status 3: no key for the service",
		"deaf":  "cannot start x: no result within 200ms",
		"bulky": "cannot start x: line is longer than 16777216 bytes",
	} {
		t.Run(shake, func(t *testing.T) {
			b := mount(t, server(t, "rogue").Env("HANDSHAKE", shake), func(h *host) {
				h.waits.first = time.Minute
				h.crashes.Base, h.crashes.Max = time.Hour, time.Hour
				if shake == "deaf" {
					h.waits.first, h.waits.second = 200*time.Millisecond, 200*time.Millisecond
				}
			})
			for range 3 {
				if r := b.call("", 0); r.OK || !strings.Contains(r.Text, want) {
					t.Errorf("got %+v, want %q", r, want)
				}
			}
			b.ends(b.call("", 0), tool.Unreachable, "x failed 3 times in a row; it can be started again in ", want)
			servers := b.Servers(model.Scope{})
			if len(servers) != 1 || servers[0].State != model.ServerFailed || !strings.Contains(servers[0].Message, want) {
				t.Errorf("got %+v, want it failed", servers)
			}
			b.gone()
		})
	}
}

// Nobody waits for a server that was never seen but a model call, once and for a
// bounded time.
func TestASlowServerIsInNobodysWay(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "deaf"))
	if got := b.names(); !slices.Equal(got, []string{"x: has not said yet what it can do"}) {
		t.Errorf("got %q", got)
	}
	aborted, abort := context.WithCancel(t.Context())
	abort()
	b.Ready(aborted, model.Scope{}) // which counts for nothing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := b.Ready(ctx, model.Scope{}); !slices.Equal(got, []string{"x"}) || ctx.Err() == nil {
		t.Errorf("%q are missing, after waiting: %v", got, ctx.Err() != nil)
	}
	if got := b.Ready(t.Context(), model.Scope{}); !slices.Equal(got, []string{"x"}) { // this one would wait for ever
		t.Errorf("then %q are missing", got)
	}
	if s := b.Servers(model.Scope{}); len(s) != 1 || s[0].State != model.ServerStarting {
		t.Errorf("got %+v, want it starting", s)
	}
}

// What a server can do is known before it runs, from the last time.
func TestToolsAreKnownBeforeTheServerRuns(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("TOOLS", "2"))
	b.Ready(t.Context(), model.Scope{})
	b.gone()
	b.open()
	if got := b.names(); !slices.Equal(got, []string{"x.run", "x.t0", "x.t1"}) {
		t.Errorf("got %q", got)
	}
	if got := b.Ready(t.Context(), model.Scope{}); got != nil {
		t.Errorf("%q are missing", got)
	}
	b.starts(1)
	b.succeeds("", "did it")
	b.starts(2)
	b.gone()
	files, _ := filepath.Glob(filepath.Join(b.cache, "*"))
	if len(files) != 1 {
		t.Fatalf("got files %q, want one", files)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	for _, text := range []string{"", "{", `{"format":9,"tools":[]}`} { // damaged, or a later version's
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.open()
		if b.Ready(t.Context(), model.Scope{}); len(b.names()) != 3 {
			t.Errorf("got %q with %q in the cache", b.names(), text)
		}
		b.gone()
	}
}

// Other command lines and names of variables are other servers; values may be
// secrets and do not count.
func TestBookKey(t *testing.T) {
	parse := func(text string) *tool.Descriptor {
		d, err := tool.ParseDescriptor([]byte(`{"name":"x","kind":"tool","protocol":"mcp","capabilities":[],`+text+`}`), "/",
			"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a := bookKey(parse(`"transport":{"type":"stdio","command":["a","b c"]},"env":{"K":"1"}`))
	if b := bookKey(parse(`"transport":{"type":"stdio","command":["a","b c"]},"env":{"K":"2"}`)); a != b {
		t.Error("a value counts")
	}
	for _, other := range []string{
		`"transport":{"type":"stdio","command":["a","b","c"]},"env":{"K":"1"}`,
		`"transport":{"type":"stdio","command":["a","b c"]},"env":{"L":"1"}`,
		`"transport":{"type":"stdio","command":["a","b c"]},"env":{"K":"1"},"version":"2"`,
		`"transport":{"type":"stdio","command":["a","b c"]},"env":{"K":"1"},"tools":["x"]`,
	} {
		if bookKey(parse(other)) == a {
			t.Errorf("%s is taken for another", other)
		}
	}
}

func TestOnlyTheToolsThatAreListed(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("TOOLS", "3").Set("tools", []string{"run", "t1", "gone"}))
	b.Ready(t.Context(), model.Scope{})
	if got := b.names(); !slices.Equal(got, []string{"x.run", "x.t1"}) {
		t.Errorf("got %q", got)
	}
}

// Calls share one process, and none waits for another.
func TestCallsShareAProcess(t *testing.T) {
	b := mount(t, server(t, "rogue"))
	b.succeeds("", "did it")
	ctx, abort := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { b.ends(b.Call(ctx, do("never", 0), nil), tool.Aborted) })
	}
	for range 20 {
		wg.Go(func() { b.succeeds("", "did it") })
	}
	b.awaits("tools/call", 41)
	abort()
	wg.Wait()
	b.awaits("notifications/cancelled", 20)
	b.succeeds("", "did it")
	b.starts(1)
	b.gone()
}

// A call that is given up costs the process nothing, unless that answers nothing
// any more.
func TestATimeoutEndsOnlyADeafServer(t *testing.T) {
	var h *host
	b := mount(t, server(t, "rogue"), func(of *host) {
		h = of
		h.waits.ping = time.Second
	})
	b.succeeds("", "did it") // it has the time to start
	h.desc.Timeout = 100 * time.Millisecond
	b.ends(b.call("never", 0), tool.Timeout,
		"no result and no progress within 100ms (a call that makes progress has 1s in all)")
	h.desc.Timeout = time.Minute
	b.succeeds("", "did it")
	b.starts(1)
	h.desc.Timeout = 100 * time.Millisecond
	b.ends(b.call("deaf", 0), tool.Timeout)
	h.desc.Timeout = time.Minute
	if r := b.call("", 0); r.OK { // it had no time to be started again
		b.starts(2)
	} else {
		b.ends(r, tool.Crashed, "the server did not answer a ping within 1s and was ended")
	}
	b.succeeds("", "did it")
	b.starts(2)
	b.gone()
}

// Progress is told, and gives a call more time, up to ten times its own.
func TestProgressGivesACallTime(t *testing.T) {
	testenv.Long(t)
	var h *host
	b := mount(t, server(t, "rogue"), func(of *host) { h = of })
	patient := h.desc.Timeout
	var log tooltest.Log
	r := b.Call(t.Context(), do("steps", 3), log.Add)
	if want := []string{"1 of 3: step", "2 of 3: step", "3 of 3: step"}; !r.OK || !slices.Equal(log.Deltas(), want) {
		t.Errorf("got %+v after %q", r, log.Deltas())
	}
	if u := log.Updates()[0].Update; !strings.Contains(string(u), `"progress":1`) {
		t.Errorf("got %s", u)
	}
	h.desc.Timeout, h.waits.times = 5*time.Second, 2
	start := time.Now()
	b.ends(b.call("slowly", 20), tool.Timeout, "no result within 10s in all (5s without progress)")
	if took := time.Since(start); took < 10*time.Second {
		t.Errorf("took %v", took)
	}
	h.desc.Timeout = patient
	b.succeeds("log", "done")
	b.Call(t.Context(), do("log", 0), log.Add)
	if got := log.Deltas()[3:]; !slices.Equal(got, []string{"thinking", `{"a":1}`}) {
		t.Errorf("got %q", got)
	}
	b.starts(1)
	b.gone()
}

// A server that has other tools says so, is asked, and everybody is told; however
// often it says it, it is asked once at a time.
func TestAServerChangesItsTools(t *testing.T) {
	b := mount(t, server(t, "rogue"))
	b.Ready(t.Context(), model.Scope{})
	if r := b.call("change", 1); !r.OK {
		t.Fatalf("got %+v", r)
	}
	if who := <-b.changed; who != "x" {
		t.Errorf("%q has changed", who)
	}
	if got := b.names(); !slices.Equal(got, []string{"x.run", "x.t0"}) {
		t.Errorf("got %q", got)
	}
	before, began := b.traced("tools/list"), time.Now()
	for i := range 50 {
		b.call("change", i)
	}
	n := b.traced("tools/list") - before
	if most := 2 + int(time.Since(began)/relistPause); n > most {
		t.Errorf("it was asked %d times, want at most %d", n, most)
	}
	b.succeeds("", "did it")
	b.gone()
}

// The server ends after a while without a call, and is started for the next.
func TestAnIdleServerIsEnded(t *testing.T) {
	b := mount(t, server(t, "rogue"), func(h *host) { h.waits.idle = time.Millisecond })
	for range 2 {
		before := b.traced("start")
		b.succeeds("", "did it") // on a busy machine a server may be idle, and end, before the call has reached it
		testenv.Until(t, "the idle server is ended", func() bool {
			return b.Servers(model.Scope{})[0].State == model.ServerConfigured
		})
		if b.traced("start") == before {
			t.Error("the server that has ended was not started for the next call")
		}
	}
	b.gone()
}

// A host that is closed in the moment in which its server has started leaves
// nothing of it: Close waited until the server had been idle for ten minutes.
func TestAServerThatStartsAsItsHostIsClosedEnds(t *testing.T) {
	var h *host
	b := mount(t, server(t, "rogue"), func(own *host) { h = own })
	l, err := h.connect(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.stop() // as Close does first
	h.begun(&start{done: make(chan struct{})}, l, nil)
	<-l.wire.ended()
	b.gone()
}
