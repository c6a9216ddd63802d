// Package oauth lets a person give the daemon the right to use a server, and
// keeps that right alive: OAuth 2.1 as the Model Context Protocol has it
// (2025-11-25, authorization). It finds the authorization server (RFC 9728,
// RFC 8414, OpenID Connect discovery), registers a client (RFC 7591) or uses one
// that is known, has the person say yes in a browser (code with PKCE S256,
// RFC 8707 resource, RFC 9207 issuer), refreshes tokens, and revokes them
// (RFC 7009).
//
// What was granted is in one file for each server, in a folder of the daemon's
// state, mode 0600, replaced atomically. A lock beside it makes refreshing,
// logging in and logging out one thing at a time, in all processes: a refresh
// token that is used twice is taken for a stolen one. A [Source] reads the file
// for every token, so a login is noticed by a daemon that runs.
//
// # Concurrency properties
//
// A [Store] and a [Source] may be used from any goroutine. Nothing blocks for
// longer than its context, and no request to a server for longer than 15
// seconds. A refresh that has begun goes on when its caller leaves, for at most
// that long: half of one would lose the login.
//
// # What it refuses to do
//
// It follows no redirect, so no secret goes where nobody meant it to go. It
// speaks plain HTTP to this machine only, and only for a server on this machine.
// It reads no more of an answer than fits, takes no token whose issuer, state or
// resource is not the one that was asked for, and no authorization server without
// PKCE. No error and no text it makes has a token, a code or a secret in it.
package oauth

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

const (
	maxChallenge = 4 << 10 // bytes of the header WWW-Authenticate
	maxScope     = 4 << 10 // bytes
)

// Client is what an authorization server knows the daemon as. The zero value is
// nobody: a client is registered.
type Client struct {
	// ID may be the https address of a client id metadata document: it is used
	// where the authorization server reads such documents.
	ID     string `json:"id,omitzero"`
	Secret string `json:"secret,omitzero"`
	Method string `json:"method,omitzero"` // of showing the secret: a token_endpoint_auth_method
}

// Ways to show a client's secret (RFC 7591 §2).
const (
	secretNone  = "none"
	secretBasic = "client_secret_basic"
	secretPost  = "client_secret_post"
)

// Challenge is what a server says when it refuses a request.
type Challenge struct {
	Metadata string `json:"metadata,omitzero"` // address of its own description (RFC 9728)
	Scope    string `json:"scope,omitzero"`
	More     bool   `json:"more,omitzero"` // the token is good, but not for this request
}

// ParseChallenge reads the answer to a request that needs a token, or a better
// one. ok says that it is such an answer: 401, or 403 with insufficient_scope.
func ParseChallenge(status int, h http.Header) (c Challenge, ok bool) {
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return c, false
	}
	c.More = status == http.StatusForbidden
	bearer := bearerOf(h.Values("WWW-Authenticate"))
	c.Metadata = bearer["resource_metadata"]
	c.Scope = cleanScope(bearer["scope"])
	return c, !c.More || bearer["error"] == "insufficient_scope"
}

func bearerOf(headers []string) map[string]string {
	if n := len(strings.Join(headers, ",")); n > maxChallenge {
		return nil
	}
	all, err := oauthex.ParseWWWAuthenticate(headers)
	if err != nil { // what cannot be read says nothing
		return nil
	}
	i := slices.IndexFunc(all, func(c oauthex.Challenge) bool { return c.Scheme == "bearer" })
	if i < 0 {
		return nil
	}
	return all[i].Params
}

// cleanScope is a scope as RFC 6749 §3.3 has it, "" for what is none.
func cleanScope(scope string) string {
	wrong := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if len(scope) > maxScope || strings.ContainsFunc(scope, wrong) {
		return ""
	}
	return strings.Join(strings.Fields(scope), " ")
}

// union is every scope of both, once.
func union(a, b string) string {
	all := strings.Fields(a)
	for _, s := range strings.Fields(b) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return strings.Join(all, " ")
}

// NeedsLoginError says that a person has to log in. The message tells no more
// than why: only the caller knows what to do about it.
type NeedsLoginError struct {
	Reason string // "" where the server has simply asked for a token
	Scope  string // that the server asks for beside what was granted, or ""
}

func (e *NeedsLoginError) Error() string {
	if e.Scope != "" {
		return "the server asks for more rights: " + e.Scope
	}
	return cmp.Or(e.Reason, "the server asks for a login")
}
