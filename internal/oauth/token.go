package oauth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const maxToken = 16 << 10 // bytes

// tokens are the answer of a token endpoint (RFC 6749 §5.1).
type tokens struct {
	Access  string  `json:"access_token"`
	Kind    string  `json:"token_type"`
	Seconds float64 `json:"expires_in"`
	Refresh string  `json:"refresh_token"`
	Scope   *string `json:"scope"`
}

// refusal is a server's error (RFC 6749 §5.2).
type refusal struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
	status      int
}

func (r *refusal) Error() string {
	switch {
	case r.Code == "":
		return fmt.Sprintf("it answered %d %s", r.status, http.StatusText(r.status))
	case r.Description == "":
		return quote(r.Code)
	}
	return quote(r.Code) + ": " + quote(r.Description)
}

// final: asking once more for the same cannot help.
func (r *refusal) final() bool {
	return slices.Contains([]string{
		"invalid_grant", "invalid_client", "unauthorized_client", "invalid_target",
		"invalid_scope",
	}, r.Code)
}

func refusalOf(a *answer) *refusal {
	r := &refusal{}
	if decode(a.body, r) != nil {
		r = &refusal{}
	}
	r.status = a.status
	return r
}

// tokens asks a token endpoint.
func (w *web) tokens(ctx context.Context, endpoint string, form url.Values, c Client) (*tokens, error) {
	u, err := w.check("token_endpoint", endpoint)
	if err != nil {
		return nil, err
	}
	a, err := w.postForm(ctx, u, form, c)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("%s gives no token: %w", u.Host, refusalOf(a))
	}
	t := &tokens{}
	if err := decode(a.body, t); err != nil {
		return nil, fmt.Errorf("the token of %s cannot be read: the answer is no JSON object of the shape that OAuth has",
			u.Host)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("the token of %s cannot be used: %w", u.Host, err)
	}
	return t, nil
}

func (t *tokens) check() error {
	wrong := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case t.Access == "":
		return errors.New("there is none")
	case !strings.EqualFold(t.Kind, "bearer"):
		return fmt.Errorf("it is of the type %s, not Bearer", quote(t.Kind))
	case len(t.Access) > maxToken || len(t.Refresh) > maxToken:
		return fmt.Errorf("it is longer than %d bytes", maxToken)
	case strings.ContainsFunc(t.Access, wrong) || strings.ContainsFunc(t.Refresh, wrong):
		return errors.New("it has characters that no token has")
	}
	return nil
}

// expires is when the access token ends; zero where nobody said.
func (t *tokens) expires(now time.Time) time.Time {
	if t.Seconds <= 0 || math.IsNaN(t.Seconds) {
		return time.Time{}
	}
	return now.Add(time.Duration(min(t.Seconds, 10*365*24*3600) * float64(time.Second))).UTC().Truncate(time.Second)
}

// revoke takes a token back (RFC 7009).
func (w *web) revoke(ctx context.Context, g *grant) error {
	u, err := w.check("revocation_endpoint", g.Revocation)
	if err != nil {
		return err
	}
	form := url.Values{"token": {g.Refresh}, "token_type_hint": {"refresh_token"}}
	if g.Refresh == "" {
		form = url.Values{"token": {g.Access}, "token_type_hint": {"access_token"}}
	}
	a, err := w.postForm(ctx, u, form, g.Client)
	if err != nil {
		return err
	}
	if a.status/100 != 2 {
		return fmt.Errorf("%s takes no token back: %w", u.Host, refusalOf(a))
	}
	return nil
}
