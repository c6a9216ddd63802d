package wire_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// through has every request of the test that may take a proxy take this one.
func through(t *testing.T, proxy string) {
	t.Helper()
	to, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport)
	was := transport.Proxy
	transport.Proxy = http.ProxyURL(to)
	t.Cleanup(func() { transport.Proxy = was })
}

func TestAKeyGoesThroughNoProxyThatCanReadIt(t *testing.T) {
	proxied := make(chan string, 2)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied <- r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer proxy.Close()
	through(t, proxy.URL)
	for _, d := range dialects {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(http.StatusBadRequest)
		}))
		for _, key := range []string{key, ""} {
			p, err := d.make(wire.Options{BaseURL: server.URL, Model: "m", APIKey: key})
			if err != nil {
				t.Fatal(err)
			}
			for range p.Stream(t.Context(), model.Request{}) {
			}
			p.Close()
		}
		server.Close()
		if asked != 1 {
			t.Errorf("%s: the server was asked %d times without the proxy, want once, with the key", d.name, asked)
		}
		if got := <-proxied; got != "" {
			t.Errorf("%s: the proxy got the key %q", d.name, got)
		}
	}
}

func TestAnAddressWithoutItsVersionIsNamed(t *testing.T) {
	for _, c := range []struct {
		dialect     int
		path, body  string
		status      int
		wantsAdvice bool
	}{
		{0, "", "404 page not found", 404, true},
		{0, "/api", `{"error":{"message":"no such path"}}`, 404, true},
		{0, "", "<html><title>A chat</title>", 200, true},
		{0, "/v1", `{"error":{"message":"no such model"}}`, 404, false},
		{0, "/v1beta/openai", "not found", 404, false},
		{0, "", `{"error":{"message":"wrong key"}}`, 401, false},
		{1, "", "not found", 404, false},
	} {
		server := httptest.NewServer(refuses(c.status, "text/html", c.body))
		p, err := dialects[c.dialect].make(wire.Options{BaseURL: server.URL + c.path, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		var problem string
		for _, err := range p.Stream(t.Context(), model.Request{}) {
			if err != nil {
				problem = err.Error()
			}
		}
		p.Close()
		server.Close()
		advice := "base_url commonly ends in /v1, as in " + server.URL + "/v1"
		if problem == "" || strings.Contains(problem, advice) != c.wantsAdvice {
			t.Errorf("%+v: got %q", c, problem)
		}
	}
}
