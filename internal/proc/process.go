package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/protocol"
)

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

// Process is a running child. Send, Write, CloseInput, Stop, Exited and Stderr may be
// called from any goroutine; Next, Wait and Finish belong to one at a time.
type Process struct {
	spawner *spawner
	number  uint32 // in its mark
	tmp     string // its private TMPDIR, "" for none
	script  bool   // [Command.Script]
	cmd     *exec.Cmd
	pid     int
	stdin   *os.File
	out     *outlet
	err     *outlet
	lines   *protocol.LineReader
	room    *lineRoom // for lines
	stderr  tail

	input  chan []byte
	taken  chan struct{} // has one after each write that feed has taken up
	turn   chan struct{} // holds one while somebody is in Write
	fed    chan struct{} // closed once all input is written and the process is to be kept
	exited chan struct{} // the process has ended, and may not be reaped yet
	killed chan struct{} // its group was sent SIGKILL before that was reaped
	work   sync.WaitGroup
	waited sync.Once
	kill   sync.Once // closes killed
	exit   Exit      // valid after work

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
	p.input, p.exited, p.killed = make(chan []byte, inputQueue), make(chan struct{}), make(chan struct{})
	p.taken, p.turn, p.fed = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	p.room = p.spawner.lines.room(maxLine, p.out.giveUp)
	p.lines = protocol.NewLineReader(p.out, maxLine).Within(p.room)
	p.work.Go(p.feed)
	p.work.Go(p.reap)
	p.work.Go(func() { p.err.drain(&p.stderr) })
}

// feed writes the input until it is closed or the process has ended; its own
// goroutine, so that a child that never reads holds up nobody.
func (p *Process) feed() {
	kept := false
	defer func() {
		if !kept {
			p.stdin.Close()
		}
	}()
	for {
		select {
		case data, ok := <-p.input:
			if !ok {
				return
			}
			if data == nil { // from Keep
				kept = true
				close(p.fed)
				return
			}
			select {
			case p.taken <- struct{}{}:
			default:
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
	if p.script {
		p.endRest()
	}
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
	if g := p.spawner.guardian; g != nil {
		g.forget(p.pid) // while the zombie still holds the number
	}

	p.cmd.Wait() // the exit is read from ProcessState
	p.spawner.orphans.died(p.number)
	if !p.spawner.orphans.clear() {
		p.spawner.log.Warn("a process that a tool left behind does not die", zap.String("tool", p.cmd.Path))
	}
	if err := p.spawner.scratch.drop(p.tmp); err != nil {
		p.spawner.log.Warn("the temporary files of a tool could not be removed", zap.Error(err))
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

// endRest ends what a script has left running.
func (p *Process) endRest() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped { // it was told to end, as the script was
		select {
		case <-p.out.ended:
		case <-p.killed:
		}
	}
	unix.Kill(-p.pid, unix.SIGKILL)
	p.spawner.orphans.over(p.number)
	p.spawner.orphans.clear() // what does not die is reported at the end
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

// Write is Send that waits for room in the queue, as long as ctx, whose cause is
// the error then. Once the process has ended the error is [os.ErrClosed].
func (p *Process) Write(ctx context.Context, data []byte) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-p.exited:
		return os.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		if err := p.Send(data); !errors.Is(err, ErrInputFull) {
			return err
		}
		select {
		case <-p.taken:
		case <-p.exited:
			return os.ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
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

// More reports whether a further line of stdout is there already. It belongs to
// anyone who calls Next, and does not block.
func (p *Process) More() bool { return p.lines.More() }

// Read reads stdout as it arrives, for those who do not call Next.
func (p *Process) Read(b []byte) (int, error) { return p.out.Read(b) }

// Turn is called with a line of stdout before something is made of it, and done
// is to be called when that has been handed on. What is made of a long line takes
// several times its memory: so it waits until other children's long lines have
// been taken in.
func (p *Process) Turn(line []byte) (done func()) {
	if len(line) < freeLine {
		return func() {}
	}
	return p.spawner.lines.turn()
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
	if p.reaped {
		return
	}
	p.stopped = true
	p.room.stop()
	unix.Kill(-p.pid, unix.SIGKILL)
	p.kill.Do(func() { close(p.killed) })
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
