package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

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
// the thread that forked it (golang/go#27505). The zero value is not usable.
type Supervisor struct {
	spawns chan spawn
	quit   chan struct{}
	done   chan struct{}
	close  sync.Once
}

type spawn struct {
	cmd   *exec.Cmd
	reply chan error
}

// NewSupervisor starts the spawning thread. Close ends it.
func NewSupervisor() *Supervisor {
	s := &Supervisor{spawns: make(chan spawn), quit: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

// run never unlocks its thread, so that the thread ends with it and takes
// whatever is still alive along.
func (s *Supervisor) run() {
	defer close(s.done)
	runtime.LockOSThread()
	for {
		select {
		case <-s.quit:
			return
		case r := <-s.spawns:
			r.reply <- r.cmd.Start()
		}
	}
}

// Close refuses further starts. Children that have not been waited for are
// killed by the kernel.
func (s *Supervisor) Close() {
	s.close.Do(func() { close(s.quit) })
	<-s.done
}

// Start runs a command in a process group of its own. The end of ctx stops it
// as [Process.Stop] does. Every started process must be waited for with
// [Process.Wait] or [Process.Finish]. A command that cannot be started is a
// [Fault] with code unreachable.
func (s *Supervisor) Start(ctx context.Context, c Command) (*Process, error) {
	if ctx.Err() != nil {
		return nil, Interrupted(ctx)
	}
	p, err := s.start(c)
	if err != nil {
		return nil, Faultf(Unreachable, "cannot start %s: %v", c.Name, plain(err))
	}
	p.unwatch = context.AfterFunc(ctx, p.Stop)
	return p, nil
}

func (s *Supervisor) start(c Command) (*Process, error) {
	var ends []*os.File
	ok := false
	defer func() {
		for i, f := range ends {
			if !ok || i%2 == 0 {
				f.Close()
			}
		}
	}()
	pipe := func(childReads bool) (child, ours *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		child, ours = w, r
		if childReads {
			child, ours = r, w
		}
		ends = append(ends, child, ours)
		return child, ours, nil
	}
	childIn, stdin, err := pipe(true)
	if err != nil {
		return nil, err
	}
	childOut, stdout, err := pipe(false)
	if err != nil {
		return nil, err
	}
	childErr, stderr, err := pipe(false)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Dir: c.Dir, Env: c.Env,
		Stdin: childIn, Stdout: childOut, Stderr: childErr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	r := spawn{cmd, make(chan error, 1)}
	select {
	case s.spawns <- r:
		err = <-r.reply
	case <-s.quit:
		err = errors.New("the daemon is stopping")
	}
	if err != nil {
		return nil, err
	}
	ok = true
	return adopt(cmd, stdin, stdout, stderr, c.MaxLine), nil
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
	cmd    *exec.Cmd
	pid    int
	stdin  *os.File
	out    *outlet
	err    *outlet
	lines  *protocol.LineReader
	stderr tail

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

func adopt(cmd *exec.Cmd, stdin, stdout, stderr *os.File, maxLine int) *Process {
	p := &Process{
		cmd: cmd, pid: cmd.Process.Pid, stdin: stdin,
		out:    newOutlet(stdout, maxLine),
		err:    newOutlet(stderr, 0),
		input:  make(chan []byte, inputQueue),
		exited: make(chan struct{}),
	}
	p.lines = protocol.NewLineReader(p.out, maxLine)
	p.work.Go(p.feed)
	p.work.Go(p.reap)
	p.work.Go(func() { p.err.drain(&p.stderr) })
	return p
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

	p.cmd.Wait() // the exit is read from ProcessState
	p.exit = Exit{Code: p.cmd.ProcessState.ExitCode(), Stopped: stopped}
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
// blocks until there is one, and returns io.EOF once the pipe is closed or the
// process has ended and what it left in the pipe is read. After a
// *[protocol.LineTooLongError] no further line comes.
func (p *Process) Next() ([]byte, error) { return p.lines.Next() }

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
	unix.Kill(-p.pid, unix.SIGTERM)
	p.killer = time.AfterFunc(KillGrace, p.Kill)
}

// Kill sends SIGKILL to the process group.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.stopped = true
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
