package start

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"noused/internal/detach"
	"noused/internal/trust"
)

// Private is a daemon that nobody else uses. It ends with this process, in whatever way
// that ends, and its folder goes with it.
type Private struct {
	Socket string

	folder string
	owner  *os.File // its end is the daemon's
	ended  chan error
}

// endWithin is how long a private daemon has to end.
const endWithin = 10 * time.Second

// maxSocket is the longest path that a socket can have beside ".events".
const maxSocket = 107 - len(".events")

// StartPrivate starts a private daemon, whose sessions are in the folder keep, or go away
// with it where that is "". It blocks for as long as o says; Socket of o
// is not looked at. Errors are as Daemon's.
func StartPrivate(ctx context.Context, o Options, keep string) (*Private, error) {
	program, err := Find()
	if err != nil {
		next := "install it, or name the folder that has it in PATH"
		if errors.As(err, new(*trust.ProgramError)) {
			next = "install one of your own, or have its owner changed"
		}
		return nil, failf(next, "no daemon was started: %v", err)
	}
	folder, err := privateFolder()
	if err != nil {
		return nil, failf("set TMPDIR to a folder that you can write to", "no daemon was started: %v", err)
	}
	p := &Private{Socket: filepath.Join(folder, "sock"), folder: folder}
	limited, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	o.Socket = p.Socket
	if err := p.start(limited, o, program, keep); err != nil {
		p.End()
		return nil, err
	}
	return p, nil
}

// privateFolder makes a folder whose name is short enough for a socket in it.
func privateFolder() (string, error) {
	for _, parent := range []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/tmp"} {
		if parent == "" || len(filepath.Join(parent, "nous-0123456789", "sock")) > maxSocket {
			continue
		}
		return os.MkdirTemp(parent, "nous-")
	}
	return "", fmt.Errorf("the names of %s and of XDG_RUNTIME_DIR are too long for a socket", os.TempDir())
}

func (p *Private) start(ctx context.Context, o Options, program, keep string) error {
	path := filepath.Join(p.folder, "log")
	log, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return unwritable(err, path)
	}
	defer log.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	owned, owner, err := os.Pipe()
	if err != nil {
		return errors.Join(err, said.Close())
	}
	p.owner = owner
	state := keep
	if state == "" {
		state = filepath.Join(p.folder, "state")
	}
	cmd := exec.Command(program, "--socket", p.Socket, "--state-dir", state, "--drain-timeout", "1s", "--log-level",
		"warn")
	cmd.Env = append(detach.Environ(os.Environ()), detach.ReadyAt(3), detach.OwnedAt(4, p.folder))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{said, owned}
	keepToOurselves()
	err = cmd.Start()
	_, _ = said.Close(), owned.Close()
	if err != nil {
		return failf("", "no daemon was started: %v", err)
	}
	p.ended = make(chan error, 1)
	go func() { p.ended <- cmd.Wait() }() // ends with the daemon, or with this process
	if o.await(ctx, ready) {
		return nil
	}
	tail := detach.Tail(log, 0, tailSize)
	select {
	case err := <-p.ended:
		p.ended <- err
		return &Error{What: "the private noused has ended at once: " + status(err), Said: tail}
	case <-ctx.Done():
		return &Error{What: fmt.Sprintf("the private noused is not ready after %s", o.Within), Said: tail}
	}
}

// lostWithin is how long the end of a daemon is waited for that hangs up.
const lostWithin = 2 * time.Second

// Lost says how a daemon ended that was not told to, and the last it said. It blocks for two
// seconds at most.
func (p *Private) Lost() error {
	e := &Error{What: "the private noused does not answer any more"}
	select {
	case err := <-p.ended:
		p.ended <- err
		e.What = "the private noused has ended before the run did: " + status(err)
	case <-time.After(lostWithin):
	}
	if log, err := os.Open(filepath.Join(p.folder, "log")); err == nil {
		e.Said = detach.Tail(log, 0, tailSize)
		_ = log.Close()
	}
	return e
}

// End ends the daemon and returns when it and its folder are gone. It blocks for ten
// seconds at most.
func (p *Private) End() {
	if p.owner != nil {
		_ = p.owner.Close()
	}
	if p.ended != nil {
		select {
		case <-p.ended:
		case <-time.After(endWithin): // it ends by itself, and its folder with it
			return
		}
	}
	_ = os.RemoveAll(p.folder) // where it could not
}
