package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	modelwire "noused/internal/model/wire"
	"noused/internal/protocol"
)

// listing is a server that has these models, and notes what it is asked.
type listing struct {
	*httptest.Server
	asked atomic.Int32
	key   atomic.Value // of the last request, "" where there was none
}

func newListing(t *testing.T, names ...string) *listing {
	t.Helper()
	l := &listing{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		l.key.Store(r.Header.Get("X-Api-Key") + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if r.URL.Path != "/v1/models" {
			t.Errorf("asked for %s", r.URL)
		}
		list := make([]string, len(names))
		for i, name := range names {
			list[i] = fmt.Sprintf(`{"id":%q}`, name)
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(list, ","))
	}))
	t.Cleanup(l.Close)
	return l
}

func environ(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func (c catalog) list(t *testing.T, probe bool) protocol.Models {
	t.Helper()
	a, err := c.handle(t.Context(), protocol.ListModelsParams{Probe: probe})
	if err == nil && a.Later != nil {
		a.Reply, err = a.Later(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return a.Reply
}

// A provider whose key is saved is configured, unless its key is a variable's.
func TestAProviderWithASavedKeyIsConfigured(t *testing.T) {
	for variable, want := range map[string]string{"": "config", "sk-ant": "environment"} {
		c := catalog{
			vendors: vendors{
				saved:  map[string]string{"anthropic": "sk-saved"},
				getenv: environ(map[string]string{"ANTHROPIC_API_KEY": variable}),
			},
			providers: func() []string { return nil },
		}
		got := c.list(t, false).Models
		i := slices.IndexFunc(got, func(m protocol.ListedModel) bool { return m.Provider == "anthropic" })
		if i < 0 || got[i].Source != want {
			t.Errorf("with the variable %q: got %+v, want its source %s", variable, got, want)
		}
	}
}

// What is configured is told without asking anybody; asked are, all at once,
// those that are known, with their keys, and this machine's, without any.
func TestListModels(t *testing.T) {
	own, other, local := newListing(t, "gpt-5", "gpt-6"), newListing(t, "claude"), newListing(t, "qwen3:8b")
	page := httptest.NewServer(http.NotFoundHandler()) // something else that is at a usual port
	defer page.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	base := strings.Replace(own.URL, "//", "//me:secret@", 1) + "/v1?token=secret"
	c := catalog{
		vendors: vendors{
			own: ModelConfig{Provider: "openai", Name: "gpt-5", BaseURL: base, APIKeyEnv: "MY_KEY"},
			getenv: environ(map[string]string{
				"MY_KEY": "sk-mine", "ANTHROPIC_API_KEY": "sk-ant",
				"ANTHROPIC_BASE_URL": other.URL, "OPENAI_API_KEY": "sk-openai", "OPENAI_BASE_URL": gone.URL,
			}),
		},
		providers: func() []string { return []string{"parrot"} },
		local: []string{
			local.URL + "/v1", page.URL + "/v1", gone.URL + "/v1",
			strings.Replace(own.URL, "127.0.0.1", "localhost", 1) + "/v1",
		},
	}
	known := []protocol.ListedModel{
		{
			Model: "openai/gpt-5", Provider: "openai", Name: "gpt-5", BaseURL: own.URL + "/v1", Source: "config", Default: true,
			KeyVariable: "MY_KEY",
		},
		{
			Model: "anthropic", Provider: "anthropic", BaseURL: other.URL, Source: "environment",
			KeyVariable: "ANTHROPIC_API_KEY",
		},
		{Model: "openai", Provider: "openai", BaseURL: gone.URL, Source: "environment", KeyVariable: "OPENAI_API_KEY"},
		{Model: "module/parrot", Provider: "module", Name: "parrot", Source: "module"},
		{Model: "offline", Provider: "offline", Name: "script", Source: "built-in"},
	}
	if diff := cmp.Diff(protocol.Models{Models: known}, c.list(t, false)); diff != "" {
		t.Errorf("without asking (-want +got):\n%s", diff)
	}
	if n := own.asked.Load() + other.asked.Load() + local.asked.Load(); n != 0 {
		t.Errorf("%d servers were asked", n)
	}

	got := c.list(t, true)
	told := func(provider, name, base string) protocol.ListedModel {
		return protocol.ListedModel{
			Model: provider + "/" + name, Provider: provider, Name: name, BaseURL: base,
			Source: "server", Reachable: new(true),
		}
	}
	known[0].Reachable, known[1].Reachable, known[2].Reachable = new(true), new(true), new(false)
	known[2].Problem = got.Models[4].Problem
	want := []protocol.ListedModel{
		known[0], told("openai", "gpt-6", own.URL+"/v1"), known[1], told("anthropic", "claude", other.URL), known[2],
		known[3], known[4],
		told("openai", "qwen3:8b", local.URL+"/v1"),
	}
	if diff := cmp.Diff(protocol.Models{Models: want}, got); diff != "" {
		t.Errorf("having asked (-want +got):\n%s", diff)
	}
	if problem := known[2].Problem; !strings.Contains(problem, "no answer: ") || !strings.Contains(problem, "refused") {
		t.Errorf("got the problem %q", problem)
	}
	if n := own.asked.Load(); n != 1 {
		t.Errorf("the daemon's own server was asked %d times, want once though it is on this machine", n)
	}
	for l, key := range map[*listing]string{own: "sk-mine", other: "sk-ant", local: ""} {
		if got := l.key.Load(); got != key {
			t.Errorf("a server got the key %q, want %q", got, key)
		}
	}
}

func TestListModelsProblems(t *testing.T) {
	many := make([]string, 250)
	for i := range many {
		many[i] = fmt.Sprintf("m%03d", i)
	}
	server := newListing(t, many...)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not with "+r.Header.Get("X-Api-Key"), http.StatusUnauthorized)
	}))
	defer refusing.Close()
	c := catalog{
		vendors: vendors{
			own:    ModelConfig{Provider: "openai", Name: "m24", BaseURL: server.URL + "/v1"},
			getenv: environ(map[string]string{"ANTHROPIC_API_KEY": "sk-ant", "ANTHROPIC_BASE_URL": refusing.URL}),
		},
		providers: func() []string { return nil },
	}
	got := c.list(t, true)
	if own := got.Models[0]; !*own.Reachable || own.Problem != "the server does not list m24, but m240, m241, m242" {
		t.Errorf("got %+v, want a name that is wrong and what it could be", own)
	}
	if told := len(got.Models); told != 1+maxListed+2 || !got.Truncated {
		t.Errorf("got %d models, truncated %t; want no more than %d of a server", told, got.Truncated, maxListed)
	}
	refused := got.Models[1+maxListed]
	if refused.Provider != "anthropic" || !*refused.Reachable ||
		!strings.HasSuffix(refused.Problem, ": 401 Unauthorized: not with [redacted]; "+
			"the key is ANTHROPIC_API_KEY in the daemon's environment: change it there, and restart the daemon") {
		t.Errorf("got %+v, want a server that refuses the key", refused)
	}

	c = catalog{
		vendors: vendors{own: ModelConfig{Provider: "module", Name: "parrot"}, getenv: environ(nil)},
		providers: func() []string {
			return nil
		},
	}
	if own := c.list(t, false).Models[0]; own.Model != "module/parrot" || own.Source != "config" || !own.Default ||
		!strings.Contains(own.Problem, "no tools directory") {
		t.Errorf("got %+v, want that its module is gone", own)
	}
	c.providers = func() []string { return []string{"other", "parrot"} }
	if got := c.list(t, false).Models; len(got) != 3 || got[0].Problem != "" || got[1].Model != "module/other" {
		t.Errorf("got %+v, want each once", got)
	}

	c = catalog{
		vendors: vendors{own: ModelConfig{Provider: "offline", Name: "script"}, getenv: environ(nil)},
		providers: func() []string {
			return nil
		},
	}
	want := protocol.Models{Models: []protocol.ListedModel{{
		Model: "offline", Provider: "offline", Name: "script",
		Source: "built-in", Default: true,
	}}}
	for _, probe := range []bool{false, true} {
		if diff := cmp.Diff(want, c.list(t, probe)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestListModelsWaitsForNobodyLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for guess, want := range map[bool]time.Duration{false: 10 * time.Second, true: 2 * time.Second} {
			k := known{server: endpoint{Options: modelwire.Options{Transport: silent{}}}, guess: guess}
			k.Provider = "openai"
			begin := time.Now()
			k.askServers(t.Context())
			if took := time.Since(begin); took != want || *k.Reachable || k.Problem != "no answer within "+want.String() {
				t.Errorf("got %+v after %s, want no answer within %s", k.ListedModel, took, want)
			}
		}
	})
}

