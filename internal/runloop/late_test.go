package runloop

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A child in the background that ends when the run of its call is over is counted in its tree by the next daemon, too,
// with its own children: the tree used as much, and had as many children, again (found by the simulator).
func TestWhatEndsLateIsCountedAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan struct{})
		tool := func(ctx context.Context, inv model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
			if !strings.Contains(string(inv.Arguments), "late") {
				<-ctx.Done()
				return model.Failed("aborted", "stopped")
			}
			<-ends
			return model.ToolResult{OK: true, Text: "done"}
		}
		deep := func(o *Options) { o.Children.Depth = 3 }
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, tool, newHearing(), deep)
		id := f.session()
		late := `{\"background\":true,\"prompt\":\"!t.x {\\\"late\\\":1}\\n!agent {\\\"prompt\\\":\\\"leaf\\\"}\"}`
		a, err := f.start(id, agentCall(`{"prompt":"!agent `+late+`"}`)+"\n!t.x")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(ends) // the first child's run is over
		synctest.Wait()
		used := func() model.Usage { return f.env.forest.others(a.RunID, &session.Run{ID: a.RunID}) }
		before := used()
		f.stop()
		f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, tool, newHearing(), deep)
		<-f.takenUp
		if after := used(); after != before || after == (model.Usage{}) {
			t.Errorf("the tree has used %+v, and %+v before the restart", after, before)
		}
		if nth, _ := f.env.forest.reserve(a.RunID, a.RunID); nth != 4 {
			t.Errorf("the next child is the %d. of its tree, want the fourth", nth)
		}
		f.stop()
	})
}

// fullDisk has no room for one session.
type fullDisk struct {
	session.OSDisk
	full atomic.Pointer[string]
}

func (d *fullDisk) Write(f *os.File, text []byte) (int, error) {
	if id := d.full.Load(); id != nil && strings.Contains(f.Name(), *id) {
		return 0, unix.ENOSPC
	}
	return d.OSDisk.Write(f, text)
}

// The run at the root of a tree counts after a restart, too, while a child in the background works on: that might use
// as much again as the run. Where its journal cannot be written just then it counts a moment later (both found by the
// simulator).
func TestARootThatIsOverIsCountedAfterARestart(t *testing.T) {
	for _, full := range []bool{false, true} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			disk, hangs := &fullDisk{}, hangsIn(make(chan struct{}))
			f := newFamily(t, disk, dir, offline.Model{}, hangs, newHearing(), nil)
			id := f.session()
			below := `{\"background\":true,\"prompt\":\"!t.x\\n!t.x\"}`
			a, err := f.start(id, agentCall(`{"prompt":"!agent `+below+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, err := f.start(id, "!t.x\n!t.x"); err != nil { // so that the session is opened again
				t.Fatal(err)
			}
			synctest.Wait()
			used := func() (root model.Usage) {
				f.env.forest.use(a.RunID, func(t *tree) {
					if u := t.uses[a.RunID]; u != nil {
						root = u.used
					}
				})
				return root
			}
			before := used()
			f.stop()
			if full {
				disk.full.Store(&id)
			}
			f = newFamily(t, disk, dir, offline.Model{}, hangs, newHearing(), nil)
			<-f.takenUp
			if full {
				if after := used(); after != (model.Usage{}) {
					t.Errorf("its root has used %+v, and its journal cannot be written", after)
				}
				disk.full.Store(nil)
				time.Sleep(2 * childRetry)
			}
			if after := used(); after != before || after == (model.Usage{}) {
				t.Errorf("full %v: its root has used %+v, and %+v before the restart", full, after, before)
			}
			f.stop()
		})
	}
}

// What a child in the background has used counts after a restart before its parent goes on, also where its session
// cannot be opened just then (found by the simulator).
func TestAChildThatCannotBeOpenedCountsAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, hangs := &lockable{}, hangsIn(make(chan struct{}))
		f := newFamily(t, disk, dir, offline.Model{}, hangs, newHearing(), nil)
		id := f.session()
		a, err := f.start(id, agentCall(`{"background":true,"prompt":"!t.x\\n!t.x"}`))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		child, err := query(t.Context(), f.Hub, id, func(m *machine) (session.Child, error) { return m.s.Background[0], nil })
		if err != nil {
			t.Fatal(err)
		}
		used := func() (sum model.Usage) {
			f.env.forest.use(a.RunID, func(t *tree) {
				if u := t.uses[child.ChildRunID]; u != nil {
					sum = u.used
				}
			})
			return sum
		}
		before := used()
		f.stop()
		disk.but.Store(&id)
		f = newFamily(t, disk, dir, offline.Model{}, hangs, newHearing(), nil)
		<-f.takenUp
		if after := used(); after != before || after == (model.Usage{}) {
			t.Errorf("it has used %+v, and %+v before the restart", after, before)
		}
		disk.but.Store(nil)
		f.stop()
	})
}

