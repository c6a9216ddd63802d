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

	"noused/internal/protocol"
)

const (
	maxLong      = 256              // long commands of one connection at a time
	flushSize    = 64 << 10         // replies held back while more input waits
	writeSize    = 1 << 20          // written at a time
	writeTimeout = 30 * time.Second // for a client to read that much
	stopGrace    = time.Second      // for the commands under way when the daemon stops
)

// errStopping is why the context of the commands under way ends at a stop.
var errStopping = errors.New("the daemon stops")

// ServeCommands serves the command socket: every line is run by mux, in order
// for each connection. Lines have at most maxLine bytes. It blocks until ctx
// ends; then it closes ln, reads no more, gives the commands under way a second
// to finish, and returns nil. The error is that of a listener which fails
// before.
func ServeCommands(ctx context.Context, ln *net.UnixListener, mux *protocol.Mux, maxLine int, log *zap.Logger) error {
	log = log.With(zap.String("on", "commands"))
	c := &conns{log: log, max: maxConns, grace: stopGrace, open: func(conn *net.UnixConn) session {
		s := &commandConn{conn: conn, mux: mux, maxLine: maxLine, log: log}
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
	log     *zap.Logger

	ctx    context.Context // ends when nobody is left to hear a reply
	cancel context.CancelCauseFunc

	long     sync.WaitGroup
	pending  atomic.Int32
	stopping atomic.Bool

	// mu guards the connection's write side and is held across its writes: who
	// waits for it is this client's own replies, which hold back this client's
	// own commands until it reads.
	mu    sync.Mutex
	out   []byte
	armed time.Time // when the write deadline was set
	dead  bool      // a write failed
}

func (s *commandConn) stop() {
	s.stopping.Store(true)
	_ = s.conn.SetReadDeadline(longAgo)
}

func (s *commandConn) abort() {
	s.cancel(errStopping)
	_ = s.conn.SetReadDeadline(longAgo)
	_ = s.conn.SetWriteDeadline(time.Now().Add(stopGrace / 2))
}

func (s *commandConn) serve() {
	defer s.cancel(nil)
	in := protocol.NewLineReader(s.conn, s.maxLine)
	for {
		line, err := in.Next()
		if err != nil {
			var long *protocol.LineTooLongError
			if !errors.As(err, &long) {
				s.end(err)
				return
			}
			id, outcome := protocol.TooLong(long)
			s.reply(id, outcome, !in.More())
			continue
		}
		cmd, bad := protocol.DecodeCommand(line)
		if bad != nil && s.stopping.Load() {
			continue // the half of a line at which reading was stopped
		}
		outcome := protocol.Failure(bad)
		if bad == nil {
			outcome = s.run(cmd)
		}
		if later := outcome.Later(); later != nil {
			s.begin(cmd, later)
			continue
		}
		s.tell(cmd, outcome)
		if !s.reply(cmd.ID, outcome, !in.More()) {
			s.end(net.ErrClosed)
			return
		}
	}
}

// run executes a command, unless it may be a long one and too many of these
// have not ended: it must be refused before it has done anything.
func (s *commandConn) run(cmd protocol.Command) protocol.Outcome {
	if s.pending.Load() >= maxLong && protocol.Long(cmd.Type) {
		return protocol.Failure(protocol.Rejectf(protocol.TooManyPending, "%d commands of this connection have not ended", maxLong))
	}
	return s.mux.Run(s.ctx, cmd)
}

// begin runs the second half of a long command beside the others. The replies
// to what came before it do not wait for it.
func (s *commandConn) begin(cmd protocol.Command, later func(context.Context) protocol.Outcome) {
	s.mu.Lock()
	s.flush()
	s.mu.Unlock()
	s.pending.Add(1)
	s.long.Go(func() { // ends with the command, or with the connection's context
		defer survive(s.log)
		defer s.pending.Add(-1)
		outcome := later(s.ctx)
		if errors.Is(outcome.Err(), context.Canceled) && context.Cause(s.ctx) == errStopping {
			outcome = protocol.Failure(protocol.Rejectf(protocol.ShuttingDown, "%v", errStopping))
		}
		s.tell(cmd, outcome)
		s.reply(cmd.ID, outcome, true)
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

// reply appends an outcome's line, and writes all there is if flush says so or
// much waits. False: the client cannot be written to.
func (s *commandConn) reply(id string, o protocol.Outcome, flush bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		s.out = *large.Get().(*[]byte)
	}
	s.out = o.Append(s.out, id)
	if flush || len(s.out) >= flushSize {
		s.flush()
	}
	return !s.dead
}

// flush writes what has been held back. mu is held.
func (s *commandConn) flush() {
	s.write(s.out)
	if s.out = s.out[:0]; cap(s.out) > 4*flushSize {
		buf := s.out
		s.out = nil // a connection does not keep what one long answer took
		large.Put(&buf)
	}
}

// large has the buffers of long answers, for as long as the collector lets it.
var large = sync.Pool{New: func() any { return new([]byte) }}

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
