// Package bridge is a client of the daemon on one side and an agent of the Agent
// Client Protocol on the other: what an editor asks becomes commands, what happens
// in a session becomes updates. Every session that the editor has open is followed
// by a window of its own.
//
// Concurrency: Run may be called once at a time. A window's state belongs to its one
// goroutine, which everything that concerns it is handed to; calls to the daemon and
// to the editor wait in goroutines of their own and hand over what comes of them.
// All of them end, and are waited for, in Run.
//
// It refuses to end a run because the editor went away, to use the editor's files
// and terminals, and to write anything but the protocol to its output.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// callTimeout is how long an answer is waited for that is given at once.
const callTimeout = 30 * time.Second

// Options are what a bridge stands between. Log has lines for people.
type Options struct {
	Daemon follow.Dialer
	Local  bool // the daemon's files are those of this machine
	// Start starts a daemon. It returns none where none may be started, and is called for
	// requests only: a daemon that somebody has stopped is not missed before. With nil
	// none is started.
	Start func(ctx context.Context, none *client.NoDaemonError) error
	// Agent makes the turns of new sessions; "" is the daemon's default.
	Agent string
	// Patience is how long a text waits for a daemon that nobody starts.
	Patience time.Duration
	In       io.Reader
	Out      io.Writer
	Log      func(format string, args ...any)
	Version  string
}

type bridge struct {
	Options
	conn   *acp.Conn
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Of the goroutine that reads.
	ready   bool
	notices bool
	forms   bool

	mu      sync.Mutex
	windows map[string]*window // by session
	made    []string           // sessions of session/new
}

// Run serves one client until its input ends, which is no error. An
// *acp.UnreadError says that the client does not read. Runs of the daemon go on.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	b := &bridge{Options: o, conn: acp.NewConn(o.In, o.Out), ctx: ctx, cancel: cancel, windows: map[string]*window{}}
	read := make(chan error, 1)
	go func() { read <- b.conn.Serve(b) }() // ends with the input
	var err error
	select {
	case err = <-read:
	case <-b.conn.Lost():
		err = b.conn.Err()
	case <-ctx.Done():
	}
	cancel()
	b.wg.Wait()
	b.tidy()
	b.conn.Close()
	return err
}

// methods are what the client may call.
var methods = map[string]func(*bridge, *acp.Request){
	acp.Initialize:      (*bridge).initialize,
	acp.Authenticate:    (*bridge).authenticate,
	acp.SessionNew:      (*bridge).newSession,
	acp.SessionLoad:     (*bridge).loadSession,
	acp.SessionResume:   (*bridge).resumeSession,
	acp.SessionList:     (*bridge).listSessions,
	acp.SessionDelete:   (*bridge).deleteSession,
	acp.SessionPrompt:   inWindow((*window).prompt),
	acp.SetMode:         inWindow((*window).setMode),
	acp.SetConfigOption: inWindow((*window).setOption),
	acp.Steer:           inWindow((*window).steer),
}

// Request does what the client asks for.
func (b *bridge) Request(r *acp.Request) {
	do, known := methods[r.Method]
	switch {
	case !known && r.Method == acp.SessionCancel:
		r.Fail(acp.Errorf(acp.InvalidRequest, "%s: is a notification, and has no id", r.Method))
	case !known:
		r.Fail(acp.Errorf(acp.MethodNotFound, "method: %.80q is not known", r.Method))
	case !b.ready && r.Method != acp.Initialize:
		r.Fail(acp.Errorf(acp.InvalidRequest, "%s: initialize comes first", r.Method))
	default:
		do(b, r)
	}
}

// Notice takes a notification in. One that is wrong cannot be answered.
func (b *bridge) Notice(method string, params jsontext.Value) {
	switch method {
	case acp.SessionCancel:
		p, err := acp.Decode[acp.SessionParams](params)
		if err != nil {
			b.Odd(method + ": " + err.Message)
		} else if w := b.window(*p.SessionID); w != nil {
			w.post(w.abort)
		}
	case acp.CancelRequest:
		p, err := acp.Decode[acp.CancelRequestParams](params)
		if err != nil {
			b.Odd(method + ": " + err.Message)
			return
		}
		for _, w := range b.all() {
			w.post(func() { w.takeBack(string(p.RequestID)) })
		}
	default:
		b.Odd("a notification that is not known: " + fmt.Sprintf("%.80q", method))
	}
}