// So it does where its journal cannot be read just then, and nothing else has failed: it was looked for again only
// where a session had failed, too.
func TestARootThatCannotBeReadIsCountedLater(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hangs := hangsIn(make(chan struct{}))
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		id := f.session()
		below := `{\"background\":true,\"prompt\":\"!t.x\\n!t.x\"}`
		a, err := f.start(id, agentCall(`{"prompt":"!agent `+below+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		counted := func() (is bool) {
			f.env.forest.use(a.RunID, func(t *tree) { is = t.uses[a.RunID] != nil })
			return is
		}
		f.stop()
		journal := filepath.Join(dir, "sessions", id+".jsonl")
		if err := os.Chmod(journal, 0); err != nil {
			t.Fatal(err)
		}
		f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		<-f.takenUp
		if counted() {
			t.Error("its root is counted, and its journal cannot be read")
		}
		if err := os.Chmod(journal, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * mendTime)
		if !counted() {
			t.Error("its root is not counted, and its journal can be read again")
		}
		f.stop()
	})
}

// A run that ends right as it begins a child in the background counts in the child's tree: the child might use as much
// again (found by the simulator), and so might the run that the child's end begins.
func TestARunThatEndsAsItBeginsAChildCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		tool := func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			calls.Add(1)
			return model.ToolResult{OK: true, Text: "done"}
		}
		limited := func(o *Options) { o.Limits.RunTokens = 1 }
		f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, tool, newHearing(), limited)
		id := f.session()
		if _, err := answered(f.prompt(t.Context(), protocol.PromptParams{
			Scope: protocol.Scope{SessionID: id}, Text: agentCall(`{"background":true,"prompt":"!t.x"}`),
			Approvals: protocol.ApprovalsDeny,
		})); err == nil {
			t.Error("the run has not reached its limit")
		}
		f.settled([]string{id}, nil)
		if n := calls.Load(); n != 0 {
			t.Errorf("the child has made %d calls, and its tree may ask no model any more", n)
		}
		last, err := query(t.Context(), f.Hub, id, func(m *machine) (*session.Ended, error) {
			last, _ := m.s.Ended(m.s.LastRun.RunID)
			return last, nil
		})
		if err != nil || last.Code != protocol.OverBudget || last.Usage != (model.Usage{}) {
			t.Errorf("the run that the child's end has begun: %+v, %v, want none that asks its model", last, err)
		}
		f.stop()
	})
}

// What the end of a child in the background begins counts in the child's tree, also after a restart.
func TestARunThatAChildHasBegunCountsInItsTree(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hangs := hangsIn(make(chan struct{}))
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		id := f.session()
		a, err := f.start(id, agentCall(`{"background":true,"prompt":"hello"}`)+"\n"+
			agentCall(`{"background":true,"prompt":"!t.x\\n!t.x"}`))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun, err := query(t.Context(), f.Hub, id, func(m *machine) (string, error) { return m.s.LastRun.RunID, nil })
		if err != nil || begun == a.RunID {
			t.Fatalf("the last run is %s, %v: that of the prompt", begun, err)
		}
		used := func() (u model.Usage) {
			f.env.forest.use(a.RunID, func(t *tree) {
				if t.uses[begun] != nil {
					u = t.uses[begun].used
				}
			})
			return u
		}
		before := used()
		f.stop()
		f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangs, newHearing(), nil)
		<-f.takenUp
		if after := used(); after != before || after == (model.Usage{}) {
			t.Errorf("the run counts %+v in the tree, and %+v before the restart", after, before)
		}
		f.stop()
	})
}

// A session knows what the run at the root of a tree has used that was its own: where its journal had failed, and the
// tree was forgotten with it, the run that the end of a child begins might use as much again (found by the simulator).
func TestASessionKnowsTheRootThatWasItsOwn(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
	id := f.session()
	f.ask(id, "hello")
	type sums struct{ tree, session model.Usage }
	got, err := query(t.Context(), f.Hub, id, func(m *machine) (sums, error) {
		root, fresh := m.s.LastRun.RunID, &forest{}
		fresh.want(root, m.s, 0)
		return sums{fresh.others(root, &session.Run{ID: "next"}), m.s.Usage}, nil
	})
	if err != nil || got.tree != got.session || got.tree == (model.Usage{}) {
		t.Errorf("the tree and the session have used %+v, %v", got, err)
	}
	f.stop()
}

// gated answers what tells a child's end once it may.
type gated struct {
	offline.Model
	open chan struct{}
}

func (g gated) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	whole, done, err := req.Loaded(0)
	if err == nil {
		done()
	}
	if last := whole.Messages[len(whole.Messages)-1]; strings.HasPrefix(last.Text, "[ses-") {
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
	return g.Model.Stream(ctx, req)
}

