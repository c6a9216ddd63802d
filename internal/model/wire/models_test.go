package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"noused/internal/model/wire"
)

func TestModels(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		long := strings.Repeat("m", 201)
		for name, c := range map[string]struct {
			answer  http.HandlerFunc
			want    []string
			problem string
			status  int
		}{
			"a list": {
				tells(
					`{"object":"list","data":[{"id":"b","object":"model"},{"id":"a/c:8b","owned_by":"x"},{"id":"b"}],"has_more":false}`), []string{"a/c:8b", "b"}, "", 0,
			},
			"an array": {tells(`[{"id":"b"},{"id":"a"}]`), []string{"a", "b"}, "", 0},
			"none":     {tells(`{"data":[]}`), []string{}, "", 0},
			"what is no name": {
				tells(`{"data":[{"id":"a"},{"id":""},{"id":null},{},{"id":"x\u001b[2J"},{"id":"x\ny"},{"id":" x"},{"id":"` + long +
					`"},{"id":"` + key + `"}]}`), []string{"a"}, "", 0,
			},
			"too many": {tells(`[` + strings.Repeat(`{"id":"a"},`, 5000) + `{"id":"b"}]`), []string{"a"}, "", 0},
			"too much": {tells(strings.Repeat(" ", 4<<20) + `[]`), nil, "its list of models is longer than 4 MiB", 0},
			"a web page": {
				refuses(200, "text/html", "<html><title>Log in</title>"), nil,
				`200 OK: an answer that is no list of models: a web page, "Log in"`, 200,
			},
			"an error as 200": {
				tells(`{"error":{"message":"no credits, ` + key + `"}}`), nil,
				"an answer that is no list of models: no credits, [redacted]", 200,
			},
			"another object": {tells(`{"models":[]}`), nil, "an answer that is no list of models", 200},
			"another list":   {tells(`{"data":["a"]}`), nil, "an answer that is no list of models", 200},
			"nothing":        {tells(``), nil, "an answer that is no list of models", 200},
			"a wrong key": {
				refuses(401, "application/json", `{"error":{"message":"wrong key: `+key+`"}}`), nil,
				"401 Unauthorized: wrong key: [redacted]", 401,
			},
			"no such path":   {refuses(404, "", ""), nil, "404 Not Found", 404},
			"out of order":   {refuses(503, "text/plain", key), nil, "503 Service Unavailable: [redacted]", 503},
			"half an answer": {halfAnswer, nil, "no answer: unexpected EOF", 0},
			"the line is dead": {func(http.ResponseWriter, *http.Request) {
				panic(http.ErrAbortHandler)
			}, nil, "no answer: EOF", 0},
			"a redirect": {func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://elsewhere.test/?key="+key, http.StatusFound)
			}, nil, "302 Found: redirects are not followed", 302},
		} {
			t.Run(name, func(t *testing.T) {
				var asked atomic.Int32
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					if r.Method != http.MethodGet || r.RequestURI != d.listed {
						t.Errorf("got %s %s, want GET %s", r.Method, r.RequestURI, d.listed)
					}
					if h := r.Header; h.Get("Authorization") != "Bearer "+key &&
						(h.Get("X-Api-Key") != key || h.Get("Anthropic-Version") == "") {
						t.Errorf("got the headers %v, want the key in them", h)
					}
					c.answer(w, r)
				}))
				defer server.Close()
				got, err := d.list(t.Context(), wire.Options{BaseURL: server.URL + "/v1", APIKey: key})
				if !slices.Equal(wire.NamesOf(got), c.want) || (err != nil) != (c.problem != "") || asked.Load() != 1 {
					t.Fatalf("got %.200q, %v, asked %d times; want %q, once", wire.NamesOf(got), err, asked.Load(), c.want)
				}
				if err == nil {
					return
				}
				var e *wire.Error
				if !errors.As(err, &e) || e.Status != c.status {
					t.Errorf("got %#v, want a *wire.Error of status %d", err, c.status)
				}
				if text := err.Error(); !strings.Contains(text, c.problem) || strings.Contains(text, "sk-test") ||
					!strings.HasPrefix(text, strings.TrimPrefix(server.URL, "http://")) {
					t.Errorf("got the error %v, want one of the host with %q", err, c.problem)
				}
			})
		}
	})
}

func tells(body string) http.HandlerFunc { return refuses(200, "application/json", body) }

func halfAnswer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "99")
	fmt.Fprint(w, `{"data":[`)
}

func TestModelsOfAddressWithQuery(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			if r.URL.Path != "/v1/models" || r.FormValue("version") != "2" || user != "me" || password != "secret" {
				t.Errorf("got %s %s of %s", r.URL, password, user)
			}
			tells(`[]`)(w, r)
		}))
		defer server.Close()
		base := strings.Replace(server.URL, "//", "//me:secret@", 1) + "/v1/?version=2"
		if _, err := d.list(t.Context(), wire.Options{BaseURL: base}); err != nil {
			t.Error(err)
		}
		if got := wire.Address(base); got != server.URL+"/v1/" {
			t.Errorf("got the address %s, want nothing secret in it", got)
		}
		if _, err := d.list(t.Context(), wire.Options{BaseURL: "ftp://x"}); err == nil ||
			!strings.HasPrefix(err.Error(), "base_url must") {
			t.Errorf("got %v, want the option that is wrong", err)
		}
	})
}

// Who asks says for how long, in whatever the server is slow.
func TestModelsOfSlowServer(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for name, begin := range map[string]string{"headers": "", "body": `{"data":[`} {
			t.Run(name, func(t *testing.T) {
				enough := errors.New("that is long enough")
				ctx, cancel := context.WithCancelCause(t.Context())
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if begin != "" {
						write(w, begin)
					}
					cancel(enough)
					<-r.Context().Done()
				}))
				defer server.Close()
				if got, err := d.list(ctx, wire.Options{BaseURL: server.URL}); got != nil || err != enough {
					t.Errorf("got %v, %v; want %v", got, err, enough)
				}
			})
		}
	})
}

func TestLists(t *testing.T) {
	names := []string{
		"claude-3-5-haiku-20241022", "claude-opus-4-1-20250805", "gpt-5", "gpt-5-mini", "llama3:70b",
		"models/gemini-2.5-pro", "qwen3:latest",
	}
	for name, want := range map[string]bool{
		"gpt-5": true, "gpt-5-mini": true, "gpt": false, "gpt-5-2025": false, "": false,
		"claude-opus-4-1": true, "claude-opus-4-1-20250805": true, "claude-opus-4-1-20250101": false,
		"claude-3-5-haiku-latest": true, "claude-3-5-haiku": true, "claude-opus-4": false,
		"gemini-2.5-pro": true, "models/gemini-2.5-pro": true, "gemini-2.5": false,
		"qwen3": true, "qwen3:latest": true, "qwen3:8b": false, "llama3": false, "llama3:70b": true,
	} {
		if got := wire.Lists(names, name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"gpt5": "gpt-5", "lama3:70b": "llama3:70b", "claude-opus-4-1-20250508": "claude-opus-4-1-20250805",
		"gemini-2.5-pr": "models/gemini-2.5-pro",
	} {
		if got := wire.Nearest(names, name); len(got) != 3 || got[0] != want {
			t.Errorf("%q: got %q, want %s first of three", name, got, want)
		}
	}
	if got := wire.Nearest([]string{"a"}, "b"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q, want the only one", got)
	}
	if got := wire.Nearest(nil, "b"); len(got) != 0 {
		t.Errorf("got %q, want none", got)
	}
}