// The daemon lists its model and, when told to, asks the servers. The connection
// goes on meanwhile.
func TestListModelsOfADaemon(t *testing.T) {
	asked, gone := make(chan struct{}, 2), make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer server.Close()
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("ANTHROPIC_API_KEY", "")
	t.Setenv("ANTHROPIC_BASE_URL", "")
	t.Setenv("OPENAI_BASE_URL", server.URL)
	d := newDaemon(t, "--model", "openai/gpt-5")
	w := d.commands()
	got := into[protocol.Models](t, w.request(`{"id":"1","type":"list_models"}`)).Models
	if len(got) != 2 || got[0].Model != "openai/gpt-5" || !got[0].Default || got[0].BaseURL != server.URL ||
		got[0].Reachable != nil || got[1].Model != "offline" {
		t.Errorf("got %+v, want the daemon's model, and offline", got)
	}
	w.send(`{"id":"2","type":"list_models","payload":{"probe":true}}`)
	<-asked
	if r := w.request(`{"id":"3","type":"ping"}`); r.ID != "3" {
		t.Errorf("got the reply to %s, want the connection to go on", r.ID)
	}
	_ = w.Close()
	<-gone
	r := d.commands().request(`{"id":"4","type":"list_models","payload":{"probe":"yes"}}`)
	if r.Error == nil || r.Error.Code != protocol.InvalidPayload || !strings.HasPrefix(r.Error.Message, "probe: ") {
		t.Errorf("got %+v, want the field that is wrong", r.Error)
	}
}
