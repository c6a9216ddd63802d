package bridge

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
	"noused/internal/agent/agenttest"
	"noused/internal/protocol"
)

// hostedEditor is an editor whose new sessions are made by the agent of package agenttest.
func hostedEditor(t *testing.T, can string) (e *editor, socket, folder string) {
	t.Helper()
	d := startDaemon(t, scripted(t, can)+"[agent.lost]\ncommand = [\"no-such-agent\"]\n")
	return editorOf(t, d.Socket, "scripted"), d.Socket, d.Dir
}

// scripted is the section of the agent of package agenttest.
func scripted(t *testing.T, can string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[agent.scripted]\ncommand = [%q]\nenv = { %s = \"1\", %s = %q }\n",
		self, beAgent, agenttest.Can, can)
}

// editorOf is an editor whose new sessions that agent makes.
func editorOf(t *testing.T, socket, agent string) *editor {
	t.Helper()
	e := openEditor(t, socket, func(o *Options) { o.Agent = agent })
	e.must(acp.Initialize, `{"protocolVersion":1,"clientCapabilities":{"session":{"notices":{}}}}`)
	return e
}

// chosen are the options of an update, with what is chosen.
func chosen(options []acp.ConfigOption) string {
	var all []string
	for _, o := range options {
		all = append(all, o.ID+"="+o.Current)
	}
	return strings.Join(all, " ")
}

// An editor has the options of the session's agent in the place of noused's own, before the first
// prompt, and chooses them; its approvals stay noused's.
func TestOptionsOfAHostedAgent(t *testing.T) {
	e, socket, folder := hostedEditor(t, "options")
	s := e.open(folder)
	has := func(want string) func(update) bool {
		return func(u update) bool { return chosen(u.Options) == want }
	}
	_, from := e.awaitUpdate(s, 0, "the agent's options",
		has("agent=scripted model=small thinking=low fast=false approvals=ask steering=one-at-a-time"))
	var r acp.OptionsResult
	for option, value := range map[string]string{
		"thinking": "high", "fast": "true", "model": "large", "approvals": "auto",
	} {
		e.decode(e.must(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"`+option+`","value":"`+value+`"}`), &r)
		if !strings.Contains(chosen(r.Options), option+"="+value) {
			t.Errorf("%s: got %s", option, chosen(r.Options))
		}
	}
	command(t, socket, protocol.SetAgentOption, protocol.SetAgentOptionParams{
		Scope: protocol.Scope{SessionID: s}, ID: "thinking", Value: "low",
	})
	e.awaitUpdate(s, from, "what another client has chosen",
		has("agent=scripted model=large thinking=low fast=true approvals=auto steering=one-at-a-time"))
	for line, want := range map[string]string{
		`"configId":"mood","value":"good"`:    `configId: there is no option "mood"`,
		`"configId":"thinking","value":"odd"`: `value: thinking of scripted cannot be "odd", only low, high`,
	} {
		m := e.reply(e.send(acp.SetConfigOption, `{"sessionId":"`+s+`",`+line+`}`))
		if m.Error == nil || m.Error.Code != acp.InvalidParams || m.Error.Message != want {
			t.Errorf("%s: got %v, want %s", line, m.Error, want)
		}
	}
}

// The agent's own commands are told beside noused's, and what is written with one goes to the
// agent as it is.
func TestCommandsOfAHostedAgent(t *testing.T) {
	e, _, folder := hostedEditor(t, "commands")
	s := e.open(folder)
	u, _ := e.awaitUpdate(s, 0, "the agent's commands", func(u update) bool {
		return slices.ContainsFunc(u.Commands, func(c acp.Command) bool { return c.Name == "review" })
	})
	var names []string
	for _, c := range u.Commands {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"compact", "model", "init", "review"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c := u.Commands[3]; c.Description != "reviews" || c.Input == nil || c.Input.Hint != "what" {
		t.Errorf("got %+v", c)
	}
	from := e.mark()
	id := e.prompt(s, "/review the parser")
	e.awaitUpdate(s, from, "the text, said back", func(u update) bool {
		return u.Kind == acp.AgentChunk && strings.TrimSpace(u.text()) == "/review the parser"
	})
	if got := e.stop(id); got != acp.EndTurn {
		t.Errorf("got %s", got)
	}
}

// An agent that has nothing to choose, and one that is not there, leave noused's own options.
func TestAHostedAgentWithoutOptions(t *testing.T) {
	e, socket, folder := hostedEditor(t, "")
	var r acp.OpenResult
	e.decode(e.must(acp.SessionNew, `{"cwd":`+quote(folder)+`,"mcpServers":[]}`), &r)
	if got := chosen(r.Options); got != "agent=scripted approvals=ask steering=one-at-a-time" {
		t.Errorf("got %s", got)
	}
	lost := editorOf(t, socket, "lost")
	s := lost.open(folder)
	m := lost.reply(lost.prompt(s, "hello"))
	if m.Error == nil || !strings.Contains(m.Error.Message, "no-such-agent: it is not in the daemon's PATH") {
		t.Errorf("got %v, want the agent missing", m.Error)
	}
	none := editorOf(t, socket, "foo")
	m = none.reply(none.send(acp.SessionNew, `{"cwd":`+quote(folder)+`,"mcpServers":[]}`))
	if m.Error == nil || !strings.Contains(m.Error.Message, `there is no agent "foo", only noused`) {
		t.Errorf("got %v, want a list of the agents", m.Error)
	}
}

// setAgent chooses what makes a session's turns, and returns what the editor knows then.
func (e *editor) setAgent(s, agent string) (options []acp.ConfigOption, err *acp.Error) {
	e.t.Helper()
	m := e.reply(e.send(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"agent","value":"`+agent+`"}`))
	if m.Error != nil {
		return nil, m.Error
	}
	var r acp.OptionsResult
	e.decode(m.Result, &r)
	return r.Options, nil
}

