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

	"noused/internal/client"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// agentCall is the line by which the offline model calls agent.
func agentCall(t *testing.T, prompt string, background bool) string {
	t.Helper()
	args, err := json.Marshal(map[string]any{"prompt": prompt, "background": background})
	if err != nil {
		t.Fatal(err)
	}
	return "!agent " + string(args)
}

// treeOfTwenty is a prompt that makes a tree of twenty sessions with its own: three children
// that are waited for and one that is not, each with leaves of its own.
func treeOfTwenty(t *testing.T) string {
	t.Helper()
	with := func(leaves int) string {
		var lines []string
		for n := range leaves {
			lines = append(lines, agentCall(t, fmt.Sprintf("leaf number %d says a few words", n), false))
		}
		return strings.Join(lines, "\n")
	}
	return strings.Join([]string{
		agentCall(t, with(4), false), agentCall(t, with(4), false), agentCall(t, with(4), false), agentCall(t, with(3), true),
	}, "\n")
}

// A daemon is killed at any moments of a tree of twenty sessions: every call is answered once,
// the result in the background comes once, and no session is left running. NOUSED_TEST_TREES is
// how many trees there are, each with two kills; NOUSED_TEST_SEED tries a seed again.
func TestKilledOverTrees(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	trees, err := strconv.Atoi(cmp.Or(os.Getenv("NOUSED_TEST_TREES"), "3"))
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
	d := unstarted(t, "noused")
	d.write("noused/config.toml", "[model]\ndelay = \"1ms\"\n", 0o600)
	d.Start()
	root, kills := d.session(""), 0
	for n := range trees {
		follow := d.events(protocol.SubscribeParams{After: new(uint64)})
		if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: root}, Text: treeOfTwenty(t), Wait: new(bool),
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for range rng.IntN(250) {
				if ev, err := next(follow); err != nil {
					break
				} else if end, ok := ev.(protocol.AgentEnd); ok && end.SessionID == root {
					break
				}
			}
			if rng.IntN(4) == 0 {
				d.Stop()
			} else {
				d.Kill()
				kills++
			}
			d.Start()
			follow = d.events(protocol.SubscribeParams{After: new(uint64)})
		}
		d.untilAtRest(root, n+1)
	}
	ids := allAnsweredOnce(d, true)
	if want := 1 + 19*trees; len(ids) != want {
		t.Errorf("got %d sessions, want %d", len(ids), want)
	}
	t.Logf("%d kills over %d sessions", kills, len(ids))
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

// allAnsweredOnce stops the daemon and looks at all of its sessions as answeredOnce does. It returns their ids.
func allAnsweredOnce(d *daemon, wholly bool) []string {
	d.t.Helper()
	d.Stop()
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
		answeredOnce(d.t, store, id, wholly)
	}
	return ids
}

// untilAtRest blocks until no session runs, and the root has had so many messages of children.
func (d *daemon) untilAtRest(root string, messages int) {
	d.t.Helper()
	c, events := d.dial(), d.events(protocol.SubscribeParams{After: new(uint64)})
	for {
		st, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{
			Scope: protocol.Scope{SessionID: root},
		})
		if err != nil {
			d.t.Fatal(err)
		}
		all, err := client.Call(context.Background(), c, protocol.GetMessages, protocol.GetMessagesParams{
			Scope: protocol.Scope{SessionID: root},
		})
		if err != nil {
			d.t.Fatal(err)
		}
		had := 0
		for _, m := range all.Messages {
			if strings.Contains(string(m), `"role":"user"`) && strings.Contains(string(m), "in the background, has ended]") {
				had++
			}
		}
		if len(st.Runs) == 0 && had >= messages {
			return
		}
		await(d.t, events, func(ev protocol.Event) bool { _, ended := ev.(protocol.AgentEnd); return ended })
	}
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
			if wholly && !b.Message.OK {
				t.Errorf("session %s: a call came to %q", id, b.Message.Text)
			}
		}
		if key, _, found := strings.Cut(b.Message.Text, ": the child session"); found && b.Message.Role == model.User {
			told[key]++
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
