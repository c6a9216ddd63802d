package server

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	maxConns = 4096        // connections to one socket at a time
	maxPause = time.Second // between two tries to accept
	minPause = 5 * time.Millisecond
)

// session is one connection being served. meet tells it whose it is, before serve,
// which blocks until it is over; stop, from another goroutine, makes it end soon,
// and abort at once.
type session interface {
	meet(peer)
	serve()
	stop()
	abort()
}

// conns serves the connections of one listener.
type conns struct {
	log   *zap.Logger
	max   int                         // connections at a time
	grace time.Duration               // from a stop to an abort, and from there to giving up
	open  func(*net.UnixConn) session // called before the next one is accepted
	// agents: tools in a sandbox are served, too
	agents bool

	all sync.WaitGroup // the sessions' goroutines

	mu   sync.Mutex
	live map[session]struct{}
}

// serve accepts until ctx ends, and what waits to be accepted then. It stops every session and returns when they
// have ended, or have been given up: what has not ended after the grace is
// aborted, and what does not end even so for as long again is left behind.
func (c *conns) serve(ctx context.Context, ln *Listener) error {
	c.live = map[session]struct{}{}
	stopped := context.AfterFunc(ctx, ln.drain)
	err := c.accept(ctx, ln)
	stopped()
	_ = ln.Close()
	ended := make(chan struct{})
	go func() { // ends with the sessions
		c.all.Wait()
		close(ended)
	}()
	for _, end := range []func(session){session.stop, session.abort} {
		c.each(end)
		select {
		case <-ended:
			return err
		case <-time.After(c.grace):
		}
	}
	c.log.Warn("connections do not end and are left behind", zap.Int("connections", c.count()))
	return err
}

func (c *conns) each(do func(session)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.live {
		do(s)
	}
}

func (c *conns) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

// accept returns nil when ctx has ended, else what is wrong with the listener.
func (c *conns) accept(ctx context.Context, ln *Listener) error {
	pause := time.Duration(0)
	for {
		conn, err := ln.AcceptUnix()
		switch {
		case err == nil:
			pause = 0
			c.admit(conn)
		case ctx.Err() != nil:
			c.finish(ln)
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // no file descriptors left, most likely: others must end first
			pause = min(max(2*pause, minPause), maxPause)
			c.log.Warn("accept failed", zap.Error(err), zap.Duration("pause", pause))
			select {
			case <-time.After(pause):
			case <-ctx.Done(): // once more
			}
		}
	}
}

// finish takes those that wait, and no others.
func (c *conns) finish(ln *Listener) {
	ln.drain()
	for {
		conn, err := ln.waiting()
		if err != nil {
			return
		}
		c.admit(conn)
	}
}

func (c *conns) admit(conn *net.UnixConn) {
	s := c.open(conn)
	p, err := identify(conn)
	if !welcome(c.log, p, err, c.agents) {
		_ = conn.Close()
		return
	}
	s.meet(p)
	c.mu.Lock()
	crowded := len(c.live) >= c.max
	if !crowded {
		c.live[s] = struct{}{}
	}
	c.mu.Unlock()
	if crowded {
		c.log.Warn("connection refused: too many are open", zap.Int("limit", c.max))
		_ = conn.Close()
		return
	}
	c.all.Go(func() {
		defer func() {
			c.mu.Lock()
			delete(c.live, s)
			c.mu.Unlock()
			_ = conn.Close()
		}()
		defer survive(c.log)
		s.serve()
	})
}

// welcome reports whether a peer is served, and logs why not. Agents may be in a sandbox.
func welcome(log *zap.Logger, p peer, err error, agents bool) bool {
	who := []zap.Field{zap.Int("pid", p.pid), zap.Int("uid", p.uid)}
	switch {
	case err != nil:
		log.Warn("connection refused: its user cannot be determined", append(who, zap.Error(err))...)
	case !allowed(p.uid, os.Geteuid()):
		log.Warn("connection refused: another user's", who...)
	case p.kin == confined && !agents:
		log.Warn("connection refused: a tool in a sandbox", who...)
	default:
		return true
	}
	return false
}

// survive keeps a panic within its connection.
func survive(log *zap.Logger) {
	if v := recover(); v != nil {
		log.Error("connection closed: panic", zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
	}
}

// await blocks until poll(2) reports one of the events on conn's socket; a
// hang-up always counts. The read deadline and closing conn end it with an
// error. It holds no buffer and no thread: the runtime's own poller, which is
// edge-triggered, calls back at every change.
func await(conn *net.UnixConn, events int16) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

// longAgo is a deadline that makes reads and writes return at once.
var longAgo = time.Unix(1, 0)

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded)
}
