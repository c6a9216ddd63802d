package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/model/credentials"
	"noused/internal/testenv"
	"noused/internal/tui/tuitest"
)

// setsUp runs nous setup on a terminal, for a daemon whose OpenAI is a server that takes
// any key but a wrong one, and gives no answer to a slow one.
func setsUp(t *testing.T) (s *screen, slow chan bool) {
	t.Helper()
	testenv.Long(t)
	slow = make(chan bool, 1) // has a value once the server is asked with a slow key
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch key := r.Header.Get("Authorization"); {
		case key == "" || strings.Contains(key, "wrong"):
			http.Error(w, "no such key", http.StatusUnauthorized)
			return
		case strings.Contains(key, "slow"):
			slow <- true
			<-r.Context().Done()
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
	return &screen{tuitest.Start(t, cmd, 100, 40, false), t, d}, slow
}

// A newcomer chooses a provider, pastes a key that nobody sees, and takes the first model.
func TestSetupOnATerminal(t *testing.T) {
	s, _ := setsUp(t)
	s.Wait("Provider? [anthropic]")
	s.Type("99\r")
	s.Wait("write a number from 1 to 15, or a name")
	s.Type("openai\r")
	s.Wait("Key of openai (it is not shown):")
	s.Type("sk-wrong-secret\r")
	s.Wait("openai does not take this key", "the key is not kept; copy it again", "Key of openai (it is not shown):")
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
	s, _ := setsUp(t)
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

// A key that nobody waits for any more leaves the one that was saved before.
func TestAnInterruptedTryKeepsTheKeyThatWasThere(t *testing.T) {
	s, slow := setsUp(t)
	s.Wait("Provider? [anthropic]")
	dir := filepath.Join(s.d.Dir, "config", "noused")
	if err := credentials.Save(dir, "openai", "sk-before"); err != nil {
		t.Fatal(err)
	}
	s.Type("openai\r")
	s.Wait("Key of openai (it is not shown):")
	s.Type("sk-slow\r")
	<-slow
	s.Type("\x03")
	if status := s.Exit(); status != exitLeft {
		t.Errorf("got exit status %d, want %d", status, exitLeft)
	}
	if keys, err := credentials.Read(dir); err != nil || keys["openai"] != "sk-before" {
		t.Errorf("got %v, %v, want the key that was there before", keys, err)
	}
}
