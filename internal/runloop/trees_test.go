package runloop

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A child works on while its parent's journal is opened again after a fault, and keeps its place: others had it, and
// more worked than may at a time (found by the simulator).
func TestAChildKeepsItsPlaceWhileItsParentIsOpenedAgain(t *testing.T) {
	heard, begun, resumed := newHearing(), make(chan struct{}), make(chan int, 1)
	disk := new(failing)
	f := newFamily(t, disk, t.TempDir(), offline.Model{}, hangsIn(begun), heard, nil)
	id, ctx := f.session(), context.Background()
	a, err := f.start(id, agentCall(`{"prompt":"!t.x"}`))
	if err != nil {
		t.Fatal(err)
	}
	places := func() (n int) {
		f.env.forest.use(a.RunID, func(t *tree) { n = t.working() })
		return n
	}
	<-begun
	heard.mu.Lock()
	heard.notify = func(ev protocol.Event) {
		if s, ok := ev.(protocol.Status); ok && s.Code == protocol.StatusRunResumed {
			resumed <- places()
		}
	}
	heard.mu.Unlock()
	disk.next.Store(true)
	if _, err := f.request(ctx, id, func(to ticket) input { return titleIn{to, "x"} }); err == nil {
		t.Fatal("the disk has not failed")
	}
	if n := <-resumed; n != 1 {
		t.Errorf("%d children have a place, want the one that works", n)
	}
	f.abort(id)
	f.events.wait(a.RunID)
	if n := places(); n != 0 {
		t.Errorf("%d places are taken, and no child works", n)
	}
	f.stop()
	heard.check(t)
}

// What works in the background is of the tree that its call was in, also when the run of the call is over: it had a
// tree of its own, with places of its own (found by the simulator).
func TestAChildInTheBackgroundStaysInItsTree(t *testing.T) {
	w := newWorld(t)
	w.step(childRunIn{nil, "run-a", &childStart{text: "go", root: "run-top"}})
	w.delegates(`{"prompt":"x","background":true}`)
	w.finish()
	if len(w.m.s.Background) != 1 {
		t.Fatalf("in the background are %v", w.m.s.Background)
	}
	w.m.startChild(w.m.s.Background[0])
	if b := w.m.out.children[0].birth; b.root != "run-top" || b.start.root != "run-top" {
		t.Errorf("it is of the trees of %s and %s", b.root, b.start.root)
	}
}

// No child is begun before it is known which ones a former daemon has left: they were not counted, and the tree had
// more than it may (found by the simulator).
func TestAChildIsCountedWithThoseOfAFormerDaemon(t *testing.T) {
	w, known := newWorld(t), false
	w.m.treesKnown = func() bool { return known }
	begun := func() bool {
		return slices.ContainsFunc(w.records, func(r session.Record) bool {
			_, ok := r.Fact.(session.ChildStarted)
			return ok
		})
	}
	w.prompt("go")
	w.delegates(`{"prompt":"x"}`)
	if w.work.look == nil || !w.work.look.trees || begun() {
		t.Fatalf("it does not wait for the others: %+v", w.work)
	}
	known = true
	w.step(treesKnownIn{w.work.gen})
	if !begun() || w.work.child == nil {
		t.Errorf("it is not begun: %+v", w.work)
	}
}

// A child in the background is looked at before others of its tree are begun, as it says how many children it has had,
// though it has ended: they were not counted (found by the simulator).
func TestAChildThatHasEndedIsLookedAtBeforeOthersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, known := newDelegate(childWork{}), false
		l := &loop{unseen: []<-chan struct{}{d.seen}, done: make(chan struct{})}
		go func() {
			l.awaitSeen(t.Context())
			known = true
		}()
		synctest.Wait()
		if known {
			t.Error("nobody has looked")
		}
		d.see()
		synctest.Wait()
		if !known {
			t.Error("somebody has looked")
		}
	})
}
