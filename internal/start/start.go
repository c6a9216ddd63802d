// Package start starts a daemon where none runs: through the user's systemd where
// that has our units, else by itself, apart from the terminal. It also finds what such a daemon has
// logged.
//
// Concurrency: any number of processes, and goroutines, may start a daemon at once.
// One of them does, the others wait for it.
//
// It refuses to wait longer than a few seconds, to start a daemon where another
// user, or anything else, listens, and to keep one alive.
package start

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/detach"
	"noused/internal/protocol"
	"noused/internal/trust"
	"noused/internal/xdg"
)

// Patience is how long nous waits for a daemon to start.
const Patience = 5 * time.Second

const tailSize = 2 << 10 // bytes of the log that an error has

// Options say which daemon is started.
type Options struct {
	Socket string // of commands
	// Named: somebody has named the socket, so that the daemon has to be told it. Else
	// both find it by themselves.
	Named  bool
	Within time.Duration // how long the start may take
	Getenv func(string) string
}

// Started is the daemon that was started. Both are empty where another process has
// started it.
type Started struct {
	PID  int    // 0 where systemd has started it
	Log  string // a file, or the unit
	Unit bool   // systemd has started it
}

// Error says why no daemon runs though one was to be started.
type Error struct {
	What string // one sentence
	Said string // what the daemon, or systemd, said; several lines, or ""
	Next string // what to do, or ""

	why error // errHeld, a client's, or nil
}

func (e *Error) Error() string { return e.What }

func (e *Error) Unwrap() error { return e.why }

// errHeld says that another daemon has the files.
var errHeld = errors.New("another daemon has the files")

// Lines is all of it.
func (e *Error) Lines() string {
	return join(e.What, e.Said, e.Next)
}

func failf(next, format string, args ...any) *Error {
	return &Error{What: fmt.Sprintf(format, args...), Next: next}
}

// Daemon has a daemon listen on the socket and returns when it answers. It blocks for
// as long as it may take at most. Errors are an *Error, those of client.Connect where something
// else is at the socket, and ctx's.
func Daemon(ctx context.Context, o Options) (Started, error) {
	limited, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	s, err := o.start(limited)
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	return s, err
}

func (o Options) start(ctx context.Context) (Started, error) {
	if o.Socket == o.defaultSocket() && managed(o.Getenv) {
		s, err := o.startUnit(ctx)
		if !errors.Is(err, errNoUnit) {
			return s, err
		}
	}
	log := o.LogPath()
	gate, err := enter(ctx, filepath.Dir(log))
	if err != nil {
		return Started{}, unwritable(err, log)
	}
	defer gate.Close()
	for tries := 1; ; tries++ {
		switch conn, err := client.Connect(ctx, o.Socket); {
		case err == nil:
			return Started{}, conn.Close() // another one has started it meanwhile
		case !errors.As(err, new(*client.NoDaemonError)):
			return Started{}, err
		}
		s, err := o.spawn(ctx, log)
		if !errors.Is(err, errHeld) {
			return s, err
		}
		if err := o.outlast(ctx, tries, err); err != nil {
			return s, err
		}
	}
}

// LogPath is the log of a daemon that nous has started.
func (o Options) LogPath() string {
	return filepath.Join(detach.LogDir(o.Getenv), detach.LogName(o.Socket, o.defaultSocket()))
}

func (o Options) defaultSocket() string { return protocol.DefaultSocket(o.Getenv) }

// Find returns the path of noused: beside this program, or else where PATH has it. One
// that is in another user's hands is an error.
func Find() (string, error) {
	path, err := find()
	if err == nil {
		err = trust.Program(path)
	}
	return path, err
}

func find() (string, error) {
	const name = "noused"
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", errors.New("there is no noused beside this program or in PATH")
	}
	return path, nil
}

// enter waits until no other process starts a daemon of this user's. The kernel lets
// go of the gate with the process.
func enter(ctx context.Context, dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	entered := make(chan error, 1)
	go func() { // ends with the wait, or with this process: nothing cuts it short
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		entered <- err
	}()
	select {
	case err := <-entered:
		if err != nil {
			_ = f.Close()
		}
		return f, err
	case <-ctx.Done():
		go func() { // ends as the one above: who comes late does not shut the others out
			<-entered
			_ = f.Close()
		}()
		return nil, errBusy
	}
}

var errBusy = errors.New("another nous is starting a daemon, and that takes too long")

