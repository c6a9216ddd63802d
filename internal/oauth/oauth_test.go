package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noused/internal/oauth"
	"noused/internal/oauth/oauthtest"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// login logs in as a person does who says yes.
func login(t *testing.T, store *oauth.Store, l oauth.Login) (*oauth.Granted, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if l.Show == nil {
		l.Show = func(page string) {
			if _, err := oauthtest.Say(page); err != nil {
				t.Error(err)
			}
		}
	}
	return store.Login(ctx, l)
}

func mustLogin(t *testing.T, store *oauth.Store, s *oauthtest.Server) *oauth.Granted {
	t.Helper()
	g, err := login(t, store, oauth.Login{Server: s.Resource})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// call asks the resource as the daemon does: once more with a better token.
func call(t *testing.T, src *oauth.Source, s *oauthtest.Server) error {
	t.Helper()
	token, err := src.Token(t.Context())
	if err != nil {
		return err
	}
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Resource, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		c, asks := oauth.ParseChallenge(resp.StatusCode, resp.Header)
		if !asks {
			return nil
		}
		if token, err = src.Refused(t.Context(), token, c); err != nil {
			return err
		}
	}
	return errors.New("refused twice")
}

func source(t *testing.T, store *oauth.Store, s *oauthtest.Server) *oauth.Source {
	t.Helper()
	src, err := store.Source(s.Resource)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func needsLogin(err error) bool {
	var needs *oauth.NeedsLoginError
	return errors.As(err, &needs)
}

func TestALoginIsNoticedRefreshedAndRevoked(t *testing.T) {
	s := oauthtest.Start(t, nil)
	dir := filepath.Join(t.TempDir(), "logins")
	store := oauth.Open(dir)
	src := source(t, store, s)
	if err := call(t, src, s); !needsLogin(err) {
		t.Fatalf("before a login: %v", err)
	}
	g := mustLogin(t, oauth.Open(dir), s) // by another process
	if !g.Refreshes || g.Issuer != s.Issuer || time.Until(g.Expires) < 50*time.Minute {
		t.Errorf("granted %+v", g)
	}
	if err := call(t, src, s); err != nil {
		t.Fatalf("after a login: %v", err)
	}
	for range 3 { // each refresh token works once
		s.Expire()
		if err := call(t, src, s); err != nil {
			t.Fatalf("after its token ended: %v", err)
		}
	}
	had, revoked, err := store.Logout(t.Context(), s.Resource)
	if !had || !revoked || err != nil || s.Alive() != 0 {
		t.Errorf("logged out: %t, %t, %v; %d logins are alive", had, revoked, err, s.Alive())
	}
	if err := call(t, src, s); !needsLogin(err) {
		t.Errorf("after the logout: %v", err)
	}
	if had, _, err := store.Logout(t.Context(), s.Resource); had || err != nil {
		t.Errorf("once more: %t, %v", had, err)
	}
}

func TestTokensAreForTheUserAlone(t *testing.T) {
	s := oauthtest.Start(t, nil)
	dir := filepath.Join(t.TempDir(), "logins")
	mustLogin(t, oauth.Open(dir), s)
	var kept int
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
		}
		if strings.HasSuffix(path, ".json") {
			kept++
		}
		return nil
	})
	if err != nil || kept != 1 {
		t.Errorf("%d files, %v; want one", kept, err)
	}
}

