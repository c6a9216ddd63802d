//go:build sim

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/protocol"
)

// talk plays a script of texts, each after the end of the one before, and returns what was
// said. Where it is rough the daemon is killed, restarted and without power, disks fail, and
// readers come late and from nowhere; the client sends again what was not answered.
func talk(t *testing.T, dir string, seed uint64, rough bool) (said []string, w *world) {
	w = newWorld(t, dir, plan{seed: seed, clients: 2})
	w.calm, w.spared, w.dayLimit = !rough, true, 0
	w.boot()
	c, reader := w.clients[0], w.clients[1]
	w.meanwhile(func() bool { return w.life.ready })
	for len(w.session) == 0 {
		c.send("new_session", map[string]any{})
		w.meanwhile(func() bool { return len(c.pending) == 0 })
	}
	in := w.session[0]
	script := rand.New(rand.NewPCG(seed, 1)) // the same, rough or not
	for n := range 10 {
		p := map[string]any{
			"session_id": in, "wait": false, "idempotency_key": fmt.Sprint("key-", n),
			"text": fmt.Sprintf("text %d of %d", n, script.IntN(1000)),
		}
		for kills := 0; ; {
			w.mu.Lock()
			accepted, ready, calm := w.inputs[in+p["idempotency_key"].(string)], w.life.ready, w.calm
			run := c.runs[accepted]
			_, over := w.checker.Run(run)
			w.mu.Unlock()
			if accepted != "" && over {
				break
			}
			switch {
			case !calm && kills < 2 && n > 0 && w.rng.IntN(20) == 0: // three would end the run
				kills++
				w.kill(w.rng.IntN(2) == 0)
				w.boot()
			case !calm && w.rng.IntN(5) == 0 && ready:
				reader.read()
			case accepted == "" && len(c.pending) == 0 && ready:
				c.unsure = nil
				c.send("prompt", p)
			}
			w.passOn()
		}
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.kill(false)
	for _, ev := range w.stories[in].Told {
		if m, ok := ev.(protocol.MessageEnd); ok && m.StopReason != protocol.StopError { // else it was cut off
			said = append(said, m.Role+": "+m.Text)
		}
	}
	return said, w
}

// passOn lets one thing go on that waits, or time.
func (w *world) passOn() {
	synctest.Wait()
	w.mu.Lock()
	l, gates := w.life, len(w.gates)
	dead, ended := l.gone(), false
	select {
	case <-l.ended:
		ended = true
	default:
	}
	w.mu.Unlock()
	switch {
	case dead:
		w.kill(false)
		w.boot()
	case ended:
		w.cutOff()
		w.boot()
	case gates > 0:
		w.release(w.rng.IntN(gates))
	default:
		time.Sleep(20 * time.Millisecond)
	}
}

// meanwhile has everything go on until something is so.
func (w *world) meanwhile(so func() bool) {
	for range 10000 {
		w.passOn()
		synctest.Wait()
		w.mu.Lock()
		is := so()
		w.mu.Unlock()
		if is {
			return
		}
	}
	w.t.Fatal("it never came to that")
}

// What is said in a conversation does not depend on whether the daemon was killed, the power
// failed, the disk, or readers were slow meanwhile.
func TestAConversationIsTheSame(t *testing.T) {
	if !steady(t) {
		return
	}
	kills := 0
	for seed := range uint64(*alike) {
		var plain, rough []string
		var w *world
		play := func(harsh bool) (said []string) {
			dir := folder(t)
			synctest.Test(t, func(t *testing.T) { said, w = talk(t, dir, seed+1, harsh) })
			for _, wrong := range w.wrong {
				t.Errorf("seed %d: %s", seed+1, wrong)
			}
			return said
		}
		plain = play(false)
		rough = play(true)
		kills += w.counts["kills"]
		if !slices.Equal(plain, rough) || len(plain) != 20 {
			t.Fatalf("seed %d: plain, it is\n%q\nand else\n%q\n%s", seed+1, plain, rough, w.trace.String())
		}
	}
	if kills < *alike {
		t.Errorf("the daemon was killed %d times", kills)
	}
}
