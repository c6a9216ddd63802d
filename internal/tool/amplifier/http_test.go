package amplifier

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// listen serves h and returns the server's url.
func listen(t *testing.T, network string, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	url := ""
	if network == "unix" {
		dir, err := os.MkdirTemp("", "module") // t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		file := filepath.Join(dir, "s")
		s.Listener.Close()
		if s.Listener, err = net.Listen("unix", file); err != nil {
			t.Fatal(err)
		}
		url = "unix://" + file
	}
	s.Start()
	t.Cleanup(s.Close)
	if url == "" {
		url = s.URL
	}
	return url
}

// remoteAt describes a module over HTTP.
func remoteAt(t *testing.T, url string) tooltest.Descriptor {
	return fake(t, "").Set("transport", map[string]any{"type": "http", "url": url})
}

// serveFake mounts the fake as a module over HTTP.
func serveFake(t *testing.T, network string, adapt ...func(*host)) *bench {
	t.Helper()
	dir := t.TempDir()
	url := listen(t, network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var a asked
		if err != nil || json.Unmarshal(body, &a) != nil || r.Method != http.MethodPost ||
			r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		a.Method = path.Base(r.URL.Path)
		if a.Op == "fail" {
			w.WriteHeader(http.StatusNotFound)
		}
		io.WriteString(w, answer(dir, a, string(body)))
	}))
	b := mount(t, remoteAt(t, url), adapt...)
	b.workdir = dir
	return b
}

// scripted answers health and describe, and leaves invoke to f.
func scripted(f http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /base/health", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"status":"ok"}`)
	})
	mux.HandleFunc("POST /base/describe", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, described) })
	mux.HandleFunc("POST /base/invoke", f)
	return mux
}

func TestWhatAServerMayAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		code   string
		text   string
	}{
		{"success", 200, `{"ok":true,"result":"x"}`, "", "x"},
		{"another success", 201, `{"ok":true,"result":"x"}`, "", "x"},
		{"its own failure", 200, `{"ok":false,"error":{"code":"c","message":"m"}}`, "c", "m"},
		{"its own failure with a status", 422, `{"ok":false,"error":{"code":"c","message":"m"}}`, "c", "m"},
		{"a success that is none", 500, `{"ok":true,"result":"x"}`, tool.Internal, "500 Internal Server Error"},
		{"a failure without an error", 503, `{"ok":false}`, tool.Internal, "503 Service Unavailable"},
		{"a page", 404, "<html>nope", tool.Internal, "404 Not Found: <html>nope"},
		{"no JSON", 200, "nope", tool.Internal, "not a JSON object: nope"},
		{"not UTF-8", 200, "{\"ok\":\"\xff\"}", tool.Internal, "not UTF-8"},
		{"nothing", 200, "", tool.Internal, "not a JSON object"},
		{"an array", 200, "[]", tool.Internal, "not a JSON object: []"},
		{
			"too much", 200, `{"ok":true,"result":"` + strings.Repeat("x", 2000) + `"}`, tool.Internal,
			"longer than 1000 bytes",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := listen(t, "tcp", scripted(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			b := mount(t, remoteAt(t, url+"/base/").Set("max_output", 1000))
			r := b.call("text")
			if c.code != "" {
				b.fails(r, c.code, c.text)
			} else if !r.OK || r.Text != c.text {
				t.Errorf("got %+v, want %s", r, c.text)
			}
		})
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	followed := false
	elsewhere := listen(t, "tcp", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	url := listen(t, "tcp", scripted(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
	}))
	b := mount(t, remoteAt(t, url+"/base"))
	b.fails(b.call("text"), tool.Internal, "307 Temporary Redirect")
	if followed {
		t.Error("the redirect was followed")
	}
}

func TestAServerThatIsNotThereIsUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://me:secret@" + l.Addr().String()
	l.Close()
	for _, url := range []string{closed, "unix://" + filepath.Join(t.TempDir(), "none")} {
		b := mount(t, remoteAt(t, url))
		for range 5 { // it is not left alone as a process that crashes is
			r := b.call("text")
			b.fails(r, tool.Unreachable, "cannot reach the module: dial ")
			if strings.Contains(r.Text, "secret") {
				t.Errorf("got %q", r.Text)
			}
		}
	}
	plain := listen(t, "tcp", http.NotFoundHandler())
	b := mount(t, remoteAt(t, strings.Replace(plain, "http:", "https:", 1)))
	b.fails(b.call("text"), tool.Unreachable)
}

func TestAServerThatBreaksOffIsToldFromOneThatIsNotThere(t *testing.T) {
	url := listen(t, "tcp", scripted(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"ok":`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	b := mount(t, remoteAt(t, url+"/base"))
	b.fails(b.call("text"), tool.Internal, "cannot be read")
}

func TestAServerNoticesThatItsCallIsGivenUp(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		called, gone := make(chan struct{}), make(chan struct{})
		b := mount(t, remoteAt(t, listen(t, network, hanging(func(r *http.Request) {
			close(called)
			<-r.Context().Done()
			close(gone)
		}))))
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan model.ToolResult, 1)
		go func() { result <- b.host.Call(ctx, "text", tooltest.Invocation("x.text", `{}`), nil) }()
		<-called
		cancel()
		b.fails(<-result, tool.Aborted)
		<-gone
	}
}

func TestAServerThatTakesTooLongTimesOut(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		b := mount(t, remoteAt(t, listen(t, network, hanging(func(r *http.Request) {
			<-r.Context().Done()
		}))).Set("timeout", "100ms"))
		for range 2 {
			b.fails(b.call("text"), tool.Timeout, "no result within 100ms")
		}
	}
}

// hanging is well, and does not answer a call.
func hanging(f func(*http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/base" + r.URL.Path
		scripted(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // the connection is watched after that
			f(r)
		}).ServeHTTP(w, r)
	})
}

func TestNoMoreCallsAreInFlightThanTheDescriptorSays(t *testing.T) {
	var mu sync.Mutex
	inFlight, most := 0, 0
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	url := listen(t, "tcp", scripted(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		entered <- struct{}{}
		<-leave
		mu.Lock()
		inFlight--
		mu.Unlock()
		io.WriteString(w, `{"ok":true}`)
	}))
	b := mount(t, remoteAt(t, url+"/base").Set("concurrency", 3))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r := b.call("text"); !r.OK {
				t.Errorf("got %+v", r)
			}
		})
	}
	for range 3 {
		<-entered
	}
	close(leave)
	wg.Wait()
	if most != 3 {
		t.Errorf("got %d calls in flight, want 3", most)
	}
}

func TestAModuleThatDoesNotDescribeItselfHasItsDescriptor(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"status":"ok"}`) })
	mux.HandleFunc("/invoke", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"ok":true,"result":"hi"}`)
	})
	url := listen(t, "tcp", mux)
	b := mount(t, remoteAt(t, url).Set("operations", map[string]any{"hi": map[string]any{"description": "says hi"}}))
	if list := b.List(t.Context(), model.Scope{}); len(list) != 1 || !list[0].Healthy || list[0].Name != "x.hi" ||
		list[0].Description != "says hi" {
		t.Errorf("got %+v", list)
	}
	b = mount(t, remoteAt(t, url))
	if list := b.List(t.Context(), model.Scope{}); len(list) != 1 || list[0].Healthy ||
		!strings.Contains(list[0].Problem, "describe: the module answered 404") {
		t.Errorf("got %+v, want it unhealthy", list)
	}
}
