package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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

	"noused/internal/idlemem"
)

const (
	// guardTime is how long a guardian tries to end what the daemon left.
	guardTime = 10 * time.Second
	// cleanPasses is how often in a row it must find nothing: a process that is
	// executing a program has no environment for an instant.
	cleanPasses = 3
	// beatTime is how long a guardian may be stopped before it is noticed.
	beatTime = time.Second
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

// foreignSign stands before a session that is none of the tools'.
const foreignSign = "~"

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
// replaced too, and one that somebody has stopped, at which is looked before each
// start and every second while there are children. It is not asked whether it has
// read; what is in the pipe stays readable when the daemon is gone.
type guardian struct {
	helper string
	id     uint32 // in the marks
	spawn  func(*exec.Cmd) error
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
	groups  int         // among them
	next    *time.Timer // until the next look; nil before the first
}

// newGuardian makes a guardian, which leaves processes in foreign sessions alone.
func newGuardian(helper string, id uint32, foreign map[int]bool, spawn func(*exec.Cmd) error,
	log *zap.Logger,
) *guardian {
	g := &guardian{helper: helper, id: id, spawn: spawn, log: log, quit: make(chan struct{}), facts: make(map[string]bool)}
	for session := range foreign {
		g.facts[foreignSign+strconv.Itoa(session)] = true
	}
	return g
}

// ensure starts the guardian unless it has been before.
func (g *guardian) ensure() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inspect()
	if !g.started && !g.closed {
		g.started = true
		cmd := g.launch()
		g.work.Go(func() { g.attend(cmd) })
	}
}

// inspect ends a guardian that somebody has stopped; attend replaces it. g.mu is
// held.
func (g *guardian) inspect() {
	if g.pipe == nil {
		return
	}
	if st, err := readStat(g.cmd.Process.Pid); err == nil && (st.state == 'T' || st.state == 't') {
		g.log.Warn("the guardian has been stopped")
		g.cmd.Process.Kill()
	}
}

// beat inspects the guardian as long as there are children.
func (g *guardian) beat() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.groups > 0 && !g.closed {
		g.inspect()
		g.next.Reset(beatTime)
	}
}

// count notes how many children there are. g.mu is held.
func (g *guardian) count(more int) {
	g.groups += more
	switch {
	case g.closed || more <= 0 || g.groups > 1:
	case g.next == nil:
		g.next = time.AfterFunc(beatTime, g.beat)
	default:
		g.next.Reset(beatTime)
	}
}

