package runloop

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
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

// sender gives all that it is told to a child in the background.
type sender struct{ offline.Model }

func (s sender) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	whole, done, err := req.Loaded(0)
	if err == nil {
		done()
	}
	last := whole.Messages[len(whole.Messages)-1]
	if last.Role != model.User || last.Text == "the work" {
		return s.Model.Stream(ctx, req)
	}
	return func(yield func(model.Delta, error) bool) {
		_ = yield(model.Delta{ToolCall: &model.ToolCall{
			Name: "agent", Arguments: []byte(`{"prompt":"the work","background":true}`),
		}}, nil) && yield(model.Delta{Stop: model.StopToolCalls}, nil)
	}
}

// few bounds the children of a tree.
func few(total int) func(*Options) { return func(o *Options) { o.Children.Total = total } }

// A run that the end of a child in the background has begun is of the child's tree: what bounds that ends a chain of
// such runs. Each had bounds and a budget of its own, and so 50 children could become 2,550.
func TestRunsThatChildrenHaveBegunAreOfTheirTree(t *testing.T) {
	heard, ends := newHearing(), make(chan string, 100)
	heard.notify = func(ev protocol.Event) {
		if _, ended := ev.(protocol.AgentEnd); ended {
			ends <- ev.Where().SessionID
		}
	}
	const total = 5
	f := newFamily(t, session.OSDisk{}, t.TempDir(), sender{}, echoTool, heard, few(total))
	id := f.session()
	f.ask(id, "begin")
	for n := 0; n < 1+total; { // its own, and that of each child's end
		if <-ends == id {
			n++
		}
	}
	count := func(m *machine) (int, error) { return len(m.s.Children), nil }
	children, err := query(context.Background(), f.Hub, id, count)
	if err != nil || children != total {
		t.Errorf("it has %d children, %v, want %d", children, err, total)
	}
	f.stop()
	heard.check(t)
}

// A run that ends while its session is about to be deleted may have made a child: the session
// stays, unless its children are to go with it (found by the simulator).
func TestAChildThatIsMadeMeanwhileIsNoOrphan(t *testing.T) {
	heard, ends := newHearing(), make(chan string, 100)
	heard.notify = func(ev protocol.Event) {
		if _, ended := ev.(protocol.AgentEnd); ended {
			ends <- ev.Where().SessionID
		}
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), sender{}, echoTool, heard, few(1))
	id := f.session()
	f.ask(id, "begin")
	for n := 0; n < 2; {
		if <-ends == id {
			n++
		}
	}
	ctx := context.Background()
	err := f.deleteAlone(ctx, id) // as if it had had none before
	var wire *protocol.Error
	if !errors.As(err, &wire) || wire.Reason() != protocol.HasChildren {
		t.Errorf("got %v, want that it has a child", err)
	}
	if _, err := f.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: id, Children: true}); err != nil {
		t.Error(err)
	}
	if ids, err := f.env.Store.IDs(); err != nil || slices.Contains(ids, id) || len(ids) > 1 { // one is the active one
		t.Errorf("left are %v, %v", ids, err)
	}
	f.stop()
	heard.check(t)
}

// gatedDisk makes no further session while it is shut.
type gatedDisk struct {
	session.OSDisk
	gate atomic.Pointer[chan struct{}] // nil: it is open
}

func (d *gatedDisk) Create(path string) (*os.File, error) {
	if gate := d.gate.Load(); gate != nil && strings.HasPrefix(filepath.Base(path), "ses-") {
		<-*gate
	}
	return d.OSDisk.Create(path)
}

// So it is where a child in the background was being made as its parent was deleted (found by the simulator).
func TestAChildThatIsMadeAsItsParentIsDeletedIsNoOrphan(t *testing.T) {
	for _, with := range []bool{false, true} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			disk, gate := &gatedDisk{}, make(chan struct{})
			f := newFamily(t, disk, dir, offline.Model{}, echoTool, newHearing(), nil)
			id := f.session()
			disk.gate.Store(&gate)
			f.ask(id, agentCall(`{"background":true,"prompt":"hi"}`))
			synctest.Wait() // the child is being made
			deleted := make(chan error)
			go func() {
				_, err := f.deleteSession(t.Context(), protocol.DeleteSessionParams{SessionID: id, Children: with})
				deleted <- err
			}()
			synctest.Wait() // for it to be made
			disk.gate.Store(nil)
			close(gate)
			var wire *protocol.Error
			err := <-deleted
			refused := errors.As(err, &wire) && wire.Reason() == protocol.HasChildren
			working := errors.As(err, &wire) && wire.Reason() == protocol.RunInProgress // the child
			if with != (err == nil || working) || with == refused {
				t.Errorf("children %v: got %v", with, err)
			}
			ids, err := f.env.Store.IDs()
			if err != nil {
				t.Error(err)
			}
			for _, left := range ids {
				s, err := f.env.Store.Peek(t.Context(), left)
				if err != nil || s.Parent != nil && !slices.Contains(ids, s.Parent.SessionID) {
					t.Errorf("children %v: session %s has lost its parent, %v", with, left, err)
				}
			}
			f.stop()
		})
	}
}

