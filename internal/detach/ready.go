package detach

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readyVariable names the descriptor of a pipe at which the process that has started the
// daemon waits until it is ready.
const readyVariable = "NOUSED_READY_FD"

// InheritVariable names the descriptors that a daemon leaves to the program that takes
// its place in the same process, and that only.
const InheritVariable = "NOUSED_INHERIT"

// HeldStatus is the exit status of a daemon that has not started as another one has
// its files.
const HeldStatus = 75

// ReadyLine is what comes through the pipe when both sockets answer. Without it, the
// pipe's end says that the daemon has ended.
const ReadyLine = "ready\n"

// ReadyAt is the environment variable for a daemon that is to say that it is ready
// at a descriptor.
func ReadyAt(fd int) string { return readyVariable + "=" + strconv.Itoa(fd) }

// Ready takes the pipe over, so that no child of the process inherits it or its
// variable. What it returns says that the daemon is ready, once; without a pipe it
// does nothing.
func Ready() (say func()) {
	fd, err := strconv.Atoi(os.Getenv(readyVariable))
	_ = os.Unsetenv(readyVariable)
	if err != nil || fd < 3 {
		return func() {}
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "ready")
	return func() {
		_, _ = pipe.WriteString(ReadyLine) // who does not wait any more need not be told
		_ = pipe.Close()
	}
}

// Environ is an environment for a daemon of its own: without what is between this
// process, or the service that it is of, and its own supervisor, and without the
// session that was chosen for this process alone.
func Environ(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "NOUS_SESSION", readyVariable,
			InheritVariable, "PWD", "OLDPWD":
			return true
		}
		return strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_")
	})
}
