// Package toolserver offers the tools of a session as an MCP server, on two streams: what an
// agent calls, the daemon calls as that session's model would.
//
// Concurrency properties: Run serves one client. Calls run beside each other, each over a
// connection to the daemon of its own, which ends with the call; one goroutine follows the
// daemon's events. All of them end before Run returns.
//
// # What it refuses to do
//
// It has no tools, rules or state of its own: a daemon that was restarted is asked anew. It
// keeps no line of more than [MaxLine] bytes.
package toolserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/client"
	"noused/internal/protocol"
)

const (
	// listTime is how long the daemon has to list the tools.
	listTime = 30 * time.Second
	// aliveTime is how often a client that wants progress hears that a call goes on: most give
	// up after a minute.
	aliveTime = 10 * time.Second
	// againTime is how long a lost event connection is left alone.
	againTime = time.Second
	// maxSaid bounds what is told of a call's progress at a time, in bytes.
	maxSaid = 4 << 10
)

// Options are what a server needs. All are required but Token.
type Options struct {
	Session string
	Token   string // of a hosted agent, for that session
	Version string
	In      io.Reader
	Out     io.Writer
	// Dial connects to the command socket.
	Dial func(context.Context) (*client.Client, error)
	// Subscribe connects to the event socket.
	Subscribe func(context.Context, protocol.SubscribeParams) (*client.Events, error)
	// Log is told what goes wrong, for people.
	Log func(format string, args ...any)
}

// At has the server of a hosted agent, which has a Token, reach the daemon on its sockets for
// agents. The way there is the daemon's to say: no folder is looked at.
func (o Options) At(socket string) Options {
	o.Dial = func(ctx context.Context) (*client.Client, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		return client.New(conn), nil
	}
	o.Subscribe = func(ctx context.Context, p protocol.SubscribeParams) (*client.Events, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", protocol.EventSocket(socket))
		if err != nil {
			return nil, err
		}
		return client.SubscribeOver(ctx, conn, p)
	}
	return o
}

// server is one at work.
type server struct {
	Options
	sdk  *sdk.Server
	base context.Context // ends with the client

	listing sync.Mutex                   // held while the tools are read
	known   map[string][sha256.Size]byte // by name

	mu       sync.Mutex
	progress map[string]chan string // of calls, by their output_id
}

// Run serves the client until its input ends, or ctx does. The error says why the daemon lets
// nobody call tools there, or what is wrong with the streams.
func (o Options) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{Options: o, base: ctx, known: map[string][sha256.Size]byte{}, progress: map[string]chan string{}}
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "noused", Title: "noused", Version: o.Version}, &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}},
		Logger:       slog.New(slog.DiscardHandler),
	})
	s.sdk.AddReceivingMiddleware(s.handle)
	if err := s.list(ctx); err != nil {
		return err
	}
	var following sync.WaitGroup
	following.Go(func() { s.follow(ctx) }) // ends with ctx
	err := s.sdk.Run(ctx, newTransport(o.In, o.Out, cancel))
	cancel()
	following.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// handle answers what is about tools; all else is the SDK's to answer.
func (s *server) handle(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch r := req.(type) {
		case *sdk.ListToolsRequest:
			if err := s.list(ctx); err != nil {
				return nil, fmt.Errorf("the tools cannot be listed: %w", err)
			}
		case *sdk.CallToolRequest:
			if method == "tools/call" {
				return s.call(ctx, r)
			}
		}
		return next(ctx, method, req)
	}
}

// list reads the session's tools and has the client hear of changes.
func (s *server) list(ctx context.Context) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	c, err := s.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	all, err := client.Call(ctx, c, protocol.ListTools, protocol.ListToolsParams{
		Scope: protocol.Scope{SessionID: s.Session}, Callable: true, Token: s.Token,
	})
	if err != nil {
		return err
	}
	gone := s.known
	s.known = map[string][sha256.Size]byte{}
	for _, t := range all.Tools {
		is := sha256.Sum256(fmt.Appendf(nil, "%q %v %s", t.Description, t.ReadOnly, t.Params))
		if was, ok := gone[t.Name]; !ok || was != is {
			if err := s.add(t); err != nil {
				s.Log("%s is left out: %v", t.Name, err)
				continue
			}
		}
		delete(gone, t.Name)
		s.known[t.Name] = is
	}
	for name := range gone {
		s.sdk.RemoveTools(name)
	}
	return nil
}

