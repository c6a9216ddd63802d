package runloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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

// someAgents are the hosted agents codex and absent, which is not installed, as those of a daemon are known.
type someAgents struct{ Agents }

func (someAgents) Default() string { return "" }
func (someAgents) Check(name string) error {
	if name != "codex" && name != "absent" {
		return fmt.Errorf("there is no agent %q", name)
	}
	return nil
}

func (a someAgents) Missing(name string) error {
	if name == "absent" {
		return errors.New("absent cannot be started")
	}
	return a.Check(name)
}

// farAgents are instructions of a folder whose named agents have others make their turns.
type farAgents struct{ onlyAgents }

func (farAgents) Named(_, name string) (*model.NamedAgent, error) {
	return &model.NamedAgent{Name: name, Text: "Work afar.", AllTools: true, Agent: strings.TrimPrefix(name, "far-")}, nil
}

// A named agent whose turns one makes that is not there has no child: the daemon's own made them, though people were
// told that a hosted agent would.
func TestANamedAgentWhoseHostIsNotThereMakesNoChild(t *testing.T) {
	for host, want := range map[string]string{
		"nosuch": `there is no agent "nosuch"`, "absent": "absent cannot be started",
	} {
		f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
			o.Instructions, o.Agents = farAgents{}, someAgents{}
		})
		id := f.session()
		if _, err := f.setApprovalMode(aPerson(), protocol.SetApprovalModeParams{
			Scope: protocol.Scope{SessionID: id}, Mode: protocol.ApprovalsAuto,
		}); err != nil {
			t.Fatal(err)
		}
		if got := f.ask(id, agentCall(`{"prompt":"x","agent":"far-`+host+`"}`)); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", host, got, want)
		}
		if ids, err := f.store.IDs(); err != nil || len(ids) != 1 {
			t.Errorf("%s: there are the sessions %v, %v; want no child", host, ids, err)
		}
		f.stop()
	}
}

// hosting is a machine whose folder's named agents have others make their turns.
func hosting(t *testing.T) *world {
	w := newWorld(t)
	w.m.named = farAgents{}.Named
	w.m.hosts = func(name string) error {
		if strings.HasPrefix(name, "far-") {
			return errors.New("that is a file's name")
		}
		return nil
	}
	w.prompt("go")
	return w
}

// The journal says which hosted agent makes a child's turns, named by the call itself or by a file.
func TestTheJournalNamesTheHostOfAChild(t *testing.T) {
	for _, name := range []string{"codex", "far-codex"} {
		w := hosting(t)
		w.delegates(`{"prompt":"x","agent":"` + name + `"}`)
		w.step(answerIn{nil, w.m.s.Run.Question.ApprovalID, protocol.OptionOnce, "", person{}, nil})
		if c := w.m.s.Run.Children; len(c) != 1 || c[0].Host != "codex" {
			t.Errorf("%s: the journal has the children %+v, want one of codex", name, c)
		}
	}
}

// Nobody is asked whether an agent may work that no session can have.
func TestNobodyIsAskedAboutAHostThatIsNotThere(t *testing.T) {
	w := hosting(t)
	w.m.hosts = someAgents{}.Check
	w.delegates(`{"prompt":"x","agent":"far-nosuch"}`)
	if w.m.s.Run.Question.Open() {
		t.Errorf("people are asked: %s", w.m.s.Run.Question.Rule)
	}
}

// A yes is for the hosted agent that it was asked about, and for none whose name is a part of that one's.
func TestAYesIsForOneHostedAgent(t *testing.T) {
	for now, want := range map[string]bool{"opencode": true, "code": false} {
		w := hosting(t)
		w.delegates(`{"prompt":"x","agent":"far-opencode"}`)
		q := w.m.s.Run.Question
		if !q.Open() || !strings.Contains(q.Rule, "opencode is a hosted agent") {
			t.Fatalf("the question is %+v", q)
		}
		w.m.named = func(_, name string) (*model.NamedAgent, error) { return farAgents{}.Named("", now) }
		w.step(answerIn{nil, q.ApprovalID, protocol.OptionOnce, "", person{}, nil})
		if begun := w.work.child != nil; begun != want {
			t.Errorf("%s makes the turns by now: begun %t, want %t", now, begun, want)
		}
	}
}

// The question about a hosted agent begins with why people are asked, also where the rules do not say it.
func TestAQuestionOfAHostedAgentSaysWhy(t *testing.T) {
	w := hosting(t)
	w.m.judge = func(model.Invocation, string, [][]byte) model.Verdict {
		return model.Verdict{Decision: model.Ask, Delegates: true}
	}
	w.delegates(`{"prompt":"x","agent":"far-codex"}`)
	if q := w.m.s.Run.Question; !q.Open() || q.Rule != "ask: codex is a hosted agent, with hands of its own" {
		t.Errorf("the question is %+v", q)
	}
}

// A child goes on with what makes its turns: where its file names another agent by now, people hear who makes them, and
// that a new child is to be begun. They heard that the call is to be made again, which never helped.
func TestAChildWhoseFileNamesAnotherAgentDoesNotGoOn(t *testing.T) {
	as := &movingAgent{}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
		o.Instructions, o.Agents = as, someAgents{}
	})
	id := f.session()
	f.ask(id, agentCall(`{"prompt":"first","agent":"moves"}`))
	child, err := query(t.Context(), f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	as.host.Store("codex")
	got := f.ask(id, agentCall(`{"prompt":"second","session_id":"`+child+`"}`))
	if !strings.Contains(got, "made by noused, and the file of moves names codex by now: leave out session_id") {
		t.Errorf("got %q", got)
	}
	f.stop()
}

// movingAgent are instructions of a folder whose named agent has another make its turns once that is said.
type movingAgent struct {
	onlyAgents
	host atomic.Value
}

func (a *movingAgent) Named(_, name string) (*model.NamedAgent, error) {
	host, _ := a.host.Load().(string)
	return &model.NamedAgent{Name: name, AllTools: true, Agent: host}, nil
}