// launch starts a guardian process, tells it everything that holds, and
// returns nil where that fails. g.mu is held.
func (g *guardian) launch() *exec.Cmd {
	cmd := &exec.Cmd{
		Path: g.helper, Args: []string{
			"noused", guardianCommand, strconv.FormatUint(uint64(g.id), 10),
			strconv.Itoa(os.Getpid()),
		},
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
	if err := g.spawn(cmd); err != nil {
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
	for failures := 1; ; failures++ {
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
			failures = 1
		}
		pause := time.NewTimer(restartPause(failures))
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

// restartPause is how long to wait after so many guardians that ended soon: not
// at all after the first two, then from 100 ms up to a second.
func restartPause(failures int) time.Duration {
	if failures <= 2 {
		return 0
	}
	return min(100*time.Millisecond<<min(failures-3, 10), time.Second)
}

// watch announces a new process group, forget its end.
func (g *guardian) watch(group int)  { g.sendFact(strconv.Itoa(group), true, 1) }
func (g *guardian) forget(group int) { g.sendFact(strconv.Itoa(group), false, -1) }

// keep names a directory to be removed at the end.
func (g *guardian) keep(dir string) { g.sendFact(dir, true, 0) }

// sendFact notes a fact, and how many children more there are, and says it.
func (g *guardian) sendFact(fact string, holds bool, children int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(children)
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
	if g.next != nil {
		g.next.Stop()
	}
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
// standard input, and while there are groups on it, looks at what descends from the
// daemon. Once the input ends, it kills these groups, all processes that carry the
// mark or that it saw last, and all their descendants, until none is left
// or guardTime is over; then it removes the directories on the list.
func guard(args []string, in io.Reader) int {
	id, daemon, err := uint64(0), 0, error(nil)
	if len(args) == 2 {
		id, err = strconv.ParseUint(args[0], 10, markBits-1)
		daemon, _ = strconv.Atoi(args[1])
	}
	if err != nil || id == 0 || daemon == 0 {
		fmt.Fprintln(os.Stderr, "noused guardian: started by the daemon only")
		return 2
	}
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	closeInherited()
	_, _ = unix.Write(unix.Stdout, []byte{'\n'}) // ready
	kin := &family{daemon: daemon}
	rest := idlemem.New(nil)
	left := listen(rest.Reader(in), kin)
	rest.Stop()
	if !left.nothing && !killAll(uint32(id), left.groups, kin) {
		return 1
	}
	for dir := range left.dirs {
		_ = removeTree(dir)
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
	foreign map[int]bool // sessions
	nothing bool         // no process, it says
}

// listen reads facts until the input ends: "+" and what begins to hold, "-" and
// what no longer does; a number is a process group, a path a directory, a number
// behind foreignSign a session of others. While there are groups it looks at the
// family.
func listen(in io.Reader, kin *family) legacy {
	left := legacy{groups: make(map[int]bool), dirs: make(map[string]bool), foreign: make(map[int]bool)}
	kin.foreign = left.foreign
	lines := make(chan string)
	go func() { // ends with the input
		defer close(lines)
		for in := bufio.NewScanner(in); in.Scan(); {
			lines <- in.Text()
		}
	}()
	look := time.NewTimer(familyTime)
	for watched := false; ; {
		select {
		case line, more := <-lines:
			if !more {
				return left
			}
			left.hold(line)
			if some := len(left.groups) > 0; some && !watched {
				watched = true
				look.Reset(familyTime)
			}
		case <-look.C:
			if watched = len(left.groups) > 0; !watched {
				kin.seen = nil // the daemon has ended what there was
				continue
			}
			kin.refresh()
			look.Reset(familyTime)
		}
	}
}

// hold takes a line in.
func (l *legacy) hold(line string) {
	if l.nothing = line == allEnded; len(line) < 2 {
		return
	}
	fact := line[1:]
	if session, ok := strings.CutPrefix(fact, foreignSign); ok {
		note(l.foreign, line, session)
	} else if strings.HasPrefix(fact, "/") && fact != "/" {
		if l.dirs[fact] = true; line[0] != '+' {
			delete(l.dirs, fact)
		}
	} else {
		note(l.groups, line, fact)
	}
}

// note notes whether a number holds, as the line that it is from says.
func note(numbers map[int]bool, line, number string) {
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n <= 1:
	case line[0] == '+':
		numbers[n] = true
	default:
		delete(numbers, n)
	}
}

// killAll kills until nothing is left, and reports whether it came so far
// within guardTime.
func killAll(id uint32, groups map[int]bool, kin *family) bool {
	killed := make(map[int]stat)
	for deadline, clean := time.Now().Add(guardTime), 0; clean < cleanPasses; {
		if clean++; killThose(id, groups, kin, killed) {
			clean = 0
		}
		if time.Now().After(deadline) {
			return false
		}
		_, _ = unix.Poll(nil, int(lookTime.Milliseconds()))
	}
	return true
}

// killSame kills a process unless its number is another's by now.
func killSame(pid int, was stat) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return !errors.Is(err, unix.ESRCH) && unix.Kill(pid, unix.SIGKILL) == nil
	}
	defer unix.Close(fd)
	now, err := readStat(pid)
	return err == nil && now.start == was.start && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// killThose kills what exists now, notes it as killed, and returns whether any
// of that, now or before, is not dead yet. A process that is ending has lost its
// environment before it is dead. The daemon is no such process: while it lives, it has a child's mark
// for as long as it starts one.
func killThose(id uint32, groups map[int]bool, kin *family, killed map[int]stat) (left bool) {
	all := allProcesses()
	doomed := make(map[int]bool)
	for pid, st := range all {
		if st.dead() || pid == os.Getpid() || pid == kin.daemon && pid == os.Getppid() {
			delete(all, pid)
			continue
		}
		if groups[st.group] {
			doomed[pid] = true
		} else if whose, _ := readMark(pid).parts(); whose == id || kin.has(pid, st) {
			doomed[pid] = true
		}
	}
	descendants(all, doomed)
	for pid := range doomed {
		if killSame(pid, all[pid]) {
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
