package tool

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"noused/internal/tool/tooltest"
)

// hangTime only fails a test that would hang.
const hangTime = time.Minute

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(hangTime); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if n > 0 {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

func alive(pid int) bool {
	st, err := readStat(pid)
	return err == nil && !st.dead()
}

func number(t *testing.T, line []byte, err error) int {
	t.Helper()
	n, e := strconv.Atoi(string(line))
	if err != nil || e != nil {
		t.Fatalf("got %q, %v, want a process's number", line, err)
	}
	return n
}

func TestNothingOutlivesItsCall(t *testing.T) {
	for mode, what := range map[string]string{
		"parent":  "a grandchild in the tool's group",
		"forker":  "a grandchild of a double fork with a session of its own",
		"denier":  "one that threw away its mark as well",
		"groupie": "one in the tool's group without a mark",
	} {
		t.Run(mode, func(t *testing.T) {
			fifo, held := tooltest.NewFIFO(t)
			p := supervise(t).start(t.Context(), mode, tooltest.FIFO+"="+fifo)
			released := held()
			pid := number(t, must(p.Next()), nil)
			p.CloseInput()
			if exit := p.Wait(); !exit.OK() {
				t.Errorf("got %v, want exit status 0", exit)
			}
			if alive(pid) {
				t.Errorf("%s is still there when the call has ended", what)
			}
			released()
		})
	}
}

func must(line []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return line
}

func TestAHelperLivesAsLongAsItsModule(t *testing.T) {
	f := supervise(t)
	module := f.start(t.Context(), "forker")
	helper := number(t, must(module.Next()), nil)
	for range 3 {
		f.start(t.Context(), "early").Wait()
	}
	if !alive(helper) {
		t.Error("the end of another process ended it")
	}
	module.CloseInput()
	module.Wait()
	if alive(helper) {
		t.Error("it is still there when its module has ended")
	}
}

func TestAHelperThatDiesIsNoZombie(t *testing.T) {
	f := supervise(t)
	module := f.start(t.Context(), "forker")
	helper := number(t, must(module.Next()), nil)
	if err := unix.Kill(helper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, helper)
	f.orphans.sweep()
	if err := unix.Kill(helper, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("got %v, want no such process", err)
	}
	module.CloseInput()
	module.Wait()
}

func TestChildrenOfTheDaemonsOwnAreLeftAlone(t *testing.T) {
	f := supervise(t)
	cmd := exec.Command("/bin/sh", "-c", "read x; exit 3")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.start(t.Context(), "early").Wait()
	in.Close()
	gone(t, cmd.Process.Pid)
	f.start(t.Context(), "early").Wait()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v, want exit status 3", err)
	}
}

