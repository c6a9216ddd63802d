package proc

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

	"noused/internal/testenv"
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
		"keeper":  "one of these whose parent lives",
		"agent":   "one that lets nobody look into it as well",
		"lifter":  "one with limits of its own",
		"groupie": "one in the tool's group without a mark",
		"traitor": "one that threw away both its marks",
		"forger":  "one with the mark of a child that nobody has",
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
				unix.Kill(pid, unix.SIGKILL)
			}
			released()
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must(line []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return line
}

func TestAHelperLivesAsLongAsItsModule(t *testing.T) {
	for _, mode := range []string{"forker", "denier", "keeper", "agent", "lifter"} {
		t.Run(mode, func(t *testing.T) {
			f := supervise(t)
			module := f.start(t.Context(), mode)
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
		})
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
	// It may die before the process between it and the module has, and is only
	// then ours to reap.
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(hangTime); !errors.Is(unix.Kill(helper, 0), unix.ESRCH); <-look.C {
		if time.Now().After(deadline) {
			t.Fatal("it is a zombie")
		}
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
	return startDaemonAfter(t, "", tools, env...)
}

// startDaemonAfter starts it from a shell that does something before.
func startDaemonAfter(t *testing.T, before, tools string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	leak, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	cmd := exec.Command("/bin/sh", "-c", before+`exec "$0"`, tooltest.Self(t))
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
	for _, tools := range []string{
		"deaf", "parent", "forker", "groupie", "stubborn",
		"denier", "keeper", "agent", "lifter", "deaf parent forker groupie denier keeper agent lifter",
	} {
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

// What the daemon found when it began is not its own, though the kernel makes
// it its child.
func TestAJobOfTheShellThatBecameTheDaemonIsLeftAlone(t *testing.T) {
	for what, prefix := range map[string]string{
		"its child": "", "an orphan": "sh -c '\"$0\" \"$@\" & ' ",
		"without an environment": "env -i ",
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			check(t, syscall.Mkfifo(filepath.Join(dir, "pid"), 0o600))
			before := prefix + "setsid sh -c 'echo $$ >" + dir + "/pid; exec sleep 1000 >/dev/null 2>&1' & read pid <" + dir +
				"/pid; echo $pid; "
			cmd, lines := startDaemonAfter(t, before, "forker terminal forker")
			guardian, said := ready(t, lines)
			job := number(t, []byte(said[0]), nil)
			defer unix.Kill(job, unix.SIGKILL)
			if !alive(job) {
				t.Error("the daemon killed it")
			}
			cmd.Process.Kill()
			gone(t, guardian)
			if !alive(job) {
				t.Error("the guardian killed it")
			}
		})
	}
}

func TestToolsDoNotHaveTheUsersTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	cmd := exec.Command(tooltest.Self(t))
	cmd.Env = append(os.Environ(), tooltest.Mode+"=daemon", runVar+"=terminal")
	cmd.Stdin, cmd.SysProcAttr = screen, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guardian, said := ready(t, bufio.NewScanner(out))
	if want := []string{"no terminal"}; !cmp.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	cmd.Process.Kill()
	cmd.Wait()
	gone(t, guardian)
}

func TestTheDaemonKeepsItsOwnLimits(t *testing.T) {
	var before, after unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_LOCKS, &before))
	supervise(t).start(t.Context(), "early").Wait()
	check(t, unix.Getrlimit(unix.RLIMIT_LOCKS, &after))
	if before != after {
		t.Errorf("got %v, want %v", after, before)
	}
}

