package mcp

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/testenv"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// beside mounts the server x and another, y, that behaves well.
func beside(t *testing.T, x tooltest.Descriptor, adapt ...func(*host)) *bench {
	t.Helper()
	b := mount(t, x, adapt...)
	server(t, "rogue").Set("name", "y").Write(t, b.dir)
	b.Reload()
	return b
}

// well sees that the other server answers.
func (b *bench) well() {
	b.t.Helper()
	if r := b.Call(b.t.Context(), tooltest.Invocation("y.run", `{}`), nil); !r.OK || r.Text != "did it" {
		b.t.Errorf("the other server: got %+v", r)
	}
}

// Whatever a server does in a call costs its caller one clear error, the next call
// of it nothing, and nobody else anything.
func TestAHostileServerCostsItsCallerOneError(t *testing.T) {
	for what, c := range map[string]struct {
		n          int
		code, text string // "" is ok
		starts     int
	}{
		"die":     {0, tool.Crashed, "the server ended before it answered: exit status 7: out of luck", 2},
		"never":   {0, tool.Timeout, "no result and no progress within 500ms", 1},
		"late":    {0, tool.Timeout, "no result and no progress within 500ms", 1},
		"flood":   {0, tool.Timeout, "no result and no progress within 500ms", 0},
		"huge":    {100, tool.ProtocolError, "line is longer than 16777216 bytes", 2},
		"wrong":   {0, tool.ToolFailed, "no such file", 1},
		"refuse":  {0, "-32602", "no such thing", 1},
		"garbage": {0, tool.ProtocolError, `unrecognized content type "riddle"`, 1},
		"ask":     {20, tool.Timeout, "no result and no progress within 500ms", 1},
		"id":      {2, tool.ProtocolError, "the server asked for things of more than 1024 KiB in all", 2},
		"values":  {8, tool.ProtocolError, "the server's answer has more than 100000 values in it", 1},
		"notice":  {8, "", "did it", 1},
		"nothing": {0, "", "done", 1},
	} {
		t.Run(what, func(t *testing.T) {
			var x *host
			b := beside(t, server(t, "rogue"), func(h *host) {
				h.waits.ping = time.Minute
				if h.desc.Name == "x" {
					x = h
				}
			})
			b.succeeds("", "did it")
			b.well()
			if c.code == tool.Timeout {
				x.desc.Timeout = 500 * time.Millisecond
			}
			var call sync.WaitGroup
			call.Go(func() {
				if r := b.call(what, c.n); c.code != "" {
					b.ends(r, c.code, c.text)
				} else if !r.OK || r.Text != c.text {
					t.Errorf("got %+v, want %q", r, c.text)
				}
			})
			b.well()
			call.Wait()
			b.well()
			x.desc.Timeout = time.Minute
			b.succeeds("", "did it")
			if n := b.traced("start") - 1; c.starts != 0 && n != c.starts { // one is y's
				t.Errorf("got %d processes, want %d", n, c.starts)
			}
			b.gone()
		})
	}
}

// What a server says of a failure is kept and told with bounds, and it does not say
// more of itself than is kept.
func TestAServerThatSaysTooMuch(t *testing.T) {
	for shake, want := range map[string]string{
		"sorry":  "cannot start x: sorry sorry",
		"chatty": "cannot start x: the server's answer to the handshake is too long",
	} {
		t.Run(shake, func(t *testing.T) {
			b := beside(t, server(t, "rogue").Env("HANDSHAKE", shake))
			r := b.call("", 0)
			if r.OK || !strings.HasPrefix(r.Error.Message, want) || len(r.Error.Message) > 5<<10 {
				t.Errorf("got %.200q of %d bytes", r.Error.Message, len(r.Error.Message))
			}
			for _, s := range b.Servers(model.Scope{}) {
				if len(s.Message) > 5<<10 {
					t.Errorf("%s is told with %d bytes", s.Name, len(s.Message))
				}
			}
			b.well()
			b.gone()
		})
	}
	b := mount(t, server(t, "rogue"))
	b.succeeds("", "did it")
	if r := b.call("sorry", 8); r.OK || len(r.Error.Message) > 5<<10 {
		t.Errorf("got %d bytes", len(r.Error.Message))
	}
	b.gone()
}

