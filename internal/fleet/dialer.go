package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
)

// dialer keeps what it has dialled, so that a write that the other end does not take
// can be ended. It makes TLS itself, so that what is read is looked at above TLS.
type dialer struct {
	ctx    context.Context
	web    bool // over HTTP: NATS's library makes TLS, and nothing is looked at
	secure bool // without TLS there is no connection
	tls    *tls.Config

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// SkipTLSHandshake is what NATS's library asks a dialer.
func (d *dialer) SkipTLSHandshake() bool { return !d.web }

// Dial is that of nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, dialTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if !d.keep(conn) {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if d.web {
		return conn, nil
	}
	safe, err := d.guard(ctx, conn, address)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return safe, nil
}

func (d *dialer) keep(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.conns = append(d.conns, conn)
	}
	return !d.closed
}

func (d *dialer) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, conn := range d.conns {
		_ = conn.Close()
	}
}

// guard reads the server's greeting, and makes TLS if either of the two wants it.
func (d *dialer) guard(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	first, rest, err := greeting(conn)
	if err != nil {
		return nil, err
	}
	var info struct {
		Required  bool `json:"tls_required"`
		Available bool `json:"tls_available"`
	}
	text, is := bytes.CutPrefix(first, []byte("INFO "))
	switch {
	case !is || json.Unmarshal(text, &info) != nil:
		return nil, fmt.Errorf("no NATS server: it begins with %.40q", first)
	case d.secure && !info.Required && !info.Available:
		return nil, nats.ErrSecureConnWanted
	case d.secure || info.Required:
		config := d.tls.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
		safe := tls.Client(conn, config)
		if err := safe.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", nats.ErrTLS, err)
		}
		conn, rest = safe, nil // what came before TLS may be anybody's
	}
	return &guarded{Conn: conn, first: append(first, rest...)}, conn.SetDeadline(time.Time{})
}

// greeting is the server's first line, and what has come with it.
func greeting(conn net.Conn) (line, rest []byte, err error) {
	var all []byte
	for buf := make([]byte, 4<<10); ; {
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		if end := bytes.IndexByte(all, '\n') + 1; end > 0 {
			return all[:end:end], all[end:], nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(all) > maxControl {
			return nil, nil, fmt.Errorf("the server breaks the protocol: a line of more than %d bytes", maxControl)
		}
	}
}
