package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/testenv"
	"noused/internal/tui/tuitest"
)

// setsUp runs nous setup on a terminal, for a daemon whose OpenAI is a server that takes
// any key.
func setsUp(t *testing.T) *screen {
	t.Helper()
	testenv.Long(t)
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			http.Error(w, "no key", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"gpt-6.1-sol"},{"id":"gpt-5"}]}`)
	}))
	t.Cleanup(models.Close)
	d := daemontest.New(t, program(t, "noused"), "[providers.openai]\nbase_url = \""+models.URL+"/v1\"\n")
	d.Modelless = true
	d.Start()
	cmd := exec.Command("nous", "setup")
	cmd.Dir, cmd.Env = d.Dir, d.Env()
	return &screen{tuitest.Start(t, cmd, 100, 40, false), t, d}
}

// A newcomer chooses a provider, pastes a key that nobody sees, and takes the first model.
func TestSetupOnATerminal(t *testing.T) {
	s := setsUp(t)
	s.Wait("Provider? [anthropic]")
	s.Type("99\r")
	s.Wait("write a number from 1 to 15, or a name")
	s.Type("openai\r")
	s.Wait("Key of openai (it is not shown):")
	s.Type("sk-secret\r")
	s.Wait("the key works", "1  gpt-6.1-sol", "$2 in, $10 out for a million", "2  gpt-5", "Model? [gpt-6.1-sol]")
	s.Type("\r")
	s.Wait("openai/gpt-6.1-sol answers now")
	if text := s.Output(); strings.Contains(text, "secret") {
		t.Errorf("the key is shown:\n%s", text)
	}
}

// Who interrupts it at the key has a terminal that shows again what is written.
func TestAnInterruptedSetupGivesTheTerminalBack(t *testing.T) {
	s := setsUp(t)
	s.Wait("Provider? [anthropic]")
	s.Type("openai\r")
	s.Wait("Key of openai (it is not shown):")
	s.Type("\x03")
	if status := s.Exit(); status != exitLeft {
		t.Errorf("got exit status %d, want %d", status, exitLeft)
	}
	if !s.Cooked() {
		t.Error("the terminal does not show what is written")
	}
}
