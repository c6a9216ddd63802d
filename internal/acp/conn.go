package acp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// maxLine is the longest line that is read, in bytes.
const maxLine = protocol.DefaultMaxLine

// maxID is the longest id of a request, in bytes.
const maxID = 256

// maxMembers is how many members of a line that is refused are looked at.
const maxMembers = 16

// maxDepth is how deep lists and objects may be nested in a line.
const maxDepth = 100

// Handler is told what the client says, in the order in which it says it. It must
// not block for long: nothing else is read meanwhile.
type Handler interface {
	// Request must see to it that r is answered, now or later.
	Request(r *Request)
	// Notice is a notification.
	Notice(method string, params jsontext.Value)
	// Odd is a line that answers nothing that was asked.
	Odd(what string)
}

// Conn is one connection to a client.
type Conn struct {
	lines  *protocol.LineReader
	out    *outbox
	paused atomic.Bool
	rest   []byte // of a line, that Serve has read; valid once that has returned

	mu    sync.Mutex
	last  int64
	asked map[int64]waiting // what the client was asked and has not answered
	open  map[string]bool   // ids of requests that were not answered yet
}

// waiting is who waits for an answer. then may be nil.
type waiting struct {
	answer chan answer // cap 1
	then   func(jsontext.Value, *Error)
}

type answer struct {
	result jsontext.Value
	err    *Error
}

