package tui

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// stops are the signals with which a shell, or a user elsewhere, stops and
// continues this process.
type stops chan os.Signal

// stopped asks to be suspended; continued says that the process was stopped by a
// signal that it cannot see, and goes on.
type (
	stopped   struct{}
	continued struct{}
)

func (s stops) watch()  { signal.Notify(s, syscall.SIGTSTP, syscall.SIGCONT) }
func (s stops) ignore() { signal.Stop(s) }

// listen passes the signals on to the screen until ctx ends.
func (s stops) listen(ctx context.Context, send func(tea.Msg)) {
	s.watch()
	defer s.ignore()
	for {
		select {
		case sig := <-s:
			if sig == syscall.SIGTSTP {
				send(stopped{})
			} else {
				send(continued{})
			}
		case <-ctx.Done():
			return
		}
	}
}

// suspend stops nous and gives the terminal back until it goes on.
func (m *model) suspend() tea.Cmd {
	if !stoppable() {
		m.talk.Notice("info", "nous cannot be suspended here: there is no shell that would let it go on")
		return nil
	}
	return release(func() {
		m.stops.ignore() // the end of this stop is no news
		defer m.stops.watch()
		m.titled(popTitle)
		m.forgetInput()
		stop()
		m.titled(pushTitle)
	})
}

// forgetInput drops what the terminal has sent and nobody has read: its answer to
// a question of ours, say, which the shell would take for something typed.
func (m *model) forgetInput() {
	if in, ok := m.opts.In.(interface{ Fd() uintptr }); ok {
		_ = unix.IoctlSetInt(int(in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	}
}

// release gives the terminal back while f runs, and draws everything anew.
func release(f func()) tea.Cmd {
	return tea.Exec(meanwhile(f), func(error) tea.Msg { return tea.ResumeMsg{} })
}

// stop stops the process and its group, as Ctrl+Z does in other programs, and
// returns when they go on. A program that has asked for SIGTSTP once is not
// stopped by it any more, hence the other signal.
func stop() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(0, syscall.SIGSTOP) == nil {
		<-goesOn
	}
}

// stoppable tells whether a shell waits for this process and would continue it:
// whether one of its group has a parent in another group of the session. A
// terminal that was opened for nous alone has no such.
func stoppable() bool {
	group, err := unix.Getpgid(0)
	session, err2 := unix.Getsid(0)
	if err != nil || err2 != nil {
		return false
	}
	for parent := os.Getppid(); parent > 1; parent = parentOf(parent) {
		if of, err := unix.Getsid(parent); err != nil || of != session {
			return false
		}
		if of, err := unix.Getpgid(parent); err != nil || of != group {
			return err == nil
		}
	}
	return false
}

// parentOf is a process's parent, 0 where the system does not say.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may hold anything
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}

// meanwhile is a func in the place of a program that uses the terminal.
type meanwhile func()

// Run calls the func.
func (f meanwhile) Run() error {
	f()
	return nil
}

// SetStdin does nothing.
func (meanwhile) SetStdin(io.Reader) {}

// SetStdout does nothing.
func (meanwhile) SetStdout(io.Writer) {}

// SetStderr does nothing.
func (meanwhile) SetStderr(io.Writer) {}
