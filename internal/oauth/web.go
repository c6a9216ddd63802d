package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"noused/internal/format"

	"github.com/go-json-experiment/json"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxAnswer   = 256 << 10 // bytes of a metadata document, a registration, a token
	maxHeader   = 64 << 10
	maxAddress  = 4 << 10 // bytes of an address that a server names
	maxSaid     = 200     // bytes that are quoted of what a server said
	requestTime = 15 * time.Second
)

// web asks servers that nobody vouches for.
type web struct {
	client *http.Client
	plain  bool // plain HTTP to this machine is allowed: the server is on it
}

// newWeb returns what asks on behalf of a server at that address.
func newWeb(server *url.URL) *web {
	return &web{
		plain: loopback(server),
		client: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
				MaxResponseHeaderBytes: maxHeader,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// serverURL reads the address of a server that somebody may log in at.
func serverURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the server's address cannot be read")
	}
	u.Scheme, u.Host, u.Fragment = strings.ToLower(u.Scheme), strings.ToLower(u.Host), ""
	w := &web{plain: loopback(u)}
	return w.check("the server's address", u.String())
}

// check reads an address, which must be one that a secret may be sent to.
func (w *web) check(what, address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || len(address) > maxAddress || u.Host == "" || u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("%s is not an address that can be used: %s", what, quote(address))
	case u.Scheme == "https" || u.Scheme == "http" && w.plain && loopback(u):
		return u, nil
	}
	return nil, fmt.Errorf("%s has to be https: %s", what, quote(address))
}

func loopback(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// sameOrigin: scheme, host and port are those of the other.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && port(a) == port(b) && a.Hostname() == b.Hostname()
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// isJSON: the server says so itself.
func (a *answer) isJSON() bool {
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

func (w *web) get(ctx context.Context, u *url.URL) (*answer, error) {
	return w.do(ctx, http.MethodGet, u, nil, func(h http.Header) { h.Set("Accept", "application/json") })
}

func (w *web) postJSON(ctx context.Context, u *url.URL, v any, accept string) (*answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return w.do(ctx, http.MethodPost, u, body, func(h http.Header) {
		h.Set("Content-Type", "application/json")
		h.Set("Accept", accept)
	})
}

// postForm sends a form and shows who the client is.
func (w *web) postForm(ctx context.Context, u *url.URL, form url.Values, c Client) (*answer, error) {
	if c.Method != secretBasic {
		form.Set("client_id", c.ID)
	}
	if c.Method == secretPost {
		form.Set("client_secret", c.Secret)
	}
	return w.do(ctx, http.MethodPost, u, []byte(form.Encode()), func(h http.Header) {
		h.Set("Content-Type", "application/x-www-form-urlencoded")
		h.Set("Accept", "application/json")
		if c.Method == secretBasic { // RFC 6749 §2.3.1
			r := http.Request{Header: h}
			r.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
		}
	})
}

// do sends one request and reads the answer, within bounds. Its errors name the
// host alone: an address may hold what is nobody's business.
func (w *web) do(ctx context.Context, method string, u *url.URL, body []byte, set func(http.Header)) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	set(req.Header)
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, unreachable(u, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, unreachable(u, err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("%s answers with more than %d bytes", u.Host, maxAnswer)
	}
	return &answer{resp.StatusCode, resp.Header, text}, nil
}

func unreachable(u *url.URL, err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		err = with.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s does not answer within %v", u.Host, requestTime)
	}
	return fmt.Errorf("%s cannot be reached: %w", u.Host, err)
}

// decode reads an answer that has to be JSON.
func decode(text []byte, v any) error {
	if !jsontext.Value(text).IsValid() {
		return errors.New("it is not JSON")
	}
	return json.Unmarshal(text, v)
}

// quote is what a server said, made harmless and short.
func quote(text string) string {
	return fmt.Sprintf("%q", format.Clip(text, maxSaid))
}
