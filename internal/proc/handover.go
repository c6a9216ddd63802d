package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Left is what a Supervisor leaves to the program that its process executes next: the
// children that were kept, and what is needed to end them. Its numbers are those of this
// process's files.
type Left struct {
	ID       uint32        `json:"id"`   // in the marks
	Last     uint32        `json:"last"` // number of a child
	Foreign  []int         `json:"foreign"`
	Guardian *leftGuardian `json:"guardian,omitzero"`
	Scratch  *leftScratch  `json:"scratch,omitzero"`
	Children []Kept        `json:"children"`
}

// Kept is a child that lives on under the next program.
type Kept struct {
	Number uint32 `json:"number"` // in its mark
	PID    int    `json:"pid"`
	Name   string `json:"name"` // the program's path
	Tmp    string `json:"tmp,omitzero"`
	Stdin  int    `json:"stdin"`
	Stdout int    `json:"stdout"`
	Stderr int    `json:"stderr"`
	Said   string `json:"said,omitzero"` // the last of its stderr
}

type leftGuardian struct {
	PID   int      `json:"pid"`
	Pipe  int      `json:"pipe"`
	Ready int      `json:"ready"`
	Facts []string `json:"facts"`
}

type leftScratch struct {
	Dir  string `json:"dir"`
	Lock int    `json:"lock"`
	Last int    `json:"last"`
}

// fds are the files that a Left names.
func (l *Left) fds() (fds []int) {
	if l.Guardian != nil {
		fds = append(fds, l.Guardian.Pipe, l.Guardian.Ready)
	}
	if l.Scratch != nil {
		fds = append(fds, l.Scratch.Lock)
	}
	for _, k := range l.Children {
		fds = append(fds, k.Stdin, k.Stdout, k.Stderr)
	}
	return fds
}

// Shut has no child inherit the files that were left. It is to be called before the first
// is started.
func (l *Left) Shut() {
	for _, fd := range l.fds() {
		unix.CloseOnExec(fd)
	}
}

// numberOf is the number of a file, which stays as it is otherwise.
func numberOf(f *os.File) int {
	number := -1
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { number = int(fd) })
	}
	return number
}

// ErrPaused is what reading ends with after [Process.Pause].
var ErrPaused = errors.New("the reading was paused")

// Pause has [Process.Read] return ErrPaused: what it has not read stays in the pipe. It
// does not block.
func (p *Process) Pause() {
	p.out.paused.Store(true)
	p.out.giveUp()
}

// Keep has the process live on under the next program, once it has read all that it was
// sent, for as long as ctx. Its output must have been paused. Nothing else may be
// done with it afterwards. An error says why it cannot be kept: it is to be ended.
func (p *Process) Keep(ctx context.Context) (Kept, error) {
	p.mu.Lock()
	closed := p.inputClosed || p.stopped
	p.inputClosed = true
	p.mu.Unlock()
	if closed {
		return Kept{}, os.ErrClosed
	}
	select {
	case p.input <- nil:
	case <-p.exited:
		return Kept{}, os.ErrClosed
	case <-ctx.Done():
		return Kept{}, context.Cause(ctx)
	}
	select {
	case <-p.fed:
	case <-p.exited:
		return Kept{}, os.ErrClosed
	case <-ctx.Done():
		return Kept{}, context.Cause(ctx)
	}
	k := Kept{
		Number: p.number, PID: p.pid, Name: p.cmd.Path, Tmp: p.tmp, Stdin: numberOf(p.stdin), Stdout: numberOf(p.out.file),
		Stderr: numberOf(p.err.file), Said: p.stderr.text(stderrTail),
	}
	if k.Stdin < 0 || k.Stdout < 0 || k.Stderr < 0 {
		return Kept{}, os.ErrClosed
	}
	if p.unwatch != nil {
		p.unwatch()
	}
	n := p.spawner
	n.keeping.Lock()
	defer n.keeping.Unlock()
	n.kept = append(n.kept, p)
	return k, nil
}

// keeps reports whether children were kept.
func (n *spawner) keeps() bool {
	n.keeping.Lock()
	defer n.keeping.Unlock()
	return len(n.kept) > 0
}

// Leave returns what the next program needs to have the children that were kept. It is to
// be called after Close, and followed by Exec or EndKept.
func (s *Supervisor) Leave(children []Kept) *Left {
	o := s.orphans
	o.mu.Lock()
	left := &Left{ID: o.id, Last: o.last, Children: children}
	o.mu.Unlock()
	for session := range o.foreign {
		left.Foreign = append(left.Foreign, session)
	}
	left.Guardian, left.Scratch = s.guardian.leave(), s.scratch.leave()
	return left
}