// A child in the background that was being made begins also where the delete of its parent was refused since it is
// there: the parent's loop had ended for that, and nobody opens it again.
func TestAChildBeginsAfterARefusedDelete(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, gate := &gatedDisk{}, make(chan struct{})
		f := newFamily(t, disk, dir, offline.Model{}, echoTool, newHearing(), nil)
		id := f.session()
		disk.gate.Store(&gate)
		f.ask(id, agentCall(`{"background":true,"prompt":"hi"}`))
		synctest.Wait() // the child is being made
		deleted := make(chan error)
		go func() {
			_, err := f.deleteSession(t.Context(), protocol.DeleteSessionParams{SessionID: id})
			deleted <- err
		}()
		synctest.Wait() // for it to be made
		disk.gate.Store(nil)
		close(gate)
		if err := <-deleted; err == nil {
			t.Error("the parent is deleted")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s, err := f.env.Store.Peek(t.Context(), id)
		if err != nil || len(s.Background) > 0 {
			t.Errorf("after ten minutes its parent still waits for %+v, %v", s.Background, err)
		}
		f.stop()
	})
}

// lockable is a disk on which all journals but one can be locked away.
type lockable struct {
	session.OSDisk
	but atomic.Pointer[string] // nil: none is
}

func (d *lockable) locked(path string) bool {
	but := d.but.Load()
	return but != nil && !strings.Contains(path, *but)
}

func (d *lockable) Open(path string) (*os.File, error) {
	if d.locked(path) {
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.EACCES}
	}
	return d.OSDisk.Open(path)
}

func (d *lockable) Write(f *os.File, text []byte) (int, error) {
	if d.locked(f.Name()) {
		return 0, unix.EIO
	}
	return d.OSDisk.Write(f, text)
}

// An abort ends although a child cannot be stopped, as its journal can be neither written nor opened, and
// the call's result says so.
func TestAnAbortEndsWithoutAChildThatIsLockedAway(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, begun := &lockable{}, make(chan struct{})
		f := newFamily(t, disk, dir, offline.Model{}, hangsIn(begun), newHearing(), nil)
		id := f.session()
		a, err := f.start(id, agentCall(`{"prompt":"!t.x"}`))
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		disk.but.Store(&id)
		f.abort(id)
		f.events.wait(a.RunID)
		texts, err := query(context.Background(), f.Hub, id, func(m *machine) (string, error) {
			return string(m.s.LastRun.StopReason), nil
		})
		if err != nil || texts != string(protocol.StopAborted) {
			t.Errorf("the run ended %q, %v", texts, err)
		}
		disk.but.Store(nil)
		f.stop()
	})
}

// An abort reaches a child at once whose journal had failed a moment before: its session may have been opened again by
// somebody else, and it went on until the parent looked for it, up to a second later (found by the simulator).
func TestAnAbortLooksForAChildAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, begun := &fullDisk{}, make(chan struct{})
		f := newFamily(t, disk, dir, offline.Model{}, hangsIn(begun), newHearing(), nil)
		id := f.session()
		a, err := f.start(id, agentCall(`{"prompt":"!t.x"}`))
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		child, err := query(t.Context(), f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
		if err != nil {
			t.Fatal(err)
		}
		disk.full.Store(&child)
		if _, err := answered(f.queue(t.Context(), protocol.KindSteer, protocol.SteerParams{
			Scope: protocol.Scope{SessionID: child}, Text: "hm",
		})); err == nil {
			t.Error("the child has taken a text that its journal has no room for")
		}
		synctest.Wait() // its parent has looked for it, and will again in a second
		disk.full.Store(nil)
		before := time.Now()
		f.abort(id)
		f.events.wait(a.RunID)
		if took := time.Since(before); took >= childRetry {
			t.Errorf("the abort took %v", took)
		}
		f.stop()
	})
}
