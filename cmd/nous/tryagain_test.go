package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/model/modeltest"
)

// stubProvider is a server of a model, and a daemon that asks it.
func stubProvider(t *testing.T, answer http.HandlerFunc) *daemontest.Daemon {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	d := newDaemon(t, fmt.Sprintf("[model]\nprovider = \"openai\"\nname = \"stub\"\nbase_url = %q\n", server.URL))
	d.Start()
	return d
}

func login(t *testing.T, d *daemontest.Daemon, key string) {
	t.Helper()
	cmd := exec.Command(program(t, "nous"), "login", "openai")
	cmd.Dir, cmd.Env, cmd.Stdin = d.Dir, d.Env(), strings.NewReader(key+"\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nous login: %v\n%s", err, out)
	}
}

// A run that was refused for its key is tried again with one key of the screen, once nous login
// has saved another.
func TestEnterTriesARefusedRunAgain(t *testing.T) {
	t.Parallel()
	var key atomic.Value
	key.Store("sk-first")
	d := stubProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`)
			return
		}
		fmt.Fprint(w, modeltest.Events(pictureStep{text: "Here is the answer."}.events(10)...))
	})
	login(t, d, "sk-first")
	s := openScreen(t, d, look{})
	s.say("first")
	s.Wait("Here is the answer.", "idle")
	if strings.Contains(s.Screen(), "tries it again") {
		t.Error("what went well is offered again")
	}
	key.Store("sk-second")
	s.say("what now?")
	s.Wait("the run failed", "nous login openai saves another key; Enter tries it again")
	s.Press("enter")
	s.WaitFor("two refusals", func(screen string) bool { return strings.Count(screen, "the run failed") == 2 })
	login(t, d, "sk-second")
	s.Wait("Enter tries it again")
	s.Press("enter")
	s.WaitFor("the answer", func(screen string) bool { return strings.Count(screen, "Here is the answer.") == 2 })
	s.WaitGone("Enter tries it again")
	if n := strings.Count(s.Screen(), "what now?"); n != 3 {
		t.Errorf("the text was sent %d times, want 3", n)
	}
}

// While a provider is asked again one line counts down to the next try.
func TestOneLineCountsDownToTheNextTry(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	waits := []string{"3"}
	d := stubProvider(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost && len(waits) > 0 {
			w.Header().Set("Retry-After", waits[0])
			waits = waits[1:]
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, modeltest.Events(pictureStep{text: "Here is the answer."}.events(10)...))
	})
	login(t, d, "sk-key")
	s := openScreen(t, d, look{})
	s.say("hello")
	for _, left := range []string{"3", "2", "1"} {
		s.Wait("retrying in " + left + " s (2 of ")
		if n := strings.Count(s.Screen(), "retrying"); n != 1 {
			t.Errorf("%d lines are about a retry:\n%s", n, s.Screen())
		}
	}
	s.Wait("Here is the answer.")
	s.WaitGone("retrying")
}