// add has the client see a tool. The SDK panics where it finds a schema wrong.
func (s *server) add(t protocol.ToolInfo) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	tool := &sdk.Tool{Name: t.Name, Description: t.Description, InputSchema: objectSchema(t.Params)}
	if t.ReadOnly {
		tool.Annotations = &sdk.ToolAnnotations{ReadOnlyHint: true}
	}
	s.sdk.AddTool(tool, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return s.call(ctx, r)
	})
	return nil
}

// call has the daemon make a call. A client that goes away, or takes the call back, ends it.
func (s *server) call(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	c, err := s.Dial(ctx)
	if err != nil {
		return failed(err.Error()), nil
	}
	defer func() { _ = c.Close() }() // which ends the call
	p := protocol.CallToolParams{
		Scope: protocol.Scope{SessionID: s.Session}, Token: s.Token, Name: r.Params.Name,
		Arguments: jsontext.Value(r.Params.Arguments),
	}
	if who := r.ClientInfo(); who != nil {
		p.Client = clip(cmp.Or(who.Title, who.Name), 100)
	}
	if token := r.Params.GetProgressToken(); token != nil {
		p.OutputID = uuid.NewString()
		defer s.report(ctx, r.Session, token, p.OutputID)()
	}
	res, err := client.Call(ctx, c, protocol.CallTool, p)
	var wire *protocol.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &wire) && (wire.Code == protocol.InvalidPayload || wire.Reason() == protocol.ToolNotRegistered):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.Message}
	case err != nil:
		return failed(err.Error()), nil
	}
	return resultOf(res), nil
}

func failed(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: true}
}

func resultOf(res protocol.ToolCalled) *sdk.CallToolResult {
	out := &sdk.CallToolResult{Content: []sdk.Content{}, IsError: !res.OK}
	text := res.Result
	if res.Error != nil {
		text = cmp.Or(text, res.Error.Message)
	}
	if text != "" || len(res.Images) == 0 {
		out.Content = append(out.Content, &sdk.TextContent{Text: text})
	}
	for _, image := range res.Images {
		if data, err := base64.StdEncoding.DecodeString(image.Data); err == nil {
			out.Content = append(out.Content, &sdk.ImageContent{Data: data, MIMEType: image.MediaType})
		}
	}
	return out
}

// report tells the client how a call gets on, until done is called.
func (s *server) report(ctx context.Context, to *sdk.ServerSession, token any, outputID string) (done func()) {
	said := make(chan string, 64)
	s.mu.Lock()
	s.progress[outputID] = said
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		alive := time.NewTicker(aliveTime)
		defer alive.Stop()
		for n := 1.0; ; n++ {
			text := "still working"
			select {
			case text = <-said:
			case <-alive.C:
			case <-ctx.Done():
				return
			}
			_ = to.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: text})
		}
	})
	return func() {
		s.mu.Lock()
		delete(s.progress, outputID)
		s.mu.Unlock()
		cancel()
		telling.Wait()
	}
}

// follow reads the daemon's events: what calls say, and that there are other tools. After a
// gap the tools are read again.
func (s *server) follow(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		p := protocol.SubscribeParams{Types: []string{protocol.Status{}.Type()}, Token: s.Token}
		if s.Token != "" {
			p.SessionID = s.Session
		}
		events, err := s.Subscribe(ctx, p)
		if err == nil {
			if !first {
				s.relist(ctx)
			}
			s.read(ctx, events)
			_ = events.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(againTime):
		}
	}
}

func (s *server) relist(ctx context.Context) {
	if err := s.list(ctx); err != nil && ctx.Err() == nil {
		s.Log("the tools cannot be listed: %v", err)
	}
}

func (s *server) read(ctx context.Context, events *client.Events) {
	for {
		env, _, err := events.Next(ctx)
		if err != nil {
			return
		}
		ev, err := client.Decode(env)
		st, ok := ev.(protocol.Status)
		if err != nil || !ok {
			continue
		}
		switch st.Code {
		case protocol.StatusToolsChanged, protocol.StatusSettingChanged:
			s.relist(ctx)
		case protocol.StatusOperationOutput:
			s.mu.Lock()
			said := s.progress[st.OutputID]
			s.mu.Unlock()
			select {
			case said <- clip(st.Message, maxSaid): // nil: another's
			default: // the client reads slower than the tool says things
			}
		}
	}
}
