package server

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/lock"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func listen(t *testing.T, path string) *Sockets {
	t.Helper()
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestSocketsArePrivateAndCleanedUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	path := filepath.Join(dir, "s")
	s := listen(t, path)
	for name, want := range map[string]os.FileMode{
		dir: os.ModeDir | 0o700, path: os.ModeSocket | 0o600, path + ".events": os.ModeSocket | 0o600, path + ".lock": 0o600,
	} {
		if got := mode(t, name); got != want {
			t.Errorf("%s: got mode %v, want %v", name, got, want)
		}
	}
	s.Close()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "s.lock" {
		t.Errorf("got %v %v, want the lock file alone", left, err)
	}
}

func TestASocketIsPrivateFromTheFirstMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	defer unix.Umask(unix.Umask(0))
	ln, err := listenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if got := mode(t, path); got != os.ModeSocket|0o600 {
		t.Errorf("got mode %v before any chmod", got)
	}
}

func TestTwoDaemonsNeverShareASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, path)
	_, err := Listen(path)
	var held *lock.HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("got %v, want that process %d holds it", err, os.Getpid())
	}
	_ = dial(t, path)
	_ = dial(t, path+".events")
	first.Close()
	listen(t, path)
}

// leave makes a socket file as a killed daemon does.
func leave(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	leave(t, path)
	leave(t, path+".events")
	listen(t, path)
	_ = dial(t, path)
	_ = dial(t, path+".events")
}

func TestWhatIsNotStaleIsLeftAlone(t *testing.T) {
	for _, suffix := range []string{"", ".events"} {
		live := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", live+suffix)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(live); err == nil ||
			!strings.Contains(err.Error(), live+suffix+": another process listens on it") {
			t.Errorf("a live socket: got %v", err)
		}
		_ = dial(t, live+suffix)
		_ = ln.Close()

		file := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(file+suffix, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(file); err == nil ||
			!strings.Contains(err.Error(), file+suffix+": there is a file that is no socket") {
			t.Errorf("a file: got %v", err)
		}
		if text, err := os.ReadFile(file + suffix); string(text) != "precious" {
			t.Errorf("got %q %v", text, err)
		}
		if suffix != "" {
			if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the command socket is left behind: %v", err)
			}
		}
	}
}

func TestPathsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	room := protocol.MaxSocketPath - len(dir) - len("/") - len(protocol.EventSocket(""))
	listen(t, filepath.Join(dir, strings.Repeat("x", room)))
	for name, c := range map[string]struct{ path, want string }{
		"one byte too long": {
			filepath.Join(dir, strings.Repeat("x", room+1)),
			".events is 108 bytes long, at most 107 can be bound",
		},
		"none":         {"", "want a file's path"},
		"abstract":     {"@noused", "want a file's path"},
		"below a file": {filepath.Join(os.Args[0], "s"), "socket directory: "},
	} {
		if _, err := Listen(c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestDirectories(t *testing.T) {
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	own := filepath.Dir(protocol.DefaultSocket(os.Getenv))
	for _, c := range []struct { // one after the other
		name      string
		dir       string
		mode      os.FileMode
		want      string // an error
		wantAfter os.FileMode
	}{
		{"the default one, open", own, 0o755, "", 0o700},
		{"another one, as it is", filepath.Join(runtime, "a"), 0o755, "", 0o755},
		{"one for a group", filepath.Join(runtime, "b"), 0o770, "", 0o770},
		{"one for everybody", filepath.Join(runtime, "c"), 0o777, filepath.Join(runtime, "c") +
			" can be written to by everybody", 0o777},
		{"one below such a one", filepath.Join(runtime, "c", "below"), 0o700, filepath.Join(runtime, "c") +
			" can be written to by everybody", 0o700},
		{"one that is like /tmp", filepath.Join(runtime, "d"), 0o777 | os.ModeSticky, "", 0o777 | os.ModeSticky},
		{"the default one, sticky", own, 0o777 | os.ModeSticky, "", 0o700},
	} {
		if err := errors.Join(os.MkdirAll(c.dir, 0o700), os.Chmod(c.dir, c.mode)); err != nil {
			t.Fatal(err)
		}
		s, err := Listen(filepath.Join(c.dir, "noused.sock"))
		switch {
		case err == nil && c.want == "":
			s.Close()
		case err == nil || c.want == "" || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if got := mode(t, c.dir); got != os.ModeDir|c.wantAfter {
			t.Errorf("%s: got mode %v afterwards, want %v", c.name, got, c.wantAfter)
		}
	}
}

func TestDirectoriesOfOthersAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	dir := filepath.Join(t.TempDir(), "theirs")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "s")); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("got %v", err)
	}
}

func TestTheDefaultDirectoryIsNoLink(t *testing.T) {
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	if err := os.Symlink(t.TempDir(), filepath.Join(runtime, "noused")); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(protocol.DefaultSocket(os.Getenv)); err == nil {
		t.Error("a symbolic link was taken for the default directory")
	}
}

func TestDefaultSocket(t *testing.T) {
	if got := protocol.DefaultSocket(func(string) string {
		return "/run/user/7"
	}); got != "/run/user/7/noused/noused.sock" {
		t.Errorf("got %s", got)
	}
	if got := protocol.DefaultSocket(func(string) string { return "" }); !strings.HasPrefix(got, "/tmp/noused-") {
		t.Errorf("got %s", got)
	}
}

func TestActivation(t *testing.T) {
	const activate = "/usr/bin/systemd-socket-activate"
	if _, err := os.Stat(activate); err != nil {
		t.Skip(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(names string) string {
		return "socket activation: want two Unix stream sockets with FileDescriptorName= commands and events, got " + names
	}
	for _, c := range []struct{ names, want string }{
		{"commands:events", "A B"},
		{"events:commands", "B A"},
		{"commands", refused(`["commands"]`)},
		{"commands:commands", refused(`["commands" "commands"]`)},
		{"commands:other", refused(`["commands" "other"]`)},
		{"commands:events:more", refused(`["commands" "events" "more"]`)},
		{"commands:events:events", refused(`["commands" "events" "events"]`)},
	} {
		dir := t.TempDir()
		args, paths := []string{"--fdname=" + c.names, "-E", "SERVER_TEST_ACTIVATED=1"}, []string{}
		for i := range strings.Split(c.names, ":") {
			paths = append(paths, filepath.Join(dir, string(rune('A'+i))))
			args = append(args, "-l", paths[i])
		}
		daemon := exec.Command(activate, append(args, exe)...)
		out, err := daemon.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		said, err := daemon.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(said)
		for listening := 0; listening < len(paths) && lines.Scan(); {
			if strings.Contains(lines.Text(), "Listening on ") {
				listening++
			}
		}
		_ = dial(t, paths[0]) // starts it
		got, err := bufio.NewReader(out).ReadString('\n')
		for lines.Scan() { // to its end
		}
		if err := errors.Join(err, daemon.Wait()); err != nil {
			t.Error(err)
		}
		got = strings.ReplaceAll(strings.TrimSuffix(got, "\n"), dir+"/", "")
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.names, got, c.want)
		}
		for _, path := range paths {
			mode(t, path) // an activated socket is never removed
		}
	}
}
