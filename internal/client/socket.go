package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"noused/internal/protocol"
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

func dial(ctx context.Context, socket string) (net.Conn, error) {
	if len(socket) > protocol.MaxSocketPath {
		return nil, fmt.Errorf("connect to %s: the path is %d bytes long, a socket's has at most %d", socket, len(socket), protocol.MaxSocketPath)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ECONNREFUSED):
		return nil, &NoDaemonError{Socket: socket, Err: err}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connect to %s: %w", socket, context.Cause(ctx))
	default:
		return nil, fmt.Errorf("connect to daemon: %w", err)
	}
}
