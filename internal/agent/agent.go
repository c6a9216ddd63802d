// Package agent hosts agents of other makers: child processes that speak the Agent Client
// Protocol (version 1) on their standard input and output, with this package as the client.
// [Agents] knows which there are; a [Session] is one of them at work in one session of the
// daemon, as its run loop sees it: what the agent says streams as a model's answer does,
// and each of its calls is one that the run loop decides about and waits for.
//
// # Concurrency properties
//
// Agents may be used from any goroutine. Of a Session, Stream and Call are called one
// after the other, everything else from any goroutine. An agent's process has a goroutine
// that reads what it says, and each of its sessions one that waits for the answer to its
// prompt. They end with the process, which the last of its sessions ends. No session waits
// for another's: one that nobody takes in what is said in it is cut before that.
//
// # What it refuses to do
//
// It offers an agent no files and no terminals: that has its own hands. It never gives one
// the daemon's keys, keeps no more of what one says than [maxQueued] bytes, and knows
// neither journals nor clients.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"noused/internal/acp"
	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/trust"
)

// Spec is an agent that sessions can be made for.
type Spec struct {
	Name     string
	Command  []string          // the program, found in PATH or absolute, and its arguments
	Env      map[string]string // beside what every tool gets
	Sandbox  bool              // it runs in the sandbox of tools
	Writable []string          // absolute paths that it may write to then
	NoTools  bool              // it is given no MCP servers, ours neither
	Stop     bool              // a run that a crash has cut is not to go on
	Idle     time.Duration     // a silence in a turn that ends the agent; 0: none does
	Install  string            // the line that installs it, "" where that is not known
	SignIn   string            // the line that signs in

	Credentials []Credential // any of them is there where somebody has signed in
	OnlyThere   bool         // nobody has where none of them is; else that cannot be told
}

// Options are what Agents need of the daemon. All are required but Default and Servers.
type Options struct {
	Specs   []Spec // one for each name
	Default string // the agent of sessions that name none; "": the daemon's own loop
	Version string // of the daemon
	// Start starts an agent's program in a session's folder.
	Start func(ctx context.Context, s Spec, c proc.Command) (Process, error)
	// Servers are the MCP servers that an agent is given for a session, as the protocol has
	// them, and the names of those that are the user's own. http: it speaks to those that
	// have an address. Nil: there are none.
	Servers func(sessionID, workdir string, http bool) (entries []acp.ServerEntry, own []string)
	// Rules are those of now.
	Rules func() *policy.Set
	NewID func(prefix string) string
}

// Process is an agent's program, as a [proc.Process] is one.
type Process interface {
	io.Reader // its standard output
	// Write writes to its standard input, and blocks until that is taken, or ctx ends.
	Write(ctx context.Context, data []byte) error
	// Stop has it end, and Kill ends it at once. Neither blocks.
	Stop()
	Kill()
	// Wait waits until nothing is left of it.
	Wait() proc.Exit
	// Stderr is the end of what it has said there, of at most so many bytes.
	Stderr(limit int) string
	// Pause ends the reading for good, for the next program, and Keep has that take it over, as
	// [proc.Process] says.
	Pause()
	Keep(ctx context.Context) (proc.Kept, error)
}

const (
	// maxWords is what all agents together have said and nobody has taken in, in bytes, beside
	// the first 64 KiB of each.
	maxWords = 8 << 20
	// maxAllOpen is what is kept of the calls of all agents that are under way, in the same way.
	maxAllOpen = 32 << 20
)

// Agents are the agents of the configuration.
type Agents struct {
	set   atomic.Pointer[Options]
	words *budget.Budget // of all inboxes
	calls *budget.Pool   // that are under way

	mu       sync.Mutex
	left     []Left              // for the next program
	unopened map[string]*orphan  // by session: what a former program has left and nobody has opened
	shared   map[string]*process // that further sessions can join, by what it is for
	single   map[string]bool     // agents that have refused a second session in a process
}

// New returns them. It starts nothing.
func New(o Options) *Agents {
	a := &Agents{
		words: budget.New(maxWords), calls: budget.NewPool(maxAllOpen), unopened: map[string]*orphan{},
		shared: map[string]*process{}, single: map[string]bool{},
	}
	a.set.Store(&o)
	return a
}

// Replace has other agents known, and another default, from here on. What runs goes on.
func (a *Agents) Replace(specs []Spec, byDefault string) {
	o := *a.o()
	o.Specs, o.Default = specs, byDefault
	a.set.Store(&o)
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.single)
}

func (a *Agents) o() *Options { return a.set.Load() }

// Default is the agent of sessions that name none, "" for the daemon's own loop.
func (a *Agents) Default() string { return a.o().Default }

// spec returns the agent of that name. The error is for people.
func (a *Agents) spec(name string) (Spec, error) {
	var names []string
	for _, s := range a.o().Specs {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return Spec{}, fmt.Errorf("there is no agent %.40q, only noused, %s; another is a section [agent.NAME] of config.toml",
		name, strings.Join(names, ", "))
}

// List returns the agents by name.
func (a *Agents) List() []Spec {
	list := slices.Clone(a.o().Specs)
	slices.SortFunc(list, func(x, y Spec) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// Check says why no session can have that agent.
func (a *Agents) Check(name string) error {
	_, err := a.spec(name)
	return err
}

// Missing says why an agent cannot be started, nil where it can.
func (a *Agents) Missing(name string) error {
	s, err := a.spec(name)
	if err == nil {
		_, err = s.Path()
	}
	return err
}

// Resumes reports whether a run goes on that a crash has cut.
func (a *Agents) Resumes(name string) bool {
	s, err := a.spec(name)
	return err == nil && !s.Stop
}

// Path is where the agent's program is. The error says how it is installed.
func (s Spec) Path() (string, error) {
	look := func(name string) (string, error) { return trust.LookPath(name, os.Getenv("PATH")) }
	if s.Sandbox {
		look = exec.LookPath
	}
	path, err := look(s.Command[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		return path, nil
	}
	install := ""
	if s.Install != "" {
		install = "; install it with: " + s.Install
	}
	why := "it is not in the daemon's PATH"
	if !errors.Is(err, exec.ErrNotFound) {
		why = err.Error()
	}
	return "", fmt.Errorf("%s cannot be started: %s: %s%s", s.Name, s.Command[0], why, install)
}

// Open returns the agent of a session.
func (a *Agents) Open(sessionID, name, workdir string, tell func(context.Context, model.AgentNews) error) *Session {
	if s := a.takeUnopened(sessionID); s != nil {
		if s.name == name && s.workdir == workdir {
			s.tell = tell
			return s
		}
		s.Close() // it is another's
	}
	s := a.newSession(sessionID, name, workdir)
	s.tell, s.telling = tell, true
	return s
}

func (a *Agents) newSession(sessionID, name, workdir string) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	return &Session{
		agents: a, id: sessionID, name: name, workdir: workdir, ctx: ctx, cancel: cancel,
		turnstile: make(chan struct{}, 1), paused: make(chan struct{}), calls: a.calls.Begin(),
		serves: map[string]*serving{},
	}
}

// failedf is an error that ends a run as the agent's failure.
func failedf(format string, args ...any) error {
	return &model.AgentError{Code: "agent_failed", Message: fmt.Sprintf(format, args...)}
}
