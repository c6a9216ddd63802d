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
	maxLong   = 256      // long commands of one connection at a time
	longCost  = 4 << 10  // bytes that one of them takes beside its payload, and that a reply may have uncounted
	flushSize = 16 << 10 // replies held back while more input waits
	shortSize = 1 << 10  // of the memory that a connection keeps to encode its replies in
)

// writeTimeout is for a client to read anything of its replies.
var writeTimeout = 30 * time.Second

// leastRate is how much of a reply a client has to read a second once writeTimeout has
// gone by, in bytes.
const leastRate = 32 << 10

// stopGrace is for the commands under way when the daemon stops.
var stopGrace = time.Second

// errStopping is why the context of the commands under way ends at a stop.
var errStopping = errors.New("the daemon stops")

// Lines bounds the lines that clients send: Max is how many bytes one may have, and
// Held counts the bytes of all of them, for the whole daemon; nil counts nothing.
type Lines struct {
	Max  int
	Held *budget.Budget
}

// ServeCommands serves the command socket: every line is run by mux, in order
// for each connection. What lines, commands and replies take together is counted in
// lines. It blocks until ctx ends; then it
// takes no more, answers every line that clients had sent by then, those that
// waited to be accepted included, gives the commands under way a second to
// finish, and returns nil. The error is that of a listener which fails before.
func ServeCommands(ctx context.Context, ln *Listener, mux *protocol.Mux, lines Lines, log *zap.Logger) error {
	log = log.With(zap.String("on", "commands"))
	encoding := new(sync.Mutex)
	c := &conns{log: log, max: maxConns, grace: stopGrace, agents: ln.tokens != nil, open: func(conn *net.UnixConn) session {
		s := &commandConn{conn: conn, mux: mux, maxLine: lines.Max, held: lines.Held, encoding: encoding, log: log}
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
	// encoding is held, on all connections, while a reply is made that may be long:
	// the next one is made when this one has its room, or was refused it.
	encoding *sync.Mutex
	log      *zap.Logger
	scratch  []byte // of its goroutine, for short replies

	ctx    context.Context // ends when nobody is left to hear a reply
	cancel context.CancelCauseFunc

	long     sync.WaitGroup
	pending  atomic.Int32
	stopping atomic.Bool

	// mu guards the connection's write side and is held across its writes: who
	// waits for it is this client's own replies, which hold back this client's
	// own commands until it reads.
	mu   sync.Mutex
	out  []byte           // held back, in buf
	buf  *[flushSize]byte // of buffers, while something is held back
	dead bool             // a write failed

	began time.Time // when the reply was begun that is being written
	wrote int       // bytes of it
}

// meet has handlers know who sends the commands.
func (s *commandConn) meet(p peer) {
	s.ctx = protocol.WithCaller(s.ctx, protocol.Caller{
		PID: p.pid, UID: p.uid, Descendant: p.kin != stranger,
		Comm: p.comm,
	})
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
				s.startLong(cmd, cost, later)
				continue
			}
		}
		s.logOutcome(cmd, outcome)
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
		return protocol.Failure(protocol.Rejectf(protocol.TooManyPending, "%d commands of this connection have not ended",
			maxLong))
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
	return protocol.Rejectf(protocol.TooManyPending, "there is no room for a %s of %d bytes now: others have taken it",
		what, size)
}

// startLong runs the second half of a long command beside the others. The replies
// to what came before it do not wait for it.
func (s *commandConn) startLong(cmd protocol.Command, cost int, later func(context.Context) protocol.Outcome) {
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
			refused := protocol.Rejectf(protocol.ShuttingDown, "%v", errStopping)
			refused.Cause = protocol.CauseBegun
			outcome = protocol.Failure(refused)
		}
		s.logOutcome(cmd, outcome)
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

// logOutcome logs what the client is not told.
func (s *commandConn) logOutcome(cmd protocol.Command, o protocol.Outcome) {
	err := o.Err()
	if err == nil {
		return
	}
	var wire *protocol.Error
	if errors.As(err, &wire) || s.ctx.Err() != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(s.ctx))) {
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
	r, give := s.encode(into[:0], id, o)
	defer give()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(r)
	if flush || len(s.out) >= flushSize {
		s.flush()
	}
	return !s.dead
}

// encode makes the line of an outcome, for which there is room until give is called,
// or of the error that there is none.
func (s *commandConn) encode(into []byte, id string, o protocol.Outcome) (r protocol.Response, give func()) {
	if !o.Short() {
		s.encoding.Lock()
		defer s.encoding.Unlock()
	}
	var size int
	for {
		r = o.Encode(into, id)
		if give = r.Release; give == nil {
			give = func() {}
		}
		size = s.held.Clip(r.Size())
		switch {
		case size <= longCost:
			return r, give
		case s.held.Take(size):
			release := give
			return r, func() { release(); s.held.Give(size) }
		}
		give()
		if !o.Shorten() { // its events take room, too
			return protocol.Response{Head: protocol.AppendError(into, id, protocol.AsError(noRoom("reply", size)))}, func() {}
		}
	}
}

// append holds a line back, or writes it where it is long: no copy is made of that. mu
// is held.
func (s *commandConn) append(r protocol.Response) {
	if n := r.Len(); n > flushSize {
		s.flush()
		s.began, s.wrote = time.Now(), 0
		batch := make([][]byte, 0, maxPieces)
		for piece := range r.Pieces() {
			if batch = append(batch, piece); len(batch) == cap(batch) {
				s.write(batch)
				batch = batch[:0]
			}
		}
		s.write(batch)
		return
	} else if len(s.out)+n > flushSize {
		s.flush()
	}
	if s.buf == nil {
		s.buf = buffers.Get().(*[flushSize]byte)
		s.out = s.buf[:0]
	}
	for piece := range r.Pieces() {
		s.out = append(s.out, piece...)
	}
}

// buffers have what connections hold back, so that one which waits for its client
// has none.
var buffers = sync.Pool{New: func() any { return new([flushSize]byte) }}

// flush writes what has been held back. mu is held.
func (s *commandConn) flush() {
	if len(s.out) > 0 {
		s.began, s.wrote = time.Now(), 0
		s.write([][]byte{s.out})
	}
	if s.buf != nil {
		buffers.Put(s.buf)
		s.out, s.buf = nil, nil
	}
}

// write gives a client up that reads nothing. mu is held.
func (s *commandConn) write(p [][]byte) {
	if s.dead {
		return
	}
	size := 0
	for _, piece := range p {
		size += len(piece)
	}
	err := push(s.conn, p, s.patience)
	if s.wrote += size; err == nil {
		return
	}
	s.dead = true
	s.cancel(err)
	_ = s.conn.SetReadDeadline(longAgo) // its goroutine may be reading
	if isTimeout(err) {
		s.log.Warn("connection closed: the client does not read its replies")
	}
}

// patience is how long the client may take nothing, of a reply while so much has been
// written besides. While it takes less than leastRate on the whole it has the room of others,
// and that time grows short.
func (s *commandConn) patience(done int) time.Duration {
	if s.ctx.Err() != nil {
		return stopGrace / 2
	}
	left := writeTimeout + time.Duration(s.wrote+done)*time.Second/leastRate - time.Since(s.began)
	return max(time.Millisecond, min(writeTimeout, left.Truncate(time.Second)))
}
