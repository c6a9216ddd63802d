package proc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"noused/internal/tool/tooltest"
)

// What a crippler is told: how often to try, and at whom.
const (
	triesVar   = "NOUSED_TEST_TRIES"
	targetsVar = "NOUSED_TEST_TARGETS"
)

// call makes a system call and reports whether it did what it is for.
func call(number uintptr, args ...uintptr) bool {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	return errno == 0
}

func cString(text string) *byte {
	p, err := unix.BytePtrFromString(text)
	if err != nil {
		panic(err)
	}
	return p
}

// onOthers are ways to change a process of the same user. Each is harmless where it
// works: these are the tests' own processes.
func onOthers() map[string]func(pid int) bool {
	limit := func(resource int, change func(*unix.Rlimit)) func(int) bool {
		return func(pid int) bool {
			var l unix.Rlimit
			if unix.Prlimit(pid, resource, nil, &l) != nil {
				return false
			}
			change(&l)
			return unix.Prlimit(pid, resource, &l, nil) == nil
		}
	}
	same := func(*unix.Rlimit) {}
	var cpus unix.CPUSet
	_ = unix.SchedGetaffinity(0, &cpus)
	var one [1]uintptr
	ways := map[string]func(int) bool{
		"its open files": limit(unix.RLIMIT_NOFILE, same),
		"its time":       limit(unix.RLIMIT_CPU, same),
		"its cores":      limit(unix.RLIMIT_CORE, func(l *unix.Rlimit) { l.Cur = l.Max }),
		"its file locks": limit(unix.RLIMIT_LOCKS, same),
		"its pid, padded": func(pid int) bool {
			var l unix.Rlimit
			_ = unix.Getrlimit(unix.RLIMIT_AS, &l)
			return call(unix.SYS_PRLIMIT64, 1<<32|uintptr(pid), unix.RLIMIT_AS, uintptr(unsafe.Pointer(&l)))
		},
		"its processors": func(pid int) bool { return unix.SchedSetaffinity(pid, &cpus) == nil },
		"its scheduler": func(pid int) bool {
			return call(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), 0, uintptr(unsafe.Pointer(&one)))
		},
		"its parameters": func(pid int) bool {
			return call(unix.SYS_SCHED_SETPARAM, uintptr(pid), uintptr(unsafe.Pointer(&one)))
		},
		"its attributes": func(pid int) bool {
			return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0) == nil
		},
		"its priority": func(pid int) bool { return unix.Setpriority(unix.PRIO_PROCESS, pid, 0) == nil },
		"its group's priority": func(pid int) bool {
			group, err := unix.Getpgid(pid)
			return err == nil && unix.Setpriority(unix.PRIO_PGRP, group, 0) == nil
		},
		"its user's priority": func(int) bool { return unix.Setpriority(unix.PRIO_USER, os.Getuid(), 0) == nil },
		"its disk":            func(pid int) bool { return call(unix.SYS_IOPRIO_SET, 1, uintptr(pid), 2<<13|4) },
		"its user's disk":     func(int) bool { return call(unix.SYS_IOPRIO_SET, 3, uintptr(os.Getuid()), 2<<13|4) },
		"its pages": func(pid int) bool {
			return call(unix.SYS_MIGRATE_PAGES, uintptr(pid), 1, uintptr(unsafe.Pointer(&one)), uintptr(unsafe.Pointer(&one)))
		},
		"one page":  func(pid int) bool { return call(unix.SYS_MOVE_PAGES, uintptr(pid), 0, 0, 0, 0, 0) },
		"its files": func(pid int) bool { return call(unix.SYS_KCMP, uintptr(pid), uintptr(os.Getpid()), 2, 0, 0) },
		"a file of its": func(pid int) bool {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return false
			}
			defer unix.Close(fd)
			got, err := unix.PidfdGetfd(fd, 0, 0)
			if err == nil {
				unix.Close(got)
			}
			return err == nil
		},
	}
	if abi, _ := ll.LandlockGetABIVersion(); abi >= 6 {
		ways["a signal"] = func(pid int) bool { return unix.Kill(pid, 0) == nil }
	}
	return ways
}