// What is about to end is refreshed before it is sent, once for all who ask, in
// all processes.
func TestOneRefreshAtATime(t *testing.T) {
	s := oauthtest.Start(t, nil)
	s.Lifetime = 5 * time.Second
	dir := t.TempDir()
	mustLogin(t, oauth.Open(dir), s)
	s.Lifetime = time.Hour
	before := s.Asked("POST /token")
	var all sync.WaitGroup
	for range 4 {
		src := source(t, oauth.Open(dir), s) // as another process has it
		for range 5 {
			all.Go(func() {
				if err := call(t, src, s); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if n := s.Asked("POST /token") - before; n != 1 {
		t.Errorf("refreshed %d times, want once", n)
	}
}

// A refresh is ended though the call it was for is aborted: else the login would be
// lost, as a refresh token works once.
func TestAnAbortedCallLosesNoLogin(t *testing.T) {
	s := oauthtest.Start(t, nil)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	s.Instead = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" && s.Alive() == 1 {
			select {
			case arrived <- struct{}{}:
				<-goOn
			case <-goOn:
			}
		}
		return false
	}
	store := oauth.Open(t.TempDir())
	mustLogin(t, store, s)
	s.Expire()
	src := source(t, store, s)
	old, err := src.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, abort := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := src.Refused(ctx, old, oauth.Challenge{})
		ended <- err
	}()
	<-arrived
	abort()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the aborted call: %v", err)
	}
	close(goOn)
	if err := call(t, src, s); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestALoginThatEndedSaysSo(t *testing.T) {
	s := oauthtest.Start(t, nil)
	store := oauth.Open(t.TempDir())
	mustLogin(t, store, s)
	src := source(t, store, s)
	s.End()
	err := call(t, src, s)
	if !needsLogin(err) || !strings.Contains(err.Error(), "the login has ended") {
		t.Errorf("got %v", err)
	}
	asked := s.Asked("POST /token")
	if err := call(t, src, s); !needsLogin(err) || s.Asked("POST /token") != asked {
		t.Errorf("got %v; a dead refresh token was tried again", err)
	}
	mustLogin(t, store, s)
	if err := call(t, src, s); err != nil {
		t.Errorf("after another login: %v", err)
	}
}

// A server that cannot be reached for a while ends no login.
func TestAnAuthorizationServerInTroubleEndsNoLogin(t *testing.T) {
	s := oauthtest.Start(t, nil)
	var broken atomic.Bool
	s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
		if broken.Load() && r.URL.Path == "/token" {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	}
	store := oauth.Open(t.TempDir())
	mustLogin(t, store, s)
	s.Expire()
	broken.Store(true)
	if err := call(t, source(t, store, s), s); err == nil || needsLogin(err) || !strings.Contains(err.Error(), "502") {
		t.Errorf("while it is down: %v", err)
	}
	broken.Store(false)
	if err := call(t, source(t, store, s), s); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

func TestScopes(t *testing.T) {
	s := oauthtest.Start(t, nil)
	s.Scopes, s.Needed = []string{"read", "list"}, []string{"read"}
	store := oauth.Open(t.TempDir())
	src := source(t, store, s)
	if g := mustLogin(t, store, s); g.Scope != "read list" {
		t.Errorf("granted %q, want what the server describes itself with", g.Scope)
	}
	if err := call(t, src, s); err != nil {
		t.Fatal(err)
	}
	s.Need("write")
	err := call(t, src, s)
	if !needsLogin(err) || err.Error() != "the server asks for more rights: write" {
		t.Fatalf("got %v", err)
	}
	if g := mustLogin(t, store, s); g.Scope != "read list write" {
		t.Errorf("granted %q, want what there was and what was asked for", g.Scope)
	}
	if err := call(t, src, s); err != nil {
		t.Error(err)
	}
}

func TestWaysToShowWhoTheClientIs(t *testing.T) {
	for _, c := range []struct {
		name          string
		methods       []string
		known, secret string
		documents     bool
		client        oauth.Client
	}{
		{name: "registered, public", methods: []string{"client_secret_post", "none"}},
		{name: "registered, basic", methods: []string{"client_secret_basic"}},
		{name: "registered, post", methods: []string{"client_secret_post"}},
		{name: "known, public", methods: []string{"none"}, known: "me", client: oauth.Client{ID: "me"}},
		{
			name: "known, basic", methods: []string{"client_secret_basic"}, known: "me", secret: "a:b %+",
			client: oauth.Client{ID: "me", Secret: "a:b %+"},
		},
		{
			name: "known, post", methods: []string{"client_secret_post"}, known: "me", secret: "s",
			client: oauth.Client{ID: "me", Secret: "s"},
		},
		{
			name: "document", methods: []string{"none"}, documents: true,
			client: oauth.Client{ID: "https://example.org/noused.json"},
		},
		{
			name: "document that nobody reads", methods: []string{"none"},
			client: oauth.Client{ID: "https://example.org/noused.json"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := oauthtest.Start(t, nil)
			s.Methods, s.Known, s.Secret, s.Documents = c.methods, c.known, c.secret, c.documents
			store := oauth.Open(t.TempDir())
			if _, err := login(t, store, oauth.Login{Server: s.Resource, Client: c.client}); err != nil {
				t.Fatal(err)
			}
			s.Expire()
			if err := call(t, source(t, store, s), s); err != nil {
				t.Error(err)
			}
			if _, revoked, err := store.Logout(t.Context(), s.Resource); !revoked || err != nil {
				t.Errorf("revoked %t, %v", revoked, err)
			}
			if registered := s.Asked("POST /register"); (c.client.ID == "" || c.name == "document that nobody reads") !=
				(registered == 1) {
				t.Errorf("registered %d times", registered)
			}
		})
	}
}

// The page of another browser, whose address a person brings back by hand.
func TestAnAddressCanBePasted(t *testing.T) {
	s := oauthtest.Start(t, nil)
	pasted := make(chan string, 3)
	_, err := login(t, oauth.Open(t.TempDir()), oauth.Login{
		Server: s.Resource, Pasted: pasted,
		Show: func(page string) {
			back, err := oauthtest.Back(page)
			if err != nil {
				t.Error(err)
			}
			pasted <- "nonsense"
			pasted <- "http://127.0.0.1/callback?code=x&state=y"
			pasted <- back
			close(pasted)
		},
	})
	if err != nil {
		t.Error(err)
	}
}

// What comes back from the browser and is not what was asked for.
func TestAnswersThatAreNotTaken(t *testing.T) {
	change := func(name, value string) func(q url.Values) {
		return func(q url.Values) {
			if q.Del(name); value != "" {
				q.Set(name, value)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(q url.Values)
		want   string // "" for one that is waited on
	}{
		{"wrong state", change("state", "another"), ""},
		{"no state", change("state", ""), ""},
		{"wrong issuer", change("iss", "https://evil.example"), "from another authorization server"},
		{"no issuer", change("iss", ""), "does not say which authorization server"},
		{"no code", change("code", ""), "no code"},
		{"refusal", change("error", "access_denied"), `the authorization server says no: "access_denied"`},
		{"terminal", change("error", "a\x1b[31m"), `"a\x1b[31m"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := oauthtest.Start(t, nil)
			store := oauth.Open(t.TempDir())
			_, err := login(t, store, oauth.Login{Server: s.Resource, Show: func(page string) {
				back, err := oauthtest.Back(page)
				if err != nil {
					t.Error(err)
					return
				}
				u, _ := url.Parse(back)
				q := u.Query()
				c.change(q)
				u.RawQuery = q.Encode()
				said, err := oauthtest.Say(u.String())
				if err != nil || c.want == "" && !strings.HasPrefix(said, "400") {
					t.Errorf("the browser shows %q, %v", said, err)
				}
				if c.want == "" { // the person's own answer comes later
					_, _ = oauthtest.Say(back)
				}
			}})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.want != "" && (s.Asked("POST /token") > 0 || s.Alive() > 0) {
				t.Error("the code was traded in all the same")
			}
		})
	}
}

// answer has one address answered in another way.
func answer(path string, h http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		h(w, r)
		return true
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

func TestHostileServers(t *testing.T) {
	const describes, publishes = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"
	metadata := func(s *oauthtest.Server, field, value string) string {
		m := map[string]string{
			"issuer": s.Issuer, "authorization_endpoint": s.Issuer + "/authorize", "token_endpoint": s.Issuer + "/token",
			"registration_endpoint": s.Issuer + "/register",
		}
		m[field] = value
		return fmt.Sprintf(
			`{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"registration_endpoint":%q,"code_challenge_methods_supported":["S256"]}`,
			m["issuer"], m["authorization_endpoint"], m["token_endpoint"], m["registration_endpoint"])
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for chunk := strings.Repeat(" ", 64<<10); ; {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	}
	elsewhere := func(t *testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}
	for _, c := range []struct {
		name, path string
		answer     func(s *oauthtest.Server) http.HandlerFunc
		want       string
	}{
		{"another resource", describes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(`{"resource":"https://evil.example/mcp","authorization_servers":["` + s.Issuer + `"]}`)
		}, "describes another server"},
		{"a part of the path", describes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(`{"resource":"` + strings.TrimSuffix(s.Resource, "p") + `","authorization_servers":["` + s.Issuer +
				`"]}`)
		}, "describes another server"},
		{"no authorization server", describes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(`{"resource":"` + s.Resource + `"}`)
		}, "names no authorization server"},
		{"a plain authorization server", describes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(`{"resource":"` + s.Resource + `","authorization_servers":["http://evil.example"]}`)
		}, "has to be https"},
		{"a script", describes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(`{"resource":"` + s.Resource + `","authorization_servers":["javascript:alert(1)"]}`)
		}, "is not an address"},
		{"duplicate fields", describes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(`{"resource":"` + s.Resource + `","resource":"https://evil.example"}`)
		}, "cannot be read"},
		{"a huge description", describes, func(*oauthtest.Server) http.HandlerFunc { return huge }, "more than 262144 bytes"},
		{"deep JSON", describes, func(*oauthtest.Server) http.HandlerFunc {
			return says(strings.Repeat("[", 100_000))
		}, "cannot be read"},
		{"a broken one", describes, func(*oauthtest.Server) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		}, "answered 500"},
		{"another issuer", publishes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(metadata(s, "issuer", "https://evil.example"))
		}, "metadata of another authorization server"},
		{"a token endpoint in the open", publishes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(metadata(s, "token_endpoint", "http://evil.example/token"))
		}, "token_endpoint has to be https"},
		{"a page that is a script", publishes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(metadata(s, "authorization_endpoint", "javascript:alert(1)"))
		}, "authorization_endpoint is not an address"},
		{"an endpoint with a password", publishes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(metadata(s, "token_endpoint", "https://a:b@evil.example/token"))
		}, "token_endpoint is not an address"},
		{"no PKCE", publishes, func(s *oauthtest.Server) http.HandlerFunc {
			return says(strings.Replace(metadata(s, "", ""), "S256", "plain", 1))
		}, "does not support PKCE"},
		{"no metadata", publishes, func(*oauthtest.Server) http.HandlerFunc {
			return http.NotFound
		}, "publishes no metadata"},
		{"a page for people", publishes, func(*oauthtest.Server) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }
		}, "publishes no metadata"},
		{"metadata elsewhere", publishes, func(*oauthtest.Server) http.HandlerFunc {
			return elsewhere(t)
		}, "publishes no metadata"},
		{"registers nobody", "/register", func(*oauthtest.Server) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
		}, "registers no client: it answered 403"},
		{"registers without an id", "/register", func(*oauthtest.Server) http.HandlerFunc { return says(`{}`) }, "no id"},
		{"wants a key", "/register", func(*oauthtest.Server) http.HandlerFunc {
			return says(`{"client_id":"a","token_endpoint_auth_method":"private_key_jwt"}`)
		}, "not supported"},
		{"redirects the code", "/token", func(*oauthtest.Server) http.HandlerFunc {
			return elsewhere(t)
		}, "gives no token: it answered 307"},
		{"another kind of token", "/token", func(*oauthtest.Server) http.HandlerFunc {
			return says(`{"access_token":"a","token_type":"mac"}`)
		}, "not Bearer"},
		{"a token with a line end", "/token", func(*oauthtest.Server) http.HandlerFunc {
			return says(`{"access_token":"a\r\nX: y","token_type":"Bearer"}`)
		}, "characters that no token has"},
		{"a token that is too long", "/token", func(*oauthtest.Server) http.HandlerFunc {
			return says(`{"access_token":"` + strings.Repeat("a", 20<<10) + `","token_type":"Bearer"}`)
		}, "longer than"},
		{"a token that is none", "/token", func(*oauthtest.Server) http.HandlerFunc {
			return says(`{"access_token":17}`)
		}, "cannot be read"},
		{"an endless token", "/token", func(*oauthtest.Server) http.HandlerFunc { return huge }, "more than 262144 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := oauthtest.Start(t, nil)
			s.Instead = answer(c.path, c.answer(s))
			dir := t.TempDir()
			_, err := login(t, oauth.Open(dir), oauth.Login{Server: s.Resource})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(left) > 0 {
				t.Errorf("%v was kept", left)
			}
		})
	}
}

