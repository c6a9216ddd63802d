package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

// delegated is what a call of the tool agent has for its model.
type delegated struct {
	SessionID  string                 `json:"session_id"`
	StopReason protocol.StopReason    `json:"stop_reason"`
	Workdir    string                 `json:"workdir"`
	Files      []protocol.ChangedFile `json:"files"`

	state protocol.State // of the child
}

// delegate has a session's model call the tool agent.
func (d *daemon) delegate(session string, args map[string]any) delegated {
	d.t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		d.t.Fatal(err)
	}
	ends := d.events(protocol.SubscribeParams{SessionID: session, Types: []string{protocol.ToolEnd{}.Type()}})
	wait := false
	if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: "!agent " + string(text), Wait: &wait,
	}); err != nil {
		d.t.Fatal(err)
	}
	return d.answerOf(ends)
}

// answerOf waits for the end of a call of the tool agent.
func (d *daemon) answerOf(ends *client.Events) (got delegated) {
	d.t.Helper()
	end := await(d.t, ends, func(protocol.Event) bool { return true }).(protocol.ToolEnd)
	if end.Error != nil {
		d.t.Fatalf("got %+v", end.Error)
	}
	if err := json.Unmarshal(end.Value, &got); err != nil {
		d.t.Fatalf("%s: %v", end.Value, err)
	}
	var err error
	if got.state, err = client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{
		Scope: protocol.Scope{SessionID: got.SessionID},
	}); err != nil {
		d.t.Fatal(err)
	}
	return got
}

// A child works in a worktree of its own, and its parent hears where, and what it has changed.
func TestAChildInAWorktree(t *testing.T) {
	d := newDaemon(t)
	folder := filepath.Join(d.Dir, "work")
	if out, err := exec.Command("sh", "-c", "git init -q "+folder+" && cd "+folder+
		" && git -c user.name=n -c user.email=e commit -q --allow-empty -m begin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := d.delegate(d.session(folder), map[string]any{
		"prompt": `!write {"path":"a.txt","content":"from the child\n"}`, "worktree": true, "description": "try it",
	})
	if got.Workdir == folder || got.state.Workdir != got.Workdir || got.StopReason != protocol.StopCompleted {
		t.Errorf("got %+v, want another folder than %s", got, folder)
	}
	if len(got.Files) != 1 || got.Files[0].Path != "a.txt" {
		t.Errorf("got files %+v, want a.txt", got.Files)
	}
	if text, err := os.ReadFile(filepath.Join(got.Workdir, "a.txt")); string(text) != "from the child\n" {
		t.Errorf("the child's file has %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "a.txt")); err == nil {
		t.Error("the child has written into its parent's folder")
	}
}

// A child has the model that its call names, and its parent keeps its own.
func TestAChildWithAModelOfItsOwn(t *testing.T) {
	models := httptest.NewServer(http.HandlerFunc(says("content", 4, 4)))
	t.Cleanup(models.Close)
	t.Setenv("OPENAI_API_KEY", "sk-child")
	t.Setenv("OPENAI_BASE_URL", models.URL+"/v1")
	d := newDaemon(t)
	parent := d.session(d.Dir)
	got := d.delegate(parent, map[string]any{"prompt": "who are you?", "model": "openai/gpt-6"})
	if m := got.state.Model; m.Provider != "openai" || m.Name != "gpt-6" {
		t.Errorf("the child has %+v, want openai/gpt-6", m)
	}
	st, err := client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{
		Scope: protocol.Scope{SessionID: parent},
	})
	if err != nil || st.Model.Provider != "offline" {
		t.Errorf("the parent has %+v, %v, want its own", st.Model, err)
	}
}

// The file of a named agent has another agent make a child's turns, with its text before the prompt. A person is
// asked; a file that names that agent only after the call was allowed begins nothing.
func TestAChildOfANamedAgentThatIsHosted(t *testing.T) {
	h := newHost(t, "load,config")
	h.alone, h.session = true, ""
	file := func(front string) {
		h.write("noused/agents/far.md", "---\ndescription: works afar\n"+front+"---\n!say as the file says\n", 0o600)
	}
	parent, c := h.newSession(protocol.OwnAgent), h.dial()
	text, err := json.Marshal(map[string]any{"prompt": "!say and the call", "agent": "far"})
	if err != nil {
		t.Fatal(err)
	}
	call := "!agent " + string(text)
	file("agent: scripted\n")
	asked := h.asks(c, parent, call)
	if !strings.Contains(asked.Rule, "scripted is a hosted agent") {
		t.Errorf("asked by %q", asked.Rule)
	}
	end := h.answers(c, asked, "once")
	st, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{
		Scope: protocol.Scope{SessionID: end.Outputs["session_id"]},
	})
	if err != nil || !end.OK || st.Agent != "scripted" {
		t.Errorf("got %+v of %q, %v, want the child of another agent, completed", end, st.Agent, err)
	}
	if prompts := h.log("prompt"); len(prompts) != 1 || !strings.Contains(prompts[0], "as the file says") ||
		!strings.Contains(prompts[0], "and the call") {
		t.Errorf("the agent was prompted with %q, want the file's text and the prompt", prompts)
	}
	for what, fronts := range map[string][2]string{
		"certain tools":         {"agent: scripted\ntools: read\n", "agent: scripted\ntools: read\n"},
		"another agent by then": {"agent: scripted\n", "agent: codex\n"},
	} {
		file(fronts[0])
		asked := h.asks(c, parent, call)
		file(fronts[1])
		if end := h.answers(c, asked, "once"); end.OK || end.Error == nil {
			t.Errorf("%s: got %+v, want it refused", what, end)
		}
	}
	if prompts := h.log("prompt"); len(prompts) != 1 {
		t.Errorf("the agent was prompted with %q", prompts)
	}
}

// Another agent makes a child's turns. After a kill its run goes on, and the parent's call is
// answered once, with what it has said.
func TestAHostedChildOutlivesAKill(t *testing.T) {
	h := newHost(t, "load")
	h.alone, h.session = true, ""
	parent := h.newSession(protocol.OwnAgent)
	begun := h.daemon.events(protocol.SubscribeParams{})
	text, err := json.Marshal(map[string]any{"prompt": "!say from afar\n!hang", "agent": "scripted"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(context.Background(), h.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: parent}, Text: "!agent " + string(text), Wait: new(bool),
	}); err != nil {
		t.Fatal(err)
	}
	await(t, begun, func(ev protocol.Event) bool {
		st, is := ev.(protocol.Status)
		return is && st.Approval != nil
	})
	if err := h.answerPending(h.dial(), "once"); err != nil { // it has hands of its own
		t.Fatal(err)
	}
	await(t, begun, func(ev protocol.Event) bool {
		said, is := ev.(protocol.MessageUpdate)
		return is && said.SessionID != parent && strings.Contains(said.Delta, "from afar")
	})
	h.Kill()
	h.Start()
	got := h.answerOf(h.daemon.events(protocol.SubscribeParams{
		SessionID: parent, Types: []string{protocol.ToolEnd{}.Type()}, After: new(uint64),
	}))
	if got.StopReason != protocol.StopCompleted || got.state.Agent != "scripted" || got.state.Parent == nil {
		t.Errorf("got %+v, want the child of another agent, completed", got)
	}
	if prompts := h.log("prompt"); len(prompts) != 2 || strings.Contains(prompts[1], "from afar") {
		t.Errorf("the agent was prompted with %q, want the text once, and to go on", prompts)
	}
}