// onTheRest are ways to what all processes of a user share, or to the power of a
// debugger.
var onTheRest = map[string]func() bool{
	"a key": func() bool {
		kind, name := cString("user"), cString("noused-test")
		return call(unix.SYS_ADD_KEY, uintptr(unsafe.Pointer(kind)), uintptr(unsafe.Pointer(name)),
			uintptr(unsafe.Pointer(name)), 1, ^uintptr(2))
	},
	"the keyring": func() bool { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err == nil },
	"a request": func() bool {
		kind, name := cString("user"), cString("noused-test")
		return call(unix.SYS_REQUEST_KEY, uintptr(unsafe.Pointer(kind)), uintptr(unsafe.Pointer(name)), 0, ^uintptr(2))
	},
	"shared memory": func() bool {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
		if err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		return err == nil
	},
	"a message queue": func() bool {
		id, _, errno := unix.RawSyscall(unix.SYS_MSGGET, 0, 0o600, 0)
		if errno == 0 {
			call(unix.SYS_MSGCTL, id, 0, 0)
		}
		return errno == 0
	},
	"a semaphore": func() bool {
		id, _, errno := unix.RawSyscall(unix.SYS_SEMGET, 0, 1, 0o600)
		if errno == 0 {
			call(unix.SYS_SEMCTL, id, 0, 0)
		}
		return errno == 0
	},
	"a POSIX queue": func() bool {
		name := cString("noused-test")
		fd, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDWR|unix.O_CREAT, 0o600, 0,
			0, 0)
		if errno == 0 {
			unix.Close(int(fd))
			call(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)))
		}
		return errno == 0
	},
	"perf events": func() bool {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0,
			Bits: unix.PerfBitExcludeKernel,
		}, 0, -1, -1, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err == nil
	},
	"BPF": func() bool {
		attr := [16]uint32{2, 4, 4, 1} // a map: an array of one
		fd, _, errno := unix.RawSyscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		if errno == 0 {
			unix.Close(int(fd))
		}
		return errno == 0
	},
	"page faults": func() bool {
		fd, _, errno := unix.RawSyscall(unix.SYS_USERFAULTFD, 1, 0, 0)
		if errno == 0 {
			unix.Close(int(fd))
		}
		return errno == 0
	},
	"io_uring": func() bool {
		var params [120]byte
		fd, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		if errno == 0 {
			unix.Close(int(fd))
		}
		return errno == 0
	},
	"an open file by its handle": func() bool {
		handle, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
		if err != nil {
			return false
		}
		_ = mount
		dir, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		defer unix.Close(dir)
		fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
		if err == nil {
			unix.Close(fd)
		}
		return err == nil
	},
	"its own sign": func() bool {
		return unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}) == nil
	},
}

// cripple tries each way so often at each target, and says how often it worked.
func cripple() int {
	tries, err := strconv.Atoi(os.Getenv(triesVar))
	if err != nil {
		return 1
	}
	for what, way := range onTheRest {
		worked := 0
		for range tries {
			if way() {
				worked++
			}
		}
		fmt.Printf("%s: %d of %d\n", what, worked, tries)
	}
	for target := range strings.FieldsSeq(os.Getenv(targetsVar)) {
		who, number, _ := strings.Cut(target, "=")
		pid, err := strconv.Atoi(number)
		if err != nil {
			return 1
		}
		for what, way := range onOthers() {
			worked := 0
			for range tries {
				if way(pid) {
					worked++
				}
			}
			fmt.Printf("%s, %s: %d of %d\n", who, what, worked, tries)
		}
	}
	return 0
}

// lurk changes limits of whatever process of ours it sees that is none of its own,
// until its input ends. It says how often that worked.
func lurk() int {
	fmt.Println("ready")
	tried, worked := 0, 0
	for over := false; !over; {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			var l unix.Rlimit
			if pid == os.Getpid() || unix.Prlimit(pid, unix.RLIMIT_AS, nil, &l) != nil {
				continue
			}
			if tried++; unix.Prlimit(pid, unix.RLIMIT_AS, &l, nil) == nil {
				worked++
			}
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, 0)
		over = n > 0 || err != nil && err != unix.EINTR
	}
	fmt.Println("result", worked, tried)
	return 0
}

// queue queues signals to itself until there is room for none, says how many there
// were, and keeps them until its input ends.
func queue() int {
	runtime.LockOSThread()
	const signal = 40 // of the real-time ones, which are never lost
	var blocked unix.Sigset_t
	blocked.Val[0] = 1 << (signal - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil); err != nil {
		return 1
	}
	info := [32]int32{2: -1} // SI_QUEUE
	n := 0
	for call(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), signal,
		uintptr(unsafe.Pointer(&info))) {
		n++
	}
	fmt.Println("queued", n)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// tries is how often an attack is made; NOUSED_TEST_TRIES=1000 makes it longer.
func tries() string {
	if n := os.Getenv(triesVar); n != "" {
		return n
	}
	return "3"
}

// self starts a fake in the sandbox.
func (j *jail) self(mode string, env ...string) *Process {
	j.t.Helper()
	p, err := j.view.Start(j.t.Context(), Command{
		Name: mode, Path: tooltest.Self(j.t), Args: []string{mode}, Dir: j.work, MaxLine: 1 << 16,
		Env: append(env, tooltest.Mode+"="+mode),
	})
	check(j.t, err)
	return p
}

