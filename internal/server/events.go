package server

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/budget"
	"noused/internal/event"
	"noused/internal/protocol"
)

const (
	batchSize = 256 << 10 // bytes written to a reader at a time
	maxVector = 1024      // slices written at a time: the kernel takes no more
)

// For a reader to take anything while the daemon stops, and all that is left.
var (
	drainTimeout = 500 * time.Millisecond
	drainGrace   = 5 * time.Second
)

// ServeEvents serves the event socket: what is published from the moment a
// client is accepted, or what it subscribes to (wire-v1 §5). What
// waits to be written is counted in lines, too. It blocks until ctx ends; log must be
// closed by then. Then it closes ln, gives every reader that goes on reading up
// to five seconds to take what is left, and returns nil. The error is that of a
// listener which fails before.
func ServeEvents(ctx context.Context, ln *Listener, log *event.Log, readers *Readers, lines Lines,
	zlog *zap.Logger,
) error {
	zlog = zlog.With(zap.String("on", "events"))
	c := &conns{log: zlog, max: maxConns, grace: drainGrace, agents: ln.tokens != nil, open: func(conn *net.UnixConn) session {
		s := &eventConn{
			conn: conn, log: log, readers: readers, maxLine: lines.Max, held: lines.Held, zlog: zlog,
			requests: make(chan request), done: make(chan struct{}), tokens: ln.tokens,
		}
		first := event.Filter{}
		if ln.tokens != nil {
			first.SessionID = "-" // no session's: it has to say first whose token it has
		}
		s.cursor, _, _ = log.Begin("", nil, first)
		s.at.Store(s.cursor.After())
		return s
	}}
	return c.serve(ctx, ln)
}

// eventConn is one reader: a goroutine that writes, and one that listens for
// subscribe and for the client's end.
type eventConn struct {
	conn    *net.UnixConn
	log     *event.Log
	readers *Readers
	maxLine int
	held    *budget.Budget
	zlog    *zap.Logger

	requests chan request  // closed when the client is gone
	done     chan struct{} // closed when the writing goroutine has ended
	draining atomic.Bool   // writes have a deadline
	at       atomic.Uint64 // the event that it has got last, or passed over
	took     atomic.Int64  // when the client last took something of a line that it stopped in
	pid      int
	tokens   Tokens // not nil: a subscription has to have one

	// Of the writing goroutine.
	cursor event.Cursor
	lines  [][]byte // memory for the next batch
	vector [][]byte // memory for the next write
}

// request is a line that the client sent.
type request struct {
	id     string
	params protocol.SubscribeParams
	err    error
}

func (s *eventConn) meet(p peer) { s.pid = p.pid }

// stop keeps a reader that does not read from holding it up.
func (s *eventConn) stop() {
	s.draining.Store(true)
	_ = s.conn.SetWriteDeadline(time.Now().Add(drainTimeout)) // of what is being written
}

func (s *eventConn) abort() { _ = s.conn.Close() }

func (s *eventConn) serve() {
	defer s.readers.add(s)()
	listening := make(chan struct{})
	go func() { // ends with the client, or when writing has ended
		defer close(listening)
		defer survive(s.zlog)
		defer close(s.requests)
		s.listen()
	}()
	defer func() {
		close(s.done)
		_ = s.conn.SetReadDeadline(longAgo)
		<-listening
	}()
	s.follow()
}

// listen hands the client's lines on until it is gone. The end of its lines is
// not the end of its reading. Most clients never send one: no buffer is made
// for them.
func (s *eventConn) listen() {
	if await(s.conn, unix.POLLIN) != nil {
		return
	}
	in := protocol.NewLineReader(s.conn, s.maxLine).Within(s.held)
	defer in.Close()
	for {
		var r request
		line, err := in.Next()
		if err == nil {
			r.id, r.params, r.err = protocol.DecodeSubscribe(line)
		} else {
			var long *protocol.LineTooLongError
			if !errors.As(err, &long) {
				break
			}
			var o protocol.Outcome
			r.id, o = protocol.TooLong(long)
			r.err = o.Err()
		}
		select {
		case s.requests <- r:
		case <-s.done:
			return
		}
	}
	_ = await(s.conn, 0)
}

// follow writes the log's events until it ends, or the client does.
func (s *eventConn) follow() {
	for {
		select { // a request goes before more events
		case r, ok := <-s.requests:
			if !ok || !s.answer(r) {
				return
			}
		default:
		}
		s.at.Store(s.cursor.After()) // all of it is written
		b := s.log.Read(&s.cursor, batchSize, s.lines)
		switch {
		case b.End:
			return
		case b.Wait == nil:
			if !s.send(b) {
				return
			}
			continue
		}
		s.at.Store(s.cursor.After()) // what it did not want is behind it, too
		select {
		case r, ok := <-s.requests:
			if !ok || !s.answer(r) {
				return
			}
		case <-b.Wait:
		}
	}
}