// A run that a child's end has begun, and that answers while the daemon stops, counts in its tree under the next one:
// the sessions that are to keep what it has used took nothing in any more.
func TestARunThatAnswersAsTheDaemonStopsCountsInItsTree(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hangs, gate := hangsIn(make(chan struct{})), gated{open: make(chan struct{})}
		f := newFamily(t, session.OSDisk{}, dir, gate, hangs, newHearing(), nil)
		id := f.session()
		below := `{\"background\":true,\"prompt\":\"!t.x\\n!t.x\"}` // which the session itself keeps nothing of
		a, err := f.start(id, agentCall(`{"background":true,"prompt":"!agent `+below+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun, err := query(t.Context(), f.Hub, id, func(m *machine) (string, error) { return m.s.Run.ID, nil })
		if err != nil || begun == a.RunID {
			t.Fatalf("the run is %s, %v, want one that the child's end has begun", begun, err)
		}
		stopped := make(chan struct{})
		go func() {
			f.stop()
			close(stopped)
		}()
		synctest.Wait()
		close(gate.open)
		<-stopped
		f = newFamily(t, session.OSDisk{}, dir, gate, hangs, newHearing(), nil)
		<-f.takenUp
		synctest.Wait()
		ended, err := query(t.Context(), f.Hub, id, func(m *machine) (*session.Ended, error) {
			ended, _ := m.s.Ended(begun)
			return ended, nil
		})
		if err != nil || ended == nil || ended.StopReason != protocol.StopCompleted {
			t.Fatalf("the run has ended with %+v, %v, want an answer", ended, err)
		}
		f.env.forest.use(a.RunID, func(tree *tree) {
			if u := tree.uses[begun]; u == nil || u.used != ended.Usage || u.used == (model.Usage{}) {
				t.Errorf("the run counts %+v in its tree, and has used %+v", u, ended.Usage)
			}
		})
		f.stop()
	})
}

// chained has the first child's end answered with another child in the background.
type chained struct{ offline.Model }

func (c chained) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	whole, done, err := req.Loaded(0)
	if err == nil {
		done()
	}
	if last := whole.Messages[len(whole.Messages)-1]; !strings.HasPrefix(last.Text, "[ses-") ||
		!strings.Contains(last.Text, `"the first"`) {
		return c.Model.Stream(ctx, req)
	}
	return func(yield func(model.Delta, error) bool) {
		_ = yield(model.Delta{ToolCall: &model.ToolCall{
			Name: "agent", Arguments: []byte(`{"background":true,"prompt":` +
				`"!agent {\"background\":true,\"prompt\":\"!t.x\\n!t.x\"}"}`),
		}}, nil) && yield(model.Delta{Stop: model.StopToolCalls}, nil)
	}
}

// A child learns what its tree has used before it, as it may be all that is left of the tree: the next daemon counts
// that, too.
func TestWhatEndedBeforeAChildIsCountedAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hangs := hangsIn(make(chan struct{}))
		f := newFamily(t, session.OSDisk{}, dir, chained{}, hangs, newHearing(), nil)
		id := f.session()
		a, err := f.start(id, agentCall(`{"background":true,"prompt":"hello","description":"the first"}`))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.busy(id) {
			t.Fatal("the session waits for a child: its own journal keeps what the tree has used")
		}
		used := func() model.Usage { return f.env.forest.others(a.RunID, &session.Run{}) }
		before := used()
		f.stop()
		f = newFamily(t, session.OSDisk{}, dir, chained{}, hangs, newHearing(), nil)
		<-f.takenUp
		if after := used(); after != before || after == (model.Usage{}) {
			t.Errorf("the tree has used %+v, and %+v before the restart", after, before)
		}
		f.stop()
	})
}

// What a tree has used stays known while the journal of one of its sessions fails, also where its runs are over and a
// child in the background is all that was left of it: the run that the child's end begins is held to what its tree may
// cost (found by the simulator).
func TestATreeIsKnownWhileAJournalFails(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, ends := &fullDisk{}, make(chan struct{})
		tool := func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			<-ends
			return model.ToolResult{OK: true, Text: "done"}
		}
		f := newFamily(t, disk, dir, offline.Model{}, tool, newHearing(), nil)
		id := f.session()
		a, err := f.start(id, agentCall(`{"prompt":"!agent {\"background\":true,\"prompt\":\"!t.x\"}"}`))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		middle, err := query(t.Context(), f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
		if err != nil {
			t.Fatal(err)
		}
		used := func() (root model.Usage) {
			f.env.forest.mu.Lock()
			defer f.env.forest.mu.Unlock()
			if tr := f.env.forest.trees[a.RunID]; tr != nil && tr.uses[a.RunID] != nil {
				root = tr.uses[a.RunID].used
			}
			return root
		}
		before := used()
		disk.full.Store(&middle)
		close(ends)
		synctest.Wait()
		if after := used(); after != before || after == (model.Usage{}) {
			t.Errorf("its root has used %+v, and %+v before the journal failed", after, before)
		}
		disk.full.Store(nil)
		time.Sleep(3 * maxRepair) // it is opened again, and well
		if after := used(); after != (model.Usage{}) {
			t.Errorf("the tree is kept though nothing of it is left: its root has used %+v", after)
		}
		f.stop()
	})
}