// Exec has another program take this one's place, as [syscall.Exec] does, and leaves it
// these files. It does so on the thread that has started the children: the end of that
// thread would be theirs. It returns only where it fails.
func (s *Supervisor) Exec(left *Left, path string, args, env []string) error {
	return s.onThread(func() error {
		for _, fd := range left.fds() {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
				return fmt.Errorf("keep a file: %w", err)
			}
		}
		return syscall.Exec(path, args, env)
	})
}

// EndKept ends the children that were kept for a program that is not executed after all,
// and then everything else.
func (s *Supervisor) EndKept() {
	s.keeping.Lock()
	kept := s.kept
	s.kept = nil
	s.keeping.Unlock()
	if kept == nil {
		return
	}
	for _, p := range kept {
		p.Kill()
		p.Wait()
	}
	s.closeRest()
}

// mainWork is what the main thread does. ServeMain takes it.
var mainWork = make(chan func())

// ServeMain does on the main thread what a Supervisor that has taken over needs done there:
// it is the parent of the children that were left, and has to be that of all others, as one
// thread alone survives the next exec. It is to be called by a goroutine that is locked to
// the main thread, and does not return.
func ServeMain() {
	for work := range mainWork {
		work()
	}
}

// TakeOver is NewSupervisor for what a former program of this process has left. Each of the
// children is to be claimed, before EndUnclaimed ends the others. left may be nil.
func TakeOver(helper string, left *Left, log *zap.Logger) *Supervisor {
	if left == nil || helper == "" {
		return NewSupervisor(helper, log)
	}
	return newSupervisor(helper, newOrphans(false, left), log, left)
}

// Claim returns a child that a former program has left. Its command's MaxLine is 0.
func (s *Supervisor) Claim(k Kept) (*Process, error) {
	s.keeping.Lock()
	known := s.unclaimed[k.Number]
	delete(s.unclaimed, k.Number)
	s.keeping.Unlock()
	if !known {
		return nil, fmt.Errorf("process %d was not left", k.PID)
	}
	child, err := os.FindProcess(k.PID)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i, fd := range []int{k.Stdin, k.Stdout, k.Stderr} {
		_ = unix.SetNonblock(fd, true)
		files = append(files, os.NewFile(uintptr(fd), []string{"stdin", "stdout", "stderr"}[i]))
	}
	p := &Process{spawner: s.spawner, number: k.Number, tmp: k.Tmp}
	p.stderr.write([]byte(k.Said))
	p.adopt(&exec.Cmd{Path: k.Name, Process: child}, files[0], files[1], files[2], 0)
	return p, nil
}

// EndUnclaimed ends the children that nobody has claimed, and waits for that.
func (s *Supervisor) EndUnclaimed(children []Kept) {
	for _, k := range children {
		p, err := s.Claim(k)
		if err != nil {
			continue
		}
		p.Kill()
		p.Wait()
	}
}

// EndMarked kills the children of this process that a Supervisor has started: a former program
// has left them, and this one cannot read how to take them over.
func EndMarked() {
	children, _ := childrenOf(os.Getpid())
	for _, pid := range children {
		if readMark(pid) != 0 {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
}

// leave is what the next program needs to have the guardian. It lives on.
func (g *guardian) leave() *leftGuardian {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe == nil {
		return nil
	}
	left := &leftGuardian{PID: g.cmd.Process.Pid, Pipe: numberOf(g.pipe), Ready: numberOf(g.ready)}
	for fact := range g.facts {
		left.Facts = append(left.Facts, fact)
	}
	return left
}

// take has a guardian that was left go on.
func (g *guardian) take(left *leftGuardian) {
	child, err := os.FindProcess(left.PID)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.started = true
	g.cmd = &exec.Cmd{Path: g.helper, Process: child}
	g.pipe, g.ready = os.NewFile(uintptr(left.Pipe), "guardian"), os.NewFile(uintptr(left.Ready), "ready")
	for _, fact := range left.Facts {
		g.facts[fact] = true
		if !strings.HasPrefix(fact, "/") && !strings.HasPrefix(fact, foreignSign) {
			g.count(1)
		}
	}
	cmd := g.cmd
	g.work.Go(func() { g.attend(cmd) })
}

func (s *scratch) leave() *leftScratch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return nil
	}
	return &leftScratch{Dir: s.dir, Lock: numberOf(s.lock), Last: s.last}
}

// take has the directory of a former program, which is still locked.
func (s *scratch) take(left *leftScratch) error {
	lock := os.NewFile(uintptr(left.Lock), filepath.Base(left.Dir))
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", left.Lock))
	if err != nil {
		_ = lock.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir, s.lock, s.root, s.last = left.Dir, lock, root, left.Last
	return nil
}
