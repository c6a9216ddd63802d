package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"noused/internal/budget"
	"noused/internal/protocol"
)

const (
	maxLong      = 256              // long commands of one connection at a time
	longCost     = 4 << 10          // bytes that one of them takes beside its payload, and that a reply may have uncounted
	flushSize    = 16 << 10         // replies held back while more input waits
	shortSize    = 1 << 10          // of the memory that a connection keeps to encode its replies in
	writeSize    = 1 << 20          // written at a time
	writeTimeout = 30 * time.Second // for a client to read that much
)

// stopGrace is for the commands under way when the daemon stops.
var stopGrace = time.Second

// errStopping is why the context of the commands under way ends at a stop.
var errStopping = errors.New("the daemon stops")

// ServeCommands serves the command socket: every line is run by mux, in order
// for each connection. Lines have at most maxLine bytes; what lines, commands and
// replies take together is counted in held. It blocks until ctx ends; then it
// takes no more, answers every line that clients had sent by then, those that
// waited to be accepted included, gives the commands under way a second to
// finish, and returns nil. The error is that of a listener which fails before.
func ServeCommands(ctx context.Context, ln *Listener, mux *protocol.Mux, maxLine int, held *budget.Budget, log *zap.Logger) error {
	log = log.With(zap.String("on", "commands"))
	c := &conns{log: log, max: maxConns, grace: stopGrace, open: func(conn *net.UnixConn) session {
		s := &commandConn{conn: conn, mux: mux, maxLine: maxLine, held: held, log: log}
		s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		return s
	}}
	return c.serve(ctx, ln)
}

// commandConn is one client's connection. Its goroutine executes the commands
// in order; each long one has one more.
type commandConn struct {
	conn    *net.UnixConn
	mux     *protocol.Mux
	maxLine int
	held    *budget.Budget
	log     *zap.Logger
	scratch []byte // of its goroutine, for short replies

	ctx    context.Context // ends when nobody is left to hear a reply
	cancel context.CancelCauseFunc

	long     sync.WaitGroup
	pending  atomic.Int32
	stopping atomic.Bool

	// mu guards the connection's write side and is held across its writes: who
	// waits for it is this client's own replies, which hold back this client's
	// own commands until it reads.
	mu    sync.Mutex
	out   []byte           // held back, in buf
	buf   *[flushSize]byte // of buffers, while something is held back
	armed time.Time        // when the write deadline was set
	dead  bool             // a write failed
}

// meet has handlers know who sends the commands.
func (s *commandConn) meet(p peer) {
	s.ctx = protocol.WithCaller(s.ctx, protocol.Caller{PID: p.pid, UID: p.uid, Descendant: p.kin != stranger, Comm: p.comm})
}

// stop has the client's writes fail from here on. What it has written before is
// read to its end.
func (s *commandConn) stop() {
	s.stopping.Store(true)
	if s.conn.CloseRead() != nil {
		_ = s.conn.SetReadDeadline(longAgo)
	}
}

func (s *commandConn) abort() {
	s.cancel(errStopping)
	_ = s.conn.SetReadDeadline(longAgo)
	_ = s.conn.SetWriteDeadline(time.Now().Add(stopGrace / 2))
}

func (s *commandConn) serve() {
	defer s.cancel(nil)
	in := protocol.NewLineReader(s.conn, s.maxLine).Within(s.held)
	defer in.Close()
	for {
		line, err := in.Next()
		if err != nil {
			var long *protocol.LineTooLongError
			if !errors.As(err, &long) {
				s.end(err)
				return
			}
			id, outcome := protocol.TooLong(long)
			s.answer(id, outcome, !in.More())
			continue
		}
		cmd, bad := protocol.DecodeCommand(line)
		if bad != nil && in.Cut() && s.stopping.Load() {
			continue // the half of a line at which reading was stopped
		}
		in.Shrink()
		outcome := protocol.Failure(bad)
		if bad == nil {
			cost := s.costOf(cmd)
			payload := cmd.Payload
			cmd.Payload = nil // it is decoded soon, and nobody keeps it then
			outcome = s.run(protocol.Command{ID: cmd.ID, Type: cmd.Type, Payload: payload}, cost)
			if later := outcome.Later(); later != nil {
				s.begin(cmd, cost, later)
				continue
			}
		}
		s.tell(cmd, outcome)
		if !s.answer(cmd.ID, outcome, !in.More()) {
			s.end(net.ErrClosed)
			return
		}
	}
}

// run executes a command, unless there is no room for it, or it may be a long one
// and too many of these have not ended: it must be refused before it has done
// anything. A long one keeps its cost.
func (s *commandConn) run(cmd protocol.Command, cost int) protocol.Outcome {
	if s.pending.Load() >= maxLong && protocol.Long(cmd.Type) {
		return protocol.Failure(protocol.Rejectf(protocol.TooManyPending, "%d commands of this connection have not ended", maxLong))
	}
	if !s.held.Take(cost) {
		return protocol.Failure(noRoom("command", cost))
	}
	outcome := s.mux.Run(s.ctx, cmd)
	if outcome.Later() == nil {
		s.held.Give(cost)
	}
	return outcome
}

// costOf is how many bytes of the budget a command takes until it ends. A short
// one takes none: a connection has one of these at a time.
func (s *commandConn) costOf(cmd protocol.Command) int {
	if len(cmd.Payload) <= longCost && !protocol.Long(cmd.Type) {
		return 0
	}
	return s.held.Clip(longCost + len(cmd.Payload))
}

