package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/lock"
)

// moody is a disk whose syncs and cuts fail while it is bad.
type moody struct {
	OSDisk
	bad bool
}

var errMood = errors.New("the disk is in a bad mood")

func (d *moody) Sync(f *os.File) error {
	if d.bad {
		return errMood
	}
	return d.OSDisk.Sync(f)
}

func (d *moody) Truncate(f *os.File, size int64) error {
	if d.bad {
		return errMood
	}
	return d.OSDisk.Truncate(f, size)
}

// A text that was refused, because the disk could not keep it, is not delivered
// later, though the disk could not even be cleared of it at once.
func TestWhatWasRefusedIsNotFoundLater(t *testing.T) {
	disk := &moody{}
	store, err := OpenOn(disk, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, j, err := store.Create("ses-1", life()[:1])
	if err != nil {
		t.Fatal(err)
	}
	disk.bad = true
	if err := j.Append(life()[1:2]); !errors.Is(err, errMood) {
		t.Fatalf("got %v, want the text refused", err)
	}
	_ = j.Close()
	if _, j, _, err := store.Load(context.Background(), "ses-1"); err == nil {
		_ = j.Close()
		t.Error("the session is open with what was refused in it")
	}
	disk.bad = false
	for range 2 {
		s, j, _, err := store.Load(context.Background(), "ses-1")
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Pending) > 0 {
			t.Errorf("owed is %+v, which was refused", s.Pending)
		}
		_ = j.Close()
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// Nothing is accepted in a state directory that is this daemon's no longer, and
// nothing is written over what another daemon may have there by now.
func TestAStateDirectoryThatWasTakenAway(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"removed":      os.RemoveAll,
		"moved":        func(dir string) error { return os.Rename(dir, dir+".old") },
		"lock removed": func(dir string) error { return os.Remove(filepath.Join(dir, "lock")) },
		"lock of another": func(dir string) error {
			path := filepath.Join(dir, "lock")
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("1"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			store, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, j, err := store.Create("ses-1", life()[:1])
			if err != nil {
				t.Fatal(err)
			}
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			refused := func(what string, err error) {
				t.Helper()
				var lost *lock.LostError
				if !errors.As(err, &lost) || !strings.Contains(err.Error(), filepath.Join(dir, "lock")) {
					t.Errorf("%s: got %v, want an error that names the lock", what, err)
				}
			}
			refused("append", j.Append(life()[1:2]))
			_ = j.Close()
			_, _, err = store.Create("ses-2", []Record{{t0, Created{SessionID: "ses-2"}}})
			refused("create", err)
			_, _, _, err = store.Load(context.Background(), "ses-1")
			refused("load", err)
			refused("switch", store.SetActive("ses-1", t0))
			refused("delete", store.Delete("ses-1", t0))
			if name == "moved" { // and back
				if err := os.Rename(dir+".old", dir); err != nil {
					t.Fatal(err)
				}
				s, j, _, err := store.Load(context.Background(), "ses-1")
				if err != nil || len(s.Pending) > 0 {
					t.Errorf("moved back: got %v, %v, want it as it was", s, err)
				} else {
					_ = j.Close()
				}
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAJournalThatWasRemoved(t *testing.T) {
	store, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, j, err := store.Create("ses-1", life()[:1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(store.path("ses-1")); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(life()[1:2]); !errors.Is(err, errRemoved) {
		t.Errorf("got %v, want it refused", err)
	}
	if _, _, _, err := store.Load(context.Background(), "ses-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want no session", err)
	}
	_ = j.Close()
	_ = store.Close()
}

// BenchmarkGuard is what every commit pays for it.
func BenchmarkGuard(b *testing.B) {
	store, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	_, j, err := store.Create("ses-1", life()[:1])
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := store.guard.check(j.f); err != nil {
			b.Fatal(err)
		}
	}
	_ = j.Close()
	_ = store.Close()
}
