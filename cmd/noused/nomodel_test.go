package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noused/internal/client"
	"noused/internal/model"
	"noused/internal/model/credentials"
	"noused/internal/protocol"
)

// chatStub is a server that speaks chat completions. A prompt with "wait-for-me" in it is never
// answered; asked has a value for each request, with its key.
func chatStub(t *testing.T) (url string, asked chan string) {
	t.Helper()
	asked = make(chan string, 16)
	hangs := true
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		asked <- r.Header.Get("Authorization")
		if hangs && strings.Contains(string(body), "wait-for-me") {
			hangs = false
			<-r.Context().Done()
			return
		}
		sse(w, `{"choices":[{"delta":{"content":"I am real."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
			"[DONE]")
	}))
	t.Cleanup(stub.Close)
	return stub.URL, asked
}

// reload has the daemon read everything again, and returns what is wrong.
func (d *daemon) reload() []string {
	d.t.Helper()
	r, err := client.Call(context.Background(), d.dial(), protocol.ReloadTools, protocol.ReloadToolsParams{})
	if err != nil {
		d.t.Fatal(err)
	}
	return r.Errors
}

// A newcomer's daemon has no model, and says so; a key and nothing else gives it one, without a
// restart.
func TestAKeyGivesTheDaemonAModel(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"} {
		t.Setenv(name, "")
	}
	url, asked := chatStub(t)
	d := unstarted(t, "noused")
	d.Modelless = true
	d.Start()
	_, err := d.answered("hello")
	if err == nil || !strings.Contains(err.Error(), "command_rejected: no_model: no model is chosen: nous setup") {
		t.Fatalf("without a model: %v", err)
	}
	if m := d.now(t).Model; m.Provider != "" || m.Name != "" {
		t.Errorf("get_state names the model %+v", m)
	}
	d.write("noused/environment", "# mine\nOPENAI_BASE_URL="+url+"\n", 0o600)
	if err := credentials.Save(filepath.Join(d.Dir, "noused"), "openai", "sk-test"); err != nil {
		t.Fatal(err)
	}
	if wrong := d.reload(); len(wrong) > 0 {
		t.Fatalf("reload: %q", wrong)
	}
	r, err := d.answered("hello")
	if err != nil || r.Result.Output != "I am real." {
		t.Fatalf("with a key: %+v, %v", r, err)
	}
	if key := <-asked; key != "Bearer sk-test" {
		t.Errorf("the server was sent %q", key)
	}

	// A file that cannot be read is told, and keeps no daemon from starting.
	if err := os.Chmod(filepath.Join(d.Dir, "noused", credentials.FileName), 0o644); err != nil {
		t.Fatal(err)
	}
	if wrong := d.reload(); len(wrong) == 0 ||
		!strings.Contains(wrong[0], "credentials.toml: others may read it: chmod 600 it") {
		t.Errorf("a file that others may read: %q", wrong)
	}
	if out, status := d.doctor(); status != 1 || !strings.Contains(out, "others may read it: chmod 600 it") {
		t.Errorf("doctor: %d %s", status, out)
	}
	d.Stop()
	d.Start()
}

// What a real model has begun no other finishes, no matter who starts the daemon: the run
// waits for its model, and goes on with it.
func TestARunOfAModelThatIsGoneWaits(t *testing.T) {
	url, asked := chatStub(t)
	config := fmt.Sprintf(
		"[model]\nprovider = \"stub\"\nname = \"m\"\n\n[providers.stub]\nwire = \"chat\"\nbase_url = %q\n", url)
	d := unstarted(t, "noused")
	d.write("noused/config.toml", config, 0o600)
	d.Start()
	wait := false
	if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Text: "wait-for-me",
		Wait: &wait,
	}); err != nil {
		t.Fatal(err)
	}
	<-asked
	d.Kill()
	d.write("noused/config.toml", "", 0o600)
	d.Args = []string{"--model", "offline"}
	d.Start()
	sessions := func() protocol.SessionInfo {
		list, err := client.Call(context.Background(), d.dial(), protocol.ListSessions, protocol.ListSessionsParams{})
		if err != nil || len(list.Sessions) != 1 {
			t.Fatalf("got %+v, %v", list, err)
		}
		return list.Sessions[0]
	}
	events := d.sinceStart(d.dial())
	next := func(want func(protocol.Event) bool) {
		t.Helper()
		for {
			env, _, err := events.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			ev, err := client.Decode(env)
			if err != nil {
				t.Fatal(err)
			}
			if want(ev) {
				return
			}
		}
	}
	next(func(ev protocol.Event) bool {
		s, ok := ev.(protocol.Status)
		return ok && s.Code == protocol.StatusModelMissing && strings.Contains(s.Message, `"stub"`)
	})
	if s := sessions(); s.WaitingFor != protocol.WaitModel || s.Model.Provider != "stub" {
		t.Errorf("the session waits for %q, its model is %+v", s.WaitingFor, s.Model)
	}
	d.write("noused/config.toml", config, 0o600)
	if err := d.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-asked
	next(func(ev protocol.Event) bool {
		end, ok := ev.(protocol.AgentEnd)
		return ok && end.StopReason == protocol.StopCompleted
	})
	if s := sessions(); s.LastText != "I am real." {
		t.Errorf("the run ended with %q", s.LastText)
	}
}

// Behind a proxy (ANTHROPIC_BASE_URL) Anthropic's models are what they are; who speaks
// OpenAI's wire may have any model of that name.
func TestFactsBehindAProxy(t *testing.T) {
	for _, c := range []struct {
		provider, name string
		known          bool
	}{{"anthropic", "claude-opus-5-5", true}, {"openai", "gpt-6.1-sol", false}} {
		facts, known := vendors{}.facts(model.Choice{Provider: c.provider, Name: c.name}, "https://proxy.example")
		if known != c.known || known && facts.Window == 0 {
			t.Errorf("%s: known %t, with a window of %d", c.provider, known, facts.Window)
		}
	}
}
