package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/ssh/sshtest"
	"noused/internal/protocol"
)

// kills is how often the channel is killed: NOUSED_TEST_KILLS.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("NOUSED_TEST_KILLS")); err == nil {
		return n
	}
	return 20
}

// The channel is killed again and again while a client follows all events and prompts in
// several sessions: by the network, at the far end, in the middle, and here. Every event
// is told once and in order, and every prompt is one run, which ends once.
func TestTheChannelIsKilledAgainAndAgain(t *testing.T) {
	d, s, o := far(t, "[model]\ndelay = \"1ms\"\n")
	l := link(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience+ /* of each */ patience*200/60)
	defer cancel()
	k := &killing{t: t, s: s, ends: map[string]int{}, said: map[string]int{}}
	k.told.L = &k.mu
	stream := follow.NewStream(l, follow.Options{Filter: protocol.SubscribeParams{After: new(uint64)}})
	followed, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { k.follow(followed, stream) })

	sessions, local := make([]string, 3), commands(t, ctx, follow.Socket(d.Socket))
	for i := range sessions {
		r, err := client.Call(ctx, local, protocol.NewSession, protocol.NewSessionParams{})
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = r.SessionID
	}
	var prompting sync.WaitGroup
	for _, session := range sessions {
		prompting.Go(func() { k.prompts(ctx, l, session) })
	}
	prompting.Wait()
	stop()
	all.Wait()
	stream.Close()
	for run, ends := range k.ends {
		if ends != 1 {
			t.Errorf("%s has ended %d times", run, ends)
		}
	}
	for text, times := range k.said {
		if times != 1 {
			t.Errorf("%q was said %d times", text, times)
		}
	}
	if k.began != len(k.said) || k.began != k.sent || k.began != len(k.ends) {
		t.Errorf("%d runs began and %d ended for %d texts, %d were sent", k.began, len(k.ends), len(k.said), k.sent)
	}
	t.Logf("%d losses, %d prompts, %d events", k.losses, k.sent, k.last)
}

type killing struct {
	t *testing.T
	s *sshtest.Server

	mu     sync.Mutex
	told   sync.Cond      // there was an event
	losses int            // of the stream's connection
	sent   int            // prompts that were accepted
	began  int            // runs
	ends   map[string]int // by run
	said   map[string]int // by text, of the user's
	last   uint64
}

func (k *killing) more() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.losses < kills()
}

// follow counts the events, and kills the channel after some of them.
func (k *killing) follow(ctx context.Context, stream *follow.Stream) {
	next := 1
	for {
		h, err := stream.Next(ctx)
		if err != nil {
			return
		}
		switch h := h.(type) {
		case follow.Disconnected:
			k.mu.Lock()
			k.losses++
			k.mu.Unlock()
		case follow.Connected:
			if h.Gap || h.Restarted || h.After != k.last {
				k.t.Errorf("behind event %d it went on with %+v", k.last, h)
			}
		case follow.Line:
			k.see(h)
			if next--; next <= 0 && k.more() {
				next = 1 + rand.IntN(40)
				k.kill()
			}
		default:
			k.t.Errorf("got %+v", h)
		}
	}
}

func (k *killing) see(h follow.Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.Seq != k.last+1 {
		k.t.Errorf("event %d came behind %d", h.Seq, k.last)
	}
	k.last = h.Seq
	switch ev := h.Event.Event.(type) {
	case protocol.AgentStart:
		k.began++
	case protocol.MessageStart:
		if ev.Role == "user" {
			k.said[ev.Text]++
		}
	case protocol.AgentEnd:
		k.ends[ev.RunID]++
	}
	k.told.Broadcast()
}

// kill kills the channel somewhere.
func (k *killing) kill() {
	switch rand.IntN(4) {
	case 0:
		k.s.Cut()
	case 1:
		k.s.Kill()
	case 2:
		for _, pid := range sshes(k.t) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	case 3:
		for _, pid := range running(nous) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// prompts prompts in a session, one run after the other, until the channel was lost often enough.
func (k *killing) prompts(ctx context.Context, l follow.Dialer, session string) {
	for i := 0; k.more(); i++ {
		wait, key := i%2 == 0, fmt.Sprintf("%s %d", session, i)
		r, err := again(ctx, l, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: session}, Text: "one two three four five six " + key, Wait: &wait,
			IdempotencyKey: key,
		})
		if err != nil {
			k.t.Errorf("prompt %d: %v", i, err)
			return
		}
		var run string
		if wait {
			run = r.Result.RunID
		} else {
			run = r.Accepted.RunID
		}
		k.mu.Lock()
		k.sent++
		for k.ends[run] == 0 { // the events come, or the test is ended by its limit
			k.told.Wait()
		}
		k.mu.Unlock()
	}
}

// again sends a prompt until it is answered.
func again(ctx context.Context, l follow.Dialer, p protocol.PromptParams) (r protocol.PromptReply, err error) {
	for {
		conn, err := l.Commands(ctx)
		if err == nil {
			c := client.New(conn)
			r, err = client.Call(ctx, c, protocol.Prompt, p)
			_ = c.Close()
		}
		var refused *protocol.Error
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return r, err
		}
	}
}

// sshes are the ssh processes that this one has.
func sshes(t testing.TB) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatal("no processes are to be seen in /proc", err)
	}
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // "pid (ssh) S parent …", nothing where it has ended meanwhile
		if _, rest, ok := strings.Cut(string(text), " (ssh) "); ok &&
			strings.HasPrefix(rest[1:], fmt.Sprintf(" %d ", os.Getpid())) {
			if n, err := strconv.Atoi(filepath.Base(filepath.Dir(stat))); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// running are the processes of a program.
func running(program string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if exe, _ := os.Readlink(link); exe == program {
			if n, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
