package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// plant puts something that is no regular file where a reader will look.
func plant(t *testing.T, path, what string) {
	t.Helper()
	var err error
	switch what {
	case "fifo":
		err = unix.Mkfifo(path, 0o600)
	case "folder":
		err = os.Mkdir(path, 0o700)
	default:
		err = os.Symlink(what, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever is planted among the sessions, a link to /dev/zero or a FIFO for one,
// nobody reads it for ever or waits for it, and the other sessions are there.
func TestWhatIsPlantedAmongTheSessionsIsNotFollowed(t *testing.T) {
	for _, what := range []string{"/dev/zero", "fifo", "folder", "ses-1.jsonl"} {
		t.Run(filepath.Base(what), func(t *testing.T) {
			store := open(t, OSDisk{}, t.TempDir())
			create(t, store, "ses-1")
			plant(t, store.path("ses-9"), what)
			_, _, _, err := store.Load(context.Background(), "ses-9")
			refused := func(by string, err error) {
				t.Helper()
				if !errors.Is(err, regular.ErrLink) && !errors.Is(err, regular.ErrKind) {
					t.Errorf("%s: got %v", by, err)
				}
			}
			refused("Load", err)
			_, err = store.Peek(context.Background(), "ses-9")
			refused("Peek", err)
			search, err := NewSearch("x")
			if err != nil {
				t.Fatal(err)
			}
			refused("Find", store.Find(context.Background(), "ses-9", search, func(Hit) bool { return true }))
			_, err = Inspect(store.path("ses-9"))
			refused("Inspect", err)
			if err := store.Unfinished(context.Background(), func(id string, _ bool) {
				if id == "ses-9" {
					t.Error("it is taken for a run to resume")
				}
			}); err != nil {
				t.Error(err)
			}
			if active, err := store.Active(); active != "ses-1" || err != nil {
				t.Errorf("the active session is %q, %v", active, err)
			}
		})
	}
}

func TestThePlantedActiveFileIsNotFollowed(t *testing.T) {
	for _, what := range []string{"/dev/zero", "fifo", "elsewhere"} {
		store := open(t, OSDisk{}, t.TempDir())
		create(t, store, "ses-1")
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(store.dir, activeName)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		plant(t, path, what)
		store, err := Open(store.dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if _, err := store.Active(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names %s", what, err, path)
		}
		if _, err := os.Stat(filepath.Join(store.dir, "elsewhere")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file that the link names was made", what)
		}
	}
}

// A line that no record fits into costs its own length on the disk only.
func TestALineThatIsTooLongIsSkipped(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	create(t, store, "ses-1")
	f, err := os.OpenFile(store.path("ses-1"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	after := append([]byte{'\n'}, lines(t, []Record{{t0, ModeSet{Kind: "steer", Mode: "all"}}})...)
	if _, err := f.WriteAt(after, end+maxRecord+1); err != nil { // a hole of zeroes
		t.Fatal(err)
	}
	state, err := store.Peek(context.Background(), "ses-1")
	if err != nil || state.SteeringMode != "all" {
		t.Errorf("got mode %v, %v: what came after the line is lost", state, err)
	}
	_, j, problems, err := store.Load(context.Background(), "ses-1")
	if err != nil || len(problems) != 1 || !errors.Is(problems[0].Err, errLong) || problems[0].Offset != end {
		t.Fatalf("got %v, %v", problems, err)
	}
	if err := j.Append([]Record{{t0, ModeSet{Kind: "follow_up", Mode: "all"}}}); err != nil {
		t.Error(err)
	}
	_ = j.Close()
}
