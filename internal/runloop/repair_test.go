package runloop

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/session"
)

// shy is a disk that cannot open journals for a while.
type shy struct {
	session.OSDisk
	left atomic.Int64 // times that it fails
}

func (d *shy) Open(path string) (*os.File, error) {
	if d.left.Add(-1) >= 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
	}
	return d.OSDisk.Open(path)
}

// A run that a former daemon has left goes on although its session could not be opened at
// the start, and nobody has asked for it since.
func TestARunGoesOnOnceItsSessionCanBeOpened(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		events := newRecorder()
		waits := func(ctx context.Context, _ model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
			<-ctx.Done()
			return model.Failed(model.Interrupted, "the daemon stops")
		}
		f := newFixture(t, dir, offline.Model{}, waits, events)
		a, err := f.start(f.session(), "!t.x")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.stop()

		disk := &shy{}
		disk.left.Store(3)
		f = newFixtureOn(t, disk, dir, offline.Model{}, echoTool, events)
		events.wait(a.RunID)
		f.stop()
		if n := f.faults.Load(); n != 3 {
			t.Errorf("%d faults were reported, want the 3 of the disk", n)
		}
	})
}
