package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/oauth"
	"noused/internal/proc"
	"noused/internal/tool"
)

const (
	// dialTime bounds a connection's making.
	dialTime = 10 * time.Second
	// hearTime is how long the answer to GET is waited for before the first call.
	hearTime = time.Second
	// sendTime is how long a message that is no call may take to be accepted.
	sendTime = 10 * time.Second
	// maxHeader is how much of a response's header is read, in bytes.
	maxHeader = 64 << 10
	// maxRedirects is how often a server may send us to another of its own addresses.
	maxRedirects = 3
)

// byeTime bounds the end of a session.
var byeTime = 2 * time.Second

// caller reaches a server over streamable HTTP (MCP 2025-11-25, transports).
type caller struct {
	desc   *tool.Descriptor
	s      *proc.Supervisor
	log    *zap.Logger
	logins *oauth.Source                         // nil: the server is told who we are by its headers alone
	shown  bool                                  // which they do
	proxy  func(*http.Request) (*url.URL, error) // the environment's
	direct atomic.Bool                           // that is passed over

	mu      sync.Mutex
	missing string // why somebody has to log in, and how; "" where nobody has to
	token   string // that was sent by then
}

func newCaller(d *tool.Descriptor, s *proc.Supervisor, o Options, log *zap.Logger) *caller {
	c := &caller{desc: d, s: s, log: log, proxy: http.ProxyFromEnvironment}
	for name := range d.Headers {
		c.shown = c.shown || http.CanonicalHeaderKey(name) == "Authorization"
	}
	if o.Logins != nil && !c.shown {
		c.logins, _ = o.Logins.Source(d.Transport.URL) // where nobody can log in, nobody has
	}
	return c
}

// throughProxy is the proxy of a request; what is secret goes through none that could read it.
func (c *caller) throughProxy(req *http.Request) (*url.URL, error) {
	if req.URL.Scheme == "http" && (len(c.desc.Headers) > 0 || req.URL.User != nil) {
		by, _ := c.proxy(req)
		c.direct.Store(by != nil)
		return nil, nil
	}
	return c.proxy(req)
}

func (c *caller) dial(_ context.Context, l *link) (wire, error) {
	r := &remote{
		caller: c, link: l, in: make(chan jsonrpc.Message), dead: make(chan struct{}),
		transport: &http.Transport{
			Proxy:       c.throughProxy,
			DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, TLSHandshakeTimeout: dialTime,
			ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: l.h.waits.idle,
		},
	}
	r.client = &http.Client{Transport: r.transport, CheckRedirect: sameServer}
	r.ctx, r.quit = context.WithCancel(context.Background())
	r.inbox = newInbox(l, r.ctx.Done())
	r.bye, r.hurry = context.WithCancel(context.Background())
	go r.finish()
	return r, nil
}

// sameServer lets a server send us to another of its own addresses, with the same
// request. Nothing of ours goes anywhere else.
func sameServer(req *http.Request, via []*http.Request) error {
	from := via[0]
	switch {
	case req.URL.Scheme != from.URL.Scheme || req.URL.Host != from.URL.Host:
		return tool.Faultf(tool.Unreachable,
			"the server redirects to %s, where nothing is sent: give that address, if it is the one you mean",
			(&url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host}).String())
	case req.Method != from.Method:
		return tool.Faultf(tool.Unreachable, "the server redirects in a way that loses the request, to %s: give that "+
			"address", req.URL.EscapedPath())
	case len(via) > maxRedirects:
		return tool.Faultf(tool.Unreachable, "the server redirects more than %d times", maxRedirects)
	}
	return nil
}

// needsLogin remembers that the server wants somebody to log in, and says what to
// do.
func (c *caller) needsLogin(token, why string) *tool.Fault {
	f := tool.Faultf(tool.NeedsLogin, "%s: %s", why, c.advice())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing, c.token = f.Message, token
	return f
}

func (c *caller) advice() string {
	name := c.desc.Name
	switch {
	case c.shown:
		return fmt.Sprintf("correct the header Authorization of %s, or remove it and say \"nous mcp login %s\"", name, name)
	case c.logins == nil:
		return fmt.Sprintf(
			"give %s a header Authorization, whose value may be ${A_VARIABLE}; to log in, its address has to be https", name)
	}
	return fmt.Sprintf("say \"nous mcp login %s\", or give it a header Authorization, whose value may be ${A_VARIABLE}",
		name)
}

