package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"noused/internal/protocol"
	"noused/internal/trust"
)

// DefaultSocket is the command socket a daemon listens on unless it is told
// otherwise (wire-v1 §8). NOUSED_SOCKET in the environment wins.
func DefaultSocket() string {
	if path := os.Getenv("NOUSED_SOCKET"); path != "" {
		return path
	}
	return protocol.DefaultSocket(os.Getenv)
}

// NoDaemonError reports that nobody listens on a socket: it does not exist or
// refuses to connect.
type NoDaemonError struct {
	Socket string
	Err    error
}

func (e *NoDaemonError) Error() string {
	var errno syscall.Errno
	if errors.As(e.Err, &errno) {
		return fmt.Sprintf("no daemon at %s (%s)", e.Socket, errno.Error())
	}
	return fmt.Sprintf("no daemon at %s", e.Socket)
}

// Unwrap returns the system's error.
func (e *NoDaemonError) Unwrap() error { return e.Err }

// DistrustError reports a socket that another user could listen on, or does.
// Nothing has been sent to it.
type DistrustError struct {
	Socket string
	Err    error
}

func (e *DistrustError) Error() string {
	return fmt.Sprintf("%s is not trusted: %v", e.Socket, e.Err)
}

// Unwrap returns a *trust.FolderError or a *trust.PeerError.
func (e *DistrustError) Unwrap() error { return e.Err }

// Connect opens a connection to a socket where nobody but us or root can be
// listening: the folders tell, and then the kernel. Errors are a *NoDaemonError
// when nobody listens there, a *DistrustError, and ctx's, which bounds the
// connecting only.
func Connect(ctx context.Context, socket string) (net.Conn, error) {
	if len(socket) > protocol.MaxSocketPath {
		return nil, fmt.Errorf("connect to %s: the path is %d bytes long, a socket's has at most %d", socket, len(socket),
			protocol.MaxSocketPath)
	}
	if err := trust.Folder(filepath.Dir(socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &DistrustError{socket, err}
	}
	conn, err := connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	if err := trust.Peer(conn); err != nil {
		_ = conn.Close()
		return nil, &DistrustError{socket, err}
	}
	return conn, nil
}

func connect(ctx context.Context, socket string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		return conn.(*net.UnixConn), nil
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ECONNREFUSED):
		return nil, &NoDaemonError{Socket: socket, Err: err}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connect to %s: %w", socket, context.Cause(ctx))
	default:
		return nil, fmt.Errorf("connect to daemon: %w", err)
	}
}
