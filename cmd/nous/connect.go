package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/plain"
	"noused/internal/client/runs"
	"noused/internal/protocol"
	"noused/internal/start"
	"noused/internal/tui/settings"
)

// A command that finds no daemon starts one, as tmux does. One that a daemon has answered
// already does not: somebody may have stopped it. An editor's agent does for whatever the
// editor asks, which is a command each.

// dial connects to the daemon, and starts one where there is none.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	conn, err := a.dialer().Commands(ctx)
	if err != nil {
		return nil, err
	}
	return client.New(conn), nil
}

// errStarted says that there was no daemon, and is one now.
var errStarted = errors.New("a daemon was started")

// startFor starts a daemon where the error says that there is none, and nobody has
// said that none is to be started. Any other error, and none, is returned.
func (a *app) startFor(ctx context.Context, err error) error {
	if !isNoDaemon(err) || a.met.Load() || !a.mayStart() {
		return err
	}
	if err := a.startDaemon(ctx); err != nil {
		return err
	}
	return errStarted
}

// mayStart reports that nobody has said that no daemon is to be started.
func (a *app) mayStart() bool {
	if a.noStart || a.completing {
		return false
	}
	wanted, wrong := settings.Autostart(os.Getenv)
	if wrong != nil {
		a.Notef("%s; no daemon is started before that is right", wrong)
	}
	return wanted && wrong == nil
}

// startForEditor starts the daemon that an editor's request finds missing, on whichever
// machine. Where none may be started the error is none.
func (a *app) startForEditor(ctx context.Context, none *client.NoDaemonError) error {
	if !a.mayStart() {
		return none
	}
	return a.startOnScreen(ctx)
}

// startDaemon starts a daemon, and says so where a person reads it.
func (a *app) startDaemon(ctx context.Context) error {
	s, err := start.Daemon(ctx, a.starting())
	if err != nil {
		return err
	}
	switch {
	case !a.ErrStyle.Terminal || s.Log == "":
	case s.Unit:
		a.Notef("systemd has started %s", s.Log)
	default:
		a.Notef("started noused (process %d); its log is %s", s.PID, s.Log)
	}
	return nil
}

// startWithin is how long a daemon may take to start.
var startWithin = start.Patience

// named tells whether somebody has named the socket.
func (a *app) named() bool { return a.socketGiven || os.Getenv("NOUSED_SOCKET") != "" }

// chooseSocket means the daemon at the other of the two places where one listens that
// nobody told a socket, if there is none at the first, and says so. Where both are, the
// first is meant, and nous status reports the other.
func (a *app) chooseSocket(ctx context.Context, other string) {
	if _, err := os.Lstat(other); other == "" || err != nil || !listens(ctx, other) {
		return
	}
	if listens(ctx, a.socket) {
		a.also = other
		return
	}
	if a.ErrStyle.Terminal {
		a.Notef("no daemon listens at %s; this is the one at %s", a.socket, other)
	}
	a.socket = other
}

