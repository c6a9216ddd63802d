// Package oauthtest is a server that wants a login, and the authorization server
// that it trusts, for tests: two real HTTP servers on this machine. The
// authorization server is strict: it takes nothing that OAuth 2.1 would have it
// refuse, a refresh token works once, and one that is used twice ends the login.
//
// Concurrency: all methods may be called from any goroutine. The fields are set
// before the first request.
//
// It refuses to be lenient: what a client does wrong fails the test.
package oauthtest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// Server is both servers. Make it with Start.
type Server struct {
	Resource string // address of the server that wants a login
	Issuer   string // address of the authorization server

	Lifetime time.Duration // of an access token
	Scopes   []string      // that the resource describes itself with
	Needed   []string      // that a token must have
	Methods  []string      // token_endpoint_auth_methods_supported
	// Known is a client that is registered already, with its secret; others cannot
	// register where it has an id.
	Known, Secret string
	Documents     bool // client id metadata documents are read
	Refuses       bool // the person says no
	// Instead answers in the place of both servers, if it returns true.
	Instead func(w http.ResponseWriter, r *http.Request) bool
	// Wrong is told what a client does wrong; it fails the test unless it is set.
	Wrong func(format string, args ...any)

	handler http.Handler

	mu      sync.Mutex
	clients map[string]*client
	codes   map[string]*code
	logins  []*login
	asked   []string // "METHOD path", of the authorization server
}

type client struct {
	secret, method string
	redirects      []string
	any            bool // any port of this machine
}

type code struct {
	client, redirect, challenge, scope string
}

type login struct {
	client, scope, access, refresh string
	used                           []string // refresh tokens that were traded in
	ends                           time.Time
	over                           bool
}

// Start starts both. handler answers those requests to the resource that have a
// token. They end with the test.
func Start(t testing.TB, handler http.Handler) *Server {
	s := &Server{
		Lifetime: time.Hour, Methods: []string{"none"}, handler: handler,
		clients: map[string]*client{}, codes: map[string]*code{}, Wrong: t.Errorf,
	}
	resource := httptest.NewServer(http.HandlerFunc(s.serveResource))
	issuer := httptest.NewServer(http.HandlerFunc(s.serveIssuer))
	t.Cleanup(func() {
		resource.CloseClientConnections()
		resource.Close()
		issuer.CloseClientConnections()
		issuer.Close()
	})
	s.Resource, s.Issuer = resource.URL+"/mcp", issuer.URL
	return s
}

