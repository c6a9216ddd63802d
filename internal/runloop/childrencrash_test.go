package runloop

import (
	"context"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// settled waits until nothing runs any more and no child in the background is owed, or the disk
// is dead.
func (f *family) settled(ids []string, dead <-chan struct{}) {
	f.awaitTakenUp(context.Background())
	for {
		if len(f.runs(false)) == 0 && !slices.ContainsFunc(ids, f.owes) {
			return
		}
		select {
		case <-f.ends:
		case <-dead:
			return
		}
	}
}

// owes reports that a session waits for a child in the background.
func (f *family) owes(id string) bool {
	n, err := query(context.Background(), f.Hub, id, func(m *machine) (int, error) {
		return len(m.s.Background) + len(m.s.Pending), nil
	})
	return err == nil && n > 0
}

// dieAsTree lives the life of a tree until its disk dies, and then another one on what it left.
// It returns how many operations there were.
func dieAsTree(t *testing.T, text string, last int, how end) int {
	disk, dir, heard := newMortal(last, how), t.TempDir(), newHearing()
	f := newFamily(t, disk, dir, offline.Model{}, echoTool, heard, nil)
	if s, err := f.newSession(context.Background(), protocol.NewSessionParams{}); err == nil {
		if _, err := f.start(s.SessionID, text); err == nil {
			f.settled([]string{s.SessionID}, disk.dead)
		}
	}
	f.stop()
	disk.fail(t, dir)
	heard.check(t)
	next := newHearing()
	f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, echoTool, next, nil)
	ids, err := f.store.IDs()
	if err != nil {
		t.Fatal(err)
	}
	f.settled(ids, nil)
	f.stop()
	next.check(t)
	isWhole(t, dir)
	if t.Failed() {
		t.Logf("it died at operation %d, %s, %s", last, disk.name, how)
	}
	return disk.ops
}

// isWhole looks whether each call in a folder has one result, each child in the background was
// told once, and nothing runs.
func isWhole(t *testing.T, dir string) {
	t.Helper()
	store, err := session.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	ids, err := store.IDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		s, err := store.Peek(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if s.Run != nil || len(s.Background) > 0 || len(s.Pending) > 0 {
			t.Errorf("session %s: run %+v, background %v, pending %v", id, s.Run, s.Background, s.Pending)
		}
		if s.Parent != nil && !store.Exists(s.Parent.SessionID) {
			t.Errorf("session %s has lost its parent", id)
		}
		if s.LastRun.StopReason != protocol.StopCompleted && len(s.Entries()) > 0 {
			t.Errorf("session %s: the run ended %s: %s", id, s.LastRun.StopReason, s.LastRun.Error)
		}
		count(t, store, s)
	}
}

// count holds the results of a session's calls, and the messages of its children, against each
// other.
func count(t *testing.T, store *session.Store, s *session.State) {
	t.Helper()
	asked, results, told := map[string]int{}, map[string]int{}, map[string]int{}
	err := store.Bodies(t.Context(), s.ID, s.Entries(), func(_ *session.Entry, b *session.Body) error {
		for _, c := range b.Message.ToolCalls {
			asked[c.ID]++
		}
		if b.Message.Role == model.Tool {
			results[b.Message.ToolCallID]++
			if b.Message.ToolName == agentTool && !b.Message.OK {
				t.Errorf("session %s: a call to agent came to %q", s.ID, b.Message.Text)
			}
		}
		if key, _, found := strings.Cut(strings.TrimPrefix(b.Message.Text, "["), ": the child session"); found &&
			b.Message.Role == model.User {
			told[key]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for call := range asked {
		if results[call] != 1 {
			t.Errorf("session %s: call %s has %d results", s.ID, call, results[call])
		}
	}
	for key, n := range told {
		if n != 1 {
			t.Errorf("session %s: %s is told %d times", s.ID, key, n)
		}
	}
}

// The disk dies at any moment of a tree's life: each call is answered once, each result in the
// background comes once, and nothing is left that runs.
func TestATreeOnADiskThatDies(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	call := agentCall(`{"prompt":"!agent {\"prompt\":\"leaf\"}"}`)
	text := call + "\n" + call + "\n" + agentCall(`{"prompt":"apart","background":true}`)
	ops := dieAsTree(t, text, 0, "")
	for n, how := range []end{before, within, after, power} {
		for last := 2 + n; last <= ops && !t.Failed(); last += 4 {
			dieAsTree(t, text, last, how)
		}
	}
	t.Logf("%d operations", ops)
}
