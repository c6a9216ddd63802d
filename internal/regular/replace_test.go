package regular

import (
	"os"
	"path/filepath"
	"testing"
)

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A link is replaced, not followed; the mode is the new one; and nothing is left beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	old := write(t, filepath.Join(dir, "old"), "old")
	path := link(t, old, filepath.Join(dir, "file"))
	if err := Replace(path, []byte("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o640 || content(t, path) != "new" || content(t, old) != "old" {
		t.Errorf("got %v, %v, %q and the link's target %q", info.Mode(), err, content(t, path), content(t, old))
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("got %v, %v; want two files", files, err)
	}
	if err := Replace(filepath.Join(dir, "none", "file"), nil, 0o600); err == nil {
		t.Error("a file was put into a folder that does not exist")
	}
}

// The newest file is .1, and the oldest goes.
func TestRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := Rotate(path, 2); err != nil {
		t.Errorf("no files: %v", err)
	}
	for _, text := range []string{"one", "two", "three"} {
		write(t, path, text)
		if err := Rotate(path, 2); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, Rotated(path, 1)) + " " + content(t, Rotated(path, 2)); got != "three two" {
		t.Errorf("got %q", got)
	}
	for _, gone := range []string{Rotated(path, 0), Rotated(path, 3)} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s exists", gone)
		}
	}
}
