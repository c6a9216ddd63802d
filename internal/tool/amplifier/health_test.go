package amplifier

import (
	"context"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// problem is what the list says of the module's operations, "" where they are
// offered.
func (b *bench) problem() string {
	b.t.Helper()
	list := b.List(b.t.Context(), model.Scope{})
	if len(list) != 7 {
		b.t.Fatalf("got %+v, want the seven operations", list)
	}
	return list[0].Problem
}

// until lists the operations until the module is as wanted, while its health is
// asked for by a clock that runs fast.
func (b *bench) until(what string, as func(problem string) bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !as(b.problem()); {
		if time.Now().After(deadline) {
			b.t.Fatalf("got %q after a minute, want it %s", b.problem(), what)
		}
	}
}

func well(problem string) bool { return problem == "" }

func TestAModuleThatIsUnwellIsNotOfferedUntilItIsWellAgain(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			b, _ := way(t, func(h *host) { h.every = time.Millisecond })
			b.feels(`{"status":"warming up"}`)
			b.until("unwell at the start", func(p string) bool { return p == `health: status is "warming up"` })
			b.feels("")
			b.until("well", well)
			b.feels(`{"ok":false,"error":{"code":"oom","message":"too hot"}}`)
			b.until("ill", func(p string) bool { return p == "health: too hot" })
			b.feels("")
			b.until("well", well)
		})
	}
}

func TestAModuleThatIsUnwellIsAskedAgainBeforeACall(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			b, _ := way(t, func(h *host) { h.every = time.Hour })
			b.until("well", well)
			b.feels(`{"status":"warming up"}`)
			b.host.run(t.Context(), b.host.locked(), b.host.pool.Spare) // the clock's hour is over
			if b.problem() == "" {
				t.Fatal("it is well, want it unwell")
			}
			for range 2 {
				asked := b.happened("health")
				b.fails(b.call("text"), tool.Unreachable, "x is not well", `status is "warming up"`)
				if again := b.happened("health") - asked; again != 1 {
					t.Errorf("it was asked for its health %d times more, want once", again)
				}
			}
			if n := b.happened("invoke"); n != 0 {
				t.Errorf("it was called %d times all the same", n)
			}
			b.feels("")
			b.succeeds("text")
			if got := b.problem(); got != "" {
				t.Errorf("got %q, want it offered again", got)
			}
		})
	}
}

func TestAModuleThatDiesOfTheQuestionIsWellAgainWhenItLives(t *testing.T) {
	b := mount(t, fake(t, "fake"), func(h *host) { h.every, h.pool.Crashes.Free = time.Millisecond, 1_000_000 })
	b.until("well", well)
	b.feels("crash")
	b.until("ill", func(p string) bool { return strings.Contains(p, "exit status 3") })
	b.feels("")
	b.until("well", well)
}

func TestAModuleThatIsNotUsedIsNotAsked(t *testing.T) {
	b, _ := ways["http"](t, func(h *host) { h.every, h.pool.Idle = time.Millisecond, time.Nanosecond })
	b.succeeds("text")
	for idle := false; !idle; { // the clock has found out
		b.host.mu.Lock()
		idle = b.host.timer == nil && b.host.check == nil
		b.host.mu.Unlock()
	}
	asked := b.happened("health")
	for range 10 {
		if got := b.problem(); got != "" {
			t.Errorf("got problem %q", got)
		}
	}
	if got := b.happened("health"); got != asked {
		t.Errorf("asked for its health %d times more", got-asked)
	}
}

func TestAProcessThatIsAnsweringIsNotAsked(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	ticks := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	b := mount(t, fake(t, "fake").Env(tooltest.FIFO, fifo))
	if got := b.problem(); got != "" {
		t.Fatal(got)
	}
	go func() {
		defer close(ticks)
		released := held()
		for range 3 {
			b.host.run(t.Context(), b.host.locked(), b.host.pool.Spare)
		}
		if got := b.happened("health"); got != 1 {
			t.Errorf("asked for its health %d times, want once, at the start", got)
		}
		cancel()
		released()
	}()
	b.fails(b.host.Call(ctx, "hang", tooltest.Invocation("x.hang", `{}`), nil), tool.Aborted)
	<-ticks
}

// locked is begin for a test.
func (h *host) locked() *check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.startCheck()
}

func TestASlowStartIsReportedAndWaitedFor(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	b := mount(t, fake(t, "slow").Env(tooltest.FIFO, fifo), func(h *host) { h.health = time.Millisecond })
	list := b.List(t.Context(), model.Scope{})
	if len(list) != 1 || list[0].Healthy || list[0].Problem != "health: no answer within 1ms" {
		t.Fatalf("got %+v, want it unhealthy for now", list)
	}
	released := held() // and it starts
	for deadline := time.Now().Add(time.Minute); ; {
		if r := b.Call(t.Context(), tooltest.Invocation("x.text", ""), nil); r.OK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not found well within a minute")
		}
	}
	b.starts(1)
	b.Close(t.Context())
	released()
}

func TestAModuleThatNeverAnswersHealthIsReplaced(t *testing.T) {
	b := mount(t, fake(t, "mute"), func(h *host) { h.start = 100 * time.Millisecond })
	for range 2 {
		b.fails(b.call("text"), tool.Timeout, "health: no result within 100ms")
	}
}
