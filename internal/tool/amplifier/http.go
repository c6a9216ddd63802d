package amplifier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

const maxHeader = 64 << 10 // bytes of a response's header

// remote is a module over HTTP. It has no process, and no connection outlives
// its request: a server that was restarted is found again, and an aborted call
// is noticed by the server.
type remote struct {
	client   *http.Client
	base     *url.URL
	maxReply int
	ended    chan struct{} // closed: there is nothing to wait for
}

func newRemote(d *tool.Descriptor) (*remote, error) {
	base, err := url.Parse(d.Transport.URL)
	if err != nil {
		return nil, tool.Faultf(tool.Unreachable, "transport.url: %v", err)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
	}
	if base.Scheme == "unix" {
		path := base.Path
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		base = &url.URL{Scheme: "http", Host: "localhost"}
	}
	m := &remote{
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		base: base, maxReply: d.MaxOutput, ended: make(chan struct{}),
	}
	close(m.ended)
	return m, nil
}

func (*remote) Alive() bool              { return true }
func (*remote) Kill()                    {}
func (*remote) Shutdown(context.Context) {}
func (*remote) Stderr(int) string        { return "" }
func (m *remote) Ended() <-chan struct{} { return m.ended }

// exchange posts one request (amplifier-protocols §2, HTTP JSON). A status that is
// no success is a fault, unless the body reports a failure itself.
func (m *remote) exchange(ctx context.Context, r request) (object, error) {
	body, err := jsonx.Marshal(r.params())
	if err != nil {
		return nil, tool.Faultf(tool.BadRequest, "%s: %v", r.Method, err)
	}
	status, text, err := m.post(ctx, r.Method, body)
	switch {
	case ctx.Err() != nil:
		return nil, tool.Interrupted(ctx)
	case err != nil:
		return nil, err
	}
	o, err := decode(text)
	if code := status / 100; code != 2 {
		if err == nil && o["ok"].Kind() == 'f' && o["error"].Kind() == '{' {
			return o, nil
		}
		return nil, tool.Faultf(tool.Internal, "the module answered %d %s: %s", status, http.StatusText(status), quote(text))
	}
	if err != nil {
		return nil, tool.Faultf(tool.Internal, "the module's answer cannot be read: %v: %s", err, quote(text))
	}
	return o, nil
}

func (m *remote) post(ctx context.Context, method string, body []byte) (status int, text jsontext.Value, err error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		connected.Store(true)
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.base.JoinPath(method).String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, tool.Faultf(tool.Unreachable, "%s: %v", method, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := m.client.Do(req)
	if err != nil {
		return 0, nil, fault(connected.Load(), err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, int64(m.maxReply)+1))
	switch {
	case err != nil:
		return 0, nil, fault(true, err)
	case len(text) > m.maxReply:
		return 0, nil, tool.Faultf(tool.Internal, "the module's answer is longer than %d bytes", m.maxReply)
	}
	return resp.StatusCode, text, nil
}

// fault tells a module that cannot be reached from one that broke off.
func fault(connected bool, err error) *tool.Fault {
	var u *url.Error
	if errors.As(err, &u) { // its text repeats the address, which may hold a secret
		err = u.Err
	}
	if !connected {
		return tool.Faultf(tool.Unreachable, "cannot reach the module: %v", err)
	}
	return tool.Faultf(tool.Internal, "the module's answer cannot be read: %v", fmt.Errorf("http: %w", err))
}

func quote(text jsontext.Value) string { return strings.ToValidUTF8(tool.Shorten(text), "\uFFFD") }
