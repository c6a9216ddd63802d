package trust

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/testenv"
)

// tree makes base/a/b and the modes of a and b.
func tree(t *testing.T, a, b os.FileMode) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: b, filepath.Dir(dir): a} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAFolderIsAsSafeAsTheWayToIt(t *testing.T) {
	for what, c := range map[string]struct {
		a, b   os.FileMode
		reason string
	}{
		"private":                      {0o700, 0o700, ""},
		"readable":                     {0o755, 0o755, ""},
		"open to all":                  {0o755, 0o777, "b can be written to by everybody (mode 0777)"},
		"open to all above":            {0o777, 0o700, "a can be written to by everybody"},
		"as /tmp":                      {0o777 | os.ModeSticky, 0o700, ""},
		"as /tmp itself":               {0o700, 0o777 | os.ModeSticky, ""},
		"open to everybody, not group": {0o702, 0o700, "a can be written to by everybody"},
	} {
		err := Folder(tree(t, c.a, c.b))
		if c.reason == "" && err != nil || c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: got %v, want %q", what, err, c.reason)
		}
	}
	if err := Folder("/tmp/no/such/folder"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: got %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Folder(file); err == nil || !strings.HasSuffix(err.Error(), "is not a folder") {
		t.Errorf("a file: got %v", err)
	}
}

// What is behind a link counts, and so does where the link stands.
func TestLinksOnTheWayAreFollowed(t *testing.T) {
	base := t.TempDir()
	bad := tree(t, 0o777, 0o700)
	good := tree(t, 0o700, 0o700)
	link := func(target, name string) string {
		path := filepath.Join(base, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := Folder(link(bad, "bad")); err == nil || !strings.Contains(err.Error(), "everybody") {
		t.Errorf("a link into a folder that all may write: got %v", err)
	}
	if err := Folder(link(good, "good")); err != nil {
		t.Errorf("a link into a private folder: got %v", err)
	}
	if err := Folder(filepath.Join(link("../"+filepath.Base(base), "up"), "good")); err != nil {
		t.Errorf("a relative link: got %v", err)
	}
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Folder(filepath.Join(base, "good")); err == nil || !strings.Contains(err.Error(), "everybody") {
		t.Errorf("a link that anybody could replace: got %v", err)
	}
	round := link("round", "round")
	if err := os.Chmod(base, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Folder(round); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link to itself: got %v", err)
	}
}

func TestAFolderOfAnotherUserIsRefusedAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	dir := tree(t, 0o755, 0o755)
	if err := os.Chown(filepath.Dir(dir), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := Folder(dir); err == nil || !strings.Contains(err.Error(), "a belongs to user 65534") {
		t.Errorf("got %v", err)
	}
	open := tree(t, 0o777|os.ModeSticky, 0o755)
	planted := filepath.Join(filepath.Dir(open), "planted")
	if err := os.Symlink(open, planted); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(planted, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := Folder(planted); err == nil || !strings.Contains(err.Error(), "planted is a link of user 65534's") {
		t.Errorf("a planted link: got %v", err)
	}
	group := tree(t, 0o775, 0o755)
	if err := os.Chown(filepath.Dir(group), 0, 12345); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(group), 0o775); err != nil {
		t.Fatal(err)
	}
	if err := Folder(group); err == nil || !strings.Contains(err.Error(), "can be written to by group 12345") {
		t.Errorf("a group's folder: got %v", err)
	}
}

func TestOneselfIsTrusted(t *testing.T) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	conn, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := Peer(conn); err != nil {
		t.Errorf("got %v", err)
	}
}
