package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each step is a daemon of its own, as in TestActiveSessionSurvives.
func TestActiveSessionAfterDeleting(t *testing.T) {
	create := func(id string) func(*Store) error {
		return func(s *Store) error {
			_, j, err := s.Create(id, []Record{{t0, Created{SessionID: id}}})
			if err != nil {
				return err
			}
			return j.Close()
		}
	}
	remove := func(id string) func(*Store) error {
		return func(s *Store) error { return s.Delete(id, t0) }
	}
	choose := func(id string) func(*Store) error {
		return func(s *Store) error { return s.SetActive(id, t0) }
	}
	dir := t.TempDir()
	for i, step := range []struct {
		do   func(*Store) error
		want string
		left []string
	}{
		{create("ses-1"), "ses-1", []string{"ses-1"}},
		{remove("ses-1"), "", nil},
		{create("ses-2"), "ses-2", []string{"ses-2"}},
		{create("ses-4"), "ses-4", []string{"ses-4", "ses-2"}},
		{remove("ses-2"), "ses-4", []string{"ses-4"}}, // another one
		{create("ses-5"), "ses-5", []string{"ses-5", "ses-4"}},
		{remove("ses-5"), "ses-4", []string{"ses-4"}}, // the active one
		{create("ses-3"), "ses-3", []string{"ses-4", "ses-3"}},
		{create("ses-44"), "ses-44", []string{"ses-44", "ses-4", "ses-3"}}, // the clock is behind ses-5
		{choose("ses-3"), "ses-3", []string{"ses-44", "ses-4", "ses-3"}},
		{remove("ses-4"), "ses-3", []string{"ses-44", "ses-3"}},
		{remove("ses-3"), "ses-44", []string{"ses-44"}},
		{remove("ses-44"), "", nil},
	} {
		store, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := step.do(store); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got, err := store.Active(); got != step.want || err != nil {
			t.Errorf("step %d: active: got %q, %v; want %q", i, got, err, step.want)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if store, err = Open(dir); err != nil {
			t.Fatal(err)
		}
		ids, err := store.IDs()
		if !slices.Equal(ids, step.left) || err != nil {
			t.Errorf("step %d: left: got %v, %v; want %v", i, ids, err, step.left)
		}
		if got, err := store.Active(); got != step.want || err != nil {
			t.Errorf("step %d: active at the next start: got %q, %v; want %q", i, got, err, step.want)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeleteTakesWhatIsTheSessionsAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	others := []string{"ses-10.jsonl", "ses-1-a.jsonl", "notes.txt", "ses-10.jsonl.damaged", "ses-2.jsonl"}
	for _, name := range append([]string{"ses-1.jsonl.damaged", "ses-1.index"}, others...) {
		if err := os.WriteFile(filepath.Join(dir, sessionsName, name), lines(t, life()[:1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, j, err := store.Create("ses-1", []Record{{t0, Created{SessionID: "ses-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	for _, id := range []string{
		"", ".", "..", "../lock", "../sessions/ses-1", "ses-1.jsonl", "ses-1/", "ses-3",
		"ses-1\x00",
	} {
		if err := store.Delete(id, t0); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: got %v, want that it is not there", id, err)
		}
	}
	if err := store.Delete("ses-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete("ses-1", time.Now()); !errors.Is(err, ErrNotFound) {
		t.Errorf("once more: got %v, want that it is not there", err)
	}
	files, err := os.ReadDir(filepath.Join(dir, sessionsName))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, f := range files {
		left = append(left, f.Name())
	}
	slices.Sort(others)
	if !slices.Equal(left, others) {
		t.Errorf("left: got %v, want %v", left, others)
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
		t.Error(err)
	}
}

// onSync calls a function each time that a directory is to be made durable.
type onSync struct {
	OSDisk
	call func()
}

func (d *onSync) SyncDir(dir string) error {
	d.call()
	return d.OSDisk.SyncDir(dir)
}

// A daemon that is killed while it deletes a session leaves the whole of it, or
// none of it: never the texts without their images.
func TestAKillInsideADeletionLeavesNoHalfSession(t *testing.T) {
	disk, dir := &onSync{call: func() {}}, t.TempDir()
	store := open(t, disk, dir)
	create(t, store, "ses-1")
	if _, err := store.KeepImages("ses-1", []Image{image("one")}); err != nil {
		t.Fatal(err)
	}
	crash := t.TempDir()
	disk.call = func() {
		disk.call = func() {}
		if err := os.CopyFS(filepath.Join(crash, sessionsName), os.DirFS(filepath.Join(dir, sessionsName))); err != nil {
			t.Error(err)
		}
		if len(under(t, store.FilesDir("ses-1"))) == 0 {
			t.Error("the images are gone before it is durable that the session is")
		}
	}
	if err := store.Delete("ses-1", t0); err != nil {
		t.Fatal(err)
	}
	if left := under(t, filepath.Join(dir, sessionsName)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	next := open(t, OSDisk{}, crash)
	if active, err := next.Active(); active != "" || err != nil {
		t.Errorf("the next daemon has the session %q, %v", active, err)
	}
	if left := under(t, filepath.Join(crash, sessionsName)); len(left) > 0 {
		t.Errorf("the next daemon leaves %v", left)
	}
}

// deleting deletes a session while its image is read.
type deleting struct {
	store *Store
	err   error
	text  *strings.Reader
}

func (d *deleting) Read(p []byte) (int, error) {
	if d.store != nil {
		d.err = d.store.Delete("ses-1", t0)
		d.store = nil
	}
	return d.text.Read(p)
}

// A session that is deleted while images are kept for it is gone, with them, and
// nobody hears of files that were removed twice.
func TestDeletingRacesWithImages(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	create(t, store, "ses-1")
	content := &deleting{store: store, text: strings.NewReader("one")}
	_, err := store.KeepImages("ses-1", []Image{{MediaType: "image/png", Size: 3, Content: content}})
	if !errors.Is(err, ErrNotFound) || content.err != nil {
		t.Errorf("KeepImages: got %v, Delete: %v", err, content.err)
	}
	for range 100 {
		create(t, store, "ses-1")
		kept := make(chan error)
		go func() {
			_, err := store.KeepImages("ses-1", []Image{image("one"), image("two")})
			kept <- err
		}()
		if err := store.Delete("ses-1", t0); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		if err := <-kept; err != nil && err.Error() != ErrNotFound.Error() {
			t.Fatalf("KeepImages: %v", err)
		}
		if left := under(t, filepath.Join(store.dir, sessionsName)); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
}