// A program in the sandbox changes no process outside it, not the daemon, its
// guardian, another tool or one of the user's, and has nothing with them in common.
func TestASandboxedToolCripplesNobody(t *testing.T) {
	j := imprison(t)
	other := j.start(t.Context(), "deaf")
	want(t, other, "ready")
	boxed := j.self("deaf")
	want(t, boxed, "ready")
	shell := exec.Command("/bin/sleep", "1000")
	check(t, shell.Start())
	defer func() { _ = shell.Process.Kill(); _ = shell.Wait() }()
	j.guardian.mu.Lock()
	guardian := j.guardian.cmd.Process.Pid
	j.guardian.mu.Unlock()
	targets := fmt.Sprintf("daemon=%d guardian=%d tool=%d sandboxed=%d shell=%d", os.Getpid(), guardian, other.pid,
		boxed.pid, shell.Process.Pid)
	_, covered := j.Confinement()
	inItsNamespace := map[string]bool{"shared memory": true, "a message queue": true, "a semaphore": true}
	for way, mode := range map[string]string{"itself": "crippler", "an orphan": "crippling orphan"} {
		p := j.self(mode, triesVar+"="+tries(), targetsVar+"="+targets)
		if mode == "crippler" {
			p.CloseInput()
		}
		lines := 0
		for n := len(onTheRest) + 5*len(onOthers()); lines < n; lines++ {
			line, err := p.Next()
			if err != nil {
				t.Fatalf("%s: after %d of %d lines: %v, %s", way, lines, n, err, p.Stderr(1<<10))
			}
			what, result, _ := strings.Cut(string(line), ": ")
			if covered && inItsNamespace[what] {
				continue // it is nobody else's: TestSharedMemoryIsTheSandboxesOwn
			}
			if !strings.HasPrefix(result, "0 of ") {
				t.Errorf("%s: %s: %s worked", way, what, result)
			}
		}
		p.Finish(0)
	}
	for _, p := range []*Process{other, boxed} {
		p.Kill()
		p.Wait()
	}
}

// So it is while other tools start, each of which is for an instant not yet in its
// sandbox.
func TestASandboxedToolCripplesNobodyWhoStarts(t *testing.T) {
	j := imprison(t)
	p := j.self("lurker")
	want(t, p, "ready")
	n, err := strconv.Atoi(tries())
	check(t, err)
	for range n {
		if exit, said := j.run("true"); !exit.OK() {
			t.Errorf("%v: %s", exit, said)
		}
	}
	p.CloseInput()
	line, err := p.Next()
	check(t, err)
	var worked, tried int
	if _, err := fmt.Sscanf(string(line), "result %d %d", &worked, &tried); err != nil || worked != 0 || tried == 0 {
		t.Errorf("%q, %v: want none that worked", line, err)
	}
	t.Logf("%d of %d worked", worked, tried)
	p.Wait()
}

// The signals that wait for the processes of a user have one limit, and the shim
// cannot confine a tool without any.
func TestASandboxedToolLeavesSignalsForOthers(t *testing.T) {
	var own unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_SIGPENDING, &own))
	if own.Cur < 4*minSignals {
		t.Skipf("this user may have %d signals queued, too few to share", own.Cur)
	}
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		j := set(imprison(t))
		for range 2 {
			p := j.self("queuer")
			line, err := p.Next()
			check(t, err)
			var n uint64
			if _, err := fmt.Sscanf(string(line), "queued %d", &n); err != nil || n > shareOfSignals(own.Cur) {
				t.Errorf("%q, %v: want no more than %d of %d", line, err, shareOfSignals(own.Cur), own.Cur)
			}
			defer func() { p.Kill(); p.Wait() }()
			if exit, said := j.run("true"); !exit.OK() {
				t.Errorf("%v: %s", exit, said)
			}
		}
		script := `test $(ulimit -i) -le ` + strconv.FormatUint(shareOfSignals(own.Cur), 10) + ` && ! ulimit -i ` +
			strconv.FormatUint(own.Cur, 10)
		if _, err := exec.LookPath("bash"); err == nil {
			if exit, said := j.run("bash -c '" + script + "'"); !exit.OK() {
				t.Errorf("%v: %s", exit, said)
			}
		}
	})
}

func TestTheShareOfSignals(t *testing.T) {
	for limit, want := range map[uint64]uint64{
		0: 0, 100: 100, 128: 128, 1000: 128, 96365: 376,
		unix.RLIM_INFINITY: unix.RLIM_INFINITY / signalShare,
	} {
		if got := shareOfSignals(limit); got != want {
			t.Errorf("%d: got %d, want %d", limit, got, want)
		}
	}
}

// What a process may change of itself, it still may.
func TestASandboxedToolMayChangeItself(t *testing.T) {
	j := imprison(t)
	for what, script := range map[string]string{
		"its limits":     `ulimit -n 64 && ulimit -c 0 && test $(ulimit -n) = 64`,
		"its priority":   `test "$(nice -n 5 nice)" -gt "$(nice)"`,
		"its processors": `command -v taskset >/dev/null || exit 0; taskset 1 true`,
		"its disk":       `command -v ionice >/dev/null || exit 0; ionice -c 3 true`,
		"its scheduler":  `command -v chrt >/dev/null || exit 0; chrt --batch 0 true`,
		"others' limits": `command -v prlimit >/dev/null || exit 0; prlimit --pid ` + strconv.Itoa(os.Getpid()) +
			` --nofile`,
		"a process group": `set -m; sleep 0 & wait $!`,
	} {
		if exit, said := j.run(script); !exit.OK() {
			t.Errorf("%s: %v, it said %q", what, exit, said)
		}
	}
}
