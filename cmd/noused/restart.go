package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"noused/internal/detach"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/server"
	"noused/internal/session"
	"noused/internal/trust"
)

const tryTime = 10 * time.Second // for the next program to read the configuration

// inherited are the files that the program before this one, in the same process, has
// left. main sets it.
var inherited map[string]*os.File

// inherit takes over what was left, as in "commands=7 events=8 socket-lock=9
// state-lock=10", so that no child inherits it.
func inherit() map[string]*os.File {
	files := map[string]*os.File{}
	for _, field := range strings.Fields(os.Getenv(detach.InheritVariable)) {
		name, number, _ := strings.Cut(field, "=")
		if fd, err := strconv.Atoi(number); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
			files[name] = os.NewFile(uintptr(fd), name)
		}
	}
	_ = os.Unsetenv(detach.InheritVariable)
	return files
}

// openStore opens the state directory, with the lock that was left.
func openStore(dir string) (*session.Store, error) {
	if held := inherited["state-lock"]; held != nil {
		return session.Inherit(dir, held)
	}
	return session.Open(dir)
}

// openSockets listens, on the sockets that were left.
func openSockets(path string) (*server.Sockets, error) {
	if commands, events := inherited["commands"], inherited["events"]; commands != nil && events != nil {
		return server.Inherit(path, server.Kept{Commands: commands, Events: events, Lock: inherited["socket-lock"]})
	}
	return server.Listen(path)
}

// restartError is what Run ends with where the daemon is to start anew: these are
// the files that it leaves.
type restartError struct {
	files map[string]*os.File
	// executes is syscall.Exec, or the way to do it where hosted agents live on.
	executes func(path string, args, env []string) error
}

func (*restartError) Error() string { return "the daemon starts anew" }

// exec has the program at the daemon's path take this one's place. It returns where it
// cannot.
func (r *restartError) exec() error {
	defer runtime.KeepAlive(r) // a file that nobody holds is closed
	var left []string
	for name, f := range r.files {
		if f == nil {
			continue
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		left = append(left, name+"="+strconv.Itoa(int(f.Fd())))
	}
	env := append(environmentFile.Without(os.Environ()), detach.InheritVariable+"="+strings.Join(left, " "))
	executes := r.executes
	if executes == nil {
		executes = syscall.Exec
	}
	err := executes(program(), os.Args, env)
	if err != nil { // it has gone meanwhile: what runs is still there
		err = errors.Join(err, executes(selfPath, os.Args, env))
	}
	return fmt.Errorf("restart: %w", err)
}

// program is where the daemon's program was found when it started. Another may be
// there by now.
var program = sync.OnceValue(func() string {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		named, one := os.Stat(path)
		self, other := os.Stat(selfPath)
		if one == nil && other == nil && os.SameFile(named, self) {
			return path
		}
	}
	path, err = os.Executable()
	if err != nil {
		return selfPath
	}
	return strings.TrimSuffix(path, " (deleted)")
})

// shutdown is how a client ends the daemon.
type shutdown struct {
	cfg       Config
	store     *session.Store
	sockets   *server.Sockets
	forAgents *server.Sockets // nil: none
	asked     chan struct{}   // closed when it is to end

	trying sync.Mutex // held while the next program is tried

	mu    sync.Mutex
	gone  bool
	left  map[string]*os.File // where it is to start anew
	hosts bool                // the next program takes over hosted agents
	// for restartError
	executes func(path string, args, env []string) error
}

// shutdown has the daemon stop, or start anew, when the answer is on its way.
func (d *shutdown) shutdown(ctx context.Context, p protocol.ShutdownParams) (protocol.ShutdownAccepted, error) {
	reply := protocol.ShutdownAccepted{
		Command: protocol.Shutdown.Name(), PID: os.Getpid(),
		DrainMS: d.cfg.DrainTimeout.Milliseconds(),
	}
	if err := runloop.ByPerson(ctx, protocol.Shutdown.Name()); err != nil {
		return reply, err
	}
	if !p.Restart {
		return reply, d.start(func() error { return nil })
	}
	d.trying.Lock()
	defer d.trying.Unlock()
	if d.going() {
		return reply, stopsAlready()
	}
	hosts, err := tryNext(ctx)
	if err != nil {
		return reply, err
	}
	return reply, d.start(func() error {
		d.hosts = hosts && owner == nil
		return d.leave()
	})
}

