package mcp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"noused/internal/model"
)

// The headers of a server go through no proxy that could read them.
func TestHeadersGoThroughNoProxyThatReadsThem(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	to, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := func(h *host) { h.dialer.(*caller).proxy = http.ProxyURL(to) }
	s := newStrict(t)
	b := mount(t, at(s.URL).Set("headers", map[string]string{"X-Key": "secret-1"}), through)
	b.works()
	if asked.Load() > 0 {
		t.Error("the proxy has read a header")
	}
	b = mount(t, at(s.URL), through)
	b.Ready(t.Context(), model.Scope{})
	if asked.Load() == 0 {
		t.Error("a request without a secret did not take the proxy")
	}
	s.Close()
	b = mount(t, at(s.URL).Set("headers", map[string]string{"X-Key": "secret-1"}), through)
	b.fails("unreachable", "HTTP_PROXY is not used for it, as the proxy could read its headers: use https")
}
