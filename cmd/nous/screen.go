package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/export"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/client/runs"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/tui"
	"noused/internal/tui/board"
)

// openTUI shows a session where there is a terminal to show it on, and help
// where there is none. Asked for plainly it reads and writes any stream; a
// terminal that cannot move its cursor gets that, too.
func (a *app) openTUI(cmd *cobra.Command, byLine bool) error {
	terminal := plain.IsTerminal(a.in) && plain.IsTerminal(a.out.W)
	if !byLine && !terminal {
		if a.session != "" || a.active {
			return cmdline.Errorf("the screen of a session needs a terminal; nous prompt, nous messages and the others take " +
				"--session and --active without one")
		}
		return cmd.Help()
	}
	if os.Getenv("TERM") == "dumb" && !byLine {
		a.Notef("this terminal is a dumb one: plain mode")
		byLine = true
	}
	if byLine {
		a.OutStyle.Colour, a.ErrStyle.Colour = false, false
	}
	if byLine && a.several() {
		return cmdline.Errorf("the plain mode is for one host: give %s once", a.hostFlag())
	}
	if err := a.reach(cmd.Context()); err != nil {
		return err
	}
	later, err := a.findForScreen(cmd.Context())
	if err != nil {
		return err
	}
	var notices []string
	switch text := a.otherModel(cmd.Context(), later != nil); {
	case text == "":
	case byLine:
		a.Notef("%s", text)
	default:
		notices = append(notices, text)
	}
	view := &runs.TextView{Console: a.console()}
	return tui.Run(cmd.Context(), tui.Options{
		Site: a.site(), Others: a.otherSites(), Session: a.session, Find: later, Instead: insteadOf,
		Plain: byLine, Board: a.board, In: a.in,
		Out: a.out.W, Notices: notices, Person: plain.IsTerminal(a.out.W),
		Event: func(ev protocol.Event) { view.Event(ev, nil) },
		Entry: func(entry jsontext.Value) error { return a.Entry(entry, false) },
	})
}

// site is the daemon that is meant, for the screen.
func (a *app) site() tui.Site {
	return tui.Site{
		Daemon: a.runningDaemon(), Place: a.place(), Flags: a.flags(), Host: a.hostName(), Unit: a.far == nil &&
			a.socket == protocol.DefaultSocket(os.Getenv),
		Start: a.startOnScreen, Other: a.otherVersion, SetUp: a.setupArgs(),
		Export: func(ctx context.Context, session, format string, w io.Writer) error {
			doc, err := a.document(ctx, session, format)
			if err != nil {
				return err
			}
			return export.Writers[format](w, doc)
		},
	}
}

// otherSites are the daemons of the other hosts that were named.
func (a *app) otherSites() (all []tui.Site) {
	for _, h := range a.hosts {
		if a.several() && h != a.far {
			all = append(all, a.at(h).site())
		}
	}
	return all
}

// reach connects to another machine while ssh may ask on the terminal, and says what is
// wrong where a fleet's host cannot be reached. Of several hosts the first one named is
// meant that can be reached.
func (a *app) reach(ctx context.Context) error {
	if a.several() {
		return a.reachOne(ctx)
	}
	if a.far == nil {
		return nil
	}
	if a.far.Fleet != nil {
		return a.far.Answers(ctx)
	}
	return a.far.Reach(ctx)
}

func (a *app) reachOne(ctx context.Context) error {
	met := make([]chan error, len(a.hosts))
	for i, h := range a.hosts {
		met[i] = make(chan error, 1)
		go func() { met[i] <- h.Answers(ctx) }() // ends when the host answers, or ssh gives up
	}
	failed := make([]error, len(a.hosts))
	for i, h := range a.hosts {
		if failed[i] = <-met[i]; failed[i] == nil {
			a.far = h
			return nil
		}
	}
	return a.complainOf(failed)
}

// hostName is the machine of the daemon, "" where that is this one.
func (a *app) hostName() string {
	if a.far == nil {
		return ""
	}
	return a.far.Name
}

// flags name the daemon on a command line, where it is not the one that is meant
// without them.
func (a *app) flags() string {
	if a.far != nil && a.far.Fleet != nil {
		return a.via.text(a.far.Name)
	}
	if a.far != nil && a.socketGiven {
		return " --host " + a.far.Name + " --socket " + a.socket
	}
	if a.far != nil {
		return " --host " + a.far.Name
	}
	if a.socket == client.DefaultSocket() || a.socket == protocol.DefaultSocket(os.Getenv) {
		return ""
	}
	return " --socket " + a.socket
}

