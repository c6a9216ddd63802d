package runloop

import (
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
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
