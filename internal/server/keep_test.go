package server

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/lock"
)

// What a program has kept of its sockets is the next one's: nobody else can listen
// meanwhile, and who connects meanwhile is served by the next one.
func TestSocketsAreInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	was := listen(t, path)
	k, err := was.Keep()
	if err != nil {
		t.Fatal(err)
	}
	was.Close()
	if _, err := Listen(path); !errors.As(err, new(*lock.HeldError)) {
		t.Errorf("between the two: got %v, want that the lock is held", err)
	}
	early := dial(t, path)
	next, err := Inherit(path, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	conn, err := next.Commands.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	early.wantEnd()
	_ = dial(t, path+".events")
	next.Close()
	for _, name := range []string{path, path + ".events"} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
	listen(t, path)
}

// What was left is taken as a whole or not at all, and nothing of it stays open.
func TestWhatIsNotTheSocketIsNotInherited(t *testing.T) {
	for name, spoil := range map[string]func(k *Kept, path *string){
		"of another path":     func(_ *Kept, path *string) { *path += "2" },
		"a file for commands": func(k *Kept, _ *string) { k.Commands = swap(t, k.Commands) },
		"a file for events":   func(k *Kept, _ *string) { k.Events = swap(t, k.Events) },
		"a file for the lock": func(k *Kept, _ *string) { k.Lock = swap(t, k.Lock) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			was := listen(t, path)
			k, err := was.Keep()
			if err != nil {
				t.Fatal(err)
			}
			was.Close()
			spoil(&k, &path)
			if s, err := Inherit(path, k); err == nil {
				s.Close()
				t.Error("it is taken")
			}
			for _, f := range []*os.File{k.Commands, k.Events, k.Lock} {
				if f.Close() == nil {
					t.Errorf("%s stays open", f.Name())
				}
			}
		})
	}
}

// swap closes one file and returns another.
func swap(t *testing.T, f *os.File) *os.File {
	t.Helper()
	_ = f.Close()
	other, err := os.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// Where there are too few descriptors nothing is kept, and the daemon goes on with its
// sockets as before.
func TestSocketsThatCannotBeKeptLeakNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := listen(t, path)
	free, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(free)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	failed := 0
	for more := range 3 { // none is left, one, two
		low := was
		low.Cur = uint64(free + more)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		k, err := s.Keep()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			failed++
		}
		k.close()
		if after := descriptors(t); after > before { // another test may end meanwhile
			t.Errorf("with %d descriptors there are %d open, before it were %d", more, after, before)
		}
	}
	if failed == 0 {
		t.Error("there were enough descriptors")
	}
	s.Close()
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		t.Error("somebody listens still")
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file: %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
