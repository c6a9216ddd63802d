package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debugGet has sayCommand ask a debug socket for its variables.
func debugGet(socket string) []string {
	return []string{sayCommand, socket, "GET /debug/vars HTTP/1.0\n"}
}

func TestDebugSocket(t *testing.T) {
	d := unstarted(t, "noused")
	dir := filepath.Join(d.Dir, "debug") // the daemon makes it
	socket := filepath.Join(dir, "d")
	d.Args = []string{"--debug-socket", socket}
	d.Start()
	for path, want := range map[string]os.FileMode{dir: os.ModeDir | 0o700, socket: os.ModeSocket | 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v, want mode %v", path, info, err, want)
		}
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string,
	) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for page, want := range map[string]string{
		"/debug/vars":                    `"goroutines": `,
		"/debug/pprof/":                  "goroutine?debug=1",
		"/debug/pprof/goroutine?debug=1": "goroutine profile: total ",
		"/debug/pprof/heap":              "\x1f\x8b", // gzip
	} {
		r, err := web.Get("http://noused" + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: got %s, %v, %.200q, want %q", page, r.Status, err, text, want)
		}
	}
	// A program outside the sandbox could learn there what it must not.
	const ok = "HTTP/1.0 200 OK"
	ask := debugGet(socket)
	if said, err := exec.Command(ask[0], ask[1:]...).Output(); err != nil || !strings.Contains(string(said), ok) {
		t.Errorf("a program of the user's: got %q, %v, want %s", said, err, ok)
	}
	c := d.dial()
	session := d.session(d.Dir)
	for way, command := range map[string]string{"itself": words(ask), "detached": detached(words(ask))} {
		end := d.answers(c, d.asks(c, session, outside("cd "+shellWord(d.Dir)+"; "+command+"; echo asked")), "once")
		if strings.Contains(end.Result, "HTTP/") || !strings.Contains(end.Result, "asked") {
			t.Errorf("a tool, %s: got %s %v, want no answer", way, end.Result, end.Error)
		}
	}
	d.Stop()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("after the stop: got %v, want no socket", err)
	}
}

func words(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = shellWord(arg)
	}
	return strings.Join(quoted, " ")
}
