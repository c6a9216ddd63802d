// Package wire is what the providers that speak HTTP share: one request, its
// answer as server-sent events, retries, errors that a person can read and that
// never hold a key, and a conversation made fit for any provider.
//
// Concurrency: a Client has no state of a stream; any number may run at once.
// A stream runs in its caller's goroutine, reads no further than it is asked
// to, and closes its connection when it ends, for whatever reason.
//
// It refuses to know a provider's vocabulary, to follow redirects (a key would
// go along), and to send anything again once a delta was handed on.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// DefaultTimeout is how long a provider may be silent.
const DefaultTimeout = 5 * time.Minute

// Options say where a provider is and how to ask it. The names in the errors
// of New are those of the daemon's configuration.
type Options struct {
	BaseURL         string // http or https; "" is the provider's own
	APIKey          string // sent if set; it is in no error
	KeyHint         string // what an error about the key says of where it is from, and what to do
	Model           string
	MaxOutputTokens int            // 0: the provider's default
	Timeout         time.Duration  // the longest silence; 0 is DefaultTimeout
	Extra           map[string]any // put into the body of every request, over what stands there
	// Headers go along with every request; CheckHeaders says which may. Their values
	// are as secret as the key.
	Headers map[string]string
	// Transport carries the requests; nil is one of the Client's own, which goes
	// through the proxies of the environment, unless it has a key to send and
	// nothing keeps the proxy from reading it.
	Transport http.RoundTripper
}

// Defaults are what a provider fills the gaps of Options with.
type Defaults struct {
	BaseURL string
	// Reserved are the members of the body that Extra may not have.
	Reserved []string
	// Other is what a 404 is told with: how a server is asked that speaks another
	// wire.
	Other string
}

// Client asks one provider.
type Client struct {
	options Options
	url     *url.URL
	extra   map[string]jsontext.Value
	secrets *strings.Replacer
	http    *http.Client
	size    atomic.Int64 // that a body may have, in bytes
	hint    string       // what may be wrong where the server's answer is none
	other   string       // what may be wrong where it knows no such path
}

// New returns a client, or an error that names the option that is wrong.
func New(o Options, d Defaults) (*Client, error) {
	if o.Model == "" {
		return nil, errors.New("name is missing: which model?")
	}
	return connect(o, d)
}

// connect is New for those who ask no model.
func connect(o Options, d Defaults) (*Client, error) {
	if o.BaseURL == "" {
		o.BaseURL = d.BaseURL
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	c := &Client{options: o, other: d.Other, extra: map[string]jsontext.Value{}}
	var err error
	switch c.url, err = url.Parse(o.BaseURL); {
	case err != nil: // its text repeats the address, and what is secret in it
		return nil, errors.New("base_url is no URL")
	case c.url.Scheme != "http" && c.url.Scheme != "https" || c.url.Host == "":
		return nil, errors.New("base_url must begin with http:// or https:// and a host")
	case o.MaxOutputTokens < 0:
		return nil, fmt.Errorf("max_output_tokens is %d, less than none", o.MaxOutputTokens)
	case o.Timeout < 0:
		return nil, fmt.Errorf("timeout is %s, less than none", o.Timeout)
	case strings.ContainsFunc(o.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil,
			errors.New("the API key has a character that no key can have: a space, a line's end or a letter beyond ASCII")
	}
	if err := CheckHeaders(o.Headers); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Extra)) {
		if slices.Contains(d.Reserved, name) {
			return nil, fmt.Errorf("extra: %q is not for extra to set", name)
		}
		if c.extra[name], err = json.Marshal(o.Extra[name], json.Deterministic(true)); err != nil {
			return nil, fmt.Errorf("extra: %q cannot be put into a request: %w", name, err)
		}
	}
	if strings.HasSuffix(d.BaseURL, "/v1") && !versioned().MatchString(c.url.Path) {
		c.hint = "base_url commonly ends in /v1, as in " + c.url.Scheme + "://" + c.url.Host + "/v1"
	}
	c.secrets = redactor(append(slices.Collect(maps.Values(o.Headers)), o.APIKey), c.url)
	transport := o.Transport
	if transport == nil {
		transport = newTransport(o.APIKey != "" || len(o.Headers) > 0 || c.url.User != nil)
	}
	c.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// versioned is the path of a base URL with a version in it.
var versioned = pattern(`/v[0-9]+[a-z0-9]*(/|$)`)

// newTransport returns a transport that notices a connection that died in
// silence, and asks for no compression, which holds events back. What is secret
// goes through no proxy that could read it.
func newTransport(secret bool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if proxy := t.Proxy; secret {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.URL.Scheme == "http" {
				return nil, nil
			}
			return proxy(r)
		}
	}
	t.DisableCompression = true
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

// Close closes the connections that are kept for later streams. It does not wait
// for those that run.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Options returns what the client was made of, its gaps filled.
func (c *Client) Options() Options { return c.options }

// Bearer is the header that has the key as most providers want it.
func Bearer(o Options) http.Header {
	header := http.Header{}
	if o.APIKey != "" {
		header.Set("Authorization", "Bearer "+o.APIKey)
	}
	return header
}

// Host is the provider's host, with the port if there is one.
func (c *Client) Host() string { return c.url.Host }

// body is the request as JSON, with Extra and its pictures in it. A long one lies in a
// file: a provider may take minutes to answer, and many may be asked at once.
func (c *Client) body(request Body, room model.Room) (*body, error) {
	text, err := c.encode(request)
	if err != nil {
		return nil, err
	}
	b, err := request.Shown().fill(text)
	request.Forget()
	if err == nil && len(text) > maxInMemory && room.Aside != nil {
		err = b.putAside(room.Aside)
	}
	return b, err
}

// expected is how long a request may become, in bytes, as far as others tell.
func (c *Client) expected() int { return int(min(c.size.Load(), maxExpected)) }

// maxExpected is how much memory a request has from the beginning at most, in bytes.
const maxExpected = 2 << 20

// encode is the request as JSON, with Extra in it.
func (c *Client) encode(request any) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, c.expected()))
	err := json.MarshalWrite(out, request, verbatim)
	body := out.Bytes()
	if len(body) <= maxInMemory && cap(body) > 2*maxInMemory {
		body = bytes.Clone(body) // it stays while it is sent
	}
	c.size.Store(int64(len(body) + len(body)/2)) // the next one begins like this one; the encoder wants room
	if err != nil || len(c.extra) == 0 {
		return body, err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	maps.Copy(members, c.extra)
	return json.Marshal(members, verbatim, json.Deterministic(true))
}