// One that never answers holds nobody up for longer than they wait.
func TestASlowServerIsNotWaitedForLongerThanAsked(t *testing.T) {
	s := oauthtest.Start(t, nil)
	over := make(chan struct{})
	s.Instead = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return false
	}
	defer close(over)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := oauth.Open(t.TempDir()).Login(ctx, oauth.Login{Server: s.Resource})
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatWantsNoLogin(t *testing.T) {
	s := oauthtest.Start(t, nil)
	s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/mcp" {
			http.NotFound(w, r)
		}
		return true
	}
	if _, err := login(t, oauth.Open(t.TempDir()), oauth.Login{Server: s.Resource}); err == nil ||
		!strings.Contains(err.Error(), "asks for no login") {
		t.Errorf("got %v", err)
	}
}

// As the protocol had it before servers described themselves: the server is its own
// authorization server.
func TestAnOlderServer(t *testing.T) {
	for _, published := range []bool{false, true} {
		s := oauthtest.Start(t, nil)
		root := strings.TrimSuffix(s.Resource, "/mcp")
		s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "oauth-protected-resource") {
				http.NotFound(w, r)
				return true
			}
			if r.Host != strings.TrimPrefix(root, "http://") {
				return false
			}
			switch r.URL.Path {
			case "/.well-known/oauth-authorization-server":
				if !published {
					return false
				}
				says(`{"issuer":"`+root+`/auth","authorization_endpoint":"`+root+`/authorize","token_endpoint":"`+root+
					`/token","registration_endpoint":"`+root+`/register","code_challenge_methods_supported":["S256"]}`)(w, r)
			case "/register":
				says(`{"client_id":"c","token_endpoint_auth_method":"none"}`)(w, r)
			case "/authorize":
				http.Redirect(w, r, r.URL.Query().Get("redirect_uri")+"?code=c&state="+r.URL.Query().Get("state"), http.StatusFound)
			case "/token":
				says(`{"access_token":"a","token_type":"Bearer"}`)(w, r)
			default:
				return false
			}
			return true
		}
		if _, err := login(t, oauth.Open(t.TempDir()), oauth.Login{Server: s.Resource}); err != nil {
			t.Errorf("published %t: %v", published, err)
		}
	}
}

