package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
	"noused/internal/testenv"
)

// agentCall is the line by which the offline model calls agent.
func agentCall(t testing.TB, prompt string, background bool) string {
	t.Helper()
	args, err := json.Marshal(map[string]any{"prompt": prompt, "background": background})
	if err != nil {
		t.Fatal(err)
	}
	return "!agent " + string(args)
}

// treeOfTwenty is a prompt that makes a tree of twenty sessions with its own: three children
// that are waited for and one that is not, each with leaves of its own, one of which has a process.
func (d *daemon) treeOfTwenty() string {
	d.t.Helper()
	with := func(leaves int) string {
		lines := []string{agentCall(d.t, `!bash {"command":"CRASH_MARK=`+d.Dir+` sleep 0.05"}`, false)}
		for n := range leaves - 1 {
			lines = append(lines, agentCall(d.t, fmt.Sprintf("leaf number %d says a few words", n), false))
		}
		return strings.Join(lines, "\n")
	}
	return strings.Join([]string{
		agentCall(d.t, with(4), false), agentCall(d.t, with(4), false), agentCall(d.t, with(4), false),
		agentCall(d.t, with(3), true),
	}, "\n")
}

// Daemons are killed at any moments of trees of twenty sessions: every call is answered once, the
// result in the background comes once, no session is left running and no process of a tool. NOUSED_TEST_KILLS
// is how many kills there are at least; NOUSED_TEST_SEED tries a seed again.
func TestKilledOverTrees(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	most, err := strconv.Atoi(cmp.Or(os.Getenv("NOUSED_TEST_KILLS"), "8"))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	if text := os.Getenv("NOUSED_TEST_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("NOUSED_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	kills, trees, sessions := 0, 0, 0
	for ; kills < most && !t.Failed(); trees++ {
		t.Run(fmt.Sprint("tree ", trees), func(t *testing.T) {
			d := unstarted(t, "noused")
			d.write("noused/config.toml", "[model]\ndelay = \"1ms\"\n", 0o600)
			d.Start()
			kills += d.killedOverATree(rng)
			ids := allAnsweredOnce(d, true)
			if len(ids) != 20 {
				t.Errorf("got %d sessions, want 20", len(ids))
			}
			sessions += len(ids)
		})
	}
	t.Logf("%d kills over %d trees of %d sessions", kills, trees, sessions)
}

// killedOverATree has a daemon make a tree, and kills and stops it until the tree is at rest. A run of
// which the next kill would be the third ends first: that one ends it.
func (d *daemon) killedOverATree(rng *rand.Rand) (kills int) {
	d.t.Helper()
	root := d.session("")
	if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: root}, Text: d.treeOfTwenty(), Wait: new(bool),
	}); err != nil {
		d.t.Fatal(err)
	}
	spent := map[string]bool{}
	for {
		follow := d.events(protocol.SubscribeParams{After: new(uint64)})
		if d.atRest(root, 1) {
			return kills
		}
		for n := rng.IntN(60); n > 0 || len(spent) > 0; n-- {
			ev, err := next(follow)
			if err != nil {
				d.t.Fatal(err)
			}
			if end, ok := ev.(protocol.AgentEnd); ok {
				if delete(spent, end.RunID); d.atRest(root, 1) {
					return kills
				}
			}
		}
		if rng.IntN(8) == 0 {
			d.Stop()
		} else {
			d.Kill()
			kills++
		}
		left := orphans(d.t, d.Dir)
		spent = d.cutBefore()
		d.Start()
		d.gone(left)
	}
}

// cutBefore are the runs that a kill before the last has cut, as the journals say.
func (d *daemon) cutBefore() map[string]bool {
	d.t.Helper()
	runs := map[string]bool{}
	d.journals(func(store *session.Store, id string) {
		s, err := store.Peek(d.t.Context(), id)
		if err != nil {
			d.t.Fatal(err)
		}
		if s.Run != nil && s.Run.Crashes > 0 {
			runs[s.Run.ID] = true
		}
	})
	return runs
}

// An abort of a tree that is followed by a kill leaves nothing that runs.
func TestAbortsOfTreesAndKills(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	d := unstarted(t, "noused")
	d.write("noused/config.toml", "[model]\ndelay = \"1ms\"\n", 0o600)
	d.Start()
	root := d.session("")
	leaf := agentCall(t, "a leaf says some words", false)
	with := agentCall(t, leaf+"\n"+leaf, false)
	for range 3 {
		follow := d.events(protocol.SubscribeParams{After: new(uint64)})
		if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: root}, Text: with + "\n" + with, Wait: new(bool),
		}); err != nil {
			t.Fatal(err)
		}
		for range 10 + rng.IntN(60) {
			if _, err := next(follow); err != nil {
				t.Fatal(err)
			}
		}
		_, err := client.Call(context.Background(), d.dial(), protocol.Abort, protocol.AbortParams{
			Scope: protocol.Scope{SessionID: root},
		})
		var refused *protocol.Error
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		for range rng.IntN(6) {
			if _, err := next(follow); err != nil {
				t.Fatal(err)
			}
		}
		d.Kill()
		d.Start()
		d.untilAtRest(root, 0)
	}
	allAnsweredOnce(d, false)
}