// leavesAgents reports that the daemon starts anew, and that the next program takes over hosted
// agents.
func (d *shutdown) leavesAgents() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left != nil && d.hosts
}

// leaveAlso keeps a file more for the next program, and has that executed in another way.
func (d *shutdown) leaveAlso(name string, f *os.File, executes func(path string, args, env []string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left != nil {
		d.left[name], d.executes = f, executes
	}
}

func stopsAlready() error {
	return protocol.Rejectf(protocol.ShuttingDown, "%v", "the daemon stops already")
}

// start has the daemon end, once what comes before it has been done.
func (d *shutdown) start(before func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return stopsAlready()
	}
	if err := before(); err != nil {
		return err
	}
	d.gone = true
	close(d.asked)
	return nil
}

func (d *shutdown) going() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// halt has the daemon stop and not start anew, whatever was asked before, and no matter who
// asks from here on: it was told so by a signal.
func (d *shutdown) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = true
	for _, f := range d.left {
		if f != nil {
			_ = f.Close()
		}
	}
	d.left = nil
}

// leave keeps what the next program needs.
func (d *shutdown) leave() error {
	held, err := d.store.KeepLock()
	if err != nil {
		return err
	}
	kept, err := d.sockets.Keep()
	if err != nil {
		return errors.Join(err, held.Close())
	}
	d.left = map[string]*os.File{
		"state-lock": held, "commands": kept.Commands, "events": kept.Events,
		"socket-lock": kept.Lock,
	}
	if d.forAgents != nil { // else the next program makes its own
		if kept, err := d.forAgents.Keep(); err == nil {
			d.left["agent-commands"], d.left["agent-events"] = kept.Commands, kept.Events
		}
	}
	return nil
}

// end is what Run returns when all is over.
func (d *shutdown) end() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		return nil
	}
	return &restartError{d.left, d.executes}
}

// tryNext has the program that would take this one's place read the configuration, and
// say which journals it reads: what cannot start is to be known before anything has
// stopped. A program that cannot try, as an older one, cannot take over the sockets
// either. hosts reports that it takes over hosted agents.
func tryNext(ctx context.Context) (hosts bool, err error) {
	if err := trust.Program(program()); err != nil {
		return false, notRestarted("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(), append([]string{tryName}, os.Args[1:]...)...)
	cmd.Env = environmentFile.Without(notifyEnviron())
	cmd.WaitDelay = time.Second
	var says, complains beginning
	cmd.Stdout, cmd.Stderr = &says, &complains
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return strings.Contains(string(complains), takesAgents), judgeNext(string(says))
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		return false, notRestarted(
			"%s is another version, which cannot take over from this one; nous stop ends this one, and nous starts the other",
			program())
	case exit != nil && len(complains) > 0:
		return false, notRestarted("%s", plaintext.Clean(strings.TrimSpace(string(complains))))
	}
	return false, notRestarted("%s cannot be run: %v", program(), err)
}

// judgeNext looks at what the next program has said of itself.
func judgeNext(says string) error {
	said, ok := strings.CutPrefix(strings.TrimSuffix(says, "\n"), triedWell)
	version, err := strconv.Atoi(said)
	switch {
	case !ok || err != nil:
		return notRestarted("%s is no noused", program())
	case version < session.JournalVersion:
		return notRestarted("%s is an older version: it reads journals up to version %d, and these may have version %d",
			program(), version, session.JournalVersion)
	}
	return nil
}

func notRestarted(format string, args ...any) error {
	return protocol.Errorf(protocol.SessionError, "not restarted: "+format, args...)
}

// beginning is the first KiB of what a program writes.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), 1<<10-len(*b))]...)
	return len(p), nil
}

const (
	tryName   = "try"
	triedWell = "noused reads journals up to version "
)

// tryCommand is the hidden command that reads the configuration as the daemon would,
// and starts nothing. It then says what it is.
func tryCommand(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:    tryName,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := readSettings(cmd.Flags(), getenv)
			if err == nil { // a daemon of an older version reads the first alone
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s%d\n", triedWell, session.JournalVersion)
				fmt.Fprint(cmd.ErrOrStderr(), takesAgents)
			}
			return err
		},
	}
	registerFlags(cmd.Flags())
	return cmd
}