func unwritable(err error, log string) error {
	switch {
	case errors.Is(err, errBusy):
		return failf("try again; what it says is in "+log, "%v", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return failf("make room there, or set XDG_STATE_HOME to a folder elsewhere",
			"no daemon was started: the disk of %s is full", filepath.Dir(log))
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return failf("the daemon keeps sessions beside it; set XDG_STATE_HOME to a folder that you can write to",
			"no daemon was started: its log %s cannot be written (%v)", log, reason(err))
	}
	return failf("", "no daemon was started: its log %s cannot be written: %v", log, err)
}

// full tells whether the file system of a folder has no room for a line.
func full(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Bavail*uint64(max(0, fs.Bsize)) < 4<<10
}

// reason is the system's word for an error.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// spawn starts noused in a session of its own, with a log in the place of a terminal.
func (o Options) spawn(ctx context.Context, path string) (Started, error) {
	program, err := Find()
	if foreign := (*trust.ProgramError)(nil); errors.As(err, &foreign) {
		return Started{}, failf("install one of your own, or have its owner changed", "no daemon was started: %v", err)
	}
	if err != nil {
		return Started{}, failf("install it, or name the folder that has it in PATH", "no daemon was started: %v", err)
	}
	log, from, err := detach.Open(path)
	if err != nil {
		return Started{}, unwritable(err, path)
	}
	defer log.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return Started{}, err
	}
	defer ready.Close()
	cmd := o.command(program)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{said}
	keepToOurselves()
	err = cmd.Start()
	_ = said.Close()
	if err != nil {
		return Started{}, failf("", "no daemon was started: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the daemon, or with this process
	s := Started{PID: cmd.Process.Pid, Log: path}
	if o.await(ctx, ready) {
		return s, o.mustListen(ctx, s)
	}
	return o.failed(ctx, s, ended, detach.Tail(log, from, tailSize))
}

// command is the daemon's, whose home is the folder that it works in.
func (o Options) command(program string) *exec.Cmd {
	cmd := exec.Command(program)
	if o.Named {
		cmd.Args = append(cmd.Args, "--socket", o.Socket)
	}
	cmd.Dir = "/"
	if info, err := os.Stat(xdg.Home(o.Getenv)); err == nil && info.IsDir() {
		cmd.Dir = xdg.Home(o.Getenv)
	}
	cmd.Env = append(detach.Environ(os.Environ()), "PWD="+cmd.Dir, detach.ReadyAt(3))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// keepToOurselves has no child inherit what this process has inherited: a shell's
// lock would be held for as long as the daemon runs.
func keepToOurselves() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if fd := 0; scan(e.Name(), &fd) && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func scan(text string, n *int) bool {
	_, err := fmt.Sscan(text, n)
	return err == nil
}

// await reports whether the daemon says that it is ready before it ends, or time does.
func (o Options) await(ctx context.Context, ready *os.File) bool {
	if end, ok := ctx.Deadline(); ok {
		_ = ready.SetReadDeadline(end)
	}
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line := make([]byte, len(detach.ReadyLine))
	_, err := io.ReadFull(ready, line)
	return err == nil
}

// mustListen tells a daemon that listens elsewhere.
func (o Options) mustListen(ctx context.Context, s Started) error {
	conn, err := client.Connect(ctx, o.Socket)
	if errors.As(err, new(*client.NoDaemonError)) {
		return failf("set NOUSED_SOCKET to the socket that its configuration names",
			"noused was started (process %d) and does not listen at %s", s.PID, o.Socket)
	}
	if err != nil {
		return err
	}
	return conn.Close()
}

// failed says why the daemon is not ready. One that has ended because another runs
// already is no failure where that one answers.
func (o Options) failed(ctx context.Context, s Started, ended <-chan error, said string) (Started, error) {
	select {
	case err := <-ended:
		if conn, e := client.Connect(ctx, o.Socket); e == nil {
			return Started{}, conn.Close()
		}
		why := held(err)
		if e := o.unreached(); e != nil && why == nil { // one of an older version says less
			return Started{}, e
		}
		if said == "" && full(filepath.Dir(s.Log)) {
			return Started{}, unwritable(syscall.ENOSPC, s.Log)
		}
		return Started{}, &Error{
			What: "noused was started and ended at once: " + status(err), Said: said,
			Next: "its log is " + s.Log, why: why,
		}
	case <-ctx.Done():
		return Started{}, &Error{
			What: fmt.Sprintf("noused was started (process %d) and is not ready after %s", s.PID, o.Within), Said: said,
			Next: fmt.Sprintf("its log is %s; try again in a moment, or end it with kill %d", s.Log, s.PID),
		}
	}
}

// held is errHeld where that is why a daemon has ended.
func held(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == detach.HeldStatus {
		return errHeld
	}
	return nil
}

func status(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return strings.TrimSpace(err.Error())
}
