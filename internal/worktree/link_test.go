package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A folder that has become a link since it was looked at is not gone through.
func TestALandingGoesThroughNoLink(t *testing.T) {
	victim := folder(t)
	staged := func(b *bench, name string) string {
		b.put(b.home, "files/"+name, "landed\n")
		return b.home
	}
	t.Run("removed", func(t *testing.T) {
		b := newBench(t)
		path := filepath.Join(b.main, "dir/c")
		j := journal{Checkout: b.main, Files: []file{{Path: []byte("dir/c"), Delete: true, Was: signature(path)}}}
		if err := errors.Join(os.Link(path, filepath.Join(victim, "c")), os.RemoveAll(filepath.Dir(path)),
			os.Symlink(victim, filepath.Dir(path))); err != nil {
			t.Fatal(err)
		}
		if err := j.place(b.home); err != nil {
			t.Error(err)
		}
		b.has(victim, "c", "c\n")
	})
	t.Run("the checkout itself", func(t *testing.T) {
		b := newBench(t)
		moved := b.main + "-moved"
		if err := errors.Join(os.Rename(b.main, moved), os.Symlink(victim, b.main)); err != nil {
			t.Fatal(err)
		}
		err := journal{Checkout: b.main, Files: []file{{Path: []byte("new/x")}}}.place(staged(b, "new/x"))
		wantError(t, err, b.main)
		if _, err := os.Lstat(filepath.Join(victim, "new")); err == nil {
			t.Error("the landing has gone through a link")
		}
	})
	t.Run("a folder that was looked at", func(t *testing.T) {
		b := newBench(t)
		top, err := openFolder(b.main)
		if err != nil {
			t.Fatal(err)
		}
		defer top.close()
		dir, err := top.folder("new", true)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.close()
		if err := errors.Join(os.Rename(filepath.Join(b.main, "new"), filepath.Join(b.main, "old")),
			os.Symlink(victim, filepath.Join(b.main, "new"))); err != nil {
			t.Fatal(err)
		}
		from := filepath.Join(staged(b, "x"), "files/x")
		info, err := os.Lstat(from)
		if err == nil {
			err = dir.take(from, "x", info)
		}
		if err != nil {
			t.Error(err)
		}
		b.has(b.main, "old/x", "landed\n")
		if _, err := top.folder("new", true); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("got %v", err)
		}
	})
}
