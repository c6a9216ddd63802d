package mcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/model"
	"noused/internal/oauth"
	"noused/internal/oauth/oauthtest"
	"noused/internal/testenv"
	"noused/internal/tool/tooltest"
)

// strict is an MCP server over HTTP that is written by hand: it takes nothing that
// the protocol does not have.
type strict struct {
	*httptest.Server
	t *testing.T
	// events has it answer with streams of events instead of JSON.
	events bool
	// call answers tools/call in the place of answer, if it is set.
	call answers
	// get answers GET; nil: there is nothing to hear.
	get func(w http.ResponseWriter, r *http.Request)
	// prompts answers prompts/list; nil: it has none.
	prompts func(w http.ResponseWriter, r *http.Request)
	// instead answers everything, if it returns true.
	instead func(w http.ResponseWriter, r *http.Request) bool
	// lenient: what comes over a redirect, or after the end, is no matter.
	lenient atomic.Bool

	mu       sync.Mutex
	sessions map[string]bool
	count    int
	asked    []string
}

// answers is one way to answer a call.
type answers = func(w http.ResponseWriter, r *http.Request, id jsontext.Value)

func newStrict(t *testing.T) *strict {
	s := &strict{t: t, sessions: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// wrong fails the test for what a client did.
func (s *strict) wrong(w http.ResponseWriter, format string, args ...any) {
	if !s.lenient.Load() {
		s.t.Errorf("the client: "+format, args...)
	}
	http.Error(w, "no", http.StatusBadRequest)
}

func (s *strict) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
}

// times is how often it was asked for something.
func (s *strict) times(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if a == what {
			n++
		}
	}
	return n
}

// calls has tools/call answered in another way.
func (s *strict) calls(f answers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = f
}

func (s *strict) called() answers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call
}

// forget ends all sessions, as a restart does.
func (s *strict) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

func (s *strict) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.instead != nil && s.instead(w, r) {
		return
	}
	var m struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPost {
		if err := jsonx.Unmarshal(body, &m); err != nil {
			s.wrong(w, "sends %s", body)
			return
		}
		if accept := r.Header.Get("Accept"); r.Header.Get("Content-Type") != "application/json" ||
			accept != "application/json, text/event-stream" {
			s.wrong(w, "sends %s as %q and accepts %q", m.Method, r.Header.Get("Content-Type"), accept)
			return
		}
	}
	session := r.Header.Get("Mcp-Session-Id")
	if m.Method == "initialize" {
		s.initialize(w, r, m.ID, session)
		return
	}
	s.mu.Lock()
	known := s.sessions[session]
	s.mu.Unlock()
	switch version := r.Header.Get("Mcp-Protocol-Version"); {
	case version != "2025-11-25":
		s.wrong(w, "%s %s has the version %q", r.Method, m.Method, version)
	case !known:
		s.note("unknown session " + r.Method)
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		s.note("DELETE")
		s.mu.Lock()
		delete(s.sessions, session)
		s.mu.Unlock()
	case r.Method == http.MethodGet && r.Header.Get("Accept") != "text/event-stream":
		s.wrong(w, "GET accepts %q", r.Header.Get("Accept"))
	case r.Method == http.MethodGet && s.get != nil:
		s.note("GET")
		s.get(w, r)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	default:
		s.note(m.Method)
		s.answer(w, r, m.ID, m.Method)
	}
}

