package check

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/proc"
	"noused/internal/tool"
)

// marker is the variable by which a program's own children are found.
const marker = "NOUSED_CHECK"

// shownStderr is how much of stderr a finding tells, in bytes.
const shownStderr = 400

// lingerTime is how long a program's children may live after it.
const lingerTime = 50 * time.Millisecond

// child is one process of the program.
type child struct {
	proc  *proc.Process
	mark  string
	lines chan []byte   // unbuffered; closed when the output has ended
	left  chan struct{} // closed when no more lines are wanted
	err   error         // why reading ended before the output did; valid then

	looked  chan struct{} // closed when remains is valid
	remains []string      // processes that outlived it
}

// start runs the program. It must be ended with finish.
func (r *runner) start(ctx context.Context) (*child, error) {
	cmd, err := r.desc.Command()
	if err != nil {
		return nil, err
	}
	c := &child{
		mark: marker + "=" + rand.Text(), lines: make(chan []byte), left: make(chan struct{}),
		looked: make(chan struct{}),
	}
	cmd.Env = append(slices.Clone(cmd.Env), c.mark)
	if c.proc, err = tool.Start(ctx, r.supervisor, cmd); err != nil {
		return nil, err
	}
	go c.read()        // ends with the process's output; finish waits for it
	go c.findOrphans() // ends soon after the process; finish waits for it
	return c, nil
}

// findOrphans finds what outlives the process. The Supervisor ends that as soon as
// nobody holds the output, so it is looked for at once, and what the Supervisor
// is faster with is not seen; what is about to end by itself is not meant.
func (c *child) findOrphans() {
	defer close(c.looked)
	<-c.proc.Exited()
	if len(marked(c.mark)) == 0 {
		return
	}
	time.Sleep(lingerTime)
	c.remains = marked(c.mark)
}

func (c *child) read() {
	defer close(c.lines)
	for {
		line, err := c.proc.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.err = err
			}
			return
		}
		select {
		case c.lines <- bytes.Clone(line):
		case <-c.left:
		}
	}
}

// errEnded says that a process ended instead of answering.
var errEnded = errors.New("the process ended")

// next waits for a line of output, for the output's end, or for ctx.
func (c *child) next(ctx context.Context) ([]byte, error) {
	select {
	case line, ok := <-c.lines:
		switch {
		case ok:
			return line, nil
		case c.err != nil:
			return nil, c.err
		}
		return nil, errEnded
	case <-ctx.Done():
		return nil, tool.Interrupted(ctx)
	}
}

// ending is how a process came to its end.
type ending struct {
	exit   proc.Exit
	stderr string
	left   []string // processes it left running, which have been ended
}

func (e ending) String() string {
	text := e.exit.String()
	if e.stderr != "" {
		lines := strings.Split(e.stderr, "\n")
		text += "; stderr ends: " + quote(lines[len(lines)-1])
	}
	return text
}

// finish closes the input, gives the process time to exit, stops it then, and
// returns when nothing of it is left.
func (c *child) finish(grace time.Duration) ending {
	c.proc.CloseInput()
	timer := time.AfterFunc(grace, c.proc.Stop)
	defer timer.Stop()
	close(c.left)
	for range c.lines { // the last one may be on its way
	}
	e := ending{exit: c.proc.Wait(), stderr: c.proc.Stderr(shownStderr)}
	if <-c.looked; !e.exit.Stopped {
		e.left = c.remains
	}
	return e
}

// marked names every process that has the variable in its environment.
func marked(mark string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), mark) {
			continue
		}
		dir := filepath.Dir(file)
		name, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, fmt.Sprintf("process %s (%s)", filepath.Base(dir),
			quote(strings.TrimSpace(strings.ReplaceAll(string(name), "\x00", " ")))))
	}
	return found
}
