// Package tui is the terminal interface of nous: the conversation of a session,
// an input, and what the daemon is doing, on a whole terminal or, plainly, line
// by line.
//
// Concurrency: the model belongs to bubbletea's one goroutine. What takes time
// (commands to the daemon, folders, starting a daemon) is a job: a goroutine
// that gets a copy of what it needs, sends one message when it is done, and is
// waited for before Run returns. Jobs end with the program.
//
// The package refuses to keep any state of a session of its own: all that it
// shows was told by the daemon, and a daemon that comes back says it again. It
// refuses to end a run because its terminal ended.
package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/xdg"
)

// framesPerSecond bounds how often events are taken in while they stream.
const framesPerSecond = 30

// Site is where a daemon is, and what is done there. Daemon is required.
type Site struct {
	Daemon follow.Dialer // what leads to the daemon
	Place  string        // where that is, as messages name it: a socket's path, say
	Flags  string        // the flags that name it on nous's command line, each behind a space
	Host   string        // the machine it is on, by the name the user has for it; "" is this one
	Unit   bool          // it may be one that the user's systemd starts

	// Export writes a session as a document of a format: md, json or html.
	Export func(ctx context.Context, session, format string, w io.Writer) error

	// Start has a daemon listen at Place, and returns when it does. Its error may have
	// several lines.
	Start func(context.Context) error

	// SetUp is the command that asks for a model and its key in the terminal; nil where the
	// daemon is another machine's.
	SetUp []string

	// Other, which may be nil, describes a daemon of that version,
	// in a line; "" is nothing.
	Other func(version string) string
}

// Options are what Run has to know. A nil stream is the process's own.
type Options struct {
	Site           // that of the daemon that is shown first
	Others  []Site // whose sessions can be shown, too: each has a Host, and so has the first then; not with Plain
	Session string // the session to show first; "" is the active one
	// Find, which may be nil, is asked which session to show first, once a daemon
	// answers; with "" it is the active one. It is for an empty Session.
	Find  func(ctx context.Context) (sessionID string, err error)
	Plain bool // line by line, for screen readers and dumb terminals
	Board bool // the board first; not with Plain

	In  io.Reader
	Out io.Writer

	// Event prints an event of a run, Entry one of get_messages, for the plain
	// mode.
	Event func(protocol.Event)
	Entry func(jsontext.Value) error

	Getenv func(string) string // nil is os.Getenv
	Now    func() time.Time    // nil is time.Now
}

// output is where the screen is.
func (o *Options) output() io.Writer {
	if o.Out == nil {
		return os.Stdout
	}
	return o.Out
}

// home is the user's folder where the daemon's folders are of this machine, else "".
func (o *Options) home() string {
	if o.Host != "" {
		return ""
	}
	return o.Getenv("HOME")
}

// otherVersion describes a daemon's version.
func (o *Options) otherVersion(d protocol.DaemonInfo) string {
	if o.Other == nil {
		return ""
	}
	return o.Other(d.Version)
}

// refused tells whether the session that the user named cannot be shown, before
// any has been: to show another in its place would be a surprise.
func (o *Options) refused(r follow.Refused, known bool) bool {
	return !known && (o.Find != nil || o.Session != "" && r.SessionID == o.Session)
}

// Run shows a session until the user leaves, ctx ends, or a SIGHUP, SIGTERM or
// SIGQUIT comes; none of these is an error. That there is no such session is one. It blocks. Runs
// of the daemon go on. The terminal is as it was when Run returns, after a panic too, which is an
// error.
func Run(ctx context.Context, o Options) error {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := follow.Open(o.Daemon, o.Session, o.Find)
	defer l.Close()
	if o.Plain {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT)
		defer stop()
		return runPlain(ctx, o, l)
	}
	return runScreen(ctx, o, l)
}

func runScreen(ctx context.Context, o Options, l *follow.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newModel(o, l, &jobs{ctx: ctx})
	defer func() { m.link.Close() }() // which may lead to another daemon by then
	// bubbletea's own signal handler knows no SIGHUP.
	frames := newFrames()
	defer frames.stop()
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler(),
		tea.WithFilter(m.hold),
	}
	if o.In == nil {
		o.In = os.Stdin
	}
	if f, ok := o.In.(*os.File); ok {
		o.In = wheeled{f, &m.arrows}
	}
	out := o.output()
	if f, ok := out.(term.File); ok {
		out = margins{f}
	}
	options = append(options, tea.WithInput(o.In), tea.WithOutput(out))
	program := tea.NewProgram(painted{m, frames}, options...)
	frames.drive(program)
	m.jobs.send = program.Send
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(asked)
	m.jobs.start(func(ctx context.Context) tea.Msg {
		for {
			select {
			case sig := <-asked:
				if !m.lent.keeps(sig) {
					return tea.QuitMsg{}
				}
			case <-ctx.Done(): // the program's end
				return nil
			}
		}
	})
	m.jobs.start(func(ctx context.Context) tea.Msg {
		m.stops.listen(ctx, program.Send)
		return nil
	})
	m.titled(pushTitle)
	_, err := program.Run()
	m.titled(popTitle)
	cancel()
	m.jobs.wg.Wait()
	if err == nil && m.crash == nil && m.none == nil {
		fmt.Fprint(o.output(), m.farewell())
	}
	switch {
	case m.crash != nil:
		return m.crash
	case m.none != nil:
		return m.none
	case errors.Is(err, tea.ErrProgramPanic), err != nil && ctx.Err() == nil:
		return err
	default:
		return nil
	}
}

// jobs are the goroutines of one Run.
type jobs struct {
	ctx  context.Context
	send func(tea.Msg)
	wg   sync.WaitGroup
}

// crashed is a panic in a job.
type crashed struct{ err error }

// start runs f beside the screen and sends what it returns.
func (j *jobs) start(f func(context.Context) tea.Msg) {
	j.wg.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				j.send(crashed{panicError(r)})
			}
		}()
		if msg := f(j.ctx); msg != nil {
			j.send(msg)
		}
	})
}

// stateDir is where nous, or another program of the project, keeps its files.
func stateDir(getenv func(string) string, program string) string {
	return filepath.Join(xdg.State(getenv), program)
}