// Odd goes to the log.
func (b *bridge) Odd(what string) { b.Log("ignored: %s", what) }

func (b *bridge) initialize(r *acp.Request) {
	p, err := acp.Decode[acp.InitializeParams](r.Params)
	switch {
	case err != nil:
		r.Fail(err)
		return
	case b.ready:
		r.Fail(acp.Errorf(acp.InvalidRequest, "initialize: this connection was initialized before"))
		return
	}
	b.ready = true
	b.notices, b.forms = p.Shows()
	var can acp.Capabilities
	can.LoadSession, can.Prompt.Image, can.Prompt.EmbeddedContext, can.MCP.HTTP = true, true, true, true
	r.Reply(acp.InitializeResult{
		ProtocolVersion: acp.Version, Capabilities: can, AuthMethods: []struct{}{},
		Agent: acp.Implementation{Name: "noused", Title: "noused", Version: b.Version},
	})
}

func (b *bridge) authenticate(r *acp.Request) {
	p, err := acp.Decode[acp.AuthenticateParams](r.Params)
	if err == nil {
		err = acp.Errorf(acp.InvalidParams,
			"methodId: there is no method %.80q: anyone who may use the socket may use the daemon", *p.MethodID)
	}
	r.Fail(err)
}

// later does what may take a while, away from the goroutine that reads.
func (b *bridge) later(r *acp.Request, do func(ctx context.Context) (any, error)) {
	b.wg.Go(func() {
		result, err := do(b.ctx)
		if err != nil {
			r.Fail(b.explain(err))
			return
		}
		r.Reply(result)
	})
}

// request sends one command, which may be sent twice, on a connection of its own, and once
// more where the daemon went away before it answered.
func request[P protocol.Params, R protocol.Reply](ctx context.Context, b *bridge, def protocol.Def[P, R], p P) (R,
	error,
) {
	t := b.tries()
	r, err := requestOnce(ctx, b, def, p)
	for again(err) {
		if err := t.next(ctx); err != nil {
			return r, err
		}
		r, err = requestOnce(ctx, b, def, p)
	}
	return r, err
}

// requestOnce sends one command on a connection of its own.
func requestOnce[P protocol.Params, R protocol.Reply](ctx context.Context, b *bridge, def protocol.Def[P, R], p P) (r R,
	err error,
) {
	conn, err := b.connect(ctx)
	if err != nil {
		return r, err
	}
	ctx, cancel := client.Bounded(ctx, p, callTimeout)
	defer cancel()
	c := client.New(conn)
	defer c.Close()
	return client.Call(ctx, c, def, p)
}

// explain makes an error of the daemon's one of the protocol's.
func (b *bridge) explain(err error) *acp.Error {
	var own *acp.Error
	if errors.As(err, &own) {
		return own
	}
	var gone *client.NoDaemonError
	if errors.As(err, &gone) {
		b.Log("%v: start noused first", err)
		return acp.Errorf(acp.InternalError, "%v: start noused first", err)
	}
	var wire *protocol.Error
	if !errors.As(err, &wire) {
		return acp.Errorf(acp.InternalError, "%v", err)
	}
	if wire.Reason() == protocol.NoModel { // a key is missing, which only a person has
		return acp.Errorf(acp.AuthRequired, "no model is chosen: nous setup")
	}
	out := acp.Errorf(acp.InternalError, "%s", wire.Message)
	if rest, ok := strings.CutPrefix(out.Message, "session_id: "); ok {
		out.Message = "sessionId: " + rest
	}
	switch {
	case wire.Code == protocol.InvalidPayload, wire.Reason() == protocol.SessionBegun:
		out.Code = acp.InvalidParams
	case wire.Code == protocol.SessionNotFound:
		out.Code = acp.ResourceNotFound
	}
	out.Data, _ = jsontext.AppendQuote([]byte(`{"code":`), string(wire.Code))
	out.Data = append(out.Data, '}')
	return out
}
