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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, fmt.Sprintf("[agent.scripted]\ncommand = [%q]\nenv = { %s = \"1\", %s = %q }\n"+
		"[agent.lost]\ncommand = [\"no-such-agent\"]\n", self, beAgent, agenttest.Can, can))
	return editorOf(t, d.Socket, "scripted"), d.Socket, d.Dir
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
		has("model=small thinking=low fast=false approvals=ask steering=one-at-a-time"))
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
		has("model=large thinking=low fast=true approvals=auto steering=one-at-a-time"))
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
	if got := chosen(r.Options); got != "approvals=ask steering=one-at-a-time" {
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
