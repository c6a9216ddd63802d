package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/testenv"
)

// What is wrong with a machine is told to its user in a sentence, with what to do.
// Each case is run by an ordinary user in a mount namespace that root has made; USER
// is how something is run as him, and he owns the folder that it begins in.
func TestAMachineThatHasNoRoomForADaemonAsRoot(t *testing.T) {
	second := testenv.SecondUser(t)
	programs := filepath.Dir(program(t, "noused"))
	if filepath.Dir(program(t, "nous")) != programs {
		t.Fatal("the programs are not in one folder")
	}
	if err := os.Chmod(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		prepare string // as root
		want    []string
	}{
		"a full disk": {
			`mount -t tmpfs -o size=64k,mode=1777 none state && ! dd if=/dev/zero of=state/fill bs=4k 2>/dev/null`,
			[]string{
				"nous: no daemon was started: the disk of ",
				"state/noused/log is full\nmake room there, or set XDG_STATE_HOME to a folder elsewhere\n",
			},
		},
		"a home that is read-only": {
			`mount --bind state state && mount -o remount,bind,ro state`,
			[]string{
				"nous: no daemon was started: its log ", "/state/noused/log/",
				"cannot be written (read-only file system)\n", "set XDG_STATE_HOME to a folder that you can write to\n",
			},
		},
		"a home that is somebody else's": {
			`chown 0:0 state && chmod 755 state`,
			[]string{
				"nous: no daemon was started: its log ", "cannot be written (permission denied)\n",
				"set XDG_STATE_HOME to a folder that you can write to\n",
			},
		},
		"sessions that cannot be written": {
			`mkdir -p state/noused/log && chown 65534:65534 state/noused/log`,
			[]string{
				"nous: noused was started and ended at once: ", "noused: state directory: mkdir ",
				"/state/noused/sessions: permission denied\n", "its log is ",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "nous")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { noneLeft(filepath.Join(dir, "s")); os.RemoveAll(dir) })
			state := filepath.Join(dir, "state")
			if err := errors.Join(os.Mkdir(state, 0o700), os.Chown(state, int(second.Uid), int(second.Gid)),
				os.Chown(dir, int(second.Uid), int(second.Gid))); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("unshare", "--mount", "sh", "-c", c.prepare+` || exit 77
exec setpriv --reuid=65534 --regid=65534 --clear-groups nous ping`)
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + programs + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "NOUSED_SOCKET=" +
				filepath.Join(dir, "s"), "XDG_STATE_HOME=" + state}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == 77 || strings.HasPrefix(string(out), "unshare: ") {
				t.Skipf("this machine cannot: %s", out)
			}
			if exit == nil || exit.ExitCode() != exitNoDaemon {
				t.Errorf("got %v, want exit status %d: %s", err, exitNoDaemon, out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("got %q, want %q in it", out, want)
				}
			}
		})
	}
}

// A socket of another user's is named as his; no daemon is started in its place.
func TestASocketOfAnotherUserAsRoot(t *testing.T) {
	second := testenv.SecondUser(t)
	d, env := starter(t)
	if err := os.Chmod(d.Dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	listening := make(chan error)
	var his net.Listener
	go func() { // ends at once, and its thread with it, which is the other user's
		runtime.LockOSThread()
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(second.Uid), uintptr(second.Uid), uintptr(second.Uid))
		if errno != 0 {
			listening <- errno
			return
		}
		var err error
		his, err = net.Listen("unix", d.Socket)
		listening <- err
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { his.Close() })
	for _, command := range []string{"ping", "stop", "restart"} {
		cmd := exec.Command("nous", command)
		cmd.Dir, cmd.Env = d.Dir, env
		out, err := cmd.CombinedOutput()
		if want := "nous: " + d.Socket + " is not trusted: user 65534 listens there, not you\nname a socket in a folder of " +
			"your own with --socket or XDG_RUNTIME_DIR\n"; err == nil || string(out) != want {
			t.Errorf("nous %s: got %v %q, want %q", command, err, out, want)
		}
	}
	if _, err := os.Stat(d.Socket + ".lock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a daemon was there: %v", err)
	}
}

// A noused that belongs to another ordinary user is not executed, though it is beside
// nous. One of root's is, and one of nous's owner.
func TestADaemonsProgramOfAnotherUserAsRoot(t *testing.T) {
	second := testenv.SecondUser(t)
	for name, c := range map[string]struct {
		nous, noused uint32
		refused      bool
	}{
		"another user's":  {nous: 0, noused: second.Uid, refused: true},
		"root's":          {nous: second.Uid, noused: 0},
		"of nous's owner": {nous: second.Uid, noused: second.Uid},
		"a third one's":   {nous: second.Uid, noused: second.Uid - 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			d, env := starter(t)
			nous := filepath.Join(d.Dir, "nous")
			for of, uid := range map[string]uint32{"nous": c.nous, "noused": c.noused} {
				text, err := os.ReadFile(program(t, of))
				path := filepath.Join(d.Dir, of)
				if err := errors.Join(err, os.WriteFile(path, text, 0o755), os.Chown(path, int(uid), int(uid))); err != nil {
					t.Fatal(err)
				}
			}
			ping := func() (string, error) {
				cmd := exec.Command(nous, "ping")
				cmd.Dir, cmd.Env = d.Dir, env
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			out, err := ping()
			// It waits for a few seconds only, and says so; a machine may be slower.
			for deadline := time.Now().Add(2 * time.Minute); err != nil && strings.Contains(out, "after 5s") &&
				time.Now().Before(deadline); {
				out, err = ping()
			}
			want := "pong\n"
			if c.refused {
				want = fmt.Sprintf("nous: no daemon was started: %s/noused belongs to user %d, neither to you nor to "+
					"root\ninstall one of your own, or have its owner changed\n", d.Dir, c.noused)
			}
			if (err != nil) != c.refused || out != want {
				t.Errorf("got %v %q, want %q", err, out, want)
			}
		})
	}
}
