package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// resource is how a server describes itself (RFC 9728 §2).
type resource struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`
}

// issuer is how an authorization server describes itself (RFC 8414 §2).
type issuer struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	ScopesSupported       []string `json:"scopes_supported"`
	GrantTypes            []string `json:"grant_types_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	ReadsDocuments        bool     `json:"client_id_metadata_document_supported"`
	SaysIssuer            bool     `json:"authorization_response_iss_parameter_supported"`
}

// discover finds out what a server is protected by. challenged says that the
// server has asked for a token.
func (w *web) discover(ctx context.Context, server *url.URL, c Challenge, challenged bool) (*resource, *issuer, error) {
	r, err := w.describe(ctx, server, c)
	switch {
	case err != nil:
		return nil, nil, err
	case r != nil:
		as, err := w.issuer(ctx, r.AuthorizationServers[0])
		return r, as, err
	case !challenged:
		return nil, nil, fmt.Errorf("%s asks for no login", server.Host)
	}
	as, err := w.older(ctx, server)
	return &resource{Resource: server.String()}, as, err
}

// describe fetches the description of a server, from the places where the
// protocol has it; nil where there is none.
func (w *web) describe(ctx context.Context, server *url.URL, c Challenge) (*resource, error) {
	var places []string
	if c.Metadata != "" {
		places = append(places, c.Metadata)
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	if path := strings.TrimSuffix(server.EscapedPath(), "/"); path != "" {
		places = append(places, at(server, wellKnown+path))
	}
	places = append(places, at(server, wellKnown))
	r := &resource{}
	place, err := w.first(ctx, "the description of the server", places, r)
	switch {
	case err != nil || place == "":
		return nil, err
	case !covers(r.Resource, server):
		return nil, fmt.Errorf("%s describes another server, %s: not logging in", place, quote(r.Resource))
	case len(r.AuthorizationServers) == 0:
		return nil, fmt.Errorf("%s names no authorization server", place)
	}
	return r, nil
}

// covers: the server is the resource, or beneath it (RFC 9728 §3.3; many name
// the root of a server, or another slash at its end).
func covers(resource string, server *url.URL) bool {
	u, err := url.Parse(resource)
	if err != nil || u.User != nil || u.Fragment != "" || u.RawQuery != "" && u.RawQuery != server.RawQuery {
		return false
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	path, beneath := strings.TrimSuffix(u.EscapedPath(), "/"), server.EscapedPath()
	return sameOrigin(u, server) && (beneath == path || strings.HasPrefix(beneath, path+"/"))
}

// issuer fetches the metadata of an authorization server (RFC 8414 §3, OpenID
// Connect Discovery 1.0 §4).
func (w *web) issuer(ctx context.Context, name string) (*issuer, error) {
	u, err := w.check("the authorization server", name)
	if err != nil {
		return nil, err
	}
	as := &issuer{}
	place, err := w.first(ctx, "the metadata of the authorization server", wellKnown(u), as)
	switch {
	case err != nil:
		return nil, err
	case place == "":
		return nil, fmt.Errorf("the authorization server %s publishes no metadata", name)
	case strings.TrimSuffix(as.Issuer, "/") != strings.TrimSuffix(name, "/"):
		return nil, fmt.Errorf("%s is the metadata of another authorization server, %s", place, quote(as.Issuer))
	}
	return as, w.usable(as)
}

// wellKnown are the addresses of an authorization server's metadata, in the
// order of the protocol.
func wellKnown(u *url.URL) []string {
	const oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if path == "" {
		return []string{at(u, oauth), at(u, openid)}
	}
	return []string{at(u, oauth+path), at(u, openid+path), at(u, path+openid)}
}

// older is the authorization server of a server that describes itself nowhere:
// the server itself, as the protocol had it in 2025-03-26.
func (w *web) older(ctx context.Context, server *url.URL) (*issuer, error) {
	as := &issuer{}
	place, err := w.first(ctx, "the metadata of the authorization server",
		wellKnown(&url.URL{Scheme: server.Scheme, Host: server.Host}), as)
	switch {
	case err != nil:
		return nil, err
	case place == "":
		return &issuer{
			Issuer: at(server, ""), AuthorizationEndpoint: at(server, "/authorize"), TokenEndpoint: at(server, "/token"),
			RegistrationEndpoint: at(server, "/register"),
		}, nil
	}
	if u, err := url.Parse(as.Issuer); err != nil || !sameOrigin(u, server) {
		return nil, fmt.Errorf("%s is the metadata of another authorization server, %s", place, quote(as.Issuer))
	}
	return as, w.usable(as)
}

// usable refuses an authorization server that codes can be stolen from, or that
// names addresses no secret may be sent to.
func (w *web) usable(as *issuer) error {
	if !slices.Contains(as.ChallengeMethods, "S256") {
		return fmt.Errorf(
			"the authorization server %s does not support PKCE with S256, which keeps a login from being stolen",
			quote(as.Issuer))
	}
	for _, e := range []struct {
		field, address string
		optional       bool
	}{
		{"authorization_endpoint", as.AuthorizationEndpoint, false},
		{"token_endpoint", as.TokenEndpoint, false},
		{"registration_endpoint", as.RegistrationEndpoint, true},
		{"revocation_endpoint", as.RevocationEndpoint, true},
	} {
		if e.optional && e.address == "" {
			continue
		}
		if _, err := w.check(e.field, e.address); err != nil {
			return err
		}
	}
	return nil
}

// first fetches the first of the places that has a document, and returns which
// one that was; "" where none has.
func (w *web) first(ctx context.Context, what string, places []string, v any) (string, error) {
	for _, place := range places {
		u, err := w.check("the address of "+what, place)
		if err != nil {
			return "", err
		}
		a, err := w.get(ctx, u)
		switch {
		case err != nil:
			return "", err
		case a.status >= 500:
			return "", fmt.Errorf("%s answered %d %s", place, a.status, http.StatusText(a.status))
		case a.status != http.StatusOK || !a.isJSON(): // a page for people, or none
			continue
		}
		if err := decode(a.body, v); err != nil {
			return "", fmt.Errorf("%s cannot be read: %w", place, err)
		}
		return place, nil
	}
	return "", nil
}

// at is an address on the same host.
func at(u *url.URL, path string) string { return u.Scheme + "://" + u.Host + path }

// register makes the daemon known to an authorization server (RFC 7591 §3).
func (w *web) register(ctx context.Context, as *issuer, redirect string) (Client, error) {
	if as.RegistrationEndpoint == "" {
		return Client{},
			errors.New(
				"the authorization server registers no clients by itself: register one there, and log in with --client-id")
	}
	u, err := w.check("registration_endpoint", as.RegistrationEndpoint)
	if err != nil {
		return Client{}, err
	}
	method := as.method(false)
	a, err := w.postJSON(ctx, u, map[string]any{
		"client_name": "noused", "application_type": "native", "redirect_uris": []string{redirect},
		"grant_types": as.grants(), "response_types": []string{"code"}, "token_endpoint_auth_method": method,
	}, "application/json")
	if err != nil {
		return Client{}, err
	}
	if a.status != http.StatusCreated && a.status != http.StatusOK {
		return Client{}, fmt.Errorf("%s registers no client: %w", u.Host, refusalOf(a))
	}
	var said struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
	}
	if err := decode(a.body, &said); err != nil {
		return Client{}, fmt.Errorf("what %s registered cannot be read: %w", u.Host, err)
	}
	c := Client{said.ID, said.Secret, said.Method}
	if c.Method == "" {
		c.Method = method
	}
	return c, c.check()
}

// grants are the kinds of grants that a client is registered for.
func (as *issuer) grants() []string {
	grants := []string{"authorization_code"}
	if as.GrantTypes == nil || slices.Contains(as.GrantTypes, "refresh_token") {
		grants = append(grants, "refresh_token")
	}
	return grants
}

// method is how a client shows who it is, of the ways that the authorization
// server knows. One that names none knows client_secret_basic (RFC 8414 §2).
func (as *issuer) method(secret bool) string {
	known := as.AuthMethods
	if len(known) == 0 {
		known = []string{secretBasic}
	}
	ways := []string{secretBasic, secretPost}
	if !secret {
		ways = []string{secretNone, secretBasic, secretPost}
	}
	for _, way := range ways {
		if slices.Contains(known, way) {
			return way
		}
	}
	return ways[0]
}

func (c Client) check() error {
	switch {
	case c.ID == "" || len(c.ID) > maxAddress || len(c.Secret) > maxAddress:
		return errors.New("the authorization server gave the client no id that can be used")
	case !slices.Contains([]string{secretNone, secretBasic, secretPost}, c.Method):
		return fmt.Errorf("the authorization server wants the client to show itself by %s, which is not supported",
			quote(c.Method))
	case c.Secret == "" && c.Method != secretNone:
		return fmt.Errorf("the authorization server wants %s and gave the client no secret", c.Method)
	}
	return nil
}
