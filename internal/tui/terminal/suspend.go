// Package terminal is the terminal that the screen is on: lending it to another program,
// suspending, its wheel, its clipboard's images, and how often it is drawn.
//
// Lent and Stops are for any goroutine; the rest belongs to bubbletea's one. The package knows
// nothing of what is shown.
package terminal

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

// Stops are the signals with which a shell, or a user elsewhere, stops and
// continues this process.
type Stops chan os.Signal

// Stopped asks to be suspended; continued says that the process was stopped by a
// signal that it cannot see, and goes on.
type (
	Stopped   struct{}
	Continued struct{}
)

func (s Stops) Watch()  { signal.Notify(s, syscall.SIGTSTP, syscall.SIGCONT) }
func (s Stops) Ignore() { signal.Stop(s) }

// Listen passes the signals on to the screen until ctx ends.
func (s Stops) Listen(ctx context.Context, send func(tea.Msg)) {
	s.Watch()
	defer s.Ignore()
	for {
		select {
		case sig := <-s:
			if sig == syscall.SIGTSTP {
				send(Stopped{})
			} else {
				send(Continued{})
			}
		case <-ctx.Done():
			return
		}
	}
}

// Release gives the terminal back while f runs, and draws everything anew.
func Release(f func()) tea.Cmd {
	return tea.Exec(Meanwhile(f), func(error) tea.Msg { return tea.ResumeMsg{} })
}

// Stop stops the process and its group, as Ctrl+Z does in other programs, and
// returns when they go on. A program that has asked for SIGTSTP once is not
// stopped by it any more, hence the other signal.
func Stop() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(0, syscall.SIGSTOP) == nil {
		<-goesOn
	}
}

// Stoppable tells whether a shell waits for this process and would continue it:
// whether one of its group has a parent in another group of the session. A
// terminal that was opened for nous alone has no such.
func Stoppable() bool {
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

// Meanwhile is a func in the place of a program that uses the terminal.
type Meanwhile func()

// Run calls the func.
func (f Meanwhile) Run() error {
	f()
	return nil
}

// SetStdin does nothing.
func (Meanwhile) SetStdin(io.Reader) {}

// SetStdout does nothing.
func (Meanwhile) SetStdout(io.Writer) {}

// SetStderr does nothing.
func (Meanwhile) SetStderr(io.Writer) {}
