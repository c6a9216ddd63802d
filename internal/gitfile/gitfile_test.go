package gitfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestALinkedWorktree(t *testing.T) {
	dir := t.TempDir()
	if _, err := Folder(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder without .git: %v", err)
	}
	admin := filepath.Join(dir, "admin")
	if err := errors.Join(
		os.Mkdir(admin, 0o700),
		os.WriteFile(filepath.Join(admin, "HEAD"), []byte("ref: refs/heads/a/b\n"), 0o600),
		os.WriteFile(filepath.Join(dir, ".git"), []byte("gitdir: admin\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	got, err := Folder(dir)
	if err != nil || got != admin {
		t.Errorf("the folder is %q (%v), want %q", got, err, admin)
	}
	if line, branch, err := Head(got); err != nil || line != "ref: refs/heads/a/b" || branch != "a/b" {
		t.Errorf("HEAD is %q, branch %q (%v)", line, branch, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git"), []byte("admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Folder(dir); err == nil {
		t.Error("a file that names no folder was taken")
	}
}
