package tool

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

	"noused/internal/protocol"
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

// Command is a program to start. Path is absolute; Args[0] is what the program
// sees as its own name. MaxLine bounds a line of its output, in bytes. Name is
// for messages.
type Command struct {
	Name    string
	Path    string
	Args    []string
	Dir     string
	Env     []string
	MaxLine int
}

// Supervisor starts every child process of the daemon, from one OS thread that
// lives as long as the Supervisor: a child's parent-death signal is tied to
// the thread that forked it (golang/go#27505). What its children leave behind
// is adopted and ended with them, and a guardian process ends everything should
// the daemon itself be killed (tools.md §5). The zero value is not usable.
type Supervisor struct {
	*nursery
	box *sandbox // nil: its children are not confined
}

// nursery is what a Supervisor and its sandboxed views share.
type nursery struct {
	helper   string
	log      *zap.Logger
	spawns   chan spawn
	quit     chan struct{}
	lines    *longLines
	work     sync.WaitGroup // the spawning thread
	close    sync.Once
	guardian *guardian // nil without a helper
	orphans  *orphans
	scratch  scratch
	hidden   Hidden // from all that are sandboxed
	covering sync.Once
	covers   bool
}

type spawn struct {
	cmd   *exec.Cmd
	mark  mark
	reply chan error
}

// NewSupervisor starts the spawning thread, and makes this process the one that
// adopts all orphans among its descendants. helper is a program whose main
// calls [Helper] first; with "" there is neither guardian nor sandbox. Close
// ends it.
func NewSupervisor(helper string, log *zap.Logger) *Supervisor {
	n := &nursery{helper: helper, log: log, spawns: make(chan spawn), quit: make(chan struct{}), lines: newLongLines()}
	// No child gets what this process was started with and does not know of.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	n.orphans = newOrphans()
	n.work.Go(n.run)
	if helper != "" {
		n.guardian = newGuardian(helper, n.orphans.id, n.orphans.foreign, n.spawn, log)
		n.scratch.told = n.guardian.keep
		n.work.Go(sweepScratch)
	}
	return &Supervisor{nursery: n}
}

// Hide has everything that is started in a sandbox from here on not read what is
// hidden. It is to be called before the first is.
func (s *Supervisor) Hide(what Hidden) { s.hidden = what }

// run never unlocks its thread, so that the thread ends with it and takes
// whatever is still alive along. The main thread never ends, and its children
// could not be told from adopted ones: it is left to wait for another.
func (n *nursery) run() {
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
			r.reply <- r.mark.pass(r.cmd.Start)
		}
	}
}

// spawn starts a command on the spawning thread, with a mark or 0.
func (n *nursery) spawn(cmd *exec.Cmd, m mark) error {
	r := spawn{cmd, m, make(chan error, 1)}
	select {
	case n.spawns <- r:
		return <-r.reply
	case <-n.quit:
		return errors.New("the daemon is stopping")
	}
}

// Close refuses further starts. Children that have not been waited for are
// killed by the kernel, and what they leave by the guardian, which is waited
// for.
func (s *Supervisor) Close() {
	s.close.Do(func() {
		if s.guardian != nil {
			s.guardian.close(s.orphans.idle())
		}
		close(s.quit)
		s.work.Wait()
		s.orphans.close()
		s.scratch.remove()
	})
}

