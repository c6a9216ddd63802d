package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ephemeral is a nous with a private daemon, in the middle of a run. Both have ended when the test has.
func ephemeral(t *testing.T, dir string, env []string, flags ...string) (cmd *exec.Cmd, daemon int) {
	t.Helper()
	cmd, daemon, _ = ephemeralHeard(t, dir, env, flags...)
	return cmd, daemon
}

// ephemeralHeard is ephemeral, with what nous says on standard error from then on.
func ephemeralHeard(t *testing.T, dir string, env []string, flags ...string) (
	cmd *exec.Cmd, daemon int, heard <-chan string,
) {
	t.Helper()
	cmd = exec.Command(program(t, "nous"), append([]string{"prompt", "--ephemeral", "--approvals", "allow"},
		append(flags, "-")...)...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin = strings.NewReader(`!bash {"command":"echo $PPID; exec sleep 1000"}`)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for in := bufio.NewReader(said); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("the run has not begun: %v", err)
		}
		if strings.Contains(line, "→ bash") {
			break
		}
	}
	rest := make(chan string, 1)
	go func() { // ends with nous
		text, _ := io.ReadAll(said)
		rest <- string(text)
	}()
	for _, children := range taskChildren(t, cmd.Process.Pid) {
		first, _, _ := strings.Cut(strings.TrimSpace(children), " ")
		if daemon, err = strconv.Atoi(first); err != nil {
			t.Fatal(err)
		}
	}
	if daemon == 0 {
		t.Skip("the kernel does not list children, or nous has no daemon")
	}
	fd, err := unix.PidfdOpen(daemon, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the folders of the test go, into which it may write until then
		_ = cmd.Process.Kill()
		if !waitEnded(fd) {
			t.Errorf("the daemon goes on a minute after nous was killed")
		}
		_ = unix.Close(fd)
	})
	return cmd, daemon, rest
}

// waitEnded waits up to a minute for the end of a process.
func waitEnded(pidfd int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000)
		if err != unix.EINTR {
			return n == 1
		}
	}
}

// taskChildren are those of each thread: the daemon is one's.
func taskChildren(t *testing.T, pid int) map[string]string {
	t.Helper()
	found := map[string]string{}
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			found[file] = string(text)
		}
	}
	return found
}

// However nous ends, its private daemon ends too, and nothing is left of either.
func TestAPrivateDaemonEndsWithNous(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			dir, env := place(t)
			tmp := filepath.Join(dir, "tmp")
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			cmd, daemon := ephemeral(t, dir, append(env, "TMPDIR="+tmp))
			fd, err := unix.PidfdOpen(daemon, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if !waitEnded(fd) {
				t.Fatalf("the daemon goes on a minute after nous was sent %v", s)
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left in TMPDIR: %v, %v", left, err)
			}
		})
	}
}

// Nobody starts a private daemon again that was killed: nous says so and does not try.
func TestAKilledPrivateDaemonIsTold(t *testing.T) {
	dir, env := place(t)
	cmd, daemon, heard := ephemeralHeard(t, dir, env)
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	said := <-heard
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != exitNoDaemon ||
		!strings.Contains(said, "the private noused has ended before the run did: signal: killed") ||
		strings.Contains(said, "trying again") {
		t.Errorf("got status %d:\n%s", status, said)
	}
}

// Two at once know nothing of each other; of two with one folder to keep, one says that the
// other has it.
func TestTwoPrivateDaemonsAtOnce(t *testing.T) {
	dir, env := place(t)
	var both sync.WaitGroup
	for _, word := range []string{"one", "two"} {
		both.Go(func() {
			if out, status := ranIn(t, dir, env, program(t, "nous"), "prompt", "--ephemeral", word); status != 0 ||
				out != word+"\n" {
				t.Errorf("%s: got status %d: %s", word, status, out)
			}
		})
	}
	both.Wait()
	kept := filepath.Join(dir, "kept")
	ephemeral(t, dir, env, "--keep", kept)
	out, status := ranIn(t, dir, env, program(t, "nous"), "prompt", "--ephemeral", "--keep", kept, "hello")
	if status != exitUsage || !strings.Contains(out, "is not empty") {
		t.Errorf("a second one with the same folder: got status %d: %s", status, out)
	}
}
