package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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
	s, slow, _ = setsUpWith(t, "")
	return s, slow
}

// oursFound is the configuration of an agent that is on this machine.
const oursFound = "[agent.ours]\ncommand = [\"/bin/true\"]\n"

// setsUpWith is setsUp with more in config.toml; it returns the server's address, too.
func setsUpWith(t *testing.T, config string) (s *screen, slow chan bool, address string) {
	t.Helper()
	return setsUpBy(t, config, "setup")
}

// setsUpBy is setsUpWith by another command line.
func setsUpBy(t *testing.T, config string, args ...string) (s *screen, slow chan bool, address string) {
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
	d := daemontest.New(t, program(t, "noused"), "[providers.openai]\nbase_url = \""+models.URL+"/v1\"\n"+config)
	d.Modelless, d.Args = true, nil // it reads the file that nous setup writes
	own := filepath.Join(d.Dir, "config", "noused", "config.toml")
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(d.Dir, "noused.toml"), own); err != nil {
		t.Fatal(err)
	}
	d.Start()
	cmd := exec.Command("nous", args...)
	cmd.Dir, cmd.Env = d.Dir, d.Env()
	return &screen{tuitest.Start(t, cmd, 100, 40, false), t, d}, slow, models.URL
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

// Why nothing was chosen is read on the screen: what nous setup says stands behind it.
func TestTheScreenSaysWhySetupHasFailed(t *testing.T) {
	begin := func() *screen {
		s, _, _ := setsUpBy(t, "")
		s.Wait("connected")
		s.Type("\r")
		s.Wait("Provider? [anthropic]")
		s.Type("openai\r")
		return s
	}
	s := begin()
	s.Wait("Key of openai (it is not shown):")
	s.Type("sk-bad key\r")
	s.Wait("no model was chosen: the key has a space", "/setup asks again")

	s = begin() // on another terminal: what was asked before is still behind the first one
	for i := range maxKeys {
		s.WaitFor("the question for a key", func(screen string) bool { return strings.Count(screen, "Key of openai") == i+1 })
		s.Type("sk-wrong\r")
	}
	s.Wait("no model was chosen: openai does not take this key")
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

// Who has an agent needs no key: it is in the list, and answers in new sessions.
func TestSetupChoosesAnAgent(t *testing.T) {
	s, _, _ := setsUpWith(t, oursFound)
	s.Wait("ours", "an agent on this machine, with its own login", "other", "its URL is asked for", "Provider? [ours]")
	s.Type("ourz\r")
	s.Wait(`there is no provider or agent "ourz", did you mean ours?`, "Provider? [ours]")
	s.Type("1\r")
	s.Wait("ours answers in new sessions now")
	cmd := exec.Command("nous", "agents")
	cmd.Env = s.d.Env()
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ours (default)") {
		t.Errorf("nous agents says: %v\n%s", err, out)
	}
}

// A server of one's own is tried before it is kept, and the next URL is asked for.
func TestSetupTakesAServerOfOnesOwn(t *testing.T) {
	s, _, address := setsUpWith(t, oursFound)
	s.Wait("Provider? [ours]")
	s.Type("other\r")
	s.Wait("Its URL, as http://box:8000/v1:")
	s.Type("http://localhost:1\r")
	s.Wait("does not answer as a server of models", "Its URL, as http://box:8000/v1:")
	s.Type(strings.Replace(address, "127.0.0.1", "localhost", 1) + "\r")
	s.Wait("(it is not shown):")
	s.Type("sk-secret\r")
	s.Wait("the key works", "Model? [gpt-6.1-sol]")
	s.Type("gpt-5\r")
	s.Wait("/gpt-5 answers now")
	text, err := os.ReadFile(filepath.Join(s.d.Dir, "config", "noused", "config.toml"))
	if err != nil || strings.Count(string(text), "[providers.localhost-") != 1 ||
		strings.Contains(string(text), `"http://localhost:1/v1"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// Without a terminal nous setup URL makes a provider of the server, and what it is asked for
// is no agent any more.
func TestSetupOfAServerInAScript(t *testing.T) {
	s, _, address := setsUpWith(t, oursFound)
	s.Wait("Provider? [ours]")
	s.Type("ours\r")
	s.Wait("ours answers in new sessions now")
	cmd := exec.Command("nous", "setup", address)
	cmd.Dir, cmd.Env, cmd.Stdin = s.d.Dir, s.d.Env(), strings.NewReader("sk-secret\n")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "/gpt-6.1-sol answers now") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(s.d.Dir, "config", "noused", "config.toml"))
	if err != nil || !strings.Contains(string(text), `# default_agent = "ours"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// An agent that only this shell finds is told from one that is missing.
func TestSetupOfAnAgentThatTheDaemonDoesNotFind(t *testing.T) {
	testenv.Long(t)
	d := daemontest.Start(t, program(t, "noused"), "")
	bin := filepath.Join(d.Dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "codex-acp"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/usr/bin:/bin": "it is not in the daemon's PATH; install it with: npm install -g ",
		bin + ":/bin":   "is in the PATH of this shell, and not in the daemon's: nous stop, then nous setup codex starts",
	} {
		cmd := exec.Command(program(t, "nous"), "setup", "codex")
		cmd.Dir, cmd.Env = d.Dir, d.Env("PATH="+path)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("PATH=%s: got %v\n%s", path, err, out)
		}
	}
}
