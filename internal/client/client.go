// Package client speaks the nous v1 wire to a daemon: commands and replies
// over one socket, events over the other. The command line, the terminal
// interface and the tests are built on it.
//
// Concurrency: a Client serves any number of calls at once over its one
// connection, each finding its reply by id. An Events is read by one goroutine
// at a time. Both own goroutines that end, and are waited for, in Close.
//
// It refuses to start a daemon, to connect again behind its caller's back, to
// log, and to interpret what a session says.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// maxReply bounds a reply's line. Replies are far longer than commands may be:
// get_messages returns a whole session.
const maxReply = 1 << 30

// ErrLost is what calls and reads end with when the daemon's connection goes
// away under them.
var ErrLost = errors.New("connection to the daemon lost")

// ForeignError is what calls end with when what comes from the socket is no line of the
// protocol's. It is an ErrLost, too.
type ForeignError struct{ Err error }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("what listens there does not speak the protocol of noused: %v", e.Err)
}

// Unwrap returns ErrLost and what is wrong with the line.
func (e *ForeignError) Unwrap() []error { return []error{ErrLost, e.Err} }

// ErrClosed is what they end with after Close.
var ErrClosed = errors.New("connection closed")

// errNoPayload is what a reply ends its call with that has no JSON object for a
// payload, as every reply of the protocol has.
var errNoPayload = errors.New("the daemon's reply has no payload")

// Client is one connection to the command socket.
type Client struct {
	conn  net.Conn
	core  *core         // that is there
	lines chan []byte   // to the writer
	gone  chan struct{} // closed once err is set
	wg    sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	pending map[string]call
	stray   *protocol.Error // what the daemon said last to nobody
	err     error
}

// call waits for its reply.
type call struct {
	number uint64
	answer chan response // cap 1
}

type response struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Payload jsontext.Value  `json:"payload"`
	OK      bool            `json:"ok"`
	Error   *protocol.Error `json:"error"`
}

// Dial connects to the command socket: New over Connect, with the errors of
// Connect. ctx bounds the connecting only.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	return New(conn), nil
}

// New sends commands over a connection that stands, whatever it is made of. The
// connection is the Client's from then on: Close closes it.
func New(conn net.Conn) *Client {
	c := &Client{
		conn: conn, lines: make(chan []byte), gone: make(chan struct{}),
		pending: make(map[string]call), core: &core{age: current},
	}
	if a, ok := conn.(*adaptedConn); ok {
		c.core = a.core
	}
	c.wg.Go(c.write)
	c.wg.Go(c.read)
	return c
}

// Close ends the connection and every call on it, and waits for its
// goroutines. What the daemon has accepted goes on.
func (c *Client) Close() error {
	c.lose(ErrClosed)
	c.wg.Wait()
	return nil
}

// Gone is closed when the connection has ended, whichever side ended it.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Call sends a command of the protocol's table and waits for its reply, which
// may overtake, or come after, those of other calls. An error reply is a
// *protocol.Error, what an older core cannot do an *OlderError, a connection that goes away
// ErrLost. When ctx ends the wait is given up; the daemon may have executed the command all
// the same.
func Call[P protocol.Params, R protocol.Reply](ctx context.Context, c Sender, def protocol.Def[P, R], p P) (R, error) {
	var r R
	payload, err := Raw(ctx, c, def, p)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%s: decode reply: %w", def.Name(), err)
	}
	return r, nil
}

// Raw is Call for those who want the reply's payload as the daemon wrote it.
func Raw[P protocol.Params, R protocol.Reply](ctx context.Context, c Sender, def protocol.Def[P, R],
	p P,
) (jsontext.Value, error) {
	return c.Send(ctx, def.Name(), p)
}

// Sender sends the command of that name and returns its reply's payload: a Client does, and
// so does what sends a command again to the daemon that comes next.
type Sender interface {
	Send(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error)
}

