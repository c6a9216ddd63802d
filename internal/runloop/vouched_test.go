package runloop

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// counting is a disk that knows how often journals were synced, and whose syncs may fail.
type counting struct {
	session.OSDisk
	mu     sync.Mutex
	synced int
	fails  error
}

func (d *counting) Sync(*os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced++
	return d.fails
}

func (d *counting) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced
}

func (d *counting) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = err
}

// A former daemon may have been killed between its write and its sync. Who sends a text
// again is answered when it is on the disk, not when it could be read: the power may fail
// next (wire-v1 §7; found by the simulator).
func TestAnAnswerThatIsRepeatedIsOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		f := newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
		p := protocol.PromptParams{
			Scope: protocol.Scope{SessionID: f.session()}, Text: "hello", IdempotencyKey: "k", Wait: no,
		}
		first, err := answered(f.prompt(ctx, p))
		if err != nil {
			t.Fatal(err)
		}
		f.events.wait(first.Accepted.RunID)
		f.stop()

		disk := &counting{}
		f = newFixtureOn(t, disk, dir, offline.Model{}, echoTool, newRecorder())
		for range 2 {
			if _, err := answered(f.prompt(ctx, p)); err != nil {
				t.Fatal(err)
			}
		}
		if n := disk.count(); n != 1 {
			t.Errorf("the journal was synced %d times before the two answers, want once", n)
		}
		f.stop()
	})
}

// A child is deleted once its parent has its answer on the disk: after a power failure the parent made it again, and
// had its work done twice (found by the simulator).
func TestAChildIsDeletedOnceItsAnswerIsOnTheDisk(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, echoTool, newHearing(), nil)
	id := f.session()
	a, err := f.start(id, agentCall(`{"prompt":"done"}`))
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	children, err := f.childrenOf(ctx, id)
	if err != nil || len(children) != 1 {
		t.Fatalf("it has the children %v: %v", children, err)
	}
	f.stop()
	disk := &counting{}
	f = newFamily(t, disk, dir, offline.Model{}, echoTool, newHearing(), nil)
	if _, err := f.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: children[0]}); err != nil {
		t.Fatal(err)
	}
	if n := disk.count(); n != 1 {
		t.Errorf("a journal was synced %d times before the deletion, want once", n)
	}
	f.stop()
}

// A sync that fails for an answer that is repeated takes nothing back that was announced.
func TestAFailedSyncKeepsWhatWasAnnounced(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, called, end := context.Background(), make(chan struct{}), make(chan struct{})
		tool := func(_ context.Context, _ model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
			progress(model.ToolUpdate{Delta: "announced", Patch: []byte(`{"announced":true}`)})
			close(called)
			<-end
			return model.ToolResult{OK: true, Text: "done"}
		}
		disk := &counting{}
		f := newFixtureOn(t, disk, dir, offline.Model{}, tool, newRecorder())
		id := f.session()
		p := protocol.PromptParams{
			Scope: protocol.Scope{SessionID: id}, Text: "go\n!t.x", IdempotencyKey: "k", Wait: no,
		}
		first, err := answered(f.prompt(ctx, p))
		if err != nil {
			t.Fatal(err)
		}
		<-called
		before, err := f.getState(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil {
			t.Fatal(err)
		}
		disk.fail(syscall.EIO)
		_, _ = answered(f.prompt(ctx, p))
		disk.fail(nil)
		close(end)
		f.events.wait(first.Accepted.RunID)
		after, err := f.getState(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(after.SessionState), string(before.SessionState); got != want {
			t.Errorf("the session's state is %s, and %s was announced", got, want)
		}
		f.stop()
	})
}
