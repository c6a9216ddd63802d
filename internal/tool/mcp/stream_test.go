package mcp

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/testenv"
)

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { http.Error(w, "Cannot "+r.Method+" "+r.URL.Path, code) }
}

// once sees that calls go well, over one session, which is ended.
func (b *bench) once(s *strict) {
	b.t.Helper()
	b.works()
	b.works()
	b.Close(context.Background())
	if s.times("initialize") != 1 || s.open() != 0 {
		b.t.Errorf("asked %v, and %d sessions are left open; want one that is ended", s.asked, s.open())
	}
}

// Servers have many ways to say that there is nothing to hear: none of them ends the session.
func TestAServerWithNothingToHear(t *testing.T) {
	for _, code := range []int{400, 404, 405, 406, 501} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := newStrict(t)
			s.get = status(code)
			mount(t, at(s.URL)).once(s)
		})
	}
}

// One that had something to say, and has no stream any more, has ended the session.
func TestASessionThatEndsBesideItsStream(t *testing.T) {
	short(t)
	s := newStrict(t)
	ready := make(chan struct{})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		if s.times("GET") == 2 {
			s.forget()
			status(http.StatusNotFound)(w, r)
			return
		}
		sendEvent(w, ": hello\n\n")
		select {
		case <-ready:
		case <-r.Context().Done():
		}
	}
	var h *host
	b := mount(t, at(s.URL), func(own *host) { h = own })
	b.works()
	close(ready)
	testenv.Until(t, "that nobody takes the session any more", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.link == nil && s.times("GET") > 1
	})
	b.works()
	if n := s.times("unknown session POST") + s.times("unknown session DELETE"); n > 0 {
		t.Errorf("asked %v", s.asked)
	}
}

// short has a stream taken up again at once.
func short(t *testing.T) {
	was := firstWait
	firstWait = time.Millisecond
	t.Cleanup(func() { firstWait = was })
}

// What a server, or what stands before it, says for a moment is not for good, and neither
// is one message that cannot be read.
func TestTheServersStreamIsTakenUpAgain(t *testing.T) {
	short(t)
	s := newStrict(t)
	event := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { sendEvent(w, "data: "+text+"\n\n") }
	}
	rain := event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"it rains"}}`)
	steps := []func(http.ResponseWriter, *http.Request){
		status(503), rain, status(502), status(429), status(409), event("{"), rain,
	}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		if n := s.times("GET"); n <= len(steps) {
			steps[n-1](w, r)
			return
		}
		sendEvent(w, ": nothing more\n\n")
		<-r.Context().Done()
	}
	b := mount(t, at(s.URL))
	b.Ready(t.Context(), model.Scope{}) // what is said beside a call is that call's
	testenv.Until(t, "that it rains twice", func() bool { return b.logged.FilterMessage("server says").Len() == 2 })
	b.once(s)
}

// A server that has prompts and does not say which is used for its tools, over the
// session that it has.
func TestPromptsThatCannotBeListed(t *testing.T) {
	for name, says := range map[string]func(http.ResponseWriter, *http.Request){
		"400": status(400), "404": status(404), "405": status(405), "500": status(500),
		"nothing": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStrict(t)
			s.prompts = says
			mount(t, at(s.URL)).once(s)
		})
	}
}

// A session that ends before the server has said all it can do is a failure as any other: it
// is not made anew without end.
func TestASessionThatEndsAsItBegins(t *testing.T) {
	short(t)
	s := newStrict(t)
	s.lenient.Store(true)
	asked := make(chan struct{})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		if s.times("GET") > 1 {
			status(http.StatusNotFound)(w, r)
			return
		}
		sendEvent(w, ": hello\n\n")
		select {
		case <-asked:
		case <-r.Context().Done():
		}
	}
	s.prompts = func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}
	s.instead = func(w http.ResponseWriter, r *http.Request) bool {
		again := r.Header.Get("Mcp-Method") == "initialize" && s.times("initialize") > 0
		if again {
			status(http.StatusTeapot)(w, r)
		}
		return again
	}
	mount(t, at(s.URL)).fails("unreachable", "the server has ended the session")
}