func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	if s.Instead != nil && s.Instead(w, r) {
		return
	}
	if r.URL.Path == "/.well-known/oauth-protected-resource/mcp" {
		about := map[string]any{"resource": s.Resource, "authorization_servers": []string{s.Issuer}}
		if s.Scopes != nil {
			about["scopes_supported"] = s.Scopes
		}
		write(w, 200, about)
		return
	}
	if r.URL.Path != "/mcp" {
		http.NotFound(w, r)
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	l := s.alive(token)
	about := `resource_metadata="` + strings.TrimSuffix(s.Resource, "/mcp") + `/.well-known/oauth-protected-resource/mcp"`
	switch {
	case !ok || l == nil:
		w.Header().Set("WWW-Authenticate", "Bearer "+about)
		http.Error(w, "no token", http.StatusUnauthorized)
	case !covers(l.scope, s.needed()):
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope=%q, %s`,
			strings.Join(s.needed(), " "), about))
		http.Error(w, "not with this token", http.StatusForbidden)
	case s.handler == nil:
		write(w, 200, map[string]any{"jsonrpc": "2.0", "id": 1, "result": map[string]any{}})
	default:
		s.handler.ServeHTTP(w, r)
	}
}

// Need has the resource want other scopes from now on.
func (s *Server) Need(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Needed = scopes
}

func (s *Server) needed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Needed
}

// Expire ends all access tokens; refresh tokens stay.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		l.ends = time.Time{}
	}
}

// End ends all logins, as somebody does at the authorization server.
func (s *Server) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		l.over = true
	}
}

// Alive is how many logins are not over.
func (s *Server) Alive() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		if !l.over {
			n++
		}
	}
	return n
}

// Asked is how often the authorization server was asked for that: "POST /token".
func (s *Server) Asked(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if a == what {
			n++
		}
	}
	return n
}

// Say opens a page as a browser does, for a person who says yes. It returns what
// the browser shows in the end.
func Say(address string) (page string, err error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get(address)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return resp.Status + " " + string(text), err
}

// Back is the address that the browser is sent to, which is not opened.
func Back(address string) (string, error) {
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := c.Get(address)
	if err != nil {
		return "", err
	}
	_ = resp.Body.Close()
	return resp.Header.Get("Location"), nil
}

func (s *Server) alive(token string) *login {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logins {
		if token != "" && l.access == token && !l.over && time.Now().Before(l.ends) {
			return l
		}
	}
	return nil
}

func covers(scope string, needed []string) bool {
	has := strings.Fields(scope)
	for _, n := range needed {
		if !slices.Contains(has, n) {
			return false
		}
	}
	return true
}

func write(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func (s *Server) serveIssuer(w http.ResponseWriter, r *http.Request) {
	if s.Instead != nil && s.Instead(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	what := r.Method + " " + r.URL.Path
	s.asked = append(s.asked, what)
	switch what {
	case "GET /.well-known/oauth-authorization-server":
		write(w, 200, s.metadata())
	case "POST /register":
		s.register(w, r)
	case "GET /authorize":
		s.authorize(w, r)
	case "POST /token":
		s.token(w, r)
	case "POST /revoke":
		s.revoke(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) metadata() map[string]any {
	m := map[string]any{
		"issuer": s.Issuer, "authorization_endpoint": s.Issuer + "/authorize?tenant=1", "token_endpoint": s.Issuer + "/token",
		"revocation_endpoint": s.Issuer + "/revoke", "code_challenge_methods_supported": []string{"S256"},
		"response_types_supported": []string{"code"}, "grant_types_supported": []string{
			"authorization_code",
			"refresh_token",
		},
		"token_endpoint_auth_methods_supported":          s.Methods,
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          s.Documents,
	}
	if s.Known == "" {
		m["registration_endpoint"] = s.Issuer + "/register"
	}
	return m
}

// refuse answers what a client did wrong, and fails the test for it.
func (s *Server) refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	said := fmt.Sprintf(format, args...)
	s.Wrong("the authorization server: %s: %s", code, said)
	write(w, status, map[string]any{"error": code, "error_description": said})
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Name      string   `json:"client_name"`
		Kind      string   `json:"application_type"`
		Redirects []string `json:"redirect_uris"`
		Grants    []string `json:"grant_types"`
		Responses []string `json:"response_types"`
		Method    string   `json:"token_endpoint_auth_method"`
	}
	if err := json.UnmarshalRead(r.Body, &asked, json.RejectUnknownMembers(true)); err != nil {
		s.refuse(w, 400, "invalid_client_metadata", "%v", err)
		return
	}
	if asked.Name == "" || asked.Kind != "native" || len(asked.Redirects) != 1 ||
		!slices.Contains(s.Methods, asked.Method) ||
		!slices.Equal(asked.Grants, []string{"authorization_code", "refresh_token"}) ||
		!slices.Equal(asked.Responses, []string{"code"}) {
		s.refuse(w, 400, "invalid_client_metadata", "%+v", asked)
		return
	}
	c := &client{method: asked.Method, redirects: asked.Redirects}
	said := map[string]any{
		"client_id": "client-" + rand.Text(), "token_endpoint_auth_method": c.method,
		"redirect_uris": c.redirects,
	}
	if c.method != "none" {
		c.secret = "secret:" + rand.Text() + "%&=" // that has to be encoded
		said["client_secret"], said["client_secret_expires_at"] = c.secret, 0
	}
	s.clients[said["client_id"].(string)] = c
	write(w, 201, said)
}

// client is one that is registered, known, or has a document.
func (s *Server) client(id string) *client {
	switch {
	case s.clients[id] != nil:
		return s.clients[id]
	case id != "" && id == s.Known:
		method := "none"
		if s.Secret != "" {
			method = s.Methods[0]
		}
		return &client{secret: s.Secret, method: method, any: true}
	case s.Documents && strings.HasPrefix(id, "https://"):
		return &client{method: "none", any: true}
	}
	return nil
}

func (c *client) mayReturnTo(redirect string) bool {
	u, err := url.Parse(redirect)
	return slices.Contains(c.redirects, redirect) || c.any && err == nil && u.Scheme == "http" &&
		u.Hostname() == "127.0.0.1"
}

func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for name, values := range q {
		if len(values) != 1 || values[0] == "" {
			s.refuse(w, 400, "invalid_request", "%s is there %d times, or empty", name, len(values))
			return
		}
	}
	c := s.client(q.Get("client_id"))
	if c == nil || !c.mayReturnTo(q.Get("redirect_uri")) {
		s.refuse(w, 400, "invalid_request", "client %s, redirect %s", q.Get("client_id"), q.Get("redirect_uri"))
		return
	}
	if q.Get("tenant") != "1" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 ||
		len(q.Get("state")) < 16 || q.Get("resource") != s.Resource {
		s.refuse(w, 400, "invalid_request", "%v", q)
		return
	}
	back := url.Values{"state": {q.Get("state")}, "iss": {s.Issuer}}
	if s.Refuses {
		back.Set("error", "access_denied")
	} else {
		back.Set("code", rand.Text())
		s.codes[back.Get("code")] = &code{q.Get("client_id"), q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("scope")}
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// authenticate tells who asks, "" for a client that does not show itself in its
// own way and in no other.
func (s *Server) authenticate(r *http.Request) string {
	id, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	way := "none"
	if secret != "" {
		way = "client_secret_post"
	}
	if user, password, ok := r.BasicAuth(); ok {
		if id != "" || secret != "" {
			return ""
		}
		way = "client_secret_basic"
		id, _ = url.QueryUnescape(user)
		secret, _ = url.QueryUnescape(password)
	}
	if c := s.client(id); c == nil || c.method != way || c.secret != secret {
		return ""
	}
	return id
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || r.URL.RawQuery != "" {
		s.refuse(w, 400, "invalid_request", "%v %s", err, r.URL.RawQuery)
		return
	}
	id := s.authenticate(r)
	if id == "" {
		s.refuse(w, 401, "invalid_client", "%v", r.PostForm)
		return
	}
	if r.PostForm.Get("resource") != s.Resource {
		s.refuse(w, 400, "invalid_target", "%v", r.PostForm)
		return
	}
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		s.trade(w, r, id)
	case "refresh_token":
		s.refresh(w, r, id)
	default:
		s.refuse(w, 400, "unsupported_grant_type", "%v", r.PostForm)
	}
}

func (s *Server) trade(w http.ResponseWriter, r *http.Request, id string) {
	c := s.codes[r.PostForm.Get("code")]
	delete(s.codes, r.PostForm.Get("code"))
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	if c == nil || c.client != id || c.redirect != r.PostForm.Get("redirect_uri") ||
		c.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) || len(r.PostForm.Get("code_verifier")) < 43 {
		s.refuse(w, 400, "invalid_grant", "%v", r.PostForm)
		return
	}
	l := &login{client: id, scope: c.scope}
	s.logins = append(s.logins, l)
	s.give(w, l)
}

// refresh trades a refresh token in. One that was traded in before is a stolen
// one: the login is over.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request, id string) {
	token := r.PostForm.Get("refresh_token")
	for _, l := range s.logins {
		if slices.Contains(l.used, token) {
			l.over = true
			s.refuse(w, 400, "invalid_grant", "a refresh token was used twice")
			return
		}
		if token != "" && l.refresh == token && l.client == id && !l.over {
			l.used = append(l.used, token)
			s.give(w, l)
			return
		}
	}
	write(w, 400, map[string]any{"error": "invalid_grant", "error_description": "the login is over"})
}

func (s *Server) give(w http.ResponseWriter, l *login) {
	l.access, l.refresh, l.ends = "access-"+rand.Text(), "refresh-"+rand.Text(), time.Now().Add(s.Lifetime)
	said := map[string]any{
		"access_token": l.access, "refresh_token": l.refresh, "token_type": "bearer", "expires_in": int(s.Lifetime.Seconds()),
	}
	if l.scope != "" {
		said["scope"] = l.scope
	}
	w.Header().Set("Cache-Control", "no-store")
	write(w, 200, said)
}

func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		s.refuse(w, 400, "invalid_request", "%v", err)
		return
	}
	id, token := s.authenticate(r), r.PostForm.Get("token")
	if id == "" {
		s.refuse(w, 401, "invalid_client", "%v", r.PostForm)
		return
	}
	for _, l := range s.logins {
		if l.client == id && (l.refresh == token || l.access == token) {
			l.over = true
		}
	}
	w.WriteHeader(http.StatusOK)
}
