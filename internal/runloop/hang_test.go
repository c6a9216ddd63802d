package runloop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// hanging is a disk whose syncs, once it hangs, end when it is let go.
type hanging struct {
	session.OSDisk
	hangs atomic.Bool
	let   chan struct{}
}

func (d *hanging) Sync(f *os.File) error {
	if d.hangs.Load() {
		<-d.let
	}
	return d.OSDisk.Sync(f)
}

// A daemon that is told to stop ends though the disk under one of its sessions
// hangs, and says which.
func TestADrainEndsThoughADiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &hanging{let: make(chan struct{})}
		f := newFixtureOn(t, disk, t.TempDir(), offline.Model{}, echoTool, newRecorder())
		id := f.session()
		synctest.Wait()
		disk.hangs.Store(true)
		go func() { _, _ = f.start(id, "go") }()
		synctest.Wait()
		before := time.Now()
		f.Drain(time.Second)
		if took := time.Since(before); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		if f.faults.Load() == 0 {
			t.Error("nobody is told which session was not closed")
		}
		close(disk.let)
	})
}

// A disk that is too slow for the runs to be parked in time, and not for the sessions to be closed: the run is parked
// as its session is closed. The next daemon took that for a crash (found by the simulator, seed 180002671).
func TestARunIsParkedAsItsSessionIsClosed(t *testing.T) {
	for range 8 { // a loop that can do two things does either
		synctest.Test(t, func(t *testing.T) {
			begun, disk := make(chan struct{}), &hanging{let: make(chan struct{})}
			f := newFixtureOn(t, disk, t.TempDir(), offline.Model{}, hangsIn(begun), newRecorder())
			id := f.session()
			if _, err := f.start(id, "!t.x"); err != nil {
				t.Fatal(err)
			}
			<-begun
			disk.hangs.Store(true)
			go func() {
				_, _ = answered(f.queue(context.Background(), protocol.KindFollowUp, protocol.SteerParams{
					Scope: protocol.Scope{SessionID: id}, Text: "more",
				}))
			}()
			synctest.Wait()
			time.AfterFunc(time.Second+parkTime+closeTime/2, func() { close(disk.let) })
			f.Drain(time.Second)
			if s, err := f.store.Peek(t.Context(), id); err != nil || s.Run == nil || !s.Run.Parked {
				t.Errorf("the run is not parked: %+v, %v", s.Run, err)
			}
		})
	}
}

// A session that is opened while the daemon stops is closed once its run is parked: it was closed before, and the
// next daemon took that for a crash (found by the simulator).
func TestARunThatIsTakenUpWhileTheDaemonStopsIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, dir := make(chan struct{}), filepath.Join(t.TempDir(), "killed")
		f := newFixture(t, t.TempDir(), offline.Model{}, hangsIn(begun), newRecorder())
		id := f.session()
		if _, err := f.start(id, "!t.x"); err != nil {
			t.Fatal(err)
		}
		<-begun
		if err := os.CopyFS(dir, os.DirFS(f.dir)); err != nil {
			t.Fatal(err)
		}
		disk := &hanging{let: make(chan struct{})}
		disk.hangs.Store(true)
		store, err := session.OpenOn(disk, dir)
		if err != nil {
			t.Fatal(err)
		}
		o := f.env.Options
		o.Store, o.Events = store, newRecorder()
		h := NewHub(o)
		h.update(func(s *lifecycle) { s.stage = draining })
		_, release, err := h.acquire(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		release()
		synctest.Wait()
		h.readLifecycle(func(s *lifecycle) {
			if s.resting() {
				t.Error("it may be closed, and its run is not parked")
			}
		})
		close(disk.let)
		if !h.rest(time.Minute) {
			t.Error("it may never be closed")
		}
		h.closeAll()
		if s, err := store.Peek(t.Context(), id); err != nil || s.Run == nil || !s.Run.Parked {
			t.Errorf("the run is not parked: %+v, %v", s.Run, err)
		}
	})
}

// What cannot be opened does not become the active session, whatever it is.
func TestOnlyASessionThatCanBeOpenedBecomesTheActiveOne(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id, ctx := f.session(), context.Background()
	dir := filepath.Join(f.dir, "sessions")
	for name, make := range map[string]func(path string) error{
		"ses-zero":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"ses-link":  func(path string) error { return os.Symlink(id+".jsonl", path) },
		"ses-noise": func(path string) error { return os.WriteFile(path, []byte("noise\n"), 0o600) },
		"ses-newer": func(path string) error {
			return os.WriteFile(path, []byte(
				`{"v":9,"at":"2026-01-01T00:00:00Z","type":"created","data":{"session_id":"ses-newer"}}`+"\n"), 0o600)
		},
	} {
		if err := make(filepath.Join(dir, name+".jsonl")); err != nil {
			t.Fatal(err)
		}
		var wire *protocol.Error
		_, err := f.switchSession(ctx, protocol.SwitchSessionParams{SessionID: name})
		if !errors.As(err, &wire) || wire.Code != protocol.SessionError {
			t.Errorf("switch to %s: got %v", name, err)
		}
		_, err = f.getMessages(ctx, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: name}})
		if !errors.As(err, &wire) || wire.Code != protocol.SessionError {
			t.Errorf("messages of %s: got %v", name, err)
		}
	}
	if active, err := f.store.Active(); active != id || err != nil {
		t.Errorf("the active session is %q, %v", active, err)
	}
	if list, err := answered(f.listSessions(ctx, protocol.ListSessionsParams{})); err != nil || len(list.Sessions) != 1 {
		t.Errorf("listed: %v, %v", list.Sessions, err)
	}
	if _, err := f.switchSession(ctx, protocol.SwitchSessionParams{SessionID: "ses-none"}); !gone(err) {
		t.Errorf("got %v", err)
	}
}
