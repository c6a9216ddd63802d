package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"noused/internal/regular"
)

// Connect says how to reach NATS. Paths are absolute.
type Connect struct {
	URLs  []string // nats://, tls:// or wss://, each with a host
	Creds string   // a file with a JWT and its key, as nsc makes; "": none
	NKey  string   // a file with the seed of an nkey; "": none
	CA    string   // a file of certificates in PEM, instead of the system's; "": none
}

const (
	maxKeyFile   = 64 << 10
	maxCAFile    = 1 << 20
	dialTime     = 5 * time.Second
	writeTime    = 10 * time.Second // for the server to take what it is sent
	pingInterval = 10 * time.Second // two without an answer, and the connection is given up
)

// CheckURL refuses what is no address of a NATS server.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no URL", text)
	case u.User != nil:
		return fmt.Errorf(
			"nats URL of %s: keys and passwords belong into the file that creds or nkey names, not into the URL", u.Host)
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "wss":
		return fmt.Errorf("%q: want nats://, tls:// or wss://", text)
	case u.Hostname() == "":
		return fmt.Errorf("%q has no host", text)
	}
	return nil
}

// Dial connects and reads the key files anew. It blocks until the server has let it in
// or refused, or ctx ends. A connection that breaks stays closed: a caller that needs one
// dials again. name is shown in the server's list of connections. Closing the
// connection does not wait for a server that takes nothing.
func (c Connect) Dial(ctx context.Context, name string, more ...nats.Option) (*Conn, error) {
	d := &dialer{
		ctx: ctx, web: c.over("wss"), secure: c.CA != "" || c.over("tls"),
		tls: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	options := []nats.Option{
		nats.Name(name), nats.NoReconnect(), nats.Timeout(dialTime), nats.SetCustomDialer(d),
		nats.FlusherTimeout(writeTime), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1), nats.SkipHostLookup(), nats.IgnoreDiscoveredServers(),
	}
	auth, err := c.keys()
	if err != nil {
		return nil, err
	}
	if c.CA != "" {
		if d.tls.RootCAs, err = c.roots(); err != nil {
			return nil, err
		}
		options = append(options, nats.Secure(d.tls))
	}
	defer context.AfterFunc(ctx, d.closeAll)()
	nc, err := nats.Connect(strings.Join(c.URLs, ","), append(append(options, auth...), more...)...)
	if err != nil {
		d.closeAll()
		return nil, err
	}
	return &Conn{nc, d}, nil
}

// Conn is a connection to NATS.
type Conn struct {
	*nats.Conn
	dialer *dialer
}

// Close ends the connection, and everything on it. What was published and not flushed
// is lost. It does not wait for the server.
func (c *Conn) Close() {
	c.dialer.closeAll()
	c.Conn.Close()
}

// over tells whether one of the URLs has the scheme.
func (c Connect) over(scheme string) bool {
	return slices.ContainsFunc(c.URLs, func(u string) bool { return strings.HasPrefix(strings.ToLower(u), scheme+"://") })
}

// roots are the authorities of the file.
func (c Connect) roots() (*x509.CertPool, error) {
	pem, err := regular.Read(c.CA, maxCAFile)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca: %s has no certificate in PEM", c.CA)
	}
	return pool, nil
}

// keys are the options that the files make.
func (c Connect) keys() (options []nats.Option, err error) {
	switch {
	case c.Creds != "" && c.NKey != "":
		return nil, errors.New("creds and nkey: want one of the two")
	case c.Creds != "":
		text, err := regular.Secret(c.Creds, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("creds: %w", err)
		}
		if _, err := nkeys.ParseDecoratedJWT(text); err != nil {
			return nil, fmt.Errorf("creds: %s has no JWT", c.Creds)
		}
		if _, err := nkeys.ParseDecoratedUserNKey(text); err != nil {
			return nil, fmt.Errorf("creds: %s has no key of a user", c.Creds)
		}
		options = append(options, nats.UserCredentialBytes(text))
	case c.NKey != "":
		option, err := nkeyOption(c.NKey)
		if err != nil {
			return nil, err
		}
		options = append(options, option)
	}
	return options, nil
}

func nkeyOption(path string) (nats.Option, error) {
	text, err := regular.Secret(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("nkey: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return nil, fmt.Errorf("nkey: %s has no seed of an nkey", path)
	}
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return nil, fmt.Errorf("nkey: %s has no key of a user", path)
	}
	return nats.Nkey(public, pair.Sign), nil
}

// Away tells whether Dial failed as no server has answered. What crypto/tls refuses has
// the same kind of error.
func Away(err error) bool {
	var failed *net.OpError
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, io.EOF) || errors.Is(err, nats.ErrTimeout) ||
		errors.As(err, &failed) && failed.Op != "remote error" && failed.Op != "local error"
}