func (s *strict) initialize(w http.ResponseWriter, r *http.Request, id jsontext.Value, session string) {
	if session != "" || r.Header.Get("Mcp-Protocol-Version") != "" {
		s.wrong(w, "initialize has the session %q, the version %q", session, r.Header.Get("Mcp-Protocol-Version"))
		return
	}
	s.note("initialize")
	s.mu.Lock()
	s.count++
	session = fmt.Sprint("session-", s.count)
	s.sessions[session] = true
	s.mu.Unlock()
	w.Header().Set("Mcp-Session-Id", session)
	more := ""
	if s.prompts != nil {
		more = `,"prompts":{}`
	}
	s.send(w, id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}`+more+
		`},"serverInfo":{"name":"strict","version":"1"}}`)
}

func (s *strict) answer(w http.ResponseWriter, r *http.Request, id jsontext.Value, method string) {
	switch {
	case id == nil:
		w.WriteHeader(http.StatusAccepted)
	case method == "tools/list":
		s.send(w, id, oneTool)
	case method == "prompts/list" && s.prompts != nil:
		s.prompts(w, r)
	case method == "tools/call" && s.called() != nil:
		s.called()(w, r, id)
	case method == "tools/call":
		s.send(w, id, `{"content":[{"type":"text","text":"did it"}]}`)
	case method == "ping":
		s.send(w, id, `{}`)
	default:
		s.wrong(w, "asks for %s", method)
	}
}

func message(id jsontext.Value, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (s *strict) send(w http.ResponseWriter, id jsontext.Value, result string) {
	if s.events {
		sendEvent(w, "event: message\r\nid: 1\r\ndata: "+message(id, result)+"\r\n\r\n")
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = io.WriteString(w, message(id, result))
}

// sendEvent sends events, and does not wait.
func sendEvent(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// at is the server x at an address.
func at(address string) tooltest.Descriptor {
	return tooltest.Descriptor{
		"name": "x", "kind": "tool", "protocol": "mcp", "capabilities": []string{}, "trust": "all", "timeout": "20s",
		"transport": map[string]any{"type": "http", "url": address},
	}
}

// run calls the server's tool.
func (b *bench) run() model.ToolResult {
	b.t.Helper()
	return b.Call(b.t.Context(), tooltest.Invocation("x.run", `{}`), nil)
}

// works sees that a call goes well.
func (b *bench) works() {
	b.t.Helper()
	if r := b.run(); !r.OK || r.Text != "did it" {
		b.t.Errorf("got %+v %+v, want that it did it", r, r.Error)
	}
}

// fails sees that a call ends with a code, and a text in its message.
func (b *bench) fails(code, text string) {
	b.t.Helper()
	r := b.run()
	if r.OK || r.Error.Code != code || !strings.Contains(r.Error.Message, text) {
		b.t.Errorf("got %+v %+v, want %s: %q", r, r.Error, code, text)
	}
}

func TestAServerOverHTTPAnswers(t *testing.T) {
	for _, events := range []bool{false, true} {
		s := newStrict(t)
		s.events = events
		b := mount(t, at(s.URL))
		b.works()
		b.works()
		if n := s.times("initialize"); n != 1 {
			t.Errorf("initialized %d times, want once", n)
		}
		b.Close(context.Background())
		if s.open() != 0 || s.times("DELETE") != 1 {
			t.Errorf("%d sessions are left open, %d were ended", s.open(), s.times("DELETE"))
		}
	}
}

// The SDK's own server, with sessions and without, and one that speaks only the
// newer protocol.
func TestTheSDKsServerOverHTTP(t *testing.T) {
	impl := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, nil)
	sdk.AddTool(impl, &sdk.Tool{Name: "run"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult,
		any, error,
	) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "did it"}}}, nil, nil
	})
	for _, c := range []struct {
		name  string
		o     sdk.StreamableHTTPOptions
		newer bool
	}{
		{"sessions", sdk.StreamableHTTPOptions{}, false},
		{"JSON", sdk.StreamableHTTPOptions{JSONResponse: true}, false},
		{"stateless", sdk.StreamableHTTPOptions{Stateless: true}, false},
		{"newer", sdk.StreamableHTTPOptions{Stateless: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return impl }, &c.o)
			var newer atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Protocol-Version") >= discover {
					newer.Add(1)
				} else if c.newer {
					http.Error(w, "too old", http.StatusBadRequest)
					return
				}
				h.ServeHTTP(w, r)
			}))
			b := mount(t, at(s.URL))
			b.works()
			b.works()
			if c.newer == (newer.Load() == 0) {
				t.Errorf("%d requests were of the newer protocol", newer.Load())
			}
			b.Close(context.Background())
			s.CloseClientConnections()
			s.Close()
		})
	}
}

func TestASessionThatTheServerEndedIsMadeAnew(t *testing.T) {
	s := newStrict(t)
	b := mount(t, at(s.URL))
	b.works()
	s.forget()
	b.works()
	if s.times("initialize") != 2 || s.times("unknown session POST") != 1 || s.times("tools/call") != 2 {
		t.Errorf("asked %v", s.asked)
	}
}

// A server that has no session for long has its call made once more, and not again.
func TestASessionIsMadeAnewOnce(t *testing.T) {
	s := newStrict(t)
	b := mount(t, at(s.URL))
	b.works()
	s.calls(func(w http.ResponseWriter, _ *http.Request, _ jsontext.Value) { http.NotFound(w, nil) })
	b.fails("unreachable", "the server has ended the session")
	if n := s.times("tools/call"); n != 3 {
		t.Errorf("the tool was called %d times, want 3", n)
	}
	s.calls(nil)
	b.works()
}

func TestAConnectionThatIsLostIsMadeAnew(t *testing.T) {
	s := newStrict(t)
	b := mount(t, at(s.URL))
	b.works()
	address := s.Listener.Addr().String()
	s.CloseClientConnections()
	s.Close()
	b.fails("unreachable", "the server cannot be reached")
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	s.forget()
	s.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	s.Start()
	b.works()
	if s.times("unknown session POST") > 0 {
		t.Error("the old session was used again")
	}
}

// A stream that ends before the result is taken up where it ended.
func TestAStreamIsTakenUpAgain(t *testing.T) {
	s := newStrict(t)
	calls := make(chan jsontext.Value, 1)
	var ended time.Time
	s.call = func(w http.ResponseWriter, _ *http.Request, id jsontext.Value) {
		calls <- id
		ended = time.Now() // at the latest
		sendEvent(w, "id: a1\nretry: 150\ndata: \n\n: a comment\n\nid: a2\ndata: "+
			"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata: "+
			"\"params\":{\"progressToken\":\"call-1\",\"progress\":1}}\n\ndata: {\"torn")
	}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Last-Event-ID") {
		case "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case "a2":
			if waited := time.Since(ended); waited < 140*time.Millisecond {
				t.Errorf("taken up after %v, want what the server asked for", waited)
			}
			sendEvent(w, "id: a3\n\n")
		case "a3":
			sendEvent(w, "data: "+message(<-calls, `{"content":[{"type":"text","text":"did it"}]}`)+"\n\n")
		default:
			s.wrong(w, "Last-Event-ID %q", r.Header.Get("Last-Event-ID"))
		}
	}
	b := mount(t, at(s.URL))
	var log tooltest.Log
	if r := b.Call(t.Context(), tooltest.Invocation("x.run", `{}`), log.Add); !r.OK || r.Text != "did it" {
		t.Errorf("got %+v %+v", r, r.Error)
	}
	if updates := log.Updates(); len(updates) != 1 || updates[0].Delta != "1" {
		t.Errorf("heard %+v, want the progress", updates)
	}
}

func TestWhatAServerSaysOutsideOfCallsIsHeard(t *testing.T) {
	s := newStrict(t)
	first := make(chan struct{})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		sendEvent(w,
			"id: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"it rains\"}}\n\n")
		close(first)
		<-r.Context().Done()
	}
	b := mount(t, at(s.URL))
	b.Ready(t.Context(), model.Scope{})
	<-first
	testenv.Until(t, "that it rains", func() bool { return b.logged.FilterMessage("server says").Len() == 1 })
}

// What goes to a server goes nowhere else.
func TestHeadersStayWithTheServer(t *testing.T) {
	var strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		strangers.Add(1)
	}))
	defer stranger.Close()
	for _, c := range []struct {
		name     string
		status   int
		location func(own string) string
		want     string // "" for one that is followed
	}{
		{"its own", http.StatusTemporaryRedirect, func(string) string { return "/mcp/" }, ""},
		{"its own, losing the request", http.StatusFound, func(string) string { return "/mcp/" }, "loses the request"},
		{"another server", http.StatusTemporaryRedirect, func(string) string {
			return stranger.URL + "/mcp"
		}, "redirects to " + stranger.URL},
		{"round and round", http.StatusPermanentRedirect, func(string) string { return "/" }, "more than 3 times"},
		{"nowhere", http.StatusTemporaryRedirect, func(string) string { return "file:///etc/passwd" }, "redirects to file:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStrict(t)
			s.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("X-Key") != "secret-1" {
					s.wrong(w, "the header is missing")
				}
				if r.URL.Path != "/" {
					return false
				}
				http.Redirect(w, r, c.location(s.URL), c.status)
				return true
			}
			d := at(s.URL).Set("headers", map[string]string{"X-Key": "secret-1"})
			b := mount(t, d)
			if c.want == "" {
				b.works()
			} else {
				b.fails("unreachable", c.want)
			}
			if strangers.Load() > 0 {
				t.Error("the request went to another server")
			}
		})
	}
}

// Whatever a server does costs its caller one clear error, and the next call works.
func TestHostileServersOverHTTP(t *testing.T) {
	endless := func(kind, chunk string) func(http.ResponseWriter, *http.Request, jsontext.Value) {
		return func(w http.ResponseWriter, r *http.Request, _ jsontext.Value) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, "data: ")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}
	}
	says := func(status int, kind, text string) func(http.ResponseWriter, *http.Request, jsontext.Value) {
		return func(w http.ResponseWriter, _ *http.Request, _ jsontext.Value) {
			if kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	long := strings.Repeat("x", 32<<10)
	for _, c := range []struct {
		name       string
		call       func(w http.ResponseWriter, r *http.Request, id jsontext.Value)
		code, want string
	}{
		{"a page", says(200, "text/html", "<html>"), "protocol_error", "is this the address of its MCP endpoint"},
		{"nothing", says(200, "", ""), "protocol_error", "not with JSON"},
		{"accepted", says(202, "", ""), "protocol_error", "gives no answer"},
		{"broken", says(500, "text/plain", "no\x1b[31m"), "unreachable", `500 Internal Server Error: "no\x1b[31m"`},
		{"overloaded", says(429, "", ""), "unreachable", "429 Too Many Requests"},
		{"an error", says(400, "application/json",
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad luck"}}`), "-32600", "bad luck"},
		{"no JSON", says(200, "application/json", "{"), "protocol_error", "cannot be read"},
		{"no event of JSON", says(200, "text/event-stream", "data: {\n\n"), "protocol_error", "cannot be read"},
		{"deep JSON", says(200, "application/json", strings.Repeat("[", 1<<20)), "protocol_error", "cannot be read"},
		{
			"the answer to another question", says(200, "application/json", `{"jsonrpc":"2.0","id":4711,"result":{}}`),
			"protocol_error", "another question",
		},
		{"a stream without a result", says(200, "text/event-stream",
			"data: {\"jsonrpc\":\"2.0\",\"id\":4711,\"result\":{}}\n\n"), "crashed", "ended its answer before the result"},
		{"an answer that breaks off", func(w http.ResponseWriter, _ *http.Request, _ jsontext.Value) {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{")
		}, "unreachable", "cannot be reached"},
		{"no answer", func(_ http.ResponseWriter, r *http.Request, _ jsontext.Value) {
			<-r.Context().Done()
		}, "timeout", "no result and no progress"},
		{"a stream that stalls", func(w http.ResponseWriter, r *http.Request, _ jsontext.Value) {
			sendEvent(w, ": hello\n\n")
			<-r.Context().Done()
		}, "timeout", "no result and no progress"},
		{"endless JSON", endless("application/json", long), "protocol_error", "longer than 1048576 bytes"},
		{"an endless event", endless("text/event-stream", long), "protocol_error", "more than 1048576 bytes"},
		{
			"endless lines of an event", endless("text/event-stream", long+"\ndata: "), "protocol_error",
			"more than 1048576 bytes",
		},
		{"a flood", endless("text/event-stream",
			"\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\ndata: "), "timeout", "no result"},
		{"a huge header", func(w http.ResponseWriter, _ *http.Request, _ jsontext.Value) {
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		}, "unreachable", "cannot be reached"},
		{
			"a stream that never gets on", says(200, "text/event-stream", "id: 1\nretry: 1\ndata: \n\n"), "crashed",
			"the rest cannot be read: the server answers 405",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStrict(t)
			s.call = c.call
			var h *host
			b := mount(t, at(s.URL).Set("max_output", 1<<20), func(own *host) { h = own })
			b.Ready(t.Context(), model.Scope{})
			patient := h.desc.Timeout
			if c.code == "timeout" {
				h.desc.Timeout = 300 * time.Millisecond
			}
			b.fails(c.code, c.want)
			s.calls(nil)
			h.desc.Timeout = patient
			b.works()
		})
	}
}

