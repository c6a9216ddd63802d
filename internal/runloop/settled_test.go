package runloop

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// unsynced is a disk that knows whether journals have what a power failure would take.
type unsynced struct {
	session.OSDisk
	mu    sync.Mutex
	dirty bool
}

func (d *unsynced) set(dirty bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = dirty
}

func (d *unsynced) Write(f *os.File, text []byte) (int, error) {
	d.set(true)
	return d.OSDisk.Write(f, text)
}

func (d *unsynced) Sync(f *os.File) error {
	d.set(false)
	return d.OSDisk.Sync(f)
}

// settling records that every turn changes something, and what is not on the disk when the
// record of the folder is thrown away.
type settling struct {
	Changes
	disk *unsynced
	lost int
	kept int
}

func (*settling) Warm(context.Context, string, string)                 {}
func (*settling) Before(context.Context, string, string, string) error { return nil }
func (*settling) After(context.Context, string, string, string) (model.Recorded, error) {
	return model.Recorded{Changes: "0123", Files: 1}, nil
}

func (s *settling) Settle(string, string) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.kept++
	if s.disk.dirty {
		s.lost++
	}
}

// What a turn has changed in its folder is on the disk before the record is thrown away that
// it was found out from: else a power failure between two turns of a run leaves neither, and no
// rewind takes it back (found by the simulator).
func TestWhatATurnHasChangedIsOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, called, end := context.Background(), make(chan struct{}), make(chan struct{})
		tool := func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			close(called)
			<-end
			return model.ToolResult{OK: true, Text: "done"}
		}
		disk := &unsynced{}
		changes := &settling{disk: disk}
		f := newFixtureWith(t, disk, dir, offline.Model{}, tool, newRecorder(), func(o *Options) { o.Changes = changes })
		scope := protocol.Scope{SessionID: f.session()}
		first, err := answered(f.prompt(ctx, protocol.PromptParams{Scope: scope, Text: "go\n!t.x", Wait: no}))
		if err != nil {
			t.Fatal(err)
		}
		<-called
		next := protocol.PromptParams{Scope: scope, Text: "and then", Wait: no, StreamingBehavior: protocol.KindFollowUp}
		if _, err := answered(f.prompt(ctx, next)); err != nil {
			t.Fatal(err)
		}
		close(end)
		f.events.wait(first.Accepted.RunID)
		f.stop()
		if changes.lost > 0 || changes.kept == 0 {
			t.Errorf("of %d turns %d were not on the disk", changes.kept, changes.lost)
		}
	})
}
