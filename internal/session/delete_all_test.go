package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// many makes sessions that each have an image, and one that is the active one.
func many(t *testing.T, store *Store, n int) (ids []string) {
	t.Helper()
	for i := range n {
		id := fmt.Sprint("ses-", i)
		create(t, store, id)
		if _, err := store.KeepImages(id, []Image{image("one")}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	create(t, store, "ses-active")
	return ids
}

// A daemon that is killed while it deletes many sessions leaves the whole of each, or none
// of it; the folder is made durable twice for all of them. The active one stays.
func TestAKillInsideADeletionOfManyLeavesNoHalfSession(t *testing.T) {
	disk, dir := &onSync{call: func() {}}, t.TempDir()
	store := open(t, disk, dir)
	ids := many(t, store, 5)
	crash, syncs := t.TempDir(), 0
	disk.call = func() {
		if syncs++; syncs > 1 {
			return
		}
		if err := os.CopyFS(filepath.Join(crash, sessionsName), os.DirFS(filepath.Join(dir, sessionsName))); err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			if len(under(t, store.FilesDir(id))) == 0 {
				t.Errorf("the images of %s are gone before it is durable that the session is", id)
			}
		}
	}
	gone, err := store.DeleteAll(append([]string{"ses-active", "ses-none"}, ids...))
	if err != nil || !slices.Equal(gone, ids) || syncs != 2 {
		t.Errorf("gone: %v, %v, after %d syncs; want %v after 2", gone, err, syncs, ids)
	}
	want := []string{"ses-active.jsonl"}
	if left := under(t, filepath.Join(dir, sessionsName)); !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
	next := open(t, OSDisk{}, crash)
	if active, err := next.Active(); active != "ses-active" || err != nil {
		t.Errorf("the next daemon has the session %q, %v", active, err)
	}
	if left := under(t, filepath.Join(crash, sessionsName)); !slices.Equal(left, want) {
		t.Errorf("the next daemon leaves %v", left)
	}
}

// unsyncable is a disk on which no folder can be made durable any more.
type unsyncable struct {
	OSDisk
	err error
}

func (d *unsyncable) SyncDir(dir string) error {
	if d.err != nil {
		return d.err
	}
	return d.OSDisk.SyncDir(dir)
}

// Where it is not durable that sessions are gone, they are not.
func TestNoSessionIsHalfDeletedOnADiskThatFails(t *testing.T) {
	disk, dir := &unsyncable{}, t.TempDir()
	store := open(t, disk, dir)
	ids := many(t, store, 3)
	before := under(t, filepath.Join(dir, sessionsName))
	disk.err = errors.New("the disk is broken")
	gone, err := store.DeleteAll(ids)
	if !errors.Is(err, disk.err) || len(gone) > 0 {
		t.Errorf("got %v, %v", gone, err)
	}
	if left := under(t, filepath.Join(dir, sessionsName)); !slices.Equal(left, before) {
		t.Errorf("left: %v, want %v", left, before)
	}
}