// A server that is not there, or is none, at its start.
func TestServersThatAreNone(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		want   string
	}{
		{"the older transport", http.StatusMethodNotAllowed, "often ends in /sse"},
		{"another page", http.StatusNotFound, "is this the address of its MCP endpoint"},
		{"down", http.StatusServiceUnavailable, "503 Service Unavailable"},
		{"forbidden", http.StatusForbidden, "403 Forbidden"},
	} {
		s := newStrict(t)
		s.instead = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(c.status)
			return true
		}
		b := mount(t, at(s.URL))
		b.Ready(t.Context(), model.Scope{})
		if got := b.Servers(model.Scope{}); len(got) != 1 || got[0].State != model.ServerFailed ||
			!strings.Contains(got[0].Message, c.want) {
			t.Errorf("%s: got %+v, want that it says %q", c.name, got, c.want)
		}
	}
}

// An aborted call lets go of the server at once, and is told to it.
func TestAnAbortedCallOverHTTP(t *testing.T) {
	s := newStrict(t)
	arrived, left := make(chan struct{}), make(chan struct{})
	s.call = func(_ http.ResponseWriter, r *http.Request, _ jsontext.Value) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	}
	b := mount(t, at(s.URL))
	ctx, abort := context.WithCancel(t.Context())
	go func() {
		<-arrived
		abort()
	}()
	if r := b.Call(ctx, tooltest.Invocation("x.run", `{}`), nil); r.OK || r.Error.Code != "aborted" {
		t.Errorf("got %+v", r)
	}
	<-left
	testenv.Until(t, "that the server is told", func() bool { return s.times("notifications/cancelled") == 1 })
}