func (c *caller) waiting() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing != "" && c.logins != nil {
		if token, err := c.logins.Current(); err == nil && token != "" && token != c.token {
			c.missing = ""
		}
	}
	return c.missing
}

// welcome says that the server took a request.
func (c *caller) welcome() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = ""
}

// remote is a session with a server over HTTP, as the SDK's transport and
// connection.
type remote struct {
	*caller
	link      *link
	inbox     *inbox
	client    *http.Client
	transport *http.Transport
	in        chan jsonrpc.Message // for the SDK

	ctx   context.Context // of all requests
	quit  context.CancelFunc
	bye   context.Context // of the last one
	hurry context.CancelFunc
	dead  chan struct{}
	work  sync.WaitGroup // requests

	mu      sync.Mutex
	closed  bool // no request is begun any more
	session string
	version string      // that was agreed on, "" before
	gone    bool        // the server has ended the session
	why     *tool.Fault // it was ended by us
}

// errGone is how a call ends that a server did not take, as it has ended the
// session: the call is made once more in another one.
var errGone = errors.New("the server has ended the session")

// Connect is [sdk.Transport].
func (r *remote) Connect(context.Context) (sdk.Connection, error) { return r, nil }

// SessionID is [sdk.Connection].
func (r *remote) SessionID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

// Read returns the next message that is the SDK's to answer.
func (r *remote) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-r.in:
		return msg, nil
	case <-r.ctx.Done():
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write sends a message. It does not wait for the answer to a call, which Read
// returns, and neither does an error of one end the connection.
func (r *remote) Write(ctx context.Context, msg jsonrpc.Message) error {
	body, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("cannot be sent: %w", err)
	}
	r.inbox.expect(ctx, msg)
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		if !r.goes(func() { r.call(ctx, req, body) }) {
			return io.ErrClosedPipe
		}
		return nil
	}
	r.inbox.sent(msg)
	return r.notify(ctx, msg, body)
}

// goes does something in a goroutine that the end of the connection waits for.
// false: it has ended.
func (r *remote) goes(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Go(f)
	return true
}

// finish waits for the end, tells the server, and leaves nothing behind.
func (r *remote) finish() {
	<-r.ctx.Done()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.work.Wait()
	r.leave()
	r.transport.CloseIdleConnections()
	close(r.dead)
}

// leave ends the session at the server.
func (r *remote) leave() {
	if r.SessionID() == "" || r.isGone() {
		return
	}
	ctx, cancel := context.WithTimeout(r.bye, byeTime)
	defer cancel()
	resp, err := r.send(ctx, http.MethodDelete, nil, nil, nil)
	if err != nil {
		r.log.Debug("the session was not ended at the server", zap.Error(err))
		return
	}
	_ = resp.Body.Close()
}

func (r *remote) isGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// lost says that the next call needs another connection.
func (r *remote) lost() { r.link.h.forget(r.link) }

// optional reports a request without whose answer a server is used. Nothing is lost with
// it: many servers refuse it, and each connection begins with it.
func optional(req *jsonrpc.Request) bool { return req != nil && req.Method == "prompts/list" }

// Close is the SDK's way to end it.
func (r *remote) Close() error {
	r.quit()
	return nil
}

// established has the server say what it wants to say outside of calls. It waits
// for its answer, but not for long: many servers ask what a call needs to know there,
// and say nothing at all where nobody listens yet.
func (r *remote) established() {
	if r.agreed() >= discover {
		return
	}
	ctx, heard := context.WithTimeout(r.ctx, hearTime)
	if r.goes(func() { r.listen(heard) }) {
		<-ctx.Done()
	}
	heard()
}

func (r *remote) agreed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

func (r *remote) stop(why *tool.Fault) {
	r.mu.Lock()
	if r.why == nil {
		r.why = why
	}
	r.mu.Unlock()
	r.quit()
}

func (r *remote) close(ctx context.Context) {
	unhook := context.AfterFunc(ctx, r.hurry)
	go func() {
		<-r.dead
		unhook()
	}()
	r.quit()
}

func (r *remote) ended() <-chan struct{} { return r.dead }

func (r *remote) epitaph() *tool.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why != nil {
		return r.why
	}
	return tool.Faultf(tool.Unreachable, "the connection to the server was closed")
}
