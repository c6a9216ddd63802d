//go:build sim

package sim

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// steady runs the test in a process of its own, and reports whether this is that process.
// Go's runtime has a thread that looks every few milliseconds who was held up by the
// machine, and has another goroutine go on instead: which one goes first would depend on the
// machine's load. There is one goroutine at a time there, and that thread sleeps for ever.
// Nothing in such a process may wait for real time, or for another process.
func steady(t *testing.T) bool {
	t.Helper()
	const is = "NOUSED_SIM_STEADY"
	if os.Getenv(is) != "" {
		return true
	}
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		return strings.HasPrefix(arg, "-test.testlogfile")
	})
	child := exec.Command("/proc/self/exe", append(args, "-test.run=^"+t.Name()+"$")...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.Env = append(os.Environ(), is+"=yes", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	started := make(chan error)
	asleep := -1
	go func() { // its thread is not used again: what holds for the child holds for it, too
		runtime.LockOSThread()
		fd, err := sleepless()
		if err == nil {
			asleep = fd
		} else {
			t.Logf("a seed may not decide everything: that thread cannot be stopped here: %v", err)
		}
		started <- child.Start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- child.Wait() }()
	for sleeper := uint32(0); ; {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return false
		default:
			wake(asleep, &sleeper)
		}
	}
}

// sleepless has every sleep of this thread, and of processes that it starts, wait for who
// reads the file that it returns.
func sleepless() (int, error) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_NANOSLEEP},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// wake lets a thread go on that wants to sleep, if one does within a moment: all but the first,
// which is the runtime's. The others sleep while a process that fails says why.
func wake(asleep int, sleeper *uint32) {
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(asleep), Events: unix.POLLIN}}, 100)
	if err != nil || ready == 0 {
		return
	}
	var asks struct { // seccomp_notif
		id    uint64
		pid   uint32
		flags uint32
		data  [64]byte
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(asleep), unix.SECCOMP_IOCTL_NOTIF_RECV,
		uintptr(unsafe.Pointer(&asks))); e != 0 {
		return
	}
	if *sleeper == 0 {
		*sleeper = asks.pid
	}
	if asks.pid == *sleeper {
		return
	}
	const goOn = 1     // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	answer := struct { // seccomp_notif_resp
		id    uint64
		value int64
		err   int32
		flags uint32
	}{id: asks.id, flags: goOn}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(asleep), unix.SECCOMP_IOCTL_NOTIF_SEND,
		uintptr(unsafe.Pointer(&answer)))
}