func TestServersNobodyCanLogInAt(t *testing.T) {
	for _, address := range []string{
		"http://example.org/mcp", "ftp://example.org", "https://a:b@example.org", "nonsense",
		"https://", "http://\x00",
	} {
		if _, err := oauth.Open(t.TempDir()).Source(address); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}

// A file that somebody else has written, or nobody can read, is refused and named.
func TestFilesThatAreNoLogins(t *testing.T) {
	s := oauthtest.Start(t, nil)
	for _, c := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"torn", func(path string) error {
			return os.WriteFile(path, []byte(`{"server":"`), 0o600)
		}, "no JSON object of a login"},
		{"of another server", func(path string) error {
			return os.WriteFile(path, []byte(`{"server":"https://example.org"}`), 0o600)
		}, "another server"},
		{"huge", func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }, "longer than"},
		{"a link", func(path string) error { return os.Symlink("/dev/zero", path) }, "symbolic link"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			store := oauth.Open(dir)
			mustLogin(t, store, s)
			kept, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			if len(kept) != 1 {
				t.Fatal(kept)
			}
			if err := os.Remove(kept[0]); err != nil {
				t.Fatal(err)
			}
			if err := c.make(kept[0]); err != nil {
				t.Fatal(err)
			}
			_, err := source(t, store, s).Token(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), kept[0]) {
				t.Errorf("got %v, want %q and the file's name", err, c.want)
			}
			if had, _, _ := store.Logout(t.Context(), s.Resource); !had {
				t.Error("it is not removed by a logout")
			}
			mustLogin(t, store, s)
		})
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer resource_metadata="https://a/b", scope="x y", error="insufficient_scope"`, 403)
	f.Add(`Basic realm="a", Bearer scope=x`, 401)
	f.Add(`Negotiate abc==`, 401)
	f.Fuzz(func(t *testing.T, header string, status int) {
		c, asks := oauth.ParseChallenge(status, http.Header{"Www-Authenticate": {header}})
		if asks && status != 401 && status != 403 || !asks && status == 401 {
			t.Errorf("status %d: %t", status, asks)
		}
		if strings.ContainsAny(c.Scope, "\"\\\r\n") || len(c.Scope) > 4<<10 {
			t.Errorf("scope %q", c.Scope)
		}
	})
}
