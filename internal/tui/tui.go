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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/plain"
	"noused/internal/tui/slash"
	"noused/internal/tui/terminal"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/xdg"
)

// Site is a daemon that can be shown.
type Site = slash.Site

// Options are what Run has to know. A nil stream is the process's own.
type Options struct {
	Site           // that of the daemon that is shown first
	Others  []Site // whose sessions can be shown, too: each has a Host, and so has the first then; not with Plain
	Session string // the session to show first; "" is the active one
	// Find, which may be nil, is asked which session to show first, once a daemon
	// answers; with "" it is the active one. It is for an empty Session.
	Find func(ctx context.Context) (sessionID string, err error)
	// Instead, which may be nil, is asked which session to show where the one that was shown is deleted.
	Instead follow.Instead
	Plain   bool     // line by line, for screen readers and dumb terminals
	Person  bool     // one reads Out; with Plain
	Notices []string // shown with the first session; not with Plain
	Board   bool     // the board first; not with Plain

	In  io.Reader
	Out io.Writer

	// Event prints an event of a run, Entry one of get_messages, for the plain
	// mode.
	Event func(protocol.Event)
	Entry func(jsontext.Value) error

	Getenv func(string) string // nil is os.Getenv
	Now    func() time.Time    // nil is time.Now
}

func (o *Options) input() io.Reader {
	if o.In == nil {
		return os.Stdin
	}
	return o.In
}

// output is where the screen is.
func (o *Options) output() io.Writer {
	if o.Out == nil {
		return os.Stdout
	}
	return o.Out
}

// place is where a job works that knows no session.
func (o *Options) place() slash.Place {
	return slash.Place{Site: &o.Site, Sites: 1 + len(o.Others), Getenv: o.Getenv}
}

// home is the user's folder where the daemon's folders are of this machine, else "".
func (o *Options) home() string {
	if o.Host != "" {
		return ""
	}
	return o.Getenv("HOME")
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
	l := follow.Open(o.Daemon, o.Session, o.Find, o.Instead)
	defer l.Close()
	if o.Plain {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT)
		defer stop()
		return plain.Run(ctx, plain.Options{
			Site: o.Site, Session: o.Session, Finds: o.Find != nil, Person: o.Person, In: o.input(), Out: o.output(),
			Event: o.Event, Entry: o.Entry, Getenv: o.Getenv, Now: o.Now,
		}, l)
	}
	return runScreen(ctx, o, l)
}

func runScreen(ctx context.Context, o Options, l *follow.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newModel(o, l, &jobs.Jobs{Ctx: ctx})
	defer func() { m.link.Close() }() // which may lead to another daemon by then
	frames := terminal.NewFrames()
	defer frames.Stop()
	program := tea.NewProgram(frames.Paint(m),
		tea.WithContext(ctx), tea.WithFPS(terminal.FramesPerSecond), tea.WithoutSignalHandler(), // which knows no SIGHUP
		tea.WithFilter(m.hold), tea.WithInput(terminal.Input(o.In, &m.arrows)), tea.WithOutput(terminal.Output(o.output())))
	frames.Drive(program)
	m.jobs.Send = program.Send
	defer m.listenSignals()()
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		m.stops.Listen(ctx, program.Send)
		return nil
	})
	m.titled(pushTitle)
	_, err := program.Run()
	m.titled(m.leftBehind())
	m.keepComments()
	cancel()
	m.jobs.WG.Wait()
	switch crash := cmp.Or(m.crash, m.none); {
	case crash != nil:
		return crash
	case err == nil:
		fmt.Fprint(o.output(), m.farewell())
		return nil
	case errors.Is(err, tea.ErrProgramPanic), ctx.Err() == nil:
		return err
	}
	return nil
}

// listenSignals ends the program by a signal until it is stopped, or the program has ended.
func (m *model) listenSignals() (stop func()) {
	asked := make(chan os.Signal, 4)
	signal.Notify(asked, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	m.jobs.Start(func(ctx context.Context) tea.Msg {
		for {
			select {
			case sig := <-asked:
				if !m.lent.Keeps(sig) {
					return tea.QuitMsg{}
				}
			case <-ctx.Done(): // the program's end
				return nil
			}
		}
	})
	return func() { signal.Stop(asked) }
}

// stateDir is where nous, or another program of the project, keeps its files.
func stateDir(getenv func(string) string, program string) string {
	return filepath.Join(xdg.State(getenv), program)
}
