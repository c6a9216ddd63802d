package builtin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/proc"
)

const (
	bashTime    = 120 * time.Second
	maxBashTime = 600 * time.Second
	// termGrace is how long a command has between SIGTERM and SIGKILL. It is
	// shorter than what the daemon gives us ourselves.
	termGrace = time.Second
	// drainTime is how long the end of the output may take after that of the
	// command.
	drainTime = 200 * time.Millisecond
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
		outside
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	command, err := word("command", a.Command)
	if err != nil {
		return "", err
	}
	if a.Background {
		return ofTheDaemon(c, nil)
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
	text, err := c.run(shell, command, limit)
	if err != nil && !a.Outside && c.getenv(proc.HiddenVariable) != "" && looksRefused(err.Error()) {
		err = fmt.Errorf("%w\n[%s]", err, sandboxNote)
	}
	return text, err
}

// sandboxNote stands below the output of a command that failed, perhaps for the sandbox.
const sandboxNote = "the sandbox may have refused this: commands write only in the working directory and $TMPDIR. " +
	"Where the work needs more, call again with outside_sandbox and a reason, and the user is asked"

// looksRefused tells whether the end of an output has what programs say when the kernel
// refuses them something.
func looksRefused(output string) bool {
	end := strings.ToLower(output[max(0, len(output)-4<<10):])
	return slices.ContainsFunc([]string{"permission denied", "operation not permitted", "read-only file system"},
		func(refusal string) bool { return strings.Contains(end, refusal) })
}

// ofTheDaemon says that jobs and lists outlive this process: the daemon keeps them itself,
// and does not ask us.
func ofTheDaemon(*call, jsontext.Value) (string, error) {
	return "", errors.New("jobs and lists are for a daemon to keep; this extension alone has none")
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

// run runs a command and blocks until nothing of it is left.
func (c *call) run(shell, command string, limit time.Duration) (string, error) {
	p, err := c.commands().Start(context.Background(), proc.Command{
		Name: shell, Path: shell, Args: []string{shell, "-c", command}, Dir: c.dir, Env: c.commandEnv(), Script: true,
	})
	if err != nil {
		return "", err
	}
	out := output{whole: spill{path: c.keepIn, send: c.keep}}
	var exit proc.Exit // valid once ended
	ended := make(chan struct{})
	go func() { // ends with the command and all that it left
		defer close(ended)
		out.readFrom(p)
		exit = p.Wait()
	}()
	timedOut := c.await(p, &out, limit, ended)
	c.say(out.rest())
	if err := c.stopped(); err != nil && !timedOut {
		return "", err
	}
	status := ""
	if timedOut {
		status = fmt.Sprintf("stopped after its timeout of %v", limit)
	}
	return verdict(exit, status, out.text())
}

// await tells the output until the command has ended, and reports whether the command was
// stopped for its timeout. When its time is up or the call is stopped, the shell
// and what it started have a while to end in their own way.
func (c *call) await(p *proc.Process, out *output, limit time.Duration, ended <-chan struct{}) (timedOut bool) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done := c.ctx.Done()
	for {
		select {
		case <-ended:
			return timedOut
		case <-tick.C:
			c.listen()
			c.say(out.news())
			continue
		case <-timer.C:
			timedOut = true
		case <-done:
		}
		timer.Stop()
		done = nil
		p.Stop()
		defer time.AfterFunc(termGrace, p.Kill).Stop()
	}
}

func (c *call) say(text string) {
	if text != "" {
		c.log(text)
	}
}

// verdict is the call's result. status says how the command ended where it
// does not say so itself.
func verdict(exit proc.Exit, status, text string) (string, error) {
	switch {
	case status != "":
	case exit.Signal != 0:
		status = "ended by signal: " + exit.Signal.String()
	case exit.Code != 0:
		status = fmt.Sprintf("exit status %d", exit.Code)
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
