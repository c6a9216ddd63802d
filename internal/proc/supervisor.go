// Package proc starts, confines and ends every child process of the daemon.
// A [Supervisor] starts them; a [Process] is one of them, with its input, its
// lines of output and the last of its stderr. A guardian process ends what a
// killed daemon leaves, orphans are adopted and ended with the process they
// descend from, and a sandbox keeps processes to the folders that they may
// write to.
//
// # Concurrency properties
//
// A Supervisor may be used from any goroutine, a Process as its methods say.
// Every goroutine ends with its process, or with [Supervisor.Close].
//
// # What it refuses to do
//
// It knows no tool, no protocol and no model: what a process is for, and how
// long it may take, is the caller's matter. It never starts a program with less
// isolation than it was asked for, and gives it no environment but the caller's.
package proc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// KillGrace is how long a process group has between SIGTERM and SIGKILL.
	KillGrace = 2 * time.Second
	// drainTime is how long output is waited for after the process has exited,
	// while a grandchild holds the pipe.
	drainTime = 200 * time.Millisecond
	// inputQueue is how many writes may wait for a child that does not read.
	inputQueue = 8
)

// Error is why a program cannot be started, in words for the user.
type Error struct {
	Reason string
	// Forbidden is set where it could not be confined as it should be.
	Forbidden bool
	// Weak is set where [Sandbox.Weak] would have let it start all the same.
	Weak bool
}

func (e *Error) Error() string { return e.Reason }

// Command is a program to start. Path is absolute; Args[0] is what the program
// sees as its own name. MaxLine bounds a line of its output, in bytes; 0 for one
// whose lines are of no interest. Name is for messages. Dir is where it starts, "" the
// folder of [Supervisor.StartIn].
type Command struct {
	Name    string
	Path    string
	Args    []string
	Dir     string
	Env     []string
	MaxLine int
	// Script is set for a shell with a command of somebody's. It has no input, both
	// its outputs are one, in order, and what it leaves running ends with it: at
	// once, or, where it was stopped, once that has closed the output or is killed.
	Script bool
}

// Supervisor starts every child process of the daemon, from one OS thread that
// lives as long as the Supervisor: a child's parent-death signal is tied to
// the thread that forked it (golang/go#27505). What its children leave behind
// is adopted and ended with them, and a guardian process ends everything should
// the daemon itself be killed (tools.md §5). The zero value is not usable.
type Supervisor struct {
	*spawner
	box *sandbox // nil: its children are not confined
}

// spawner is what a Supervisor and its sandboxed views share.
type spawner struct {
	helper   string
	log      *zap.Logger
	spawns   chan spawn
	closing  chan struct{} // no child is started any more
	quit     chan struct{} // the thread that starts children ends
	lines    *longLines
	work     sync.WaitGroup // the spawning thread
	close    sync.Once
	guardian *guardian // nil without a helper
	orphans  *orphans
	scratch  scratch
	hidden   Hidden // from all that are sandboxed
	caches   *caches
	offline  bool   // all that are sandboxed are
	empty    string // where commands without a folder start, "" for /
	covering sync.Mutex
	tried    bool // whether it covers is known
	covers   bool
	onMain   bool // children are started by the main thread, as ServeMain says

	keeping   sync.Mutex
	kept      []*Process      // for the next program
	unclaimed map[uint32]bool // numbers of children that a former program has left
}

type spawn struct {
	work  func() error
	reply chan error
}

// NewSupervisor starts the spawning thread, and makes this process the one that
// adopts all orphans among its descendants. helper is a program whose main
// calls [Helper] first; with "" there is neither guardian nor sandbox. Close
// ends it.
func NewSupervisor(helper string, log *zap.Logger) *Supervisor {
	return newSupervisor(helper, newOrphans(false, nil), log, nil)
}

// NewNested is NewSupervisor for a program that another Supervisor may have
// started, and that has one child at a time. Where that is so, children keep that
// one's mark, and it does what a guardian would do: there is none.
func NewNested(helper string, log *zap.Logger) *Supervisor {
	if readMark(os.Getpid()) == 0 {
		return NewSupervisor(helper, log)
	}
	return newSupervisor("", newOrphans(true, nil), log, nil)
}

