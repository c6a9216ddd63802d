package tui

import (
	"fmt"
	"os"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/internal/agent/agenttest"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/slash"
)

// hosts starts a daemon with an agent, scripted, that can do something, and one that is not there.
func hosts(t *testing.T, can string) *daemontest.Daemon {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startNoused(t, fmt.Sprintf("[agent.scripted]\ncommand = [%q]\nenv = { %s = \"1\", %s = %q }\n"+
		"[agent.absent]\ncommand = [\"no-such-agent\"]\n", self, beAgent, agenttest.Can, can))
}

// hosted shows a new session of the scripted agent.
func hosted(t *testing.T, can string) *hand {
	t.Helper()
	h := useDaemon(t, hosts(t, can).Socket)
	h.write("/agent scripted")
	h.press("esc", "enter")
	h.until("a session of the agent", func() bool { return h.state.Agent == "scripted" })
	return h
}

// option is the value that an option of the session's agent has.
func (h *hand) option(id string) string {
	for _, o := range h.state.AgentOptions {
		if o.ID == id {
			return o.Value
		}
	}
	return ""
}

// An agent is chosen for the session that is shown as long as nothing was said there, and then for another.
func TestAnAgentIsChosen(t *testing.T) {
	h := useDaemon(t, hosts(t, "").Socket)
	h.send(tea.WindowSizeMsg{Width: 110, Height: 30})
	first := h.state.SessionID
	h.write("/agent")
	h.press("esc", "enter")
	h.sees("Agent that makes the turns", "noused", "the daemon's own", "install: npm install -g opencode-ai")
	h.write("scripted")
	h.press("enter")
	h.until("a session of the agent", func() bool { return h.state.Agent == "scripted" })
	if h.state.SessionID != first {
		t.Error("got another session than the empty one that was there")
	}
	h.sees("idle · scripted · ")
	h.write("hello")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && h.state.LastRun != nil })
	if got := h.state.LastRun.StopReason; got != protocol.StopCompleted {
		t.Errorf("the run ended %s", got)
	}
	for line, want := range map[string]string{
		"/agent absent": "absent cannot be started: no-such-agent: it is not in the daemon's PATH",
		"/agent foo":    `there is no agent "foo", only noused, absent, claude`,
	} {
		h.write(line)
		h.press("esc", "enter")
		h.reads(want)
	}
	if h.state.Agent != "scripted" {
		t.Error("the session is not shown any more")
	}
	h.write("/agent noused")
	h.press("esc", "enter")
	h.until("another session", func() bool { return h.state.Agent == protocol.OwnAgent && h.state.SessionID != first })
}

// Where the daemon refuses the agent for another reason than that something was said, the reason is told, and no
// session is made in place of the one that is shown.
func TestARefusedAgentMakesNoSession(t *testing.T) {
	p := (&Options{Site: siteAt(hosts(t, "").Socket)}).place()
	p.State.SessionID = "ses-gone"
	o := slash.ChooseAgent(t.Context(), p, protocol.OwnAgent)
	if o.Err == nil || o.Follow != nil {
		t.Errorf("got the error %v, and another session: %t", o.Err, o.Follow != nil)
	}
}

func TestOptionsOfAnAgentAreChosen(t *testing.T) {
	h := hosted(t, "options")
	h.write("/options")
	h.press("esc", "enter")
	h.sees("Options of scripted", "Thinking", "Low", "Fast", "off")
	h.write("think")
	h.press("enter")
	h.sees("Thinking of scripted", "High")
	h.press("down", "enter")
	h.sees("thinking is High now")
	h.until("the choice", func() bool { return h.option("thinking") == "high" })
	h.write("/options Fast ON")
	h.press("esc", "enter")
	h.until("the choice", func() bool { return h.option("fast") == "true" })
	h.write("/options mo")
	h.until("the option in the menu", h.input.Menu.Open)
	h.press("tab")
	h.write(" la")
	h.until("the value in the menu", h.input.Menu.Open)
	h.press("tab", "enter")
	h.until("the choice", func() bool { return h.state.Model.Name == "large" })
	for line, want := range map[string]string{
		"/options mood":       `scripted has no option "mood", only model, thinking, fast`,
		"/options model huge": `model of scripted cannot be "huge", only small, large`,
	} {
		h.write(line)
		h.press("esc", "enter")
		h.reads(want)
	}
	h.write("/model")
	h.press("esc", "enter")
	h.sees("Models", "small", "large")
}

func TestSessionsWithoutOptions(t *testing.T) {
	h := hosted(t, "")
	h.write("/options")
	h.press("enter")
	h.sees("scripted has no options")
	h.write("/agent noused")
	h.press("esc", "enter")
	h.until("a session of noused's own", func() bool { return h.state.Agent == protocol.OwnAgent })
	h.write("/options fast true")
	h.press("esc", "enter")
	h.reads("noused makes the turns of this session itself: only a hosted agent has options")
}

// The agent's own commands are in the palette and the menu, and go to the agent as they are.
func TestCommandsOfAnAgent(t *testing.T) {
	h := hosted(t, "commands")
	h.write("hello")
	h.press("enter")
	h.until("the commands", func() bool { return len(h.state.AgentCommands) == 2 && !h.running() })
	h.press("ctrl+p")
	h.write("revie")
	h.sees("/review", "reviews")
	h.press("enter")
	if got := h.input.Text(); got != "/review " {
		t.Fatalf("got %q in the input", got)
	}
	h.write("the parser")
	h.press("enter")
	h.until("what the agent says back", func() bool { return strings.Count(h.screen(), "/review the parser") == 2 })
	h.write("/ini")
	h.until("the command in the menu", func() bool {
		return h.input.Menu.Open() && h.input.Menu.Rows[0].Text == "/init"
	})
	h.sees("writes AGENTS.md")
	h.press("ctrl+c")
	h.write("/initiate")
	h.press("enter")
	h.reads("there is no command /initiate")
}

func TestPlainAgents(t *testing.T) {
	k := talk(t, hosts(t, "options").Socket)
	k.hears("session ses-")
	k.types("/agent")
	k.hears("scripted: ", "absent: absent cannot be started", "not found", "/agent NAME has one make the turns")
	k.types("/agent scripted")
	k.hears("session ses-")
	k.types("/options")
	k.hears("thinking: Low", "/options NAME VALUE chooses that")
	k.types("/options thinking")
	k.hears("high: ", "/options thinking VALUE chooses")
	k.types("/options thinking high")
	k.hears("thinking is High now")
}