// Send is Sender.
func (c *Client) Send(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	payload, err := c.core.send(ctx, c, command, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return payload, nil
}

func (c *Client) roundTrip(ctx context.Context, command string, params any) (jsontext.Value, error) {
	payload, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode payload: %w", err)
	}
	id, answer := c.expect()
	defer c.forget(id)
	line, err := encodeCommand(id, command, payload)
	if err != nil {
		return nil, err
	}
	select {
	case c.lines <- line:
	case <-c.gone:
		return nil, c.lossOf()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case r := <-answer:
		return r.result()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.gone:
	}
	select { // the reply may have come with the end of the connection
	case r := <-answer:
		return r.result()
	default:
		return nil, c.lossOf()
	}
}

func (r response) result() (jsontext.Value, error) {
	switch {
	case r.OK && r.Payload.Kind() != '{':
		return nil, errNoPayload
	case r.OK:
		return r.Payload, nil
	case r.Error != nil:
		return nil, r.Error
	default:
		return nil, protocol.Errorf(protocol.InternalError, "the daemon's reply is neither ok nor an error")
	}
}

func encodeCommand(id, command string, payload jsontext.Value) ([]byte, error) {
	line, err := json.Marshal(struct {
		V       string         `json:"v"`
		ID      string         `json:"id"`
		Type    string         `json:"type"`
		Payload jsontext.Value `json:"payload"`
	}{protocol.Version, id, command, payload})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", command, err)
	}
	return append(line, '\n'), nil
}

func (c *Client) expect() (string, <-chan response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	id := "c" + strconv.FormatUint(c.last, 10)
	answer := make(chan response, 1)
	c.pending[id] = call{c.last, answer}
	return id, answer
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

func (c *Client) deliver(r response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits, ok := c.pending[r.ID]; ok {
		delete(c.pending, r.ID)
		waits.answer <- r
	} else if r.ID == "" && r.Error != nil {
		c.stray = r.Error
		if len(c.pending) > 0 {
			last := c.last
			c.wg.Go(func() { c.assign(r, last) })
		}
	}
}

// assign finds the call that an error without an id answers: cores answer the
// commands of a connection in order, so it is the oldest one up to number last.
// A daemon may also say such a thing to nobody and hang up; hence it is asked for
// a sign of life first.
func (c *Client) assign(r response, last uint64) {
	if _, err := c.roundTrip(context.Background(), "ping", protocol.PingParams{}); err != nil {
		return // lossOf tells it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest, first := "", last+1
	for id, waits := range c.pending {
		if waits.number < first {
			oldest, first = id, waits.number
		}
	}
	if oldest != "" {
		c.pending[oldest].answer <- r
		delete(c.pending, oldest)
		c.stray = nil
	}
}

// lose ends the connection for the first reason it is given.
func (c *Client) lose(reason error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = reason
	}
	c.mu.Unlock()
	if first {
		close(c.gone)
		c.conn.Close()
	}
}

// lossOf says why the connection is gone. What the daemon said to no command
// in particular before it hung up is the better reason.
func (c *Client) lossOf() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stray != nil && errors.Is(c.err, ErrLost) {
		return fmt.Errorf("%w: %w", ErrLost, c.stray)
	}
	return c.err
}

// write ends with the connection. One goroutine writes so that no caller's
// context can cut a line in half. A failed write does not end the connection:
// the daemon may have hung up after saying why, and read finds both.
func (c *Client) write() {
	for {
		select {
		case line := <-c.lines:
			if _, err := c.conn.Write(line); err != nil {
				return
			}
		case <-c.gone:
			return
		}
	}
}

// read ends with the connection.
func (c *Client) read() {
	lines := protocol.NewLineReader(c.conn, maxReply)
	for {
		line, err := lines.Next()
		if err != nil {
			c.lose(lost(err))
			return
		}
		var r response
		if err := json.Unmarshal(line, &r); err != nil {
			c.lose(&ForeignError{err})
			return
		}
		c.deliver(r)
	}
}

func lost(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
