package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/protocol"
)

func (h *hosting) choose(id, value string) error {
	_, err := client.Call(context.Background(), h.dial(), protocol.SetAgentOption, protocol.SetAgentOptionParams{
		Scope: protocol.Scope{SessionID: h.session}, ID: id, Value: value,
	})
	return err
}

// mustChoose chooses, and is told what the agent has then.
func (h *hosting) mustChoose(id, value string) {
	h.t.Helper()
	if err := h.choose(id, value); err != nil {
		h.t.Fatal(err)
	}
}

// said is what the agent says of its options by itself.
func (h *hosting) said() string {
	h.t.Helper()
	h.prompt("!chosen")
	lines := h.until("run ends completed")
	return strings.TrimPrefix(lines[len(lines)-3], "message end: ")
}

// What an agent offers is in the session's state, and is chosen there, before the first
// prompt too. What was chosen is chosen again after the daemon was killed.
func TestOptionsOfAnAgent(t *testing.T) {
	for _, can := range []string{"options,commands", "options,commands,load", "options,commands,resume"} {
		t.Run(can, func(t *testing.T) {
			h := newHost(t, can)
			if st := h.state(); st.AgentOptions != nil || st.AgentCommands != nil || st.Model.Provider != "scripted" {
				t.Errorf("got %+v and %+v of %+v before the agent has said anything", st.AgentOptions, st.AgentCommands, st.Model)
			}
			h.mustChoose("model", "large")
			h.mustChoose("fast", "true")
			st := h.state()
			want := []protocol.AgentOption{
				{ID: "model", Name: "Model", Category: "model", Value: "large", Values: []protocol.AgentValue{
					{Value: "small", Name: "Small", Description: "quick"}, {Value: "large", Name: "Large"},
				}},
				{ID: "thinking", Name: "Thinking", Category: "thought_level", Value: "low", Values: []protocol.AgentValue{
					{Value: "low", Name: "Low"}, {Value: "high", Name: "High"},
				}},
				{ID: "fast", Name: "Fast", Value: "true", Values: []protocol.AgentValue{
					{Value: "true", Name: "on"}, {Value: "false", Name: "off"},
				}},
			}
			if diff := cmp.Diff(want, st.AgentOptions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			commands := []protocol.AgentCommand{
				{Name: "init", Description: "writes AGENTS.md"}, {Name: "review", Description: "reviews", Hint: "what"},
			}
			if diff := cmp.Diff(commands, st.AgentCommands); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if st.Model != (protocol.ModelInfo{Provider: "scripted", Name: "large", Effort: "low"}) {
				t.Errorf("got model %+v", st.Model)
			}
			h.wants([]string{h.said()}, "large low ask true")

			h.Kill()
			h.Start()
			h.follow()
			if got := h.said(); !strings.HasSuffix(got, "large low ask true") { // behind what it may have forgotten
				t.Errorf("got %q", got)
			}
			chosen := h.log("choose")
			if len(chosen) != 4 || !strings.Contains(chosen[2], "large") || !strings.Contains(chosen[3], "true") {
				t.Errorf("got %q, want each choice once for each process", chosen)
			}
			if prompts := h.log("prompt"); len(prompts) != 2 {
				t.Errorf("got %q", prompts)
			}
		})
	}
}

// A choice that does not exist is refused with a list of those that do, in any session.
func TestOptionsThatAreRefused(t *testing.T) {
	h := newHost(t, "options,poor")
	for _, row := range []struct{ id, value, want string }{
		{"mood", "good", "invalid_payload: id: scripted has no option \"mood\", only model, thinking, fast"},
		{"model", "huge", "invalid_payload: value: model of scripted cannot be \"huge\", only small, large"},
		{"fast", "yes", "invalid_payload: value: fast of scripted cannot be \"yes\", only true, false"},
		{"model", "large", "provider_error: scripted: large costs more than is left"},
		{"", "large", "invalid_payload: id: want a non-empty string"},
	} {
		if err := h.choose(row.id, row.value); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s = %s: got %v, want %s", row.id, row.value, err, row.want)
		}
	}
	h.session = h.newSession("noused")
	const want = "unsupported_by_agent: noused, the daemon's own, has no such options"
	if err := h.choose("model", "large"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// set_model, its effort and list_models are those of the agent, also of one that knows only
// modes and models.
func TestModelsOfAnAgent(t *testing.T) {
	for can, effort := range map[string]string{"options": "high", "modes": ""} {
		t.Run(can, func(t *testing.T) {
			h := newHost(t, can)
			c, ctx := h.dial(), context.Background()
			list, err := client.Call(ctx, c, protocol.ListModels, protocol.ListModelsParams{SessionID: h.session})
			if err != nil {
				t.Fatal(err)
			}
			want := []protocol.ListedModel{
				{Model: "small", Provider: "scripted", Name: "small", Source: "agent", Default: true},
				{Model: "large", Provider: "scripted", Name: "large", Source: "agent"},
			}
			if diff := cmp.Diff(want, list.Models); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			r, err := client.Call(ctx, c, protocol.SetModel, protocol.SetModelParams{
				Scope: protocol.Scope{SessionID: h.session}, Model: "scripted/large", Effort: effort,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Model != (protocol.ModelInfo{Provider: "scripted", Name: "large", Effort: effort}) {
				t.Errorf("got %+v", r.Model)
			}
			if can == "modes" {
				h.mustChoose("mode", "code")
				h.wants([]string{h.said()}, "large low code false")
				return
			}
			h.wants([]string{h.said()}, "large high ask false")
			_, err = client.Call(ctx, c, protocol.SetModel, protocol.SetModelParams{
				Scope: protocol.Scope{SessionID: h.session}, Model: "huge",
			})
			if err == nil || !strings.Contains(err.Error(), "cannot be \"huge\", only small, large") {
				t.Errorf("got %v, want a list of the models", err)
			}
		})
	}
	h := newHost(t, "")
	_, err := client.Call(context.Background(), h.dial(), protocol.SetModel, protocol.SetModelParams{
		Scope: protocol.Scope{SessionID: h.session}, Model: "large",
	})
	if err == nil || !strings.Contains(err.Error(), "unsupported_by_agent: scripted cannot have another model") {
		t.Errorf("got %v, want unsupported_by_agent", err)
	}
}

// What an agent changes by itself is told, and holds after a restart.
func TestOptionsThatAnAgentChanges(t *testing.T) {
	h := newHost(t, "options,load")
	h.mustChoose("thinking", "high")
	h.prompt(`!tell {"sessionUpdate":"config_option_update","configOptions":[{"id":"thinking","name":"T","type":"select",` +
		`"currentValue":"low","options":[{"value":"low","name":"Low"},{"value":"high","name":"High"}]}]}`)
	h.until("run ends completed")
	st := h.state()
	if len(st.AgentOptions) != 1 || st.AgentOptions[0].Value != "low" {
		t.Errorf("got %+v", st.AgentOptions)
	}
	h.Kill()
	h.Start()
	h.follow()
	h.wants([]string{h.said()}, "small low ask false")
}

// What was chosen and is not taken any more is told, and the run goes on.
func TestAChoiceThatIsNotTakenAgain(t *testing.T) {
	h := newHost(t, "options,load")
	h.mustChoose("model", "large")
	h.prompt("hi")
	h.until("run ends completed")
	h.Kill()
	h.configure("options,load,poor")
	h.Start()
	h.follow()
	h.prompt("!chosen")
	h.wants(h.until("run ends completed")[1:], "user: !chosen",
		"warning agent_option_refused: scripted goes on without the chosen model = large: scripted: large costs more than "+
			"is left", "delta: small low ask false",
		"message end: small low ask false", "turn ends end", "run ends completed")
}

// However much an agent offers, a state has a bounded part of it.
func TestOffersAreBounded(t *testing.T) {
	h := newHost(t, "")
	long := strings.Repeat("d", 400)
	value := `{"value":"v-` + long + `","name":"` + long + `","description":"` + long + `"}`
	h.prompt(`!tell {"sessionUpdate":"config_option_update","configOptions":[{"id":"o","name":"O","type":"select",` +
		`"currentValue":"a","options":[` + strings.Repeat(value+",", 2000) + value + `]}]}` + "\n" +
		`!tell {"sessionUpdate":"available_commands_update","availableCommands":[` +
		strings.Repeat(`{"name":"c","description":"`+long+`"},`, 2000) + `{"name":"last","description":""}]}`)
	h.until("run ends completed")
	st := h.state()
	size := 0
	for _, v := range st.AgentOptions[0].Values {
		size += len(v.Value) + len(v.Name) + len(v.Description)
	}
	for _, c := range st.AgentCommands {
		size += len(c.Description)
	}
	if size > 128<<10 || size < 64<<10 || !st.AgentOptions[0].Truncated {
		t.Errorf("got %d bytes, truncated %t", size, st.AgentOptions[0].Truncated)
	}
}

// An agent that knows no answer but its own always is never given that for a single yes, by
// a person or by a rule.
func TestAnAgentThatOffersOnlyAlways(t *testing.T) {
	h := newHost(t, "always", "[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"\ncommand = [\"make\"]")
	answer := func(command, option, want string) {
		t.Helper()
		h.prompt(`!call c1 execute {"command":"` + command + `"}` + "\n!ask c1")
		h.until(want)
		pending := h.state().PendingApprovals
		var options []string
		for _, o := range pending[0].Options {
			options = append(options, o.ID)
		}
		h.wants(options, "always", "deny")
		approve := func(option string) error {
			_, err := client.Call(context.Background(), h.dial(), protocol.Approve, protocol.ApproveParams{
				ApprovalID: pending[0].ApprovalID, Option: option,
			})
			return err
		}
		if err := approve("once"); err == nil || !strings.Contains(err.Error(), "only always, deny") {
			t.Errorf("got %v, want once refused", err)
		}
		if err := approve(option); err != nil {
			t.Fatal(err)
		}
		h.until("run ends completed")
	}
	answer("ls", "deny", "asks ask: bash outside the sandbox")
	answer("make", "always", "asks ask: scripted cannot be allowed this call alone")
	_, err := client.Call(context.Background(), h.dial(), protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: protocol.Scope{SessionID: h.session}, Mode: protocol.ApprovalsAuto,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.prompt("!call c1 execute {\"command\":\"ls\"}\n!ask c1")
	h.until("run ends completed")
	h.wants(h.log("answer"), "answer cancelled ", "answer selected ever", "answer selected ever")
}

// reload_tools reads the sections of agents again; an agent that works goes on.
func TestAgentsAreReadAgain(t *testing.T) {
	h := newHost(t, "")
	h.prompt("!say one\n!wait " + h.agentDir() + "/go")
	h.until("delta: one")
	h.write("noused/config.toml", "default_agent = \"other\"\n[agent.other]\ncommand = [\"scripted-agent\"]\n", 0o600)
	ctx := context.Background()
	if _, err := client.Call(ctx, h.dial(), protocol.ReloadTools, protocol.ReloadToolsParams{}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Call(ctx, h.dial(), protocol.NewSession, protocol.NewSessionParams{Agent: "scripted"})
	if err == nil || !strings.Contains(err.Error(), "there is no agent \"scripted\"") {
		t.Errorf("got %v, want the agent unknown", err)
	}
	h.write("agent/go", "", 0o600)
	h.until("run ends completed")
	h.session = h.newSession("")
	if st := h.state(); st.Agent != "other" {
		t.Errorf("got %s, want the default agent", st.Agent)
	}
	h.prompt("hi")
	h.until("run ends completed")
}
