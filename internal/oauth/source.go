package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	early     = 10 * time.Second // before its end a token is refreshed
	renewTime = 2*requestTime + early
)

// Source gives the requests to one server their token. Make it with
// [Store.Source].
type Source struct {
	store    *Store
	server   *url.URL
	renewing singleflight.Group
}

// Source returns the tokens for a server. An error says that nobody can log in at
// such an address.
func (s *Store) Source(server string) (*Source, error) {
	u, err := serverURL(server)
	if err != nil {
		return nil, err
	}
	return &Source{store: s, server: u}, nil
}

// Token returns the token to send, "" where nobody has logged in. One that is
// about to end is refreshed first.
func (s *Source) Token(ctx context.Context) (string, error) {
	g, err := s.store.read(s.server.String())
	if err != nil || g == nil {
		return "", err
	}
	if g.Refresh == "" || g.Expires.IsZero() || time.Until(g.Expires) > early {
		return g.Access, nil
	}
	return s.renewed(ctx, g.Access)
}

// Current returns the token that is kept, "" where nobody has logged in. It asks
// nobody.
func (s *Source) Current() (string, error) {
	g, err := s.store.read(s.server.String())
	if err != nil || g == nil {
		return "", err
	}
	return g.Access, nil
}

// Refused says that the server did not take that token, "" for none, and returns
// a better one. Where there is none a *NeedsLoginError says why, and what the
// server asked for is remembered for the next login.
func (s *Source) Refused(ctx context.Context, token string, c Challenge) (string, error) {
	if !c.More {
		better, err := s.renewed(ctx, token)
		var needs *NeedsLoginError
		if err == nil || !errors.As(err, &needs) {
			return better, err
		}
		return "", errors.Join(err, s.remember(ctx, c))
	}
	g, err := s.store.read(s.server.String())
	if err == nil && g != nil && g.Access != "" && g.Access != token { // somebody has logged in since
		return g.Access, nil
	}
	return "", errors.Join(&NeedsLoginError{Scope: c.Scope, Reason: "the server refuses this with what was granted"},
		s.remember(ctx, c))
}

// remember keeps what the server asked for.
func (s *Source) remember(ctx context.Context, c Challenge) error {
	l, err := s.store.lock(ctx, s.server.String())
	if err != nil {
		return err
	}
	defer func() { _ = l.Release() }()
	g, err := s.store.read(s.server.String())
	switch {
	case err != nil:
		return err
	case g == nil:
		g = &grant{Server: s.server.String()}
	case g.Asked != nil && *g.Asked == c:
		return nil
	}
	g.Asked = &c
	return s.store.write(g)
}

// renewed returns a token that is not old. Concurrent callers share one refresh. Once
// started, it runs to completion even if every caller gives up.
func (s *Source) renewed(ctx context.Context, old string) (string, error) {
	got := s.renewing.DoChan(old, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
		defer cancel()
		return s.renew(ctx, old)
	})
	select {
	case r := <-got:
		token, _ := r.Val.(string)
		return token, r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *Source) renew(ctx context.Context, old string) (string, error) {
	l, err := s.store.lock(ctx, s.server.String())
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Release() }()
	g, err := s.store.read(s.server.String())
	switch {
	case err != nil:
		return "", err
	case g == nil:
		return "", &NeedsLoginError{}
	case g.Access != "" && g.Access != old: // somebody else has been here
		return g.Access, nil
	case g.Refresh == "":
		return "", &NeedsLoginError{Reason: endOf(g)}
	}
	return s.refresh(ctx, g)
}

func endOf(g *grant) string {
	if g.Access == "" {
		return ""
	}
	return "the login has ended"
}

// refresh trades the refresh token in. A server that will not have it ends the
// login; one that cannot be reached does not.
func (s *Source) refresh(ctx context.Context, g *grant) (string, error) {
	t, err := newWeb(s.server).tokens(ctx, g.Endpoint, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {g.Refresh}, "resource": {g.Resource},
	}, g.Client)
	var no *refusal
	if errors.As(err, &no) && no.final() {
		g.Access, g.Refresh, g.Expires = "", "", time.Time{}
		return "", errors.Join(&NeedsLoginError{Reason: "the login has ended: " + err.Error()}, s.store.write(g))
	}
	if err != nil {
		return "", fmt.Errorf("the login could not be refreshed: %w", err)
	}
	g.setTokens(t, time.Now())
	return g.Access, s.store.write(g)
}
