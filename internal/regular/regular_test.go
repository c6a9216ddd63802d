package regular

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/testenv"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to, path string) string {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// planted are files that a hostile neighbour, or an accident, leaves where a
// regular one belongs: to open any of them must neither wait nor succeed.
func planted(t *testing.T, dir string) map[string]error {
	t.Helper()
	file := write(t, filepath.Join(dir, "file"), "x")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]error{
		fifo: ErrKind, dir: ErrKind, "/dev/zero": ErrKind,
		link(t, file, filepath.Join(dir, "link")):            ErrLink,
		link(t, "/dev/zero", filepath.Join(dir, "zero")):     ErrLink,
		link(t, "nowhere", filepath.Join(dir, "dangling")):   ErrLink,
		link(t, "circle", filepath.Join(dir, "circle")):      ErrLink,
		link(t, "/proc/self/mem", filepath.Join(dir, "mem")): ErrLink,
	}
}

func TestOpenTakesRegularFilesOnly(t *testing.T) {
	for path, want := range planted(t, t.TempDir()) {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_WRONLY | os.O_CREATE | os.O_APPEND} {
			f, err := Open(path, flag)
			if !errors.Is(err, want) {
				t.Errorf("%s with flag %x: got %v, want %v", path, flag, err, want)
			}
			if err == nil {
				_ = f.Close()
			}
			if in := (*fs.PathError)(nil); !errors.As(err, &in) || in.Path != path {
				t.Errorf("%s: the error does not name the file: %v", path, err)
			}
		}
	}
}

func TestOpenMakesReadsAndAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	if _, err := Open(path, os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want that there is no such file", err)
	}
	for range 2 {
		f, err := Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	text, err := Read(path, 2)
	if err != nil || string(text) != "xx" {
		t.Errorf("got %q, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
	}
}

func TestAnotherUsersFileIsNotOpenedAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	path := write(t, filepath.Join(t.TempDir(), "theirs"), "x")
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, os.O_RDONLY); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v, want %v", err, ErrForeign)
	}
}

// A configuration may be a link into a folder of such files; it is bounded all
// the same, whatever its size is said to be.
func TestReadFollowsLinksAndIsBounded(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), "12345")
	text, err := Read(link(t, file, filepath.Join(dir, "link")), 5)
	if err != nil || string(text) != "12345" {
		t.Errorf("got %q, %v", text, err)
	}
	for path, want := range map[string]error{
		"/dev/zero": ErrKind, dir: ErrKind, link(t, "/dev/zero", filepath.Join(dir, "zero")): ErrKind,
		"/proc/self/maps":          ErrLong, // says that it has no bytes
		filepath.Join(dir, "none"): fs.ErrNotExist,
	} {
		if _, err := Read(path, 4); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	if _, err := Read(file, 4); !errors.Is(err, ErrLong) {
		t.Errorf("got %v, want %v", err, ErrLong)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(fifo, 4); !errors.Is(err, ErrKind) {
		t.Errorf("got %v, want %v", err, ErrKind)
	}
}

// A file that says what is executed is refused where everybody could have written it.
func TestSettingsAreNotEverybodysToWrite(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "config.toml"), "text")
	for mode, want := range map[os.FileMode]error{0o600: nil, 0o664: nil, 0o602: ErrPublic, 0o666: ErrPublic} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func(string, int64) ([]byte, error){"Settings": Settings, "ReadOwn": ReadOwn} {
			if text, err := read(path, 10); !errors.Is(err, want) || (string(text) == "text") != (want == nil) {
				t.Errorf("%s, mode %o: got %q, %v, want %v", name, mode, text, err, want)
			}
		}
	}
}

// What decides what is allowed nobody else may have written: neither the owner nor
// the mode lets him.
func TestFollowOwnReadsWhatNobodyElseCanWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]error{
		0o600: nil, 0o644: nil, 0o620: ErrShared, 0o602: ErrShared,
		0o666: ErrShared,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if text, err := FollowOwn(path, 10); !errors.Is(err, want) || (string(text) == "text") != (want == nil) {
			t.Errorf("mode %o: got %q, %v, want %v", mode, text, err, want)
		}
	}
}