// A result that is long and not too long is taken in, one at a time for the whole
// daemon, and its text is bounded.
func TestLongResultsAreTakenInOneByOne(t *testing.T) {
	b := mount(t, server(t, "rogue"))
	for _, name := range []string{"y", "z"} {
		server(t, "rogue").Set("name", name).Write(t, b.dir)
	}
	b.Reload()
	var peak uint64
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	var all sync.WaitGroup
	for _, name := range []string{"x", "y", "z"} {
		for range 2 {
			all.Go(func() {
				r := b.Call(t.Context(), tooltest.Invocation(name+".run", `{"do":"huge","n":3}`), nil)
				if !r.OK || len(r.Text) > 60<<10 || !strings.Contains(r.Text, "left out here") {
					t.Errorf("%s: got %.200q, %+v", name, r.Text, r.Error)
				}
			})
		}
	}
	all.Wait()
	close(stop)
	<-watched
	t.Logf("the heap had %d MiB", peak>>20)
	if peak > 200<<20 {
		t.Errorf("the heap had %d MiB", peak>>20)
	}
	b.gone()
}

// A tool that cannot be used is left out alone, and the log says why.
func TestAToolWithAnUnusableSchemaIsLeftOut(t *testing.T) {
	for _, schema := range []string{
		"huge", "7", `"x"`, `{"type":"nothing"}`, `{"$ref":"http://example.org/x"}`, `{"type":"object","pattern":"("}`,
	} {
		b := mount(t, server(t, "rogue").Env("SCHEMA", schema))
		b.Ready(t.Context(), model.Scope{})
		if got := b.names(); !slices.Equal(got, []string{"x.run"}) {
			t.Errorf("%s: got %q", schema, got)
		}
		if n := b.logged.FilterMessage("a tool of the server is left out").Len(); n != 1 {
			t.Errorf("%s: %d warnings, want one", schema, n)
		}
		b.succeeds("", "did it")
		b.gone()
	}
}

// A schema that would end a daemon that resolves it is checked as any other.
func TestAnEndlessSchemaIsJustASchema(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("SCHEMA", `{"$ref":"#"}`))
	b.Ready(t.Context(), model.Scope{})
	r := b.Call(t.Context(), tooltest.Invocation("x.bad", `{}`), nil)
	if r.OK && r.Text != "did it" {
		t.Errorf("got %+v", r)
	}
	b.succeeds("", "did it")
}

func TestFiveHundredTools(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("TOOLS", "500"))
	b.Ready(t.Context(), model.Scope{})
	if got := b.names(); len(got) != 501 {
		t.Errorf("got %d tools", len(got))
	}
	if r := b.Call(t.Context(), tooltest.Invocation("x.t499", `{}`), nil); !r.OK {
		t.Errorf("got %+v", r)
	}
}

// What a server leaves behind, in sessions of its own, ends with it: with its own
// death, and with the daemon's.
func TestNothingOutlivesAServer(t *testing.T) {
	for _, end := range []string{"die", "close"} {
		t.Run(end, func(t *testing.T) {
			fifo, held := tooltest.NewFIFO(t)
			b := mount(t, server(t, "rogue").Env(tooltest.FIFO, fifo))
			left := make(chan struct{})
			go func() {
				defer close(left)
				b.succeeds("leave", "left")
			}()
			released := sync.OnceFunc(held())
			<-left
			if end == "die" {
				b.ends(b.call("die", 0), tool.Crashed)
				released()
			}
			b.gone()
			released()
		})
	}
}

// Anyone who aborts a start that many wait for aborts it for nobody else.
func TestAnAbortedStart(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "silent"), func(h *host) { h.waits.first = time.Second })
	ctx, abort := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	calls.Go(func() { b.ends(b.Call(ctx, do("", 0), nil), tool.Aborted) })
	calls.Go(func() { b.succeeds("", "did it") })
	testenv.Until(t, "the server starts", func() bool { return b.Servers(model.Scope{})[0].State == model.ServerStarting })
	abort()
	calls.Wait()
	b.gone()
}

// The daemon does not wait for a server that does not start.
func TestClosingWhileAServerStarts(t *testing.T) {
	b := mount(t, server(t, "rogue").Env("HANDSHAKE", "deaf"), func(h *host) { h.waits.first = 24 * time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.Ready(ctx, model.Scope{})
	b.gone()
}
