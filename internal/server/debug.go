package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/lock"
)

const (
	maxDebug  = 16               // connections to the debug socket at a time
	debugWait = 10 * time.Second // for a request, and between two
)

// Debug is the socket that tells how the daemon is doing inside.
type Debug struct {
	ln   *Listener
	lock *lock.Lock
}

// ListenDebug makes a socket with mode 0600, and path.lock beside it. The folder
// must be one that nobody else can enter; one that is missing is made so. What
// lies at path is removed only if it is a socket that nobody answers on. It does
// not wait.
func ListenDebug(path string) (*Debug, error) {
	if err := fits(path); err != nil {
		return nil, fmt.Errorf("debug socket: %w", err)
	}
	dir := filepath.Dir(path)
	if err := secureDir(dir); err != nil {
		return nil, fmt.Errorf("debug socket's folder: %w", err)
	}
	if err := closedDir(dir); err != nil {
		return nil, fmt.Errorf("debug socket's folder: %w", err)
	}
	l, err := lock.Acquire(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("debug socket: %w", err)
	}
	d := &Debug{lock: l}
	if d.ln, err = bind(path); err != nil {
		d.Close()
		return nil, fmt.Errorf("debug %w", err)
	}
	return d, nil
}

// closedDir refuses a folder that others may look into.
func closedDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to others; want one of your own with mode 0700", dir)
	}
	return nil
}

// Close removes the socket and gives the lock up, once.
func (d *Debug) Close() {
	if d.ln != nil {
		_ = d.ln.Close()
	}
	_ = d.lock.Release()
}

// ServeDebug answers HTTP there: to processes of our user and of root that are
// no descendants of the daemon. It blocks until ctx ends, breaks what is under
// way off, and returns nil. The error is that of a listener which fails before.
func ServeDebug(ctx context.Context, d *Debug, h http.Handler, log *zap.Logger) error {
	log = log.With(zap.String("on", "debug"))
	said, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: debugWait, IdleTimeout: debugWait, ErrorLog: said}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err = srv.Serve(&guarded{UnixListener: d.ln.UnixListener, log: log, room: make(chan struct{}, maxDebug)})
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// guarded is a listener that hands on only whom it may, and only so many.
type guarded struct {
	*net.UnixListener
	log  *zap.Logger
	room chan struct{} // holds one for each connection
}

// Accept is that of net.Listener.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := g.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if c := g.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

func (g *guarded) admit(conn *net.UnixConn) net.Conn {
	p, err := identify(conn)
	if !welcome(g.log, p, err, false) {
		return nil
	}
	if p.kin != stranger {
		g.log.Warn("connection refused: of a process that the daemon has started", zap.Int("pid", p.pid))
		return nil
	}
	select {
	case g.room <- struct{}{}:
		return &roomed{Conn: conn, leave: sync.OnceFunc(func() { <-g.room })}
	default:
		g.log.Warn("connection refused: too many are open", zap.Int("limit", cap(g.room)))
		return nil
	}
}

// roomed is a connection that makes room for another when it is closed.
type roomed struct {
	net.Conn
	leave func()
}

// Close is that of net.Conn.
func (r *roomed) Close() error {
	defer r.leave()
	return r.Conn.Close()
}