// agents are the values of the option agent, the chosen one first.
func agents(options []acp.ConfigOption) string {
	for _, o := range options {
		if o.ID == optionAgent {
			all := []string{o.Current + ":"}
			for _, v := range o.Options {
				all = append(all, v.Value)
			}
			return strings.Join(all, " ")
		}
	}
	return "none"
}

// An editor chooses in a new session what makes its turns, among what is there, until the first text: a
// text behind the choice is the agent's, and so is the session when another editor loads it.
func TestTheEditorChoosesTheAgent(t *testing.T) {
	hosted, socket, folder := hostedEditor(t, "options,commands")
	hosted.in.Close()
	e := newEditor(t, socket)
	var r acp.OpenResult
	e.decode(e.must(acp.SessionNew, `{"cwd":`+quote(folder)+`,"mcpServers":[]}`), &r)
	s := r.SessionID
	if got := agents(r.Options); !strings.HasPrefix(got, "noused: noused ") || !strings.Contains(got, " scripted") {
		t.Errorf("got %s", got)
	}
	if _, err := e.setAgent(s, "foo"); err == nil || err.Code != acp.InvalidParams ||
		!strings.HasPrefix(err.Message, `value: there is no agent "foo", only noused`) {
		t.Errorf("got %v, want a list of the agents", err)
	}
	e.must(acp.SetMode, `{"sessionId":"`+s+`","modeId":"auto"}`)
	from := e.mark()
	e.send(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"agent","value":"noused"}`)
	options, err := e.setAgent(s, "scripted")
	if err != nil || !strings.HasPrefix(agents(options), "scripted: noused ") {
		t.Fatalf("got %s, %v", agents(options), err)
	}
	e.awaitUpdate(s, from, "the agent's options", func(u update) bool {
		return chosen(u.Options) == "agent=scripted model=small thinking=low fast=false approvals=auto steering=one-at-a-time"
	})
	e.awaitUpdate(s, from, "the agent's commands", func(u update) bool {
		return slices.ContainsFunc(u.Commands, func(c acp.Command) bool { return c.Name == "review" })
	})
	if got := e.say(s, "!say it is me"); got != acp.EndTurn {
		t.Errorf("got %s", got)
	}
	e.awaitUpdate(s, from, "the agent", func(u update) bool { return strings.TrimSpace(u.text()) == "it is me" })
	e.awaitUpdate(s, from, "that no other can be chosen", func(u update) bool {
		return agents(u.Options) == "scripted: scripted"
	})
	_, err = e.setAgent(s, "noused")
	const want = " has begun with scripted: make another one for noused"
	if err == nil || err.Code != acp.InvalidParams || !strings.HasSuffix(err.Message, want) {
		t.Errorf("got %v, want %s", err, want)
	}

	again := newEditor(t, socket)
	again.decode(again.must(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":`+quote(folder)+`,"mcpServers":[]}`), &r)
	if got := agents(r.Options); got != "scripted: scripted" {
		t.Errorf("loaded again: got %s", got)
	}
	if got := again.say(s, "!say still me"); got != acp.EndTurn {
		t.Errorf("got %s", got)
	}
	again.awaitUpdate(s, 0, "the agent", func(u update) bool { return strings.TrimSpace(u.text()) == "still me" })
}

// An editor hears of it when another client has chosen the agent.
func TestAnotherClientChoosesTheAgent(t *testing.T) {
	e, socket, folder := hostedEditor(t, "options")
	s := e.open(folder)
	_, from := e.awaitUpdate(s, 0, "the agent's options", func(u update) bool {
		return strings.HasPrefix(chosen(u.Options), "agent=scripted model=small thinking=low")
	})
	for _, row := range [][2]string{{"noused", "agent=noused model="}, {"scripted", "agent=scripted model=small"}} {
		command(t, socket, protocol.SetAgent, protocol.SetAgentParams{
			Scope: protocol.Scope{SessionID: s}, Agent: row[0],
		})
		_, from = e.awaitUpdate(s, from, row[1], func(u update) bool { return strings.HasPrefix(chosen(u.Options), row[1]) })
	}
}
