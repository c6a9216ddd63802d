package builtin

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"noused/internal/tool"
)

const (
	bashTime    = 120 * time.Second
	maxBashTime = 600 * time.Second
	// termGrace is how long a command has between SIGTERM and SIGKILL. It is
	// shorter than what the daemon gives us ourselves.
	termGrace = time.Second
	// drainTime is how long output is read after the end, where somebody outside
	// the group still holds the pipe.
	drainTime = 200 * time.Millisecond
	// strayTime is how long what left the group is waited for to be dead.
	strayTime = time.Second
	// logEvery is the time between two logs.
	logEvery = 100 * time.Millisecond
)

// bash runs a command (tools.md §6). Its output is told in logs while it runs;
// a status other than 0 is a failure with the output.
func bash(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Command *string  `json:"command"`
		Timeout *float64 `json:"timeout"`

		Background bool `json:"background"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	command, err := word("command", a.Command)
	if err != nil {
		return "", err
	}
	if a.Background {
		return noJobs(c, nil)
	}
	if strings.ContainsRune(command, 0) {
		return "", wrong("command", "has a NUL character")
	}
	limit := bashTime
	if a.Timeout != nil {
		if *a.Timeout <= 0 || *a.Timeout > maxBashTime.Seconds() {
			return "", wrong("timeout", "got %v, want seconds, more than 0 and at most %v", *a.Timeout, maxBashTime.Seconds())
		}
		limit = time.Duration(math.Ceil(*a.Timeout * float64(time.Second)))
	}
	if c.timeout > 0 { // what the call has, less what a kill may take
		limit = min(limit, max(c.timeout-termGrace-drainTime, c.timeout/2))
	}
	shell, err := c.shell()
	if err != nil {
		return "", err
	}
	strays := newStrays()
	g, err := newGroup()
	if err != nil {
		return "", fmt.Errorf("cannot start the shell: %w", err)
	}
	defer g.end()
	return c.run(g, strays, shell, command, limit)
}

// noJobs says that a job outlives this process: the daemon runs jobs itself, and
// does not ask us.
func noJobs(*call, jsontext.Value) (string, error) {
	return "", errors.New("jobs are for a daemon to run; this extension alone has none")
}

// shell is bash, or sh where there is none.
func (c *call) shell() (string, error) {
	for _, name := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", faultf(requirementNotMet, "requires the command bash or sh")
}

// run runs a command in the group and blocks until nothing of it but the
// group's guard is left.
func (c *call) run(g *group, left *strays, shell, command string, limit time.Duration) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd := &exec.Cmd{
		Path: shell, Args: []string{shell, "-c", command}, Dir: c.dir, Env: c.environ,
		Stdout: w, Stderr: w, // one pipe, so that the order stays
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pgid: g.pgid},
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return "", fmt.Errorf("cannot start %s: %w", shell, err)
	}
	var out output
	defer out.close()
	read, exited := make(chan struct{}), make(chan struct{})
	go func() { // ends with the pipe, or at the deadline set below
		defer close(read)
		out.readFrom(r)
	}()
	go func() { // ends with the shell
		defer close(exited)
		cmd.Wait() // how it ended is in ProcessState
	}()
	left.spare(g.pgid, cmd.Process.Pid)
	timedOut := c.await(g, left, &out, limit, exited, read)
	g.kill()
	<-exited
	left.end()
	r.SetReadDeadline(time.Now().Add(drainTime))
	<-read
	c.say(out.rest())
	if err := c.stopped(); err != nil && !timedOut {
		return "", err
	}
	status := ""
	if timedOut {
		status = fmt.Sprintf("stopped after its timeout of %v", limit)
	}
	return verdict(cmd.ProcessState, status, out.text())
}

// await tells the output until the shell has ended, and reports whether that
// was for its timeout. When its time is up or the call is stopped, the shell
// and what it started have a while to end in their own way.
func (c *call) await(g *group, left *strays, out *output, limit time.Duration, exited, read <-chan struct{}) (timedOut bool) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done, ended := c.ctx.Done(), exited
	var grace <-chan time.Time
	for {
		select {
		case <-ended:
			return timedOut
		case <-grace:
			return timedOut
		case <-tick.C:
			c.listen()
			c.say(out.news())
			left.reap()
			continue
		case <-timer.C:
			timedOut = true
		case <-done:
		}
		timer.Stop()
		done, ended = nil, read // what it started may hold the pipe a little longer
		g.signal(unix.SIGTERM)
		grace = time.After(termGrace)
	}
}

func (c *call) say(text string) {
	if text != "" {
		c.log(text)
	}
}

// verdict is the call's result. status says how the command ended where it
// does not say so itself.
func verdict(state *os.ProcessState, status, text string) (string, error) {
	ws, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case status != "":
	case ok && ws.Signaled():
		status = "ended by signal: " + ws.Signal().String()
	case !state.Success():
		status = fmt.Sprintf("exit status %d", state.ExitCode())
	case text == "":
		return "[no output]", nil
	default:
		return text, nil
	}
	if text != "" {
		status += "\n" + text
	}
	return "", errors.New(status)
}

// group is a process group for one command, which does not outlive this
// process, whatever ends it. Its leader is a guard: a shell that waits for the
// end of a pipe that only this process holds, and then kills the group, itself
// with it.
//
// The group cannot be our own, as then a command could not be killed without
// us. A parent-death signal reaches the shell only, not what it started. While
// the guard has not been waited for, the group's number belongs to nobody else.
type group struct {
	guard *exec.Cmd
	hold  *os.File
	pgid  int
}

// guardScript ignores what a command may be told to end with.
const guardScript = `trap '' HUP INT QUIT TERM USR1 USR2 PIPE; read -r _; kill -KILL 0`

func newGroup() (*group, error) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		sh, err = exec.LookPath("bash")
	}
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	guard := &exec.Cmd{
		Path: sh, Args: []string{"sh", "-c", guardScript}, Dir: "/", Env: []string{}, Stdin: r,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := guard.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return &group{guard, w, guard.Process.Pid}, nil
}

func (g *group) signal(sig unix.Signal) { unix.Kill(-g.pgid, sig) }

// kill ends everything in the group.
func (g *group) kill() { g.signal(unix.SIGKILL) }

// end kills the group and waits for its guard.
func (g *group) end() {
	g.kill()
	g.hold.Close()
	g.guard.Wait() // it was killed, as it should be
}

// strays are what a command leaves behind in other groups and sessions. This
// process adopts them when their parents end, as it makes itself a subreaper.
// They belong to the one command that runs: all that is adopted and was not
// there before.
type strays struct{ spared map[int]bool }

func newStrays() *strays {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // Linux 3.4
	s := &strays{make(map[int]bool)}
	s.spare(tool.Adopted()...)
	return s
}

func (s *strays) spare(pids ...int) {
	for _, pid := range pids {
		s.spared[pid] = true
	}
}

// each calls f for each stray there is, and returns how many there are.
func (s *strays) each(f func(pid int)) (n int) {
	for _, pid := range tool.Adopted() {
		if !s.spared[pid] {
			f(pid)
			n++
		}
	}
	return n
}

// reap takes away those that are dead.
func (s *strays) reap() {
	s.each(func(pid int) { _, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) })
}

// end kills them, and what they leave in turn, until there is none. What does
// not die in time is left to the daemon.
func (s *strays) end() {
	deadline := time.Now().Add(strayTime)
	for s.each(func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }) > 0 && time.Now().Before(deadline) {
		s.reap()
		_, _ = unix.Poll(nil, 1)
	}
}