// startDaemon starts a daemon of its own, with an open file that it knows
// nothing of, and returns the lines it says.
func startDaemon(t *testing.T, tools string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	leak, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	cmd := exec.Command(tooltest.Self(t))
	cmd.Env = append(os.Environ(), append(env, tooltest.Mode+"=daemon", runVar+"="+tools)...)
	cmd.ExtraFiles = []*os.File{leak}
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // open until Wait
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

// guardianOf is the process that a line of the log says is the guardian, or 0.
func guardianOf(line []byte) int {
	var said struct {
		Msg string `json:"msg"`
		PID int    `json:"pid"`
	}
	if json.Unmarshal(line, &said) != nil || said.Msg != "guardian ready" {
		return 0
	}
	return said.PID
}

// ready waits until the daemon and its guardian are, and returns the latter and
// what the tools have said.
func ready(t *testing.T, lines *bufio.Scanner) (guardian int, said []string) {
	t.Helper()
	for up := false; !up || guardian == 0; {
		if !lines.Scan() {
			t.Fatalf("the daemon ended early: %q, %v", said, lines.Err())
		}
		switch pid := guardianOf(lines.Bytes()); {
		case pid != 0:
			guardian = pid
		case lines.Text() == "ready":
			up = true
		default:
			said = append(said, lines.Text())
		}
	}
	return guardian, said
}

func TestNothingOutlivesADaemonThatIsKilled(t *testing.T) {
	for _, tools := range []string{"deaf", "parent", "forker", "groupie", "stubborn", "deaf parent forker groupie"} {
		t.Run(tools, func(t *testing.T) {
			fifo, held := tooltest.NewFIFO(t)
			cmd, lines := startDaemon(t, tools, tooltest.FIFO+"="+fifo)
			released := func() {}
			if tools != "stubborn" {
				released = held()
			}
			guardian, said := ready(t, lines)
			cmd.Process.Kill()
			gone(t, guardian)
			for _, line := range said {
				if pid, err := strconv.Atoi(line); err == nil && alive(pid) {
					t.Errorf("process %d is still there when the guardian has ended", pid)
				}
			}
			released()
		})
	}
}

func TestAGuardianOutlivesTheSignalsForTheDaemonAndHoldsNothing(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	cmd, lines := startDaemon(t, "forker", tooltest.FIFO+"="+fifo)
	released := held()
	guardian, _ := ready(t, lines)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		if err := unix.Kill(guardian, sig); err != nil {
			t.Fatal(err)
		}
	}
	if sid, err := unix.Getsid(guardian); err != nil || sid != guardian {
		t.Errorf("its session is %d, %v, want its own", sid, err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", guardian)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, _ := os.Readlink(filepath.Join(dir, e.Name()))
		if to == tooltest.Self(t) || strings.HasPrefix(to, "socket:") {
			t.Errorf("it holds %s open", to)
		}
	}
	if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", guardian)); err != nil || strings.Contains(string(environ), "PATH=") {
		t.Errorf("its environment is %q, %v, want nothing of the daemon's", environ, err)
	}
	cmd.Process.Kill()
	released()
	gone(t, guardian)
}

func TestAGuardianThatIsKilledIsReplaced(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	cmd, lines := startDaemon(t, "groupie", tooltest.FIFO+"="+fifo)
	released := held()
	first, _ := ready(t, lines)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := 0
	for second == 0 && lines.Scan() {
		second = guardianOf(lines.Bytes())
	}
	cmd.Process.Kill()
	released()
	gone(t, second)
}

func TestAGuardianThatDoesNotReadHoldsUpNobody(t *testing.T) {
	f := supervise(t)
	f.start(t.Context(), "early").Wait()
	f.guardian.mu.Lock()
	first := f.guardian.cmd.Process.Pid
	f.guardian.mu.Unlock()
	if err := unix.Kill(first, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for group := range 40_000 { // more than a pipe holds
		f.guardian.forget(1_000_000_000 + group)
	}
	f.start(t.Context(), "early").Wait()
	gone(t, first)
}

func TestGuardianReadsWhatHolds(t *testing.T) {
	groups, dirs := listen(strings.NewReader("+12\n+13\n-12\n\n+/tmp/a\n+/tmp/b\n-/tmp/b\n+1\n+0\n+-5\n+/\nnonsense\n+14"))
	if got, want := slices.Sorted(maps.Keys(groups)), []int{13, 14}; !cmp.Equal(got, want) {
		t.Errorf("got groups %v, want %v", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(dirs)), []string{"/tmp/a"}; !cmp.Equal(got, want) {
		t.Errorf("got directories %v, want %v", got, want)
	}
}

func FuzzStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("7 (a) b) (c) Z 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 1"))
	f.Add([]byte("7 ("))
	f.Fuzz(func(t *testing.T, text []byte) {
		st, err := parseStat(text)
		if err == nil && st.state == 0 {
			t.Errorf("got %+v of %q without an error", st, text)
		}
	})
}

func TestStatOfAProcessWithAStrangeName(t *testing.T) {
	got, err := parseStat([]byte("7 (a) b) (c) Z 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 1"))
	if want := (stat{'Z', 1, 7, 3, 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got.dead() {
		t.Error("a process that still has threads counts as dead")
	}
}