// noRoom is the error for what the budget has not enough left for.
func noRoom(what string, size int) error {
	return protocol.Rejectf(protocol.TooManyPending, "there is no room for a %s of %d bytes now: others have taken it", what, size)
}

// begin runs the second half of a long command beside the others. The replies
// to what came before it do not wait for it.
func (s *commandConn) begin(cmd protocol.Command, cost int, later func(context.Context) protocol.Outcome) {
	s.mu.Lock()
	s.flush()
	s.mu.Unlock()
	s.pending.Add(1)
	s.long.Go(func() { // ends with the command, or with the connection's context
		defer survive(s.log)
		defer s.pending.Add(-1)
		done := sync.OnceFunc(func() { s.held.Give(cost) })
		defer done()
		outcome := later(s.ctx)
		done() // before there has to be room for the reply, which may be as long
		if errors.Is(outcome.Err(), context.Canceled) && context.Cause(s.ctx) == errStopping {
			outcome = protocol.Failure(protocol.Rejectf(protocol.ShuttingDown, "%v", errStopping))
		}
		s.tell(cmd, outcome)
		s.reply(nil, cmd.ID, outcome, true)
	})
}

// end answers what has been read. A client that only closed its write side is
// waited for as long as its commands take; one that is gone altogether, now or
// meanwhile, is not.
func (s *commandConn) end(err error) {
	if !errors.Is(err, io.EOF) && !isTimeout(err) {
		s.cancel(err)
	}
	s.mu.Lock()
	s.flush()
	s.mu.Unlock()
	if s.pending.Load() == 0 {
		return
	}
	watched := make(chan struct{})
	go func() { // ends with the client, or when the last reply is written
		defer close(watched)
		if await(s.conn, 0) == nil {
			s.cancel(io.EOF)
		}
	}()
	s.long.Wait()
	_ = s.conn.SetReadDeadline(longAgo)
	<-watched
}

// tell logs what the client is not told.
func (s *commandConn) tell(cmd protocol.Command, o protocol.Outcome) {
	err := o.Err()
	if err == nil {
		return
	}
	var wire *protocol.Error
	if errors.As(err, &wire) || s.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	s.log.Error("command failed", zap.String("command", cmd.Type), zap.String("id", cmd.ID), zap.Error(err))
}

// answer is reply of the connection's own goroutine.
func (s *commandConn) answer(id string, o protocol.Outcome, flush bool) bool {
	if s.scratch == nil {
		s.scratch = make([]byte, 0, shortSize)
	}
	return s.reply(s.scratch, id, o, flush)
}

// reply encodes an outcome in the memory of into, and writes its line and all
// that has been held back, if flush says so or much waits. What the line takes
// is counted while it waits to be written. False: the client cannot be written
// to.
func (s *commandConn) reply(into []byte, id string, o protocol.Outcome, flush bool) bool {
	r := o.Encode(into[:0], id)
	if r.Release != nil {
		defer r.Release()
	}
	if size := s.held.Clip(r.Size()); size > longCost {
		if s.held.Take(size) {
			defer s.held.Give(size)
		} else {
			r = protocol.Response{Head: protocol.AppendError(into[:0], id, protocol.AsError(noRoom("reply", size)))}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(r)
	if flush || len(s.out) >= flushSize {
		s.flush()
	}
	return !s.dead
}

// append holds a line back, or writes it where it is long. mu is held.
func (s *commandConn) append(r protocol.Response) {
	s.put(r.Head)
	for i, v := range r.Values {
		if i > 0 {
			s.put(comma)
		}
		s.put(v)
	}
	s.put(r.Tail)
}

var comma = []byte{','}

// buffers have what connections hold back, so that one which waits for its client
// has none.
var buffers = sync.Pool{New: func() any { return new([flushSize]byte) }}

// put holds a piece of a line back, or writes it where it is long: no copy is
// made of that. mu is held.
func (s *commandConn) put(piece []byte) {
	if len(s.out)+len(piece) > flushSize {
		s.flush()
	}
	if len(piece) > flushSize {
		s.write(piece)
		return
	}
	if s.buf == nil {
		s.buf = buffers.Get().(*[flushSize]byte)
		s.out = s.buf[:0]
	}
	s.out = append(s.out, piece...)
}

// flush writes what has been held back. mu is held.
func (s *commandConn) flush() {
	s.write(s.out)
	if s.buf != nil {
		buffers.Put(s.buf)
		s.out, s.buf = nil, nil
	}
}

// write gives a client that reads nothing up. mu is held.
func (s *commandConn) write(p []byte) {
	for len(p) > 0 && !s.dead {
		// The deadline is not moved for each small reply: so long after it was
		// set, three quarters of the time are still left.
		if now := time.Now(); now.Sub(s.armed) > writeTimeout/4 && s.ctx.Err() == nil {
			s.armed = now
			_ = s.conn.SetWriteDeadline(now.Add(writeTimeout))
		}
		n := min(len(p), writeSize)
		if _, err := s.conn.Write(p[:n]); err != nil {
			s.dead = true
			s.cancel(err)
			_ = s.conn.SetReadDeadline(longAgo) // its goroutine may be reading
			if isTimeout(err) {
				s.log.Warn("connection closed: the client does not read its replies")
			}
		}
		p = p[n:]
	}
}
