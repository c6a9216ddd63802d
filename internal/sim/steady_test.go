//go:build sim

package sim

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// doze is how late the timers of a steady process's threads may be.
const doze = 30 * time.Second

// steady runs the test in a process of its own, and reports whether this is that process.
// Go's runtime has a thread that looks every few milliseconds who was held up by the
// machine, and has another goroutine go on instead: which one goes first would depend on the
// machine's load. There is one goroutine at a time there, and that thread sleeps: the
// kernel may wake it late. Nothing in such a process may wait for real time, or for
// another process.
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
	if err := start(child); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	return false
}

// start starts a process whose threads are late: they take it over from the one that
// starts it.
func start(child *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(doze), 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) }()
	}
	return child.Start()
}