// envelope is any line.
type envelope struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  *string        `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

// NewConn reads from in and writes to out. Close ends its goroutine.
func NewConn(in io.Reader, out io.Writer) *Conn {
	return &Conn{
		lines: protocol.NewLineReader(in, maxLine), out: newOutbox(out),
		asked: map[int64]waiting{}, open: map[string]bool{},
	}
}

// Close writes what waits, for as long as a client that reads takes for it, and
// ends the writing. Reading ends with its stream.
func (c *Conn) Close() { c.out.close() }

// Lost is closed when nothing can be written any more. Err says why: the client is
// gone, or it is an *UnreadError.
func (c *Conn) Lost() <-chan struct{} { return c.out.lost }

// Err is why Lost is closed.
func (c *Conn) Err() error { return c.out.failure() }

// Calm waits until little of what was sent is unread. The error is Err's, or ctx's.
func (c *Conn) Calm(ctx context.Context) error { return c.out.calm(ctx) }

// Serve reads until the end of the input, which is no error.
func (c *Conn) Serve(h Handler) error {
	for {
		line, err := c.lines.Next()
		var long *protocol.LineTooLongError
		switch {
		case errors.As(err, &long):
			c.refuse(long.Prefix, Errorf(InvalidRequest, "the line is longer than %d bytes", long.Limit))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case c.lines.Cut() && c.paused.Load():
			c.rest = bytes.Clone(line)
		default:
			c.handleLine(h, line)
		}
	}
}

// handleLine takes a line in.
func (c *Conn) handleLine(h Handler, line []byte) {
	if err := tooMuch(line); err != nil { // before anything is made of it
		c.refuse(line, err)
		return
	}
	var e envelope
	if err := json.Unmarshal(line, &e); err != nil {
		c.refuse(line, unreadable(err))
		return
	}
	switch {
	case e.JSONRPC != "2.0":
		c.fail(nil, Errorf(InvalidRequest, `jsonrpc: want "2.0"`))
	case e.Method == nil && e.ID != nil && (e.Result != nil) != (e.Error != nil):
		c.answered(h, e)
	case e.Method == nil:
		c.fail(nil, Errorf(InvalidRequest, "method: missing"))
	case e.ID == nil:
		h.Notice(*e.Method, bytesOf(e.Params))
	default:
		c.request(h, e)
	}
}

// tooMuch refuses a line that would take many times its length in memory.
func tooMuch(line []byte) *Error {
	switch n, depth := protocol.Values(line, protocol.MaxValues); {
	case n > protocol.MaxValues:
		return Errorf(InvalidRequest, "the line has more than %d values in it", protocol.MaxValues)
	case depth > maxDepth:
		return Errorf(InvalidRequest, "the line is nested more than %d deep", maxDepth)
	}
	return nil
}

// perValue is what is made of a value beside its text, in bytes, or a little more.
const perValue = 64

// Weight is what is made of the parameters of a message, in bytes, or a little more: many small values
// take many times their text.
func Weight(params jsontext.Value) int {
	n, _ := protocol.Values(params, protocol.MaxValues)
	return len(params) + perValue*n
}

// unreadable tells a line that is no JSON from one that is no message.
func unreadable(err error) *Error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return Errorf(ParseError, "not JSON: %v", err)
	}
	if name := pointer(semantic); name != "" {
		return Errorf(InvalidRequest, "%s: has the wrong type", name)
	}
	return Errorf(InvalidRequest, "want one JSON object a line")
}

func (c *Conn) request(h Handler, e envelope) {
	id := string(e.ID)
	if !goodID(e.ID) {
		c.fail(nil, Errorf(InvalidRequest, "id: want a whole number, or a string of at most %d bytes", maxID))
		return
	}
	c.mu.Lock()
	taken := c.open[id]
	c.open[id] = true
	c.mu.Unlock()
	if taken { // an answer with this id would be taken for that of the first one
		c.fail(nil, Errorf(InvalidRequest, "id: %s is that of a request that has no answer yet", id))
		return
	}
	h.Request(&Request{ID: bytesOf(e.ID), Method: *e.Method, Params: bytesOf(e.Params), conn: c})
}

// goodID tells whether an id is one that ACP has.
func goodID(id jsontext.Value) bool {
	if len(id) > maxID {
		return false
	}
	switch id.Kind() {
	case 'n', '"':
		return true
	case '0':
		_, err := strconv.ParseInt(string(id), 10, 64)
		return err == nil
	default:
		return false
	}
}

func (c *Conn) answered(h Handler, e envelope) {
	waits, ok := c.waiting(e.ID)
	switch {
	case !ok: // late: it was asked, and taken back
		h.Odd("an answer to nothing that was asked, id " + string(e.ID))
	case e.Error != nil:
		failed := &Error{}
		if json.Unmarshal(e.Error, failed) != nil {
			failed = Errorf(InvalidRequest, "error: is no object with code and message")
		}
		waits.give(answer{err: failed})
	default:
		waits.give(answer{result: bytesOf(e.Result)})
	}
}

// waiting is who waits for the answer with an id, and does so no more.
func (c *Conn) waiting(id jsontext.Value) (waits waiting, ok bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return waits, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waits, ok = c.asked[n]
	delete(c.asked, n)
	return waits, ok
}

func (w waiting) give(a answer) {
	if w.then != nil {
		w.then(a.result, a.err)
	}
	w.answer <- a
}

// refuse says why a line is not taken in, of which that is the beginning: to who waits for it where it is an
// answer, else to the other side.
func (c *Conn) refuse(line []byte, why *Error) {
	if waits, ok := c.waiting(answers(line)); ok {
		waits.give(answer{err: Errorf(why.Code, "its answer cannot be taken in: %s", why.Message)})
		return
	}
	c.fail(nil, why)
}

// answers is the id of the request that a line answers, nil where its beginning does not say that it answers one.
func answers(line []byte) (id jsontext.Value) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != jsontext.KindBeginObject {
		return nil
	}
	isAnswer := false
	for range maxMembers {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != jsontext.KindString {
			break
		}
		switch name.String() {
		case "method":
			return nil
		case "result", "error":
			isAnswer = true
		case "id":
			v, err := dec.ReadValue()
			if err != nil {
				return nil
			}
			id = v.Clone()
			continue
		}
		if dec.SkipValue() != nil {
			break
		}
	}
	if !isAnswer {
		return nil
	}
	return id
}

// bytesOf is a copy: what the reader gave is valid until its next line.
func bytesOf(v jsontext.Value) jsontext.Value { return v.Clone() }

// Notify sends a notification. It does not block.
func (c *Conn) Notify(method string, params any) {
	c.send(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
}

// Update reports something that has happened in a session.
func (c *Conn) Update(sessionID string, update any) {
	c.Notify(SessionUpdate, Notification{SessionID: sessionID, Update: update})
}

// Call asks the client and waits for its answer, which is an *Error where it
// refuses. When ctx ends the client is told that nobody waits any more.
func (c *Conn) Call(ctx context.Context, method string, params any) (jsontext.Value, error) {
	return c.CallThen(ctx, method, params, nil)
}

// CallThen is Call. Before it returns, and before anything is read that comes behind the
// answer, Serve's goroutine calls then with it, unless then is nil. Where nobody answers it
// is not called.
func (c *Conn) CallThen(ctx context.Context, method string, params any, then func(jsontext.Value, *Error)) (
	jsontext.Value, error,
) {
	return c.Ask(method, params, then).Wait(ctx)
}

// Question is a request of ours.
type Question struct {
	ID    int64
	conn  *Conn
	waits chan answer
}

// Ask sends a request, whose answer is to be waited for. It does not block. then is called as
// CallThen says.
func (c *Conn) Ask(method string, params any, then func(jsontext.Value, *Error)) *Question {
	c.mu.Lock()
	c.last++
	id, waits := c.last, make(chan answer, 1)
	c.asked[id] = waiting{waits, then}
	c.mu.Unlock()
	c.send(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", id, method, params})
	return &Question{id, c, waits}
}

// Wait waits for the answer, as Call does.
func (q *Question) Wait(ctx context.Context) (jsontext.Value, error) {
	c, id := q.conn, q.ID
	select {
	case a := <-q.waits:
		if a.err != nil {
			return nil, a.err
		}
		return a.result, nil
	case <-c.out.lost:
		return nil, c.Err()
	case <-ctx.Done():
	}
	c.mu.Lock()
	_, unanswered := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	if unanswered {
		c.Notify(CancelRequest, CancelRequestParams{RequestID: jsontext.Value(strconv.FormatInt(id, 10))})
	}
	return nil, context.Cause(ctx)
}

// Pause has Serve keep the beginning of a line whose end has not come when its input ends: a
// Conn of the next program goes on with it. It is to be called before the input ends.
func (c *Conn) Pause() { c.paused.Store(true) }

// Left is what a connection was when its Serve had returned after Pause.
type Left struct {
	Rest []byte `json:"rest"` // the beginning of a line
	Last int64  `json:"last"` // id of a request
}

// Leave writes what waits, as Close does, and returns what the next program goes on with.
// ok is false where the other side has not read all.
func (c *Conn) Leave() (left Left, ok bool) {
	c.Close()
	unread, _, err := c.out.state()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Left{c.rest, c.last}, unread == 0 && err == nil
}

// Resume is NewConn for a connection that a former program has left.
func Resume(left Left, in io.Reader, out io.Writer) *Conn {
	c := NewConn(io.MultiReader(bytes.NewReader(left.Rest), in), out)
	c.last = left.Last
	return c
}

// Asked is a request that a former program has sent and that has no answer yet; with 0 one that
// has. then is called as CallThen says.
func (c *Conn) Asked(id int64, then func(jsontext.Value, *Error)) *Question {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := make(chan answer, 1)
	if id != 0 {
		c.asked[id] = waiting{waits, then}
	}
	return &Question{id, c, waits}
}

// Waits reports that the answer to a request has not come.
func (q *Question) Waits() bool {
	q.conn.mu.Lock()
	defer q.conn.mu.Unlock()
	_, waits := q.conn.asked[q.ID]
	return waits
}

// Unanswered is a request of the other side that a former program has not answered.
func (c *Conn) Unanswered(id jsontext.Value) *Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[string(id)] = true
	return &Request{ID: id, conn: c}
}

func (c *Conn) fail(id jsontext.Value, err *Error) {
	if id == nil {
		id = jsontext.Value("null")
	}
	c.send(struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Error   *Error         `json:"error"`
	}{"2.0", id, err})
}

func (c *Conn) reply(id jsontext.Value, result any) {
	c.send(struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Result  any            `json:"result"`
	}{"2.0", id, result})
}

// send writes a message. Texts of tools need not be UTF-8 everywhere.
func (c *Conn) send(message any) {
	line, err := json.Marshal(message, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		c.out.fail(fmt.Errorf("encode: %w", err))
		return
	}
	c.out.put(append(line, '\n'))
}

func (c *Conn) done(id jsontext.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, string(id))
}

// Request is one of the client's. Exactly one answer is sent, the first.
type Request struct {
	ID     jsontext.Value
	Method string
	Params jsontext.Value

	conn     *Conn
	once     sync.Once
	answered atomic.Bool
}

// Answered reports that the request has its answer.
func (r *Request) Answered() bool { return r.answered.Load() }

// Reply answers with a result, which is encoded as an object.
func (r *Request) Reply(result any) {
	r.once.Do(func() {
		r.answered.Store(true)
		r.conn.done(r.ID)
		r.conn.reply(r.ID, result)
	})
}

// Fail answers with an error.
func (r *Request) Fail(err *Error) {
	r.once.Do(func() {
		r.answered.Store(true)
		r.conn.done(r.ID)
		r.conn.fail(r.ID, err)
	})
}