// Start runs a command in a session and process group of its own, in the
// sandbox if this is a view of one. The end of ctx stops it as [Process.Stop]
// does. Every started process must be waited for with [Process.Wait] or
// [Process.Finish]. A command that cannot be started is a [Fault] with code
// unreachable; one that cannot be confined, forbidden. It blocks until the
// program itself has been executed.
func (s *Supervisor) Start(ctx context.Context, c Command) (*Process, error) {
	if ctx.Err() != nil {
		return nil, Interrupted(ctx)
	}
	p, report, err := s.start(c)
	if err != nil {
		return nil, Faultf(Unreachable, "cannot start %s: %v", c.Name, plain(err))
	}
	p.unwatch = context.AfterFunc(ctx, p.Stop)
	if report == nil {
		return p, nil
	}
	if f := readReport(report); f != nil {
		p.Kill()
		p.Wait()
		if ctx.Err() != nil {
			return nil, Interrupted(ctx)
		}
		f.Message = fmt.Sprintf("cannot start %s: %s", c.Name, f.Message)
		return nil, f
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
	number, m := s.orphans.next()
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Dir: c.Dir, Env: append(slices.Clip(c.Env), m.variable()),
		Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2],
		// A session has no terminal until it takes one: the user's is not the
		// tools' to read from or write to.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	p = &Process{nursery: s.nursery, number: number}
	if s.guardian != nil {
		s.guardian.ensure()
	}
	if s.box != nil {
		if p.tmp, err = s.scratch.make(); err != nil {
			return nil, nil, err
		}
		s.box.confine(cmd, s.helper, p.tmp)
		cmd.ExtraFiles, report = theirs[3:], ours[3]
	}
	s.orphans.born(number, 0)
	if err = s.spawn(cmd, m); err != nil {
		s.orphans.died(number)
		s.scratch.drop(p.tmp)
		return nil, nil, err
	}
	s.orphans.born(number, cmd.Process.Pid)
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

// Exit tells how a process ended. Stopped is set where it had been told to.
type Exit struct {
	Code    int // -1 after a signal
	Signal  syscall.Signal
	Core    bool
	Stopped bool
}

// OK reports an exit by itself with status 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Signal == 0 }

func (e Exit) String() string {
	switch {
	case e.Signal != 0 && e.Core:
		return fmt.Sprintf("signal: %v (core dumped)", e.Signal)
	case e.Signal != 0:
		return fmt.Sprintf("signal: %v", e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Process is a running child. Send, CloseInput, Stop, Exited and Stderr may be
// called from any goroutine; Next, Wait and Finish belong to one at a time.
type Process struct {
	nursery *nursery
	number  uint32 // in its mark
	tmp     string // its private TMPDIR, "" for none
	cmd     *exec.Cmd
	pid     int
	stdin   *os.File
	out     *outlet
	err     *outlet
	lines   *protocol.LineReader
	room    *lineRoom // for lines
	stderr  tail

	input  chan []byte
	exited chan struct{} // the process has ended, and may not be reaped yet
	work   sync.WaitGroup
	waited sync.Once
	exit   Exit // valid after work

	unwatch func() bool

	mu          sync.Mutex
	inputClosed bool
	stopped     bool
	reaped      bool
	killer      *time.Timer
}

func (p *Process) adopt(cmd *exec.Cmd, stdin, stdout, stderr *os.File, maxLine int) {
	p.cmd, p.pid, p.stdin = cmd, cmd.Process.Pid, stdin
	p.out, p.err = newOutlet(stdout, maxLine), newOutlet(stderr, 0)
	p.input, p.exited = make(chan []byte, inputQueue), make(chan struct{})
	p.room = p.nursery.lines.room(maxLine, p.out.giveUp)
	p.lines = protocol.NewLineReader(p.out, maxLine).Within(p.room)
	p.work.Go(p.feed)
	p.work.Go(p.reap)
	p.work.Go(func() { p.err.drain(&p.stderr) })
}

// feed writes the input until it is closed or the process has ended; its own
// goroutine, so that a child that never reads holds up nobody.
func (p *Process) feed() {
	defer p.stdin.Close()
	for {
		select {
		case data, ok := <-p.input:
			if !ok {
				return
			}
			if _, err := p.stdin.Write(data); err != nil {
				return
			}
		case <-p.exited:
			return
		}
	}
}

// reap waits for the exit without reaping, so that the group's number stays
// taken until what remains of the group has been killed.
func (p *Process) reap() {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	close(p.exited)
	p.stdin.Close()
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	p.out.expire(drainTime)
	p.err.expire(drainTime)
	select {
	case <-p.out.ended:
	case <-limit.C: // nobody reads, or somebody else holds the pipe
	}
	<-p.err.ended

	p.mu.Lock()
	unix.Kill(-p.pid, unix.SIGKILL)
	p.reaped = true
	if p.killer != nil {
		p.killer.Stop()
	}
	stopped := p.stopped
	p.mu.Unlock()
	if g := p.nursery.guardian; g != nil {
		g.forget(p.pid) // while the zombie still holds the number
	}

	p.cmd.Wait() // the exit is read from ProcessState
	p.nursery.orphans.died(p.number)
	if !p.nursery.orphans.clear() {
		p.nursery.log.Warn("a process that a tool left behind does not die", zap.String("tool", p.cmd.Path))
	}
	if err := p.nursery.scratch.drop(p.tmp); err != nil {
		p.nursery.log.Warn("the temporary files of a tool could not be removed", zap.Error(err))
	}
	p.exit = Exit{Code: -1, Stopped: stopped}
	if p.cmd.ProcessState == nil { // somebody else reaped it
		return
	}
	p.exit.Code = p.cmd.ProcessState.ExitCode()
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal, p.exit.Core = ws.Signal(), ws.CoreDump()
	}
}

// ErrInputFull says that a child does not read what it is sent.
var ErrInputFull = errors.New("the tool does not read its input")

// Send queues data for the child's stdin and does not block. It owns data from
// then on. Whether the child reads it is not known; that it has ended is not an
// error.
func (p *Process) Send(data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inputClosed {
		return os.ErrClosed
	}
	select {
	case p.input <- data:
		return nil
	default:
		return ErrInputFull
	}
}

// CloseInput closes the child's stdin after all that has been sent.
func (p *Process) CloseInput() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.inputClosed {
		p.inputClosed = true
		close(p.input)
	}
}

// Next returns the next line of stdout, valid until the following call. It
// blocks until there is one, and room for it if it is long, and returns io.EOF
// once the pipe is closed or the process has ended and what it left in the pipe
// is read. After a *[protocol.LineTooLongError] no further line comes.
func (p *Process) Next() ([]byte, error) {
	return p.room.next(p.lines)
}

// Read reads stdout as it comes, for those who do not call Next.
func (p *Process) Read(b []byte) (int, error) { return p.out.Read(b) }

// Turn is called with a line of stdout before something is made of it, and done
// is to be called when that has been handed on. What is made of a long line takes
// several times its memory: so it waits until other children's long lines have
// been taken in.
func (p *Process) Turn(line []byte) (done func()) {
	if len(line) < freeLine {
		return func() {}
	}
	return p.nursery.lines.turn()
}

// Stop sends SIGTERM to the process group, and SIGKILL after [KillGrace]. It
// does not block; only the first call counts.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || p.stopped {
		return
	}
	select {
	case <-p.exited:
		return
	default:
	}
	p.stopped = true
	p.room.stop()
	unix.Kill(-p.pid, unix.SIGTERM)
	p.killer = time.AfterFunc(KillGrace, p.Kill)
}

// Kill sends SIGKILL to the process group.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.stopped = true
		p.room.stop()
		unix.Kill(-p.pid, unix.SIGKILL)
	}
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait reads the rest of the output unseen, waits until the process has ended
// and nothing is left of its group, and releases everything it held. It does
// not end the process.
func (p *Process) Wait() Exit {
	p.waited.Do(func() {
		p.lines.Close()
		p.out.drain(nil)
		p.work.Wait()
		p.out.file.Close()
		p.err.file.Close()
		if p.unwatch != nil {
			p.unwatch()
		}
	})
	return p.exit
}

// Finish closes the input, gives the process time to end by itself, and then
// stops it. It returns as Wait does.
func (p *Process) Finish(grace time.Duration) Exit {
	p.CloseInput()
	timer := time.AfterFunc(grace, p.Stop)
	defer timer.Stop()
	return p.Wait()
}

// Stderr returns the last of what the child wrote to stderr, as valid UTF-8,
// at most limit bytes. It is complete after Wait.
func (p *Process) Stderr(limit int) string { return p.stderr.text(limit) }