// findForScreen finds the session that is shown first. Where no daemon answers
// yet, later finds it when one does.
func (a *app) findForScreen(ctx context.Context) (later func(context.Context) (string, error), err error) {
	what := needOrMake
	if a.board {
		what = needIfAny
	}
	_, err = a.scope(ctx, what)
	var (
		gone *client.NoDaemonError
		mute *client.SilentError
	)
	if errors.As(err, &gone) || errors.As(err, &mute) || errors.Is(err, client.ErrLost) {
		return func(ctx context.Context) (string, error) {
			scope, err := a.scope(ctx, what)
			return scope.SessionID, err
		}, nil
	}
	return nil, err
}

// otherModel says that NOUSED_MODEL is not the model of the daemon, which had another when it was started; "" where it
// is, or there is no daemon yet.
func (a *app) otherModel(ctx context.Context, none bool) string {
	wanted := os.Getenv("NOUSED_MODEL")
	if wanted == "" || a.far != nil || none {
		return ""
	}
	// By itself: what is learned of the daemon here is not the screen's, nor is one started.
	st, err := follow.Once(ctx, client.Adapt(a.runningDaemon()), protocol.GetState, protocol.GetStateParams{Daemon: true})
	provider, name, _ := strings.Cut(wanted, "/")
	if err != nil || st.Daemon.Epoch == "" || st.Model.Provider == provider && (name == "" || st.Model.Name == name) {
		return ""
	}
	return "NOUSED_MODEL is " + plain.OneLine(wanted, 80) + " here, but the running daemon was started with " +
		modelWord(st.Model) + " and goes on with it: nous stop, and the next command starts one that has it"
}

// insteadOf is what the screen shows once the session that it showed is deleted: its parent, else what nous means in
// the folder.
func insteadOf(ctx context.Context, c client.Sender, deleted protocol.State) (string, error) {
	if p := deleted.Parent; p != nil {
		ask := protocol.GetStateParams{Scope: protocol.Scope{SessionID: p.SessionID}}
		s, err := client.Call(ctx, c, protocol.GetState, ask)
		if err == nil {
			return s.SessionID, nil
		}
	}
	list, err := lookup.Sessions(ctx, c, deleted.Workdir)
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		return lastUsed(list).SessionID, nil
	}
	made, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{
		Workdir: deleted.Workdir, Activate: new(bool),
	})
	return made.SessionID, err
}

// boardPages bounds how many sessions are printed: so many thousand.
const boardPages = 10

func (a *app) boardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "board",
		Short: "Show all sessions by what they need, and what they are doing",
		Long: `Show all sessions of the daemon on one screen, by what they need: those that
wait for you, those that work, those that are done and unread, the idle ones;
grouped by folder. Type to filter; Enter opens one, Tab says something to one.

With --host given again it has the sessions of all these hosts.

Where standard input or output is no terminal, nous prints them and ends.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !a.JSON && plain.IsTerminal(a.in) && plain.IsTerminal(a.out.W) && os.Getenv("TERM") != "dumb" {
				a.board = true
				return a.openTUI(cmd, false)
			}
			if a.several() {
				return a.printBoards(cmd.Context())
			}
			return a.printBoard(cmd.Context())
		},
	}
}

// printBoard prints all sessions, or what the daemon says of them.
func (a *app) printBoard(ctx context.Context) error {
	limit, last, all := 1000, "", []protocol.SessionInfo(nil)
	for range boardPages {
		p := protocol.ListSessionsParams{Limit: &limit, Before: last}
		r, err := fetch(ctx, a, protocol.ListSessions, p, func(protocol.Sessions) {})
		if err != nil {
			return err
		}
		all = append(all, r.Sessions...)
		if len(r.Sessions) < limit {
			break
		}
		last = r.Sessions[len(r.Sessions)-1].SessionID
	}
	if a.JSON {
		return nil // it has been printed
	}
	return board.Print(a.out, all, "")
}

// printBoards is printBoard for several hosts.
func (a *app) printBoards(ctx context.Context) error {
	lists, failed := eachHost(ctx, a, func(ctx context.Context, _ *app, h hosts.Host) ([]hosts.Session, error) {
		return h.List(ctx, protocol.ListSessionsParams{Limit: new(1000)}, max(boardPages/len(a.hosts), 1), nil)
	})
	if a.JSON {
		a.printSessionLines(hosts.Sorted(lists))
		return failed
	}
	of := map[string][]protocol.SessionInfo{}
	for _, l := range lists {
		for _, s := range l.Value {
			of[s.Host] = append(of[s.Host], s.SessionInfo)
		}
	}
	return cmp.Or(board.PrintHosts(a.out, of), failed)
}
