package runloop

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		if !slices.ContainsFunc(ids, f.busy) && len(f.runs(false)) == 0 {
			return
		}
		select {
		case <-f.ends:
		case <-dead:
			return
		}
	}
}

// busy reports that a session runs or is owed something, both as they are at one moment: a run that ends may leave a
// child in the background, and the end of one begins a run.
func (f *family) busy(id string) bool {
	is, err := query(context.Background(), f.Hub, id, func(m *machine) (bool, error) {
		return m.s.Run != nil || len(m.s.Background)+len(m.s.Pending) > 0, nil
	})
	return err == nil && is
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
		if key, _, found := strings.Cut(strings.TrimPrefix(b.Message.Text, "["), ": the background child session"); found &&
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

// A child whose beginning cannot be read in its parent's journal any more is ended, and so are the others of the
// run, which is given up: nobody is told what it comes to.
func TestAChildThatItsParentDoesNotKnowIsEnded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
			<-ctx.Done()
			return model.Failed("aborted", "stopped")
		}
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		id, call := f.session(), agentCall(`{"prompt":"!t.x\n!t.x"}`)
		if _, err := f.start(id, call+"\n"+call+"\n"+call); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		working := func() int {
			st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
			if err != nil {
				t.Fatal(err)
			}
			return len(st.Runs)
		}
		if n := working(); n != 4 {
			t.Fatalf("%d runs work, want 4", n)
		}
		f.stop()
		path := filepath.Join(dir, "sessions", id+".jsonl")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		begun := []byte(`"type":"child_started"`)
		second := bytes.Index(text, begun) + 1
		second += bytes.Index(text[second:], begun)
		text[second] = 'x'
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		<-f.Hub.takenUp
		synctest.Wait()
		if n := working(); n != 0 {
			t.Errorf("%d runs are left", n)
		}
		f.Hub.env.forest.mu.Lock()
		if n := len(f.Hub.env.forest.trees); n != 0 {
			t.Errorf("%d trees are left", n)
		}
		f.Hub.env.forest.mu.Unlock()
		f.stop()
	})
}

// A child whose parent's journal is another session's by now, and cannot be opened, is ended: it ran on, and nobody was
// told its end.
func TestAChildWhoseParentCannotBeOpenedIsEnded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hangs := hangsIn(make(chan struct{}))
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		id := f.session()
		if _, err := f.start(id, agentCall(`{"prompt":"!t.x\n!t.x"}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(f.runs(false)); n != 2 {
			t.Fatalf("%d runs work, want 2", n)
		}
		f.stop()
		path := filepath.Join(dir, "sessions", id+".jsonl")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Replace(text, []byte(id), []byte("ses-another"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		<-f.Hub.takenUp
		synctest.Wait()
		if n := len(f.runs(false)); n != 0 {
			t.Errorf("%d runs are left", n)
		}
		f.stop()
	})
}

// lateDisk is a disk that takes long to say that a session's journal is on it, and longer to keep how children end.
type lateDisk struct {
	session.OSDisk
	synced string // the session
}

func (d lateDisk) Sync(f *os.File) error {
	if strings.Contains(f.Name(), d.synced) {
		time.Sleep(time.Second) // in a bubble
	}
	return d.OSDisk.Sync(f)
}

func (d lateDisk) Write(f *os.File, text []byte) (int, error) {
	if bytes.Contains(text, []byte(`"type":"child_ended"`)) {
		time.Sleep(2 * time.Second) // in a bubble
	}
	return d.OSDisk.Write(f, text)
}

// A child that ended under a former daemon, before its parent knew, is counted with its own children before others of
// the tree are begun: there was one more than `total`.
func TestAChildThatEndedUnderAFormerDaemonIsCounted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		begins := make(chan struct{})
		tool := func(ctx context.Context, inv model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
			if strings.Contains(string(inv.Arguments), "begins") {
				<-begins
				return model.ToolResult{OK: true, Text: "begun"}
			}
			<-ctx.Done()
			return model.Failed("aborted", "stopped")
		}
		bounded := func(o *Options) { o.Children.Total = 3 }
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, tool, newHearing(), bounded)
		id := f.session()
		leads := func(first string) string { return first + `\n!agent {\"prompt\":\"leaf\"}` }
		if _, err := f.start(id, agentCall(`{"background":true,"prompt":"`+leads(`!t.x {\"begins\":1}`)+`"}`)+"\n"+
			agentCall(`{"prompt":"`+leads("!t.x")+`"}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(begins) // once the second child is there
		synctest.Wait()
		children, err := query(t.Context(), f.Hub, id, func(m *machine) ([]string, error) { return m.s.Children, nil })
		if err != nil || len(children) != 2 {
			t.Fatalf("got the children %v, %v", children, err)
		}
		f.stop()
		path := filepath.Join(dir, "sessions", id+".jsonl")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		end := bytes.Index(text, []byte(`"type":"child_ended"`))
		if end < 0 {
			t.Fatalf("no child has ended:\n%s", text)
		}
		if err := os.Truncate(path, int64(bytes.LastIndexByte(text[:end], '\n')+1)); err != nil {
			t.Fatal(err)
		}
		next := newHearing()
		f = newFamily(t, lateDisk{synced: children[0]}, dir, offline.Model{}, tool, next, bounded)
		f.settled([]string{id}, nil)
		f.stop()
		next.check(t)
		bound := func(s string) bool { return strings.Contains(s, "total in [children] is 3") }
		if ids, err := f.store.IDs(); err != nil || len(ids) != 4 || !slices.ContainsFunc(next.seen, bound) {
			t.Errorf("there are the sessions %v, %v, and the calls came to %q; want three children", ids, err, next.seen)
		}
	})
}