// newSupervisor makes one that has what a former program has left, where left is not nil.
func newSupervisor(helper string, o *orphans, log *zap.Logger, left *Left) *Supervisor {
	n := &spawner{
		helper: helper, log: log, spawns: make(chan spawn), closing: make(chan struct{}), quit: make(chan struct{}),
		lines:   newLongLines(),
		orphans: o, onMain: left != nil, unclaimed: map[uint32]bool{},
	}
	// No child gets what this process was started with and does not know of.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if !n.onMain {
		n.work.Go(n.run)
	}
	if helper != "" {
		n.guardian = newGuardian(helper, n.orphans.id, n.orphans.foreign, func(cmd *exec.Cmd) error {
			return n.spawn(cmd, 0, n.orphans.guards)
		}, log)
		n.scratch.told = n.guardian.keep
	}
	if left != nil {
		n.takeOver(left)
	}
	if helper != "" {
		n.work.Go(sweepScratch)
	}
	return &Supervisor{spawner: n}
}

// takeOver has what a former program has left.
func (n *spawner) takeOver(left *Left) {
	if left.Guardian != nil {
		n.guardian.take(left.Guardian)
	} else { // it had just ended
		n.guardian.ensure()
		for _, k := range left.Children {
			n.guardian.watch(k.PID)
		}
	}
	if left.Scratch != nil {
		if err := n.scratch.take(left.Scratch); err != nil {
			n.log.Warn("the temporary files of hosted agents cannot be taken over", zap.Error(err))
		}
	}
	for _, k := range left.Children {
		n.unclaimed[k.Number] = true
	}
}

// Hide has everything that is started in a sandbox from here on not read what is
// hidden. It is to be called before the first is.
func (s *Supervisor) Hide(what Hidden) {
	// Where it is now stays hidden when a link on the way is replaced.
	for _, path := range what.Paths {
		if real := Resolve(path); real != path {
			what.Paths = append(slices.Clip(what.Paths), real)
		}
	}
	s.hidden = what
}

// CloseNetwork has nothing that is started in a sandbox from here on make sockets
// that reach the network, this machine's own included. Where the kernel cannot do that, [Supervisor.Sandboxed] refuses.
// It is to be called before the first is.
func (s *Supervisor) CloseNetwork() { s.offline = true }

// run never unlocks its thread, so that the thread ends with it and takes
// whatever is still alive along. The main thread never ends, and its children
// could not be told from adopted ones: it is left to wait for another.
func (n *spawner) run() {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		var other sync.WaitGroup
		other.Go(n.run)
		other.Wait()
		runtime.UnlockOSThread()
		return
	}
	for {
		select {
		case <-n.quit:
			return
		case r := <-n.spawns:
			r.reply <- r.work()
		}
	}
}

// onThread does something on the thread that starts children.
func (n *spawner) onThread(work func() error) error {
	r := spawn{work, make(chan error, 1)}
	if n.onMain {
		mainWork <- func() { r.reply <- r.work() }
		return <-r.reply
	}
	select {
	case n.spawns <- r:
		return <-r.reply
	case <-n.quit:
		return errStopping
	}
}

var errStopping = errors.New("the daemon is stopping")

// spawn starts a command on the spawning thread, with a mark or 0. born is called with its
// process before that can be taken for an orphan.
func (n *spawner) spawn(cmd *exec.Cmd, m mark, born func(pid int)) error {
	return n.onThread(func() error {
		select {
		case <-n.closing:
			return errStopping
		default:
		}
		if n.onMain { // which adopts orphans, too
			n.orphans.sweeping.Lock()
			defer n.orphans.sweeping.Unlock()
		}
		err := m.pass(cmd.Start)
		if err == nil {
			born(cmd.Process.Pid)
		}
		return err
	})
}