// allAnsweredOnce stops the daemon and looks at all of its sessions as answeredOnce does, and whether a process of
// theirs is left. It returns their ids.
func allAnsweredOnce(d *daemon, wholly bool) (ids []string) {
	d.t.Helper()
	d.Stop()
	d.gone(orphans(d.t, d.Dir))
	d.journals(func(store *session.Store, id string) {
		ids = append(ids, id)
		answeredOnce(d.t, store, id, wholly)
		story := sessiontest.New(id)
		if err := story.Take(filepath.Join(d.Dir, "state", "sessions", id+".jsonl")); err != nil {
			d.t.Errorf("session %s: %v", id, err)
		}
		if err := story.Done(); err != nil {
			d.t.Errorf("session %s: %v", id, err)
		}
		for _, w := range story.Wrong {
			d.t.Errorf("session %s: %s", id, w)
		}
	})
	return ids
}

// journals reads each session of a daemon that is down.
func (d *daemon) journals(read func(store *session.Store, id string)) {
	d.t.Helper()
	store, err := session.Open(filepath.Join(d.Dir, "state"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ids, err := store.IDs()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, id := range ids {
		read(store, id)
	}
}

// gone blocks until processes have ended that a daemon has left.
func (d *daemon) gone(pidfds []int) {
	d.t.Helper()
	for _, fd := range pidfds {
		testenv.Until(d.t, "a process of a daemon that is gone has ended", func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n == 1 && err == nil
		})
		_ = unix.Close(fd)
	}
}

// untilAtRest blocks until no session runs, and the root has had so many messages of children.
func (d *daemon) untilAtRest(root string, messages int) {
	d.t.Helper()
	events := d.events(protocol.SubscribeParams{After: new(uint64)})
	for !d.atRest(root, messages) {
		await(d.t, events, func(ev protocol.Event) bool { _, ended := ev.(protocol.AgentEnd); return ended })
	}
}

// atRest reports that no session runs and that the root has had so many messages of children. A message is there from
// when its run begins on, so it is looked for first: between the end of a child and that run nothing runs.
func (d *daemon) atRest(root string, messages int) bool {
	d.t.Helper()
	c := d.dial()
	defer func() { _ = c.Close() }()
	all, err := client.Call(context.Background(), c, protocol.GetMessages, protocol.GetMessagesParams{
		Scope: protocol.Scope{SessionID: root},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	st, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{
		Scope: protocol.Scope{SessionID: root},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	had := 0
	for _, m := range all.Messages {
		if strings.Contains(string(m), `"child":{`) {
			had++
		}
	}
	return len(st.Runs) == 0 && had >= messages
}

// answeredOnce looks whether each call of a session has one result, each of its children in the
// background was told once, and nothing of it is left. Wholly: nobody has aborted anything.
func answeredOnce(t testing.TB, store *session.Store, id string, wholly bool) {
	t.Helper()
	s, err := store.Peek(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if s.Run != nil || len(s.Background)+len(s.Pending) > 0 {
		t.Errorf("session %s is left with run %+v, children %v, texts %v", id, s.Run, s.Background, s.Pending)
	}
	if s.Parent != nil && !store.Exists(s.Parent.SessionID) {
		t.Errorf("session %s has lost its parent", id)
	}
	if wholly && s.LastRun.StopReason != protocol.StopCompleted {
		t.Errorf("session %s: its run ended %s: %s", id, s.LastRun.StopReason, s.LastRun.Error)
	}
	asked, results, told := map[string]int{}, map[string]int{}, map[string]int{}
	if err := store.Bodies(t.Context(), id, s.Entries(), func(_ *session.Entry, b *session.Body) error {
		for _, c := range b.Message.ToolCalls {
			asked[c.ID]++
		}
		if b.Message.Role == model.Tool {
			results[b.Message.ToolCallID]++
			if wholly && !b.Message.OK && b.Message.ToolName != "bash" { // which a kill may have cut
				t.Errorf("session %s: a call came to %q", id, b.Message.Text)
			}
		}
		if b.Child != "" {
			told[b.Child]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for call := range asked {
		if results[call] != 1 {
			t.Errorf("session %s: call %s has %d results", id, call, results[call])
		}
	}
	for key, n := range told {
		if n != 1 {
			t.Errorf("session %s: %s is told %d times", id, key, n)
		}
	}
}