// Stopping does not wait for a server that does not answer.
func TestAServerThatHangsHoldsNobodyUp(t *testing.T) {
	defer func(was time.Duration) { byeTime = was }(byeTime)
	byeTime = time.Hour // which Close must not wait for
	s := newStrict(t)
	b := mount(t, at(s.URL))
	b.works()
	asked := make(chan struct{}, 1)
	s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-asked
		stop()
	}()
	b.Close(ctx)
}

// needs a login, says so, and works when somebody has logged in, without more.
func TestAServerThatWantsALogin(t *testing.T) {
	inner := newStrict(t)
	s := oauthtest.Start(t, inner)
	store := oauth.Open(t.TempDir())
	b := mount(t, at(s.Resource), func(h *host) { h.dialer.(*caller).logins, _ = store.Source(s.Resource) })
	state := func(want string) string {
		t.Helper()
		got := b.Servers(model.Scope{})
		if len(got) != 1 || got[0].State != want {
			t.Errorf("got %+v, want %s", got, want)
		}
		return got[0].Message
	}
	b.Ready(t.Context(), model.Scope{})
	if said := state(model.ServerNeedsLogin); !strings.Contains(said, `say "nous mcp login x"`) ||
		!strings.Contains(said, "header Authorization") {
		t.Errorf("it says %q", said)
	}
	login := func() {
		t.Helper()
		_, err := store.Login(t.Context(), oauth.Login{Server: s.Resource, Show: func(page string) {
			if _, err := oauthtest.Say(page); err != nil {
				t.Error(err)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 4 { // as often as it likes, it is not given up on
		b.Ready(t.Context(), model.Scope{})
	}
	login()
	b.works()
	state(model.ServerReady)
	s.Expire()
	b.works()
	s.Need("write")
	b.fails("needs_login", "the server asks for more rights: write")
	state(model.ServerNeedsLogin)
	login()
	b.works()
	s.End()
	b.fails("needs_login", "the login has ended")
	state(model.ServerNeedsLogin)
	login()
	b.works()
}

// A header of the user's own is not mixed with a login.
func TestAHeaderThatIsRefused(t *testing.T) {
	s := newStrict(t)
	s.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if got := r.Header.Get("Authorization"); got != "Bearer mine" {
			t.Errorf("sends %q", got)
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	b := mount(t, at(s.URL).Set("headers", map[string]string{"authorization": "Bearer mine"}))
	b.Ready(t.Context(), model.Scope{})
	if got := b.Servers(model.Scope{}); got[0].State != model.ServerNeedsLogin ||
		!strings.Contains(got[0].Message, "correct the header Authorization of x") {
		t.Errorf("got %+v", got)
	}
}

func TestNothingOfAnAddressIsRepeated(t *testing.T) {
	b := mount(t, at("http://127.0.0.1:1/mcp?key=secret-1"))
	if r := b.run(); r.OK || strings.Contains(r.Error.Message, "secret-1") {
		t.Errorf("got %+v", r.Error)
	}
}

// Long answers of many calls share the room of children's long lines: they wait for
// each other.
func TestLongAnswersShareTheirRoom(t *testing.T) {
	s := newStrict(t)
	s.calls(func(w http.ResponseWriter, _ *http.Request, id jsontext.Value) {
		s.send(w, id, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 1<<20)+`"}]}`)
	})
	b := mount(t, at(s.URL))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if r := b.run(); !r.OK {
				t.Errorf("got %+v", r.Error)
			}
		})
	}
	all.Wait()
}

// A server that is not there is one that cannot be reached, and the fault says why.
func TestAServerThatIsNotThere(t *testing.T) {
	s := newStrict(t)
	s.Close()
	b := mount(t, at(s.URL))
	b.fails("unreachable", "the server cannot be reached: dial tcp")
}
