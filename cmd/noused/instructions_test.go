package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// sentBody is what a request to a chat server begins with, as it was sent.
type sentBody struct {
	Messages []jsontext.Value `json:"messages"`
	Tools    jsontext.Value   `json:"tools"`
}

func (b sentBody) system(t *testing.T) string {
	t.Helper()
	return decode[struct {
		Content string `json:"content"`
	}](t, b.Messages[0]).Content
}

// bodies is a model's server that keeps what it is sent and says little.
type bodies struct {
	mu  sync.Mutex
	all []sentBody
}

func (b *bodies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var sent sentBody
	_ = json.Unmarshal(text, &sent)
	b.mu.Lock()
	b.all = append(b.all, sent)
	b.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	sse(w, `{"choices":[{"delta":{"content":"Yes."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
}

// takeBodies returns what was sent since it was called last.
func (b *bodies) takeBodies() []sentBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = nil
	return all
}

// toldDaemon is a daemon whose workdir is a repository, and its model's server.
func toldDaemon(t *testing.T) (*daemon, *bodies) {
	t.Helper()
	said := new(bodies)
	server := httptest.NewServer(unlisted(said.ServeHTTP))
	t.Cleanup(server.Close)
	d := newDaemon(t, "--config", modelConfig(t, "openai", server.URL))
	d.write(".gitignore", "*\n!/kept\n", 0o600)
	d.git("init", "-q", "-b", "main")
	d.git("commit", "-q", "--allow-empty", "-m", "first")
	return d, said
}

func (d *daemon) git(args ...string) {
	d.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	cmd.Dir = d.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (d *daemon) prompt(text string) {
	d.t.Helper()
	if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{Text: text}); err !=
		nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) system() protocol.System {
	d.t.Helper()
	r, err := client.Call(context.Background(), d.dial(), protocol.GetSystem, protocol.GetSystemParams{})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// What was sent before is sent again byte for byte, whatever happens in the folder,
// after a crash as well, until a compaction.
func TestThePrefixOfASessionStays(t *testing.T) {
	d, said := toldDaemon(t)
	d.write("AGENTS.md", "Use tabs.", 0o600)
	d.prompt("first " + strings.Repeat("and more ", 500))
	first := said.takeBodies()[0]
	if got := d.system(); got.Text != first.system(t) ||
		!slices.Equal(got.Files, []string{filepath.Join(d.Dir, "AGENTS.md")}) {
		t.Errorf("get_system tells\n%s\n%q\nand sent was\n%s", got.Text, got.Files, first.system(t))
	}
	if !strings.Contains(first.system(t), "branch main, nothing uncommitted") {
		t.Fatalf("got %s", first.system(t))
	}
	d.write("kept", "not committed", 0o600)
	d.git("checkout", "-q", "-b", "other")
	d.prompt("second")
	d.Kill()
	d.Start()
	d.prompt("third")
	d.Stop()
	d.Start()
	d.prompt("fourth")
	before := first
	for i, next := range said.takeBodies() {
		if n := len(before.Messages); len(next.Messages) < n || !slices.EqualFunc(next.Messages[:n], before.Messages,
			sameBytes) || !sameBytes(next.Tools, before.Tools) {
			t.Errorf("request %d does not begin as the one before it:\n%s\n%s", i+2, before.Messages, next.Messages)
		}
		before = next
	}
	if _, err := client.Call(context.Background(), d.dial(), protocol.CompactSession,
		protocol.CompactSessionParams{}); err != nil {
		t.Fatal(err)
	}
	said.takeBodies()
	d.prompt("fifth")
	after := said.takeBodies()[0].system(t)
	if !strings.Contains(after, "branch other, with uncommitted changes") {
		t.Errorf("after a compaction the model is told\n%s", after)
	}
	d.write("AGENTS.md", "Use spaces.", 0o600)
	d.prompt("sixth")
	if changed := said.takeBodies()[0].system(t); changed != strings.Replace(after, "Use tabs.", "Use spaces.", 1) {
		t.Errorf("a changed AGENTS.md changes more than itself:\n%s", changed)
	}
}

func sameBytes(a, b jsontext.Value) bool { return string(a) == string(b) }

// A branch is sent to the model with the prefix that the provider has in its
// cache; another session is told what is now.
func TestABranchKeepsThePrefix(t *testing.T) {
	d, said := toldDaemon(t)
	d.prompt("first")
	first := said.takeBodies()[0].system(t)
	d.git("checkout", "-q", "-b", "other")
	state, err := client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(context.Background(), d.dial(), protocol.BranchSession,
		protocol.BranchSessionParams{SessionID: state.SessionID}); err != nil {
		t.Fatal(err)
	}
	d.prompt("in the branch")
	if got := said.takeBodies()[0].system(t); got != first {
		t.Errorf("got\n%s\nwant\n%s", got, first)
	}
	if _, err := client.Call(context.Background(), d.dial(), protocol.NewSession, protocol.NewSessionParams{}); err !=
		nil {
		t.Fatal(err)
	}
	if got := d.system().Text; !strings.Contains(got, "branch other") {
		t.Errorf("a new session is told %s", got)
	}
}

// The model learns of skills, nobody of keys: what a repository links to is left
// out, with a warning that names it, and told once.
func TestSkillsAreToldAndRead(t *testing.T) {
	d, said := toldDaemon(t)
	skill := func(name, more string) string {
		return fmt.Sprintf("---\nname: %s\ndescription: What %s is for.\n---\nThe text of %s.%s\n", name, name, name, more)
	}
	d.write(".agents/skills/review/SKILL.md", skill("review", ""), 0o600)
	d.write(".agents/skills/mute/SKILL.md", "---\nname: mute\n---\n", 0o600)
	d.write("noused/skills/own/SKILL.md", skill("own", ""), 0o600)
	d.write("noused/AGENTS.md", "Speak plainly.", 0o600)
	if err := os.Symlink("/etc", filepath.Join(d.Dir, ".agents", "skills", "passwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(d.Dir, ".agents", "skills", "users"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(d.Dir, ".agents", "skills", "users", "SKILL.md")); err != nil {
		t.Fatal(err)
	}
	events := d.events(protocol.SubscribeParams{})
	d.prompt("first")
	d.prompt("second")
	var warnings []string
	for ends := 0; ends < 2; {
		ev, err := next(events)
		if err != nil {
			t.Fatal(err)
		}
		switch ev := ev.(type) {
		case protocol.Warning:
			warnings = append(warnings, string(ev.Code)+" "+ev.Message)
		case protocol.AgentEnd:
			ends++
		}
	}
	at := func(name string) string { return filepath.Join(d.Dir, ".agents", "skills", name, "SKILL.md") }
	if want := []string{
		"skill_left_out " + at("mute") + ": has no description",
		"skill_left_out " + at("users") + ": is a link that leads out of the folder where it was found",
	}; !slices.Equal(warnings, want) {
		t.Errorf("got the warnings %q, want %q", warnings, want)
	}
	for _, sent := range said.takeBodies() {
		if text := sent.system(t); !strings.Contains(text, "- review: What review is for. ("+at("review")+")") ||
			!strings.Contains(text, "- own: ") ||
			!strings.Contains(text, "Speak plainly.") || strings.Contains(text, "root:") || strings.Contains(text, "mute") {
			t.Errorf("the model is told %s", text)
		}
	}
	own := filepath.Join(d.Dir, "noused", "skills", "own", "SKILL.md")
	if got, want := d.system().Files, []string{
		filepath.Join(d.Dir, "noused", "AGENTS.md"), at("review"),
		own,
	}; !slices.Equal(got, want) {
		t.Errorf("got the files %q, want %q", got, want)
	}
	one, err := client.Call(context.Background(), d.dial(), protocol.ListSkills, protocol.ListSkillsParams{Name: "own"})
	if err != nil || len(one.Skills) != 1 || one.Skills[0].Path != own || one.Skills[0].Text != "The text of own." {
		t.Errorf("got %+v, %v", one, err)
	}
	_, err = client.Call(context.Background(), d.dial(), protocol.ListSkills, protocol.ListSkillsParams{Name: "owl"})
	if err == nil || !strings.Contains(err.Error(), `name: there is no skill "owl"; there are review, own`) {
		t.Errorf("got %v", err)
	}
	w := d.commands()
	if r := into[protocol.ExtensionResult](t,
		w.request(
			`{"v":"1","id":"1","type":"extension_command","payload":{"name":"read","payload":{"path":"noused/skills/own/SKILL.md"}}}`)); !r.OK ||
		!strings.Contains(r.Result, "The text of own.") {
		t.Errorf("the model cannot read a skill that it knows of: %+v", r)
	}
	d.write("noused/config.toml", "# a secret", 0o600)
	if r := into[protocol.ExtensionResult](t,
		w.request(
			`{"v":"1","id":"2","type":"extension_command","payload":{"name":"read","payload":{"path":"noused/config.toml"}}}`)); r.OK {
		t.Errorf("the model reads what is beside the skills: %+v", r)
	}
}
