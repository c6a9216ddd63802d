package lock

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Holder knows who has a lock, takes none itself, and believes no number in a file.
func TestWhoHoldsALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	is := func(what string, want int) {
		t.Helper()
		if got := Holder(path); got != want {
			t.Errorf("%s: got process %d, want %d", what, got, want)
		}
	}
	is("no file", 0)
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	is("held", os.Getpid())
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	is("given up", 0)
	if l, err = Acquire(path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.f.WriteAt([]byte("1      "), 0); err != nil {
		t.Fatal(err)
	}
	is("held by another one than it says", 0)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".there"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".there", path); err != nil {
		t.Fatal(err)
	}
	is("a link", 0)
}

func TestALineOfTheTableOfLocks(t *testing.T) {
	for line, want := range map[string]bool{
		"3: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF":    true,
		"3: -> FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF": false, // it waits
		"3: POSIX  ADVISORY  WRITE 4711 fd:01:1234 0 EOF":    false,
		"3: FLOCK  ADVISORY  WRITE 4711 fd:01:91234 0 EOF":   false,
		"3: FLOCK  ADVISORY  WRITE 14711 fd:01:1234 0 EOF":   false,
		"3: FLOCK  ADVISORY  WRITE 4711":                     false,
		"":                                                   false,
	} {
		if got := holds(line, 4711, 1234); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

// What a program has kept of a lock is held until the next one gives it up.
func TestALockIsInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := l.Keep()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(path); err == nil {
		t.Error("what was kept is free")
	}
	next, err := Inherit(kept, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Check(); err != nil {
		t.Error(err)
	}
	if err := next.Release(); err != nil {
		t.Fatal(err)
	}
	if l, err = Acquire(path); err != nil {
		t.Fatalf("after the release: %v", err)
	}
	_ = l.Release()
}

func TestWhatIsNoLockIsNotInherited(t *testing.T) {
	cases := map[string]func(path string) *os.File{
		"another file": func(path string) *os.File { return opened(t, path+".other") },
		"a pipe": func(string) *os.File {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.Close() })
			return r
		},
		"a file that was removed": func(path string) *os.File {
			f := opened(t, path)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			return f
		},
		"a lock of another process": func(path string) *os.File {
			other := opened(t, path)
			t.Cleanup(func() { _ = other.Close() })
			if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			return opened(t, path)
		},
	}
	for name, of := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			_ = opened(t, path).Close()
			f := of(path)
			if l, err := Inherit(f, path); err == nil {
				_ = l.Release()
				t.Error("it was taken for the lock")
			}
			if _, err := f.Stat(); err == nil {
				t.Error("it was left open")
			}
		})
	}
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
