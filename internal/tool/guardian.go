package tool

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// guardTime is how long a guardian tries to end what the daemon left.
	guardTime = 10 * time.Second
	// cleanPasses is how often in a row it must find nothing: a process that is
	// executing a program has no environment for an instant.
	cleanPasses = 3
	// partTime is how long the daemon waits for its guardian when it stops.
	partTime = guardTime + 2*time.Second
)

// Names of the helper sub-commands, in os.Args[1].
const (
	guardianCommand = "guardian"
	sandboxCommand  = "exec-sandboxed"
)

// allEnded is the line that a daemon says when it ends in order and nothing of
// its tools is left.
const allEnded = "."

// Helper runs one of the program's own sub-commands that a [Supervisor] needs,
// where args (os.Args) name one, and returns its exit status; ok is false where
// they do not. It is to be called before anything else, and the process should
// end at once with the status.
func Helper(args []string) (status int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case guardianCommand:
		return guard(args[2:], os.Stdin), true
	case sandboxCommand:
		return execSandboxed(args[2:]), true
	}
	return 0, false
}

// guardian is the daemon's end of the guardian process: a pipe, which the
// kernel closes when the daemon dies, whatever it dies of. The process is
// started with the first child; another takes its place should it end.
//
// The pipe is written without blocking: a guardian that has stopped reading is
// replaced too. It is not asked whether it has read; what is in the pipe stays
// readable when the daemon is gone.
type guardian struct {
	helper string
	id     uint32 // in the marks
	spawn  func(*exec.Cmd, mark) error
	log    *zap.Logger
	quit   chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex
	started bool
	closed  bool
	cmd     *exec.Cmd
	pipe    *os.File // nil: none is running
	ready   *os.File // a byte comes when it is; attend's
	facts   map[string]bool
}

func newGuardian(helper string, id uint32, spawn func(*exec.Cmd, mark) error, log *zap.Logger) *guardian {
	return &guardian{helper: helper, id: id, spawn: spawn, log: log, quit: make(chan struct{}), facts: make(map[string]bool)}
}

// ensure starts the guardian unless it has been before.
func (g *guardian) ensure() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.started && !g.closed {
		g.started = true
		cmd := g.launch()
		g.work.Go(func() { g.attend(cmd) })
	}
}

// launch starts a guardian process, tells it everything that holds, and
// returns nil where that fails. g.mu is held.
func (g *guardian) launch() *exec.Cmd {
	cmd := &exec.Cmd{
		Path: g.helper, Args: []string{"noused", guardianCommand, strconv.FormatUint(uint64(g.id), 10)},
		Env: []string{"GOMAXPROCS=1"}, Dir: "/",
		// Should somebody have stopped it, the daemon's end has it go on.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGCONT},
	}
	err := g.connect(cmd)
	if err != nil {
		g.log.Error("no guardian: processes of tools may outlive a daemon that is killed", zap.Error(err))
		return nil
	}
	g.cmd = cmd
	for fact := range g.facts {
		g.say("+" + fact)
	}
	return cmd
}

// connect starts the process with a pipe to and one from it.
func (g *guardian) connect(cmd *exec.Cmd) error {
	in, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	ready, out, err := os.Pipe()
	if err != nil {
		pipe.Close()
		return err
	}
	defer out.Close()
	cmd.Stdin, cmd.Stdout = in, out
	if err := g.spawn(cmd, 0); err != nil {
		pipe.Close()
		ready.Close()
		return err
	}
	g.pipe, g.ready = pipe, ready
	return nil
}

// attend waits for the guardian's end and starts the next, with growing pauses
// where it keeps ending. It ends with close.
func (g *guardian) attend(cmd *exec.Cmd) {
	again := Backoff{Free: 2, Base: 100 * time.Millisecond, Max: time.Second}
	for {
		began := time.Now()
		if cmd != nil {
			if _, err := io.ReadFull(g.ready, make([]byte, 1)); err == nil {
				g.log.Debug("guardian ready", zap.Int("pid", cmd.Process.Pid))
			}
			cmd.Wait() // its state says all there is
			g.ready.Close()
		}
		g.mu.Lock()
		if g.pipe != nil {
			g.pipe.Close()
			g.pipe = nil
		}
		closed := g.closed
		g.mu.Unlock()
		if closed {
			return
		}
		if cmd != nil {
			g.log.Warn("the guardian ended, starting another", zap.Stringer("exit", cmd.ProcessState))
		}
		if time.Since(began) > time.Minute {
			again.Succeed()
		}
		again.Fail(time.Now())
		pause := time.NewTimer(again.Wait(time.Now()))
		select {
		case <-pause.C:
		case <-g.quit:
		}
		pause.Stop()
		g.mu.Lock()
		cmd = nil
		if !g.closed {
			cmd = g.launch()
		}
		g.mu.Unlock()
	}
}