func listens(ctx context.Context, socket string) bool {
	conn, err := client.Connect(ctx, socket)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func (a *app) starting() start.Options {
	return start.Options{
		Within: startWithin, Socket: a.socket, Named: a.named() || a.socket != client.DefaultSocket(),
		Getenv: os.Getenv,
	}
}

// startOnScreen is startDaemon for the screen, which shows what went wrong.
func (a *app) startOnScreen(ctx context.Context) error {
	if a.far != nil {
		return a.far.Start(ctx)
	}
	_, err := start.Daemon(ctx, a.starting())
	var failed *start.Error
	if errors.As(err, &failed) {
		return errors.New(failed.Lines())
	}
	return err
}

// runningDaemon leads to the daemon, and starts none.
func (a *app) runningDaemon() follow.Dialer {
	if a.completing && len(a.hosts) == 0 { // the flags have just been read
		if err := a.chooseHosts(completed); err != nil {
			return nowhere{err}
		}
	}
	switch {
	case a.far == nil:
	case a.far.Fleet != nil:
		return a.far.Fleet
	default:
		return a.far
	}
	return follow.Socket(a.socket)
}

// completed stands for the command whose words a shell asks for.
var completed = &cobra.Command{Use: "nous"}

// nowhere is a way that leads to no daemon.
type nowhere struct{ err error }

func (n nowhere) Commands(context.Context) (net.Conn, error) { return nil, n.err }
func (n nowhere) Events(context.Context) (net.Conn, error)   { return nil, n.err }

// place is where it leads, as messages name it.
func (a *app) place() string {
	if a.far != nil {
		return a.far.Place()
	}
	return a.socket
}

// dialer leads to the daemon, and starts one where there never was one.
func (a *app) dialer() follow.Dialer { return a.daemon }

type dialer struct{ a *app }

// Epoch is client.Greeter: nous proxy says it, and the daemons of a fleet all have one.
func (d dialer) Epoch(ctx context.Context) (epoch string, said bool, err error) {
	far := d.a.far
	switch {
	case far == nil:
		return "", false, nil
	case far.Fleet != nil:
		return far.Name, true, nil
	}
	if err := far.Reach(ctx); err != nil {
		return "", false, err
	}
	hello, err := far.Link.Hello(ctx)
	return hello.Epoch, true, err
}

func (d dialer) Events(ctx context.Context) (net.Conn, error) { return d.a.runningDaemon().Events(ctx) }

func (d dialer) Commands(ctx context.Context) (net.Conn, error) {
	way := d.a.runningDaemon()
	conn, err := way.Commands(ctx)
	if d.a.far != nil { // nous proxy does it there
		return conn, err
	}
	if err = d.a.startFor(ctx, err); errors.Is(err, errStarted) {
		conn, err = way.Commands(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &metConn{conn, &d.a.met}, nil
}

// metConn notes that the daemon has answered. One that was killed takes connections until the
// system has taken it apart, and answers none: it is as if there had been none.
type metConn struct {
	net.Conn
	met *atomic.Bool
}

// Read is net.Conn.
func (c *metConn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	if n > 0 {
		c.met.Store(true)
	}
	return n, err
}

// query sends one command and prints its reply: as it came with --json,
// through show otherwise.
func query[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P,
	show func(R),
) error {
	_, err := fetch(ctx, a, def, p, show)
	return err
}

// fetch is query for those who want the reply too.
func fetch[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P,
	show func(R),
) (R, error) {
	var r R
	payload, err := client.Raw(ctx, a.daemonSender(), def, p)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%s: decode reply: %w", def.Name(), err)
	}
	if a.JSON {
		a.JSONLine(payload)
	} else {
		show(r)
	}
	return r, nil
}

// act does something that a person can do, and prints what came of it: the daemon's reply as it
// came with --json, through show otherwise.
func act[R protocol.Reply](a *app, do func(client.Sender) (R, error), show func(R)) (R, error) {
	last := &keeper{Sender: a.daemonSender()}
	r, err := do(last)
	switch {
	case err != nil:
	case a.JSON:
		a.JSONLine(last.reply)
	default:
		show(r)
	}
	return r, err
}

// keeper keeps the last reply as it came.
type keeper struct {
	client.Sender
	reply jsontext.Value
}

// Send is client.Sender.
func (k *keeper) Send(ctx context.Context, command string, p protocol.Params) (reply jsontext.Value, err error) {
	reply, err = k.Sender.Send(ctx, command, p)
	k.reply = reply
	return reply, err
}

// request sends one command on a connection of its own and returns its reply.
func request[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, def protocol.Def[P, R], p P) (R, error) {
	return client.Call(ctx, a.daemonSender(), def, p)
}

// call is client.Call that does not wait for ever, and sends again what a restart kept from
// being done.
func call[P protocol.Params, R protocol.Reply](ctx context.Context, a *app, c *client.Client, def protocol.Def[P, R],
	p P,
) (R, error) {
	return client.Call(ctx, a.senderOver(c), def, p)
}

// keyOr is the key that a text is sent with: the user's, or one of its own.
func keyOr(given string) string { return cmp.Or(given, uuid.NewString()) }

func isNoDaemon(err error) bool {
	var gone *client.NoDaemonError
	return errors.As(err, &gone)
}

// senderOver sends commands over one connection, or where that is nil over one for each command.
func (a *app) senderOver(c *client.Client) follow.Sender {
	return follow.Sender{
		Daemon: a.dialer(), Conn: c, Answer: a.answer, Patience: a.patience, Note: a.Notef, Stopping: &a.going,
	}
}

// daemonSender sends each command on a connection of its own.
func (a *app) daemonSender() client.Sender { return a.senderOver(nil) }

// console is where a run is shown.
func (a *app) console() *runs.Console {
	return &runs.Console{
		Printer: a.Printer, Output: a.out, In: a.in, Result: a.result, Daemon: a.daemonSender(), Quiet: a.look,
		AnswerLine: a.answerLine,
	}
}

// personThere tells whether somebody sees what is asked, and can answer.
func (a *app) personThere() bool { return plain.IsTerminal(a.in) && a.ErrStyle.Terminal }