// answer takes a subscription up: behind its reply follows exactly what it asks
// for. False: the client cannot be written to.
func (s *eventConn) answer(r request) bool {
	if r.err != nil {
		return s.write(protocol.AppendError(nil, r.id, protocol.AsError(r.err)))
	}
	p := r.params
	if s.tokens != nil && (p.Token == "" || !s.tokens(p.SessionID, p.Token)) {
		refused := protocol.Rejectf(protocol.Forbidden, "token: it is not that of session %.80q", p.SessionID)
		return s.write(protocol.AppendError(nil, r.id, refused))
	}
	c, next, gap := s.log.Begin(p.Epoch, p.After, event.Filter{
		SessionID: p.SessionID, Types: p.Types, Shared: p.Token != "",
	})
	line, err := protocol.AppendResponse(nil, r.id, "subscribed", protocol.Subscribed{
		Epoch: s.log.Epoch(), NextSeq: next,
		Gap: gap,
	})
	if err != nil {
		s.zlog.Error("subscribe failed", zap.String("id", r.id), zap.Error(err))
		return s.write(protocol.AppendError(nil, r.id, protocol.AsError(err)))
	}
	s.cursor = c
	return s.write(line)
}

// send writes a batch, and before it what is missing there.
func (s *eventConn) send(b event.Batch) bool {
	if b.To > 0 {
		line, err := dropped(b.From, b.To)
		if err != nil {
			s.zlog.Error("connection closed: the events that it missed could not be announced", zap.Error(err))
			return false
		}
		if !s.write(line) {
			return false
		}
	}
	s.lines = b.Lines
	arm(s.conn, s.patience)
	line, n, err := s.try(b.Lines)
	clear(s.lines) // a reader that waits holds on to no old events
	if err != nil || line == nil {
		return err == nil
	}
	seq := protocol.SeqOf(line)
	s.cursor.Rewind(seq)
	s.at.Store(seq)
	rest, done := s.readers.keep(s, seq, line, line[n:])
	defer done()
	return s.write(rest)
}

// try writes as much of whole lines as the socket takes at once. line is the one that it
// stopped in, behind wrote bytes; nil: none is.
func (s *eventConn) try(lines [][]byte) (line []byte, wrote int, err error) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	i, n := 0, 0 // lines[i][n:] is what comes next
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for i < len(lines) && failed == nil {
			s.vector = append(s.vector[:0], lines[i:min(len(lines), i+maxVector)]...)
			s.vector[0] = s.vector[0][n:]
			var wrote int
			wrote, failed = unix.Writev(int(fd), s.vector)
			for n += max(wrote, 0); i < len(lines) && n >= len(lines[i]); i++ {
				n -= len(lines[i])
			}
			if failed == unix.EINTR {
				failed = nil
			}
		}
		return true
	})
	clear(s.vector)
	switch {
	case err != nil:
		return nil, 0, err
	case failed == nil:
		return nil, 0, nil
	case failed != unix.EAGAIN:
		return nil, 0, failed
	}
	start := bytes.LastIndexByte(lines[i][:n], '\n') + 1
	end := n + bytes.IndexByte(lines[i][n:], '\n') + 1
	return lines[i][start:end], n - start, nil
}

// write writes a line however slow the client is.
func (s *eventConn) write(line []byte) bool {
	return push(s.conn, [][]byte{line}, func(int) time.Duration { return s.patience() }) == nil
}

// patience is how long the client may take nothing: while the daemon runs for ever. It is
// asked before each wait, as the client may have taken something since.
func (s *eventConn) patience() time.Duration {
	s.took.Store(time.Now().UnixNano())
	if s.draining.Load() {
		return drainTimeout
	}
	return 0
}

// dropped is the line for a reader that fell off the log's tail. It has the
// last missed number: the next event's is one more.
func dropped(from, to uint64) ([]byte, error) {
	ev := protocol.Warning{
		Code: protocol.WarningEventsDropped, FromSeq: from, ToSeq: to,
		Message: "this reader was too slow: some events are no longer kept",
	}
	payload, err := protocol.EncodePayload(ev)
	if err != nil {
		return nil, err
	}
	return protocol.AppendEvent(nil, ev.Type(), payload, time.Now(), to), nil
}
