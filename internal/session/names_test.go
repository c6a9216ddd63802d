package session

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// naming is a disk that knows the folders whose names it was told to make durable.
type naming struct {
	OSDisk
	synced []string
}

func (d *naming) SyncDir(dir string) error {
	d.synced = append(d.synced, dir)
	return nil
}

// After a power failure a session is as gone as its folder, and a session that was made
// without becoming the active one is that all the same where the note of it has lost its
// name (found by the simulator).
func TestNamesAreDurableBeforeWhatTheyLeadTo(t *testing.T) {
	disk, dir := &naming{}, filepath.Join(t.TempDir(), "state")
	store, err := OpenOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if want := []string{dir, filepath.Dir(dir)}; !slices.Equal(disk.synced, want) {
		t.Errorf("of a new state directory the names in %q are durable, want %q", disk.synced, want)
	}
	for i, id := range []string{"ses-1", "ses-2"} {
		disk.synced = nil
		_, j, err := store.CreateAside(id, []Record{{At: time.Now(), Fact: Created{SessionID: id}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if named := slices.Contains(disk.synced, dir); named != (i == 0) {
			t.Errorf("the note that %s is not the active session: its name was made durable: %t", id, named)
		}
	}
}
