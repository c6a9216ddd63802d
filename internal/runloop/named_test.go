package runloop

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A run that a named agent makes calls that one's tools alone, of those that the session has, over a restart, too,
// and the next run is as before.
func TestARunAsANamedAgent(t *testing.T) {
	w := newWorld(t)
	reads := &model.NamedAgent{
		Name: "reads", Text: "Only read.", Tools: []string{"files.read", "files.list"},
		Model: model.Choice{Provider: "other", Name: "small"}, Effort: "low",
	}
	w.step(toolsIn{tools: []string{"files.read", "t.x"}})
	w.step(promptIn{p: protocol.PromptParams{Text: "look"}, as: reads})
	sees := func(when string) {
		t.Helper()
		set := w.m.toolset()
		if want := []string{"files.read"}; set.all || !slices.Equal(set.active, want) {
			t.Errorf("%s: it may call %v (all: %t), want %v", when, set.active, set.all, want)
		}
		if c := w.m.model(); c.Name != "small" || c.Effort != "low" {
			t.Errorf("%s: it is made by %+v", when, c)
		}
		if as := w.m.s.Run.Terms.As; as == nil || as.Text != "Only read." {
			t.Errorf("%s: its instructions are %+v", when, as)
		}
		if as := w.m.state().As; as != "reads" {
			t.Errorf("%s: get_state says that it is made by %q", when, as)
		}
	}
	sees("first")
	w.boot()
	sees("after a restart")
	w.answers(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	said := w.messages()[len(w.messages())-1]
	if said.Role != model.Tool || !strings.Contains(said.Text, "t.x is no tool of the agent reads") {
		t.Errorf("its call of another tool: %+v", said)
	}
	w.whole("seen")
	if w.m.s.LastRun.As != "reads" {
		t.Errorf("the journal has of the run that it was made as %q", w.m.s.LastRun.As)
	}
	if set := w.m.toolset(); !slices.Equal(set.active, []string{"files.read", "t.x"}) || w.m.model().Name == "small" {
		t.Errorf("the next run has %v and %+v", set.active, w.m.model())
	}
}

// A named agent is for the run that a prompt starts.
func TestANamedAgentCannotJoinARun(t *testing.T) {
	w := newWorld(t)
	w.step(promptIn{p: protocol.PromptParams{Text: "go"}})
	w.step(promptIn{
		ticket: w.client("prompt"), p: protocol.PromptParams{Text: "x", StreamingBehavior: "steer"},
		as: &model.NamedAgent{Name: "plan"},
	})
	if w.refused == nil || !strings.Contains(w.refused.Error(), "as, output_schema") {
		t.Errorf("got %v", w.refused)
	}
}

// onlyAgents are instructions of a folder with the named agent leads, which may call agent alone.
type onlyAgents struct{}

func (onlyAgents) Environment(context.Context, string) string { return "" }
func (onlyAgents) System(string, string, int64) (string, []string, []string) {
	return "", nil, nil
}
func (onlyAgents) Expand(_, text string) (string, bool, error) { return text, false, nil }
func (onlyAgents) ListNamed(string) string                     { return "" }
func (onlyAgents) Named(string, string) (*model.NamedAgent, error) {
	return &model.NamedAgent{Name: "leads", Text: "Lead.", Tools: []string{agentTool}}, nil
}

// What a child in the background has come to starts a run that may do no more than the one that
// had it made.
func TestTheEndOfAChildInTheBackgroundGivesNoMoreTools(t *testing.T) {
	heard, ends := newHearing(), make(chan string, 10)
	begun := map[string]string{}
	heard.notify = func(ev protocol.Event) {
		switch ev := ev.(type) {
		case protocol.AgentStart:
			begun[ev.SessionID] += " as " + ev.As
		case protocol.AgentEnd:
			ends <- ev.SessionID
		}
	}
	dir := t.TempDir()
	f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, echoTool, heard, func(o *Options) {
		o.Instructions = onlyAgents{}
	})
	id := f.session()
	if _, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: agentCall(`{"prompt":"later","background":true}`), As: "leads",
		Approvals: protocol.ApprovalsDeny,
	})); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 2; {
		if <-ends == id {
			n++
		}
	}
	f.stop()
	f.events.done(t)
	heard.check(t)
	for session, as := range begun {
		if strings.TrimSpace(strings.ReplaceAll(as, " as leads", "")) != "" {
			t.Errorf("session %s has runs%s", session, as)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "sessions", id+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte(`"approvals":"deny"`)); n < 4 { // of two inputs and their runs
		t.Errorf("only %d records have the approvals of the first run:\n%s", n, text)
	}
}

// A hosted agent, whose tools nobody here holds it to, is no child of a run with certain tools,
// nor does one go on for it.
func TestAHostedChildDoesNotGoOnForANamedAgent(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
		o.Instructions = onlyAgents{}
	})
	id := f.session()
	f.ask(id, agentCall(`{"prompt":"first"}`))
	child, err := query(context.Background(), f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := query(context.Background(), f.Hub, child, func(m *machine) (string, error) {
		m.s.Agent = "other"
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	r, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, As: "leads",
		Text: agentCall(`{"prompt":"second","session_id":"` + child + `"}`),
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.Result.Release()
	if !strings.Contains(r.Result.Output, "other has tools of its own") {
		t.Errorf("got %q, want a refusal", r.Result.Output)
	}
	f.stop()
}