// Close refuses further starts. Children that have not been waited for are
// killed by the kernel, and what they leave by the guardian, which is waited
// for. Children that were kept live on, and what they need: Leave or EndKept follows.
func (s *Supervisor) Close() {
	s.close.Do(func() {
		if !s.keeps() {
			s.closeRest()
		}
	})
}

func (s *Supervisor) closeRest() {
	close(s.closing)
	// A start that is under way ends first: meanwhile this process has a child's mark.
	_ = s.onThread(func() error { return nil })
	if s.guardian != nil {
		s.guardian.close(s.orphans.idle())
	}
	close(s.quit)
	s.work.Wait()
	s.orphans.close()
	s.scratch.remove()
}

// Start runs a command in a session and process group of its own, in the
// sandbox if this is a view of one. The end of ctx stops it as [Process.Stop]
// does. Every started process must be waited for with [Process.Wait] or
// [Process.Finish]. A command that cannot be started, or not confined, is an
// *[Error]; once ctx has ended, the error is the cause of that. It blocks until
// the program itself has been executed.
func (s *Supervisor) Start(ctx context.Context, c Command) (*Process, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, report, err := s.start(c)
	if err != nil {
		return nil, &Error{Reason: fmt.Sprintf("cannot start %s: %v", c.Name, plain(err))}
	}
	p.unwatch = context.AfterFunc(ctx, p.Stop)
	if report == nil {
		return p, nil
	}
	if e := readReport(report); e != nil {
		p.Kill()
		p.Wait()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e.Reason = fmt.Sprintf("cannot start %s: %s", c.Name, e.Reason)
		return nil, e
	}
	return p, nil
}

// start returns the process and, of a sandboxed one, the pipe that its shim
// reports on.
func (s *Supervisor) start(c Command) (p *Process, report *os.File, err error) {
	var theirs, ours []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	pipe := func(childReads bool) {
		var r, w *os.File
		if err != nil {
			return
		}
		if r, w, err = os.Pipe(); err != nil {
			return
		}
		if childReads {
			r, w = w, r
		}
		theirs, ours = append(theirs, w), append(ours, r)
	}
	pipe(true)
	pipe(false)
	pipe(false)
	if s.box != nil {
		pipe(false)
	}
	if err != nil {
		return nil, nil, err
	}
	empty := ""
	if c.Dir == "" {
		if c.Dir, err = s.emptyFolder(); err != nil {
			return nil, nil, err
		}
		empty = Resolve(c.Dir)
	}
	number, m := s.orphans.next()
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Dir: c.Dir, Env: slices.Clip(c.Env),
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		// A session has no terminal until it takes one: the user's is not the
		// tools' to read from or write to.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if m != 0 {
		cmd.Env = append(cmd.Env, m.variable())
	}
	if c.Script {
		cmd.Stdin, cmd.Stderr = nil, theirs[1]
	}
	p = &Process{spawner: s.spawner, number: number, script: c.Script}
	if s.guardian != nil {
		s.guardian.ensure()
	}
	if s.box != nil {
		if p.tmp, err = s.scratch.make(); err != nil {
			return nil, nil, err
		}
		s.box.confine(cmd, s.helper, p.tmp, empty)
		cmd.ExtraFiles, report = theirs[3:], ours[3]
	}
	s.orphans.born(number, 0)
	if err = s.spawn(cmd, m, func(pid int) { s.orphans.born(number, pid) }); err != nil {
		s.orphans.died(number)
		s.scratch.drop(p.tmp)
		return nil, nil, err
	}
	if s.guardian != nil {
		s.guardian.watch(cmd.Process.Pid)
	}
	p.adopt(cmd, ours[0], ours[1], ours[2], c.MaxLine)
	return p, report, nil
}

// plain strips the words that os/exec puts before the reason.
func plain(err error) error {
	var path *os.PathError
	if !errors.As(err, &path) {
		return err
	}
	if errors.Is(path.Err, syscall.ENOENT) {
		return fmt.Errorf("%s: no such file, or its interpreter is missing", path.Path)
	}
	return fmt.Errorf("%s: %w", path.Path, path.Err)
}