// watch tells of a new process group, forget that it is gone.
func (g *guardian) watch(group int)  { g.tell(strconv.Itoa(group), true) }
func (g *guardian) forget(group int) { g.tell(strconv.Itoa(group), false) }

// keep tells of a directory to be removed at the end.
func (g *guardian) keep(dir string) { g.tell(dir, true) }

func (g *guardian) tell(fact string, holds bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if holds {
		g.facts[fact] = true
		g.say("+" + fact)
	} else {
		delete(g.facts, fact)
		g.say("-" + fact)
	}
}

// say writes a line. Where that fails, attend has the next guardian told.
func (g *guardian) say(line string) {
	if g.pipe == nil {
		return
	}
	conn, err := g.pipe.SyscallConn()
	if err == nil {
		if e := conn.Write(func(fd uintptr) bool {
			_, err = unix.Write(int(fd), []byte(line+"\n"))
			return true
		}); e != nil {
			err = e
		}
	}
	if err != nil {
		g.cmd.Process.Kill()
	}
}

// close lets the guardian do its work and waits for its end. Where nothing is
// left to be ended, it need not look.
func (g *guardian) close(nothingLeft bool) {
	g.mu.Lock()
	g.closed = true
	close(g.quit)
	if nothingLeft {
		g.say(allEnded)
	}
	if g.pipe != nil {
		g.pipe.Close()
		g.pipe = nil
		late := time.AfterFunc(partTime, func() { g.cmd.Process.Kill() })
		defer late.Stop()
	}
	g.mu.Unlock()
	g.work.Wait()
}

// guard is the guardian process. It keeps a list of what it is told on its
// standard input, and once that ends, kills the process groups on it, all
// processes that carry the mark, and all their descendants, until none is left
// or guardTime is over; then it removes the directories on it.
func guard(args []string, in io.Reader) int {
	id, err := uint64(0), error(nil)
	if len(args) == 1 {
		id, err = strconv.ParseUint(args[0], 10, markBits-1)
	}
	if err != nil || id == 0 {
		fmt.Fprintln(os.Stderr, "noused guardian: started by the daemon only")
		return 2
	}
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	closeInherited()
	_, _ = unix.Write(unix.Stdout, []byte{'\n'}) // ready
	left := listen(in)
	if !left.nothing && !killAll(uint32(id), left.groups) {
		return 1
	}
	for dir := range left.dirs {
		_ = removeAll(dir)
	}
	return 0
}

// closeInherited closes what came through the exec: everything of Go's own is
// closed by one.
func closeInherited() {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// legacy is what the daemon leaves.
type legacy struct {
	groups  map[int]bool
	dirs    map[string]bool
	nothing bool // no process, it says
}

// listen reads facts until the input ends: "+" and what begins to hold, "-" and
// what no longer does; a number is a process group, a path a directory.
func listen(in io.Reader) legacy {
	left := legacy{groups: make(map[int]bool), dirs: make(map[string]bool)}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if left.nothing = line == allEnded; len(line) < 2 {
			continue
		}
		holds, fact := line[0] == '+', line[1:]
		if group, err := strconv.Atoi(fact); err == nil && group > 1 {
			left.groups[group] = holds
		} else if strings.HasPrefix(fact, "/") && fact != "/" {
			left.dirs[fact] = holds
		}
	}
	maps.DeleteFunc(left.groups, func(_ int, holds bool) bool { return !holds })
	maps.DeleteFunc(left.dirs, func(_ string, holds bool) bool { return !holds })
	return left
}

// killAll kills until nothing is left, and reports whether it came so far
// within guardTime.
func killAll(id uint32, groups map[int]bool) bool {
	killed := make(map[int]stat)
	for deadline, clean := time.Now().Add(guardTime), 0; clean < cleanPasses; {
		if clean++; killThose(id, groups, killed) {
			clean = 0
		}
		if time.Now().After(deadline) {
			return false
		}
		_, _ = unix.Poll(nil, int(lookTime.Milliseconds()))
	}
	return true
}

// killThose kills what there is now, notes it as killed, and returns whether any
// of that, now or before, is not dead yet. A process that is ending has lost its
// environment before it is dead.
func killThose(id uint32, groups map[int]bool, killed map[int]stat) (left bool) {
	all := allProcesses()
	doomed := make(map[int]bool)
	for pid, st := range all {
		if st.dead() || pid == os.Getpid() {
			delete(all, pid)
			continue
		}
		if groups[st.group] {
			doomed[pid] = true
		} else if whose, _ := readMark(pid).parts(); whose == id {
			doomed[pid] = true
		}
	}
	descendants(all, doomed)
	for pid := range doomed {
		if unix.Kill(pid, unix.SIGKILL) == nil {
			killed[pid] = all[pid]
		}
	}
	for pid, st := range killed {
		if now, ok := all[pid]; ok && now.start == st.start {
			left = true
		}
	}
	return left
}
