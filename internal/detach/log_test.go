package detach

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A log that is full is begun anew, at its opening and while it is written, and the
// one before is kept.
func TestALogStaysWithinItsBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "noused.log")
	f, from, err := Open(path)
	if err != nil || from != 0 {
		t.Fatalf("got %d %v", from, err)
	}
	log, at := Bounded(f, filepath.Dir(path))
	if _, ok := log.(*bounded); !ok || at != path {
		t.Fatalf("it is not bounded, and at %q", at)
	}
	part := bytes.Repeat([]byte("x"), fileLimit/4)
	for range 10 {
		if n, err := log.Write(part); err != nil || n != len(part) {
			t.Fatalf("got %d %v", n, err)
		}
	}
	size := func(path string) int64 {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if now, before := size(path), size(path+".1"); now != fileLimit/2 || before != fileLimit {
		t.Errorf("after 10 quarters there are %d and %d bytes", now, before)
	}
	if _, err := log.Write(part); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Write(part); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	next, from, err := Open(path)
	if err != nil || from != 0 || size(path) != 0 || size(path+".1") != fileLimit {
		t.Errorf("a full one was opened at %d: %v", from, err)
	}
	_ = next.Close()
}

// The logs of all daemons together are within a bound; the oldest go first, and
// nothing that is no log.
func TestAllLogsTogetherAreBounded(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, age int) string {
		path := filepath.Join(dir, name)
		at := time.Now().Add(-time.Duration(age) * time.Hour)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, folderLimit/2); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	oldest, older, newest := put("noused-a.log", 3), put("noused-b.log.1", 2), put("noused-c.log", 1)
	notes := put("notes.log", 4)
	f, _, err := Open(filepath.Join(dir, "noused.log"))
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	for path, want := range map[string]bool{oldest: false, older: false, newest: true, notes: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
}

// A link is not followed, and what is no log of the folder is neither bounded nor renamed.
func TestOnlyALogOfTheFolderIsOpened(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	precious := filepath.Join(other, "noused.log")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "noused.log")
	if err := os.Symlink(precious, link); err != nil {
		t.Fatal(err)
	}
	if f, _, err := Open(link); err == nil {
		_ = f.Close()
		t.Error("a link was opened")
	}
	f, err := os.OpenFile(precious, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if log, at := Bounded(f, dir); log != f || at != "" {
		t.Errorf("a file of another folder is taken for a log: %q", at)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("got %q %v", text, err)
	}
}

// A log that somebody has removed, or moved aside, with its folder or without, is begun
// anew: by the next daemon that has it at once, by the one that runs when it is full.
func TestARemovedLogIsBegunAnew(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"removed":         os.Remove,
		"its folder, too": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"moved aside":     func(path string) error { return os.Rename(path, path+".1") },
		"another in place": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("x"), 0o600))
		},
	} {
		for _, restarted := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "log", "noused.log")
			f, _, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			log, _ := Bounded(f, filepath.Dir(path))
			if _, err := log.Write(bytes.Repeat([]byte("x"), fileLimit-1)); err != nil {
				t.Fatal(err)
			}
			if err := remove(path); err != nil {
				t.Fatal(err)
			}
			if restarted {
				log, _ = Bounded(f, filepath.Dir(path))
			}
			if _, err := log.Write([]byte("that\n")); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != "that\n" {
				t.Errorf("%s, restarted %t: got %q %v", name, restarted, text, err)
			}
			_ = f.Close()
		}
	}
}