func TestAGuardianOutlivesTheSignalsForTheDaemonAndHoldsNothing(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	cmd, lines := startDaemon(t, "forker", tooltest.FIFO+"="+fifo)
	released := held()
	guardian, _ := ready(t, lines)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2} {
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
	if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", guardian)); err != nil ||
		strings.Contains(string(environ), "PATH=") {
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

func TestAGuardianThatIsStoppedIsReplaced(t *testing.T) {
	cmd, lines := startDaemon(t, "groupie")
	first, _ := ready(t, lines)
	check(t, unix.Kill(first, unix.SIGSTOP))
	second := 0
	for second == 0 && lines.Scan() {
		second = guardianOf(lines.Bytes())
	}
	gone(t, first)
	cmd.Process.Kill()
	gone(t, second)
}

// looked waits until a guardian has looked at the family a few times: one look is
// some dozens of reads.
func looked(t *testing.T, guardian int) {
	t.Helper()
	reads := func() (n int) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", guardian))
		check(t, err)
		_, after, _ := strings.Cut(string(text), "syscr: ")
		fmt.Sscan(after, &n)
		return n
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for first, deadline := reads(), time.Now().Add(hangTime); reads() < first+200; <-again.C {
		if time.Now().After(deadline) {
			t.Fatal("the guardian does not look")
		}
	}
}

// What has thrown away both its marks, or has another's, and whose parent lives when the
// daemon is killed, was seen before.
func TestATraitorWhoseParentLivesIsEndedWithTheDaemon(t *testing.T) {
	testenv.Long(t)
	for i := range 20 {
		cmd, lines := startDaemon(t, []string{"betrayer", "counterfeiter"}[i%2])
		guardian, said := ready(t, lines)
		traitor := number(t, []byte(said[0]), nil)
		looked(t, guardian)
		cmd.Process.Kill()
		gone(t, guardian)
		if alive(traitor) {
			t.Errorf("process %d is still there when the guardian has ended", traitor)
			unix.Kill(traitor, unix.SIGKILL)
		}
	}
}

func TestAGuardianThatIsStoppedGoesOnWhenTheDaemonIsKilled(t *testing.T) {
	for _, tools := range []string{"groupie", "denier", "lifter", "stubborn"} {
		cmd, lines := startDaemon(t, tools)
		guardian, said := ready(t, lines)
		check(t, unix.Kill(cmd.Process.Pid, unix.SIGSTOP)) // it would replace a guardian that is stopped
		_, err := unix.Wait4(cmd.Process.Pid, nil, unix.WUNTRACED, nil)
		check(t, err)
		check(t, unix.Kill(guardian, unix.SIGSTOP))
		cmd.Process.Kill()
		gone(t, guardian)
		for _, line := range said {
			if pid, err := strconv.Atoi(line); err == nil && alive(pid) {
				t.Errorf("%s: process %d is still there when the guardian has ended", tools, pid)
			}
		}
	}
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
	const facts = "+12\n+~7\n+~8\n-~8\n+~x\n+13\n-12\n\n+/tmp/a\n+/tmp/b\n-/tmp/b\n+1\n+0\n+-5\n+/\nnonsense\n+14"
	for said, nothing := range map[string]bool{facts: false, facts + "\n.\n": true, ".\n" + facts: false} {
		left := listen(strings.NewReader(said), &family{})
		if got, want := slices.Sorted(maps.Keys(left.groups)), []int{13, 14}; !cmp.Equal(got, want) {
			t.Errorf("got groups %v, want %v", got, want)
		}
		if got, want := slices.Sorted(maps.Keys(left.dirs)), []string{"/tmp/a"}; !cmp.Equal(got, want) {
			t.Errorf("got directories %v, want %v", got, want)
		}
		if got, want := slices.Sorted(maps.Keys(left.foreign)), []int{7}; !cmp.Equal(got, want) {
			t.Errorf("got sessions %v, want %v", got, want)
		}
		if left.nothing != nothing {
			t.Errorf("%q: got %t, want %t", said, left.nothing, nothing)
		}
	}
}

func TestMarkIsReadWhereverItIs(t *testing.T) {
	m := newMark(1<<31-1, 7)
	for text, want := range map[string]mark{
		"Limit                     Soft Limit           Hard Limit           Units     \n" +
			"Max file locks            9223372032559808519  unlimited            locks     \n": m,
		"Max file locks            unlimited            unlimited            locks     \n": 0,
		"Max file locks            4096                 4096                 locks     \n": 0,
		"Max file locks            99999999999999999999 unlimited            locks     \n": 0,
		"Max file locks ": 0,
		"":                0,
	} {
		if got := limitsMark([]byte(text)); got != want {
			t.Errorf("got %d of the limits %q, want %d", got, text, want)
		}
	}
	for text, want := range map[string]mark{
		"A=1\x00" + m.variable() + "\x00B=2\x00": m,
		m.variable():                             m,
		markName + "=":                           0,
		markName + "=7":                          0,
		"X" + m.variable():                       0,
		"A=" + m.variable():                      0,
		"\x00\x00":                               0,
	} {
		if got := environMark([]byte(text)); got != want {
			t.Errorf("got %d of the environment %q, want %d", got, text, want)
		}
	}
}

func FuzzMark(f *testing.F) {
	own, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("Max file locks            9223372032559808519  unlimited            locks     \n"))
	f.Add([]byte(newMark(3, 4).variable()))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range []mark{limitsMark(text), environMark(text)} {
			if id, number := m.parts(); m != 0 && (id == 0 || newMark(id, number) != m) {
				t.Errorf("got %d of %q, want none or one of a Supervisor's", m, text)
			}
		}
	})
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
	if want := (stat{'Z', 1, 7, 7, 3, 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got.dead() {
		t.Error("a process that still has threads counts as dead")
	}
}

// What was there before the first tool is left alone: the sessions of this process and of what it started.
func TestSessionsAreThoseOfTheFamily(t *testing.T) {
	own, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	if !sessions()[own] {
		t.Errorf("without a child: %v has not our own, %d", sessions(), own)
	}
	job := exec.Command("sh", "-c", "sleep 60 & wait")
	job.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(-job.Process.Pid, unix.SIGKILL)
		_ = job.Wait()
	}()
	if found := sessions(); !found[own] || !found[job.Process.Pid] || found[1] {
		t.Errorf("with a job: got %v, want %d and %d", found, own, job.Process.Pid)
	}
}
