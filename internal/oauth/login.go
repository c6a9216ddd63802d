package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Login says how somebody logs in at a server.
type Login struct {
	Server string
	Client Client // that is known to the authorization server already, or the zero value
	// Show has the person open a page. It does not wait for them.
	Show func(address string)
	// Pasted are addresses that a browser elsewhere ended at, as the person gives
	// them; nil where nobody can.
	Pasted <-chan string
}

// Granted is what a login came to.
type Granted struct {
	Issuer    string
	Scope     string    // "" where the server did not say
	Expires   time.Time // zero: nobody said
	Refreshes bool      // it goes on by itself after that
}

// Login has a person give the right to use a server, and keeps it. It blocks
// until they have, or ctx ends.
func (s *Store) Login(ctx context.Context, l Login) (*Granted, error) {
	server, err := serverURL(l.Server)
	if err != nil {
		return nil, err
	}
	before, err := s.read(server.String())
	if err != nil {
		return nil, err
	}
	if before == nil {
		before = &grant{}
	}
	w := newWeb(server)
	asked, challenged, err := w.challengeOf(ctx, server, before.Asked)
	if err != nil {
		return nil, err
	}
	r, as, err := w.discover(ctx, server, asked, challenged)
	if err != nil {
		return nil, err
	}
	d := &dance{web: w, as: as, resource: r.Resource, scope: scopeOf(asked, before.Scope, r, as)}
	g, err := d.run(ctx, l)
	if err != nil {
		return nil, err
	}
	g.Server = server.String()
	return g.granted(), s.replace(ctx, g)
}

func (g *grant) granted() *Granted {
	return &Granted{g.Issuer, g.Scope, g.Expires, g.Refresh != ""}
}

func (s *Store) replace(ctx context.Context, g *grant) error {
	l, err := s.lock(ctx, g.Server)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release() }()
	return s.write(g)
}

// challengeOf has the server itself say what it wants. What it asked a daemon for since
// the last login goes first: not every request needs the same rights.
func (w *web) challengeOf(ctx context.Context, server *url.URL, remembered *Challenge) (c Challenge, challenged bool,
	err error,
) {
	if remembered != nil {
		return *remembered, true, nil
	}
	a, err := w.postJSON(ctx, server, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "ping"},
		"application/json, text/event-stream")
	if err != nil {
		return c, false, err
	}
	c, challenged = ParseChallenge(a.status, a.header)
	return c, challenged, nil
}

// scopeOf are the rights to ask for: those that the server names, else all that it
// knows (MCP authorization, scope selection strategy), and those that were granted
// before. offline_access, where it is known, has the login go on by itself.
func scopeOf(c Challenge, granted string, r *resource, as *issuer) string {
	scope := c.Scope
	if scope == "" {
		scope = cleanScope(strings.Join(r.ScopesSupported, " "))
	}
	scope = union(granted, scope)
	if slices.Contains(as.ScopesSupported, "offline_access") {
		scope = union(scope, "offline_access")
	}
	return scope
}

// dance is one login, from the browser to the token.
type dance struct {
	web      *web
	as       *issuer
	resource string
	scope    string
	state    string
	verifier string
}

func (d *dance) run(ctx context.Context, l Login) (*grant, error) {
	d.state, d.verifier = rand.Text(), rand.Text()+rand.Text()
	back, err := listen(d)
	if err != nil {
		return nil, err
	}
	defer back.close()
	client, err := d.client(ctx, l.Client, back.address)
	if err != nil {
		return nil, err
	}
	page, err := d.page(client, back.address)
	if err != nil {
		return nil, err
	}
	l.Show(page)
	code, err := back.wait(ctx, l.Pasted)
	if err != nil {
		return nil, err
	}
	t, err := d.web.tokens(ctx, d.as.TokenEndpoint, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {back.address},
		"code_verifier": {d.verifier}, "resource": {d.resource},
	}, client)
	if err != nil {
		return nil, err
	}
	g := &grant{
		Issuer: d.as.Issuer, Resource: d.resource, Endpoint: d.as.TokenEndpoint, Revocation: d.as.RevocationEndpoint,
		Client: client, Scope: d.scope,
	}
	g.setTokens(t, time.Now())
	return g, nil
}

// client is who the daemon is to the authorization server.
func (d *dance) client(ctx context.Context, known Client, redirect string) (Client, error) {
	document := known.Secret == "" && strings.HasPrefix(known.ID, "https://")
	switch {
	case known.ID == "" || document && !d.as.ReadsDocuments:
		return d.web.register(ctx, d.as, redirect)
	case known.Secret == "":
		known.Method = secretNone
	default:
		known.Method = d.as.method(true)
	}
	return known, known.check()
}

// page is the address that the person says yes at.
func (d *dance) page(c Client, redirect string) (string, error) {
	u, err := d.web.check("authorization_endpoint", d.as.AuthorizationEndpoint)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(d.verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": c.ID, "redirect_uri": redirect, "state": d.state, "resource": d.resource,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256", "scope": d.scope,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// errStranger is an answer that is not to this login.
var errStranger = errors.New("this is not the answer to the login that is under way")

// read takes the code out of what the browser came back with. errStranger says
// that it belongs to no login of ours; any other error ends the login.
func (d *dance) read(q url.Values) (code string, err error) {
	iss, code := q.Get("iss"), q.Get("code")
	switch {
	case d.state == "" || q.Get("state") != d.state:
		return "", errStranger
	case iss == "" && d.as.SaysIssuer:
		return "",
			errors.New(
				"the answer does not say which authorization server it is from, though that one always does: not logging in")
	case iss != "" && iss != d.as.Issuer:
		return "", fmt.Errorf("the answer is from another authorization server, %s: not logging in", quote(iss))
	case q.Get("error") != "":
		return "", fmt.Errorf("the authorization server says no: %w", &refusal{
			q.Get("error"), q.Get("error_description"),
			http.StatusOK,
		})
	case code == "" || len(code) > maxToken:
		return "", errors.New("the answer has no code that can be used")
	}
	return code, nil
}
