package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
)

// hosting is a daemon that hosts the agent of package agenttest.
type hosting struct {
	*daemon
	events  *client.Events
	checker *protocoltest.Checker
	session string
	queues  bool // until lists texts that are queued
	alone   bool // until looks at the session's events only
}

func newHostedChecker() *protocoltest.Checker {
	c := protocoltest.NewChecker()
	c.Hosted = true
	return c
}

// newHost starts a daemon whose agent can do that, with more lines of the agent's section,
// and makes a session.
func newHost(t testing.TB, can string, more ...string) *hosting {
	t.Helper()
	h := &hosting{daemon: unstarted(t, "noused"), checker: newHostedChecker()}
	h.configure(can, more...)
	if err := os.MkdirAll(h.agentDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	h.Start()
	h.follow()
	h.session = h.newSession("scripted")
	return h
}

// configure writes the agent's section.
func (h *hosting) configure(can string, more ...string) {
	h.write("noused/config.toml", fmt.Sprintf("[agent.scripted]\ncommand = [\"scripted-agent\"]\n"+
		"env = { AGENTTEST_DIR = %q, AGENTTEST_CAN = %q }\n%s\n", h.agentDir(), can, strings.Join(more, "\n")), 0o600)
}

func (h *hosting) agentDir() string { return filepath.Join(h.Dir, "agent") }

// follow reads the events of this epoch from its first.
func (h *hosting) follow() { h.events = h.daemon.events(protocol.SubscribeParams{After: new(uint64)}) }

func (h *hosting) newSession(agent string) string {
	h.t.Helper()
	r, err := client.Call(context.Background(), h.dial(), protocol.NewSession, protocol.NewSessionParams{Agent: agent})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.SessionID
}

func (h *hosting) prompt(text string) {
	h.t.Helper()
	wait := false
	r, err := client.Call(context.Background(), h.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: h.session}, Text: text, Wait: &wait,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.checker.Accepted(r.Accepted.InputID, r.Accepted.RunID)
}

func (h *hosting) queue(kind protocol.Kind, text string) {
	h.t.Helper()
	p := protocol.SteerParams{Scope: protocol.Scope{SessionID: h.session}, Text: text}
	var r protocol.InputAccepted
	var err error
	if kind == protocol.KindSteer {
		r, err = client.Call(context.Background(), h.dial(), protocol.Steer, p)
	} else {
		r, err = client.Call(context.Background(), h.dial(), protocol.FollowUp, protocol.FollowUpParams(p))
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.checker.Accepted(r.InputID, r.RunID)
}

// until reads events, checks them, and tells them as lines, up to one that ends in what is
// looked for, or begins with it where a * follows.
func (h *hosting) until(what string) (lines []string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		env, _, err := h.events.Next(ctx)
		var ev protocol.Event
		if err == nil {
			ev, err = client.Decode(env)
		}
		if err != nil {
			h.t.Fatalf("waiting for %q after %q: %v", what, lines, err)
		}
		if h.alone && ev.Where().SessionID != h.session {
			continue
		}
		if err := h.checker.Event(ev); err != nil {
			h.t.Fatalf("%v, after %q", err, lines)
		}
		line := shown(ev)
		if st, ok := ev.(protocol.Status); ok && h.queues && st.PendingCounts != nil {
			line = st.Message
		}
		if line == "" {
			continue
		}
		lines = append(lines, line)
		begin, any := strings.CutSuffix(what, "*")
		if strings.HasSuffix(line, what) || any && strings.HasPrefix(line, begin) {
			return lines
		}
	}
}

// shown is an event in a line, "" for one that these tests do not look at.
func shown(ev protocol.Event) string {
	switch ev := ev.(type) {
	case protocol.TurnStart:
		return "turn " + string(ev.Kind)
	case protocol.MessageUpdate:
		if ev.ThinkingDelta != "" {
			return "thinks: " + ev.ThinkingDelta
		}
		return "delta: " + strings.TrimSpace(ev.Delta)
	case protocol.MessageEnd:
		if ev.Role == "user" {
			return "user: " + strings.TrimSpace(ev.Text)
		}
		if ev.Role == "assistant" {
			return fmt.Sprintf("message %s: %s", ev.StopReason, strings.ReplaceAll(strings.TrimSpace(ev.Text), "\n", "|"))
		}
	case protocol.ToolStart:
		return "call " + ev.ToolName + " " + string(ev.Arguments)
	case protocol.ToolEnd:
		word := "result"
		if !ev.OK {
			word = "failed"
		}
		if ev.Skipped {
			word = "skipped"
		}
		return word + " " + strings.ReplaceAll(ev.Result, "\n", "|")
	case protocol.TurnEnd:
		return "turn ends " + string(ev.StopReason)
	case protocol.AgentEnd:
		if ev.Error != nil {
			return "run ends " + string(ev.StopReason) + " " + string(ev.Error.Code) + ": " + ev.Error.Message
		}
		return "run ends " + string(ev.StopReason)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusApprovalRequested:
			return "asks " + ev.Approval.Rule
		case protocol.StatusApprovalResolved:
			return "answered " + string(ev.Outcome)
		case protocol.StatusRunResumed:
			return "resumed"
		}
	case protocol.Warning:
		return "warning " + string(ev.Code) + ": " + ev.Message
	}
	return ""
}

// log are the lines of the agent's log that begin with one of the words, from all its
// processes.
func (h *hosting) log(words ...string) (lines []string) {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.agentDir(), "log"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		word, _, _ := strings.Cut(line, " ")
		if word == "WRONG" {
			h.t.Errorf("the agent says of its client: %s", line)
		}
		if slices.Contains(words, word) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (h *hosting) wants(got []string, want ...string) {
	h.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		h.t.Errorf("-want +got:\n%s", diff)
	}
}

func (h *hosting) state() protocol.State {
	h.t.Helper()
	st, err := client.Call(context.Background(), h.dial(), protocol.GetState, protocol.GetStateParams{
		Scope: protocol.Scope{SessionID: h.session},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

// What an agent does is told as what our own loop does.
func TestAHostedTurnIsToldAsOurs(t *testing.T) {
	h := newHost(t, "")
	h.prompt(strings.Join([]string{
		"!think hm", "!say one", `!call c1 execute {"command":"ls"}`, "!begin c1", "!show c1 a file", "!done c1",
		"!say two", "!call c2 edit", "!begin c2", "!diff c2", "!fail c2", "!message m2 three", "!message m3 four",
		`!update plan [{"content":"eat","status":"pending","priority":"high"}]`, "!cost 0.25", "!title a walk", "!read /etc/passwd",
		"!elsewhere nothing",
	}, "\n"))
	got := h.until("run ends completed")[2:]
	h.wants(got, "thinks: hm", "delta: one", "message tool_calls: one", `call do execute {"command":"ls"}`,
		"result a file", "delta: two", "message tool_calls: two", "call do edit {}", "failed /tmp/f|-a|+b",
		"delta: three", "message end: three", "delta: four", "message end: four",
		"delta: read: 0 bytes", "message end: read: 0 bytes", "turn ends end", "run ends completed")
	st := h.state()
	if st.Agent != "scripted" || st.Title != "a walk" || st.Usage.InputTokens != 10 ||
		st.Usage.Cost == nil || st.Usage.Cost.Amount != 0.25 ||
		!strings.Contains(string(st.SessionState), `"eat"`) {
		t.Errorf("got agent %s, usage %+v, state %s", st.Agent, st.Usage, st.SessionState)
	}
}

// Texts that wait are delivered to the agent as they are to a model.
func TestTextsForAHostedAgent(t *testing.T) {
	h := newHost(t, "")
	go1 := filepath.Join(h.Dir, "go1")
	h.prompt("!say one\n!wait " + go1)
	h.until("delta: one")
	h.queue(protocol.KindFollowUp, "later")
	h.write("go1", "", 0o600)
	h.wants(h.until("run ends completed"), "message end: one", "turn ends end", "turn follow_up", "user: later",
		"delta: later", "message end: later", "turn ends end", "run ends completed")

	go0 := filepath.Join(h.Dir, "go0")
	h.prompt("!say so far\n!wait " + go0 + "\n!stop cancelled") // by itself, as codex does when it is denied something
	h.until("delta: so far")
	h.queue(protocol.KindFollowUp, "go on")
	h.write("go0", "", 0o600)
	h.wants(h.until("run ends completed"), "message aborted: so far", "turn ends aborted", "turn follow_up",
		"user: go on", "delta: go on", "message end: go on", "turn ends end", "run ends completed")
	h.prompt("!stop cancelled")
	h.wants(h.until("run ends aborted")[2:], "turn ends aborted", "run ends aborted")

	h.prompt("!say two\n!hang") // a steer cuts what the agent says
	h.until("delta: two")
	h.queue(protocol.KindSteer, "instead")
	h.wants(h.until("run ends completed"), "message aborted: two", "turn ends steered", "turn steer", "user: instead",
		"delta: instead", "message end: instead", "turn ends end", "run ends completed")

	go2 := filepath.Join(h.Dir, "go2")
	h.prompt("!call c1 execute\n!begin c1\n!wait " + go2 + "\n!done c1\n!hang") // and waits for a call
	h.until("call do execute {}")
	h.queue(protocol.KindSteer, "after it")
	h.write("go2", "", 0o600)
	h.wants(h.until("run ends completed"), "result ", "turn ends steered", "turn steer", "user: after it",
		"delta: after it", "message end: after it", "turn ends end", "run ends completed")

	h.prompt("!say three\n!hang")
	h.until("delta: three")
	h.abort()
	h.wants(h.until("run ends aborted"), "message aborted: three", "turn ends aborted", "run ends aborted")
	h.prompt("!call c1 execute\n!begin c1\n!hang")
	h.until("call do execute {}")
	h.abort()
	h.wants(h.until("run ends aborted"), "failed aborted: stopped; it may have done part of its work; check",
		"turn ends aborted", "run ends aborted")
	h.prompt("still there")
	h.until("run ends completed")
	if starts := h.log("start"); len(starts) != 1 {
		t.Errorf("got %q, want one process", starts)
	}
}

func (h *hosting) abort() {
	h.t.Helper()
	_, err := client.Call(context.Background(), h.dial(), protocol.Abort, protocol.AbortParams{
		Scope: protocol.Scope{SessionID: h.session},
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// What an agent asks is one of our questions: rules come first, then people.
func TestWhatAHostedAgentAsks(t *testing.T) {
	h := newHost(t, "", `
[[policy.rule]]
tool = "bash"
decision = "allow"
command = ["make", "test"]
[[policy.rule]]
tool = "bash"
decision = "deny"
command = ["rm"]
[[policy.rule]]
tool = "edit"
decision = "allow"
path = ["src/**"]`)
	ask := func(kind, input, more string) {
		h.prompt("!call c1 " + kind + " " + input + "\n" + more + "!ask c1")
	}
	ask("execute", `{"command":"make test"}`, "")
	h.wants(h.until("run ends completed")[2:], "message tool_calls: ", `call do execute {"command":"make test"}`, "result ",
		"turn ends end", "run ends completed")
	ask("execute", `{"command":["bash","-lc","echo a; rm -rf b"]}`, "")
	h.wants(h.until("run ends completed")[3:], `call do execute {"command":["bash","-lc","echo a; rm -rf b"]}`,
		"failed forbidden: a rule denies it: bash: rm …", "turn ends end", "run ends completed")
	ask("edit", "{}", "!at c1 "+filepath.Join(h.Dir, "src", "a.go")+"\n")
	h.wants(h.until("run ends completed")[3:], "call do edit {}", "result ", "turn ends end", "run ends completed")

	ask("execute", `{"command":"make test"}`, "!begin c1\n") // as opencode does
	h.wants(h.until("run ends completed")[3:], `call do execute {"command":"make test"}`, "result ", "turn ends end",
		"run ends completed")

	for option, want := range map[string][]string{
		"once":   {"answered allowed", `call do execute {"command":"ls"}`, "result "},
		"always": {"answered allowed", `call do execute {"command":"ls"}`, "result "},
		"deny":   {"answered denied", `call do execute {"command":"ls"}`, "failed denied: the user does not allow this call"},
	} {
		ask("execute", `{"command":"ls"}`, "")
		h.until("asks ask: bash outside the sandbox")
		h.answer(option)
		h.wants(h.until("run ends completed"), append(want, "turn ends end", "run ends completed")...)
	}
	ask("execute", `{"command":"ls"}`, "") // a steer takes the question back
	h.until("asks ask: bash outside the sandbox")
	h.queue(protocol.KindSteer, "no")
	h.wants(h.until("turn steer"), "answered withdrawn", `call do execute {"command":"ls"}`,
		"skipped skipped: the user steered the run before this call", "turn ends steered", "turn steer")
	h.until("run ends completed")
	got := h.log("answer")
	slices.Sort(got[4:7])
	h.wants(got, "answer selected yes", "answer selected no", "answer selected yes", "answer selected yes",
		"answer selected ever",
		"answer selected no", "answer selected yes", "answer cancelled ")
}

// A session's run goes on with the same agent's session after the daemon was killed, and
// a text that the agent has had is not sent again.
func TestKilledWhileAnAgentWorks(t *testing.T) {
	for _, can := range []string{"load", "resume", "load,resume", ""} {
		t.Run("can "+can, func(t *testing.T) {
			h := newHost(t, can)
			h.prompt("!say one\n!call c1 execute\n!begin c1\n!hang")
			h.until("call do execute {}")
			h.queue(protocol.KindFollowUp, "then this")
			h.queues = true
			h.until("1 to follow up")
			h.Kill()
			h.Start()
			h.follow()
			got := h.until("run ends completed")
			want := []string{
				"resumed", "failed interrupted: the daemon stopped while this call ran; it may have done part of its work; check",
			}
			if can == "" {
				want = append(want, "warning agent_forgot: scripted cannot take the conversation up again: it reads what was "+
					"said as one text")
			}
			h.wants(got[:len(want)], want...)
			h.wants(got[len(got)-7:], "turn ends end", "turn follow_up", "user: then this", "delta: then this",
				"message end: then this", "turn ends end", "run ends completed")
			prompts := h.log("prompt")
			if len(prompts) != 3 || !strings.Contains(prompts[1], "do execute") {
				t.Errorf("got %q, want the text, one to go on with that names the call, and the follow-up", prompts)
			}
		})
	}
}

// A text of which the agent has said nothing is sent again, unless the agent has it.
func TestATextThatMayNotHaveArrived(t *testing.T) {
	h := newHost(t, "load")
	h.prompt("!hang")
	h.until("user: !hang")
	for len(h.log("prompt")) == 0 {
	}
	h.Kill()
	h.Start()
	h.follow()
	h.until("resumed")
	for len(h.log("prompt")) == 1 {
	}
	if got := h.log("prompt", "load")[1:]; len(got) != 2 || strings.Contains(got[1], "hang") {
		t.Errorf("got %q, want the session loaded, and not the text again", got)
	}
	h.until("run ends completed")
}

// A new text that is a part of an old one is sent all the same, also to an agent that has
// loaded its session.
func TestANewTextThatIsLikeAnOldOne(t *testing.T) {
	h := newHost(t, "load")
	h.prompt("yes, mend it")
	h.until("run ends completed")
	h.Kill()
	h.Start()
	h.follow()
	h.prompt("yes")
	h.until("run ends completed")
	h.wants(h.log("prompt"), `prompt "yes, mend it"`, `prompt "yes"`)
}

// A text that the agent had when its turn was aborted does not come back with the next one.
func TestAnAbortedTextIsNotSentAgain(t *testing.T) {
	h := newHost(t, "load")
	h.prompt("!hang")
	h.until("user: !hang")
	for len(h.log("prompt")) == 0 {
	}
	scope := protocol.Scope{SessionID: h.session}
	_, err := client.Call(context.Background(), h.dial(), protocol.Abort, protocol.AbortParams{Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	h.until("run ends aborted")
	h.prompt("something else")
	h.until("run ends completed")
	h.wants(h.log("prompt"), `prompt "!hang"`, `prompt "something else"`)
}

// The agent has a history of its own, which goes on from its end only.
func TestAHostedSessionGoesOnFromItsEnd(t *testing.T) {
	h := newHost(t, "load")
	h.prompt("one")
	h.until("run ends completed")
	c := h.dial()
	scope := protocol.Scope{SessionID: h.session}
	list, err := client.Call(context.Background(), c, protocol.GetMessages, protocol.GetMessagesParams{Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	first := decode[struct {
		ID string `json:"id"`
	}](t, list.Messages[0])
	const want = "unsupported_by_agent: scripted cannot go on from an earlier message"
	_, err = client.Call(context.Background(), c, protocol.SetLeaf, protocol.SetLeafParams{Scope: scope, LeafID: first.ID})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("set_leaf: got %v, want %s", err, want)
	}
	_, err = client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
		Scope: scope, Text: "two", LeafID: first.ID,
	})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("prompt: got %v, want %s", err, want)
	}
}

// An agent that dies is started again, and given up when it gets nowhere.
func TestAnAgentThatDies(t *testing.T) {
	h := newHost(t, "load", "[agent.forgetful]\ncommand = [\"scripted-agent\"]")
	h.prompt("!say one\n!once here")
	h.wants(h.until("run ends completed")[2:], "delta: one",
		"warning agent_ended: scripted has ended (exit status 7: once) and is started again",
		"delta: You were stopped in the middle of this, and have been started again. Go on where you were.",
		"message end: oneYou were stopped in the middle of this, and have been started again. Go on where you were.",
		"turn ends end", "run ends completed")
	h.session = h.newSession("forgetful")
	h.prompt("!exit no luck")
	got := h.until("without getting on: exit status 7: no luck")
	h.wants(got[len(got)-1:], "run ends error agent_failed: forgetful has ended 4 times without "+
		"getting on: exit status 7: no luck")
	h.prompt("again")
	h.until("run ends completed")
}

// What cannot be hosted is refused in words that help.
func TestAgentsThatCannotBeHosted(t *testing.T) {
	h := newHost(t, "old", "[agent.gone]\ncommand = [\"no-such-agent\"]\n[agent.locked]\ncommand = [\"scripted-agent\"]\n"+
		"env = { AGENTTEST_CAN = \"auth\" }")
	c := h.dial()
	_, err := client.Call(context.Background(), c, protocol.NewSession, protocol.NewSessionParams{Agent: "who"})
	if err == nil || !strings.Contains(err.Error(), "invalid_payload: agent: there is no agent") {
		t.Errorf("got %v, want agent refused", err)
	}
	gone := h.newSession("gone")
	_, err = client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: gone}, Text: "hi",
	})
	if err == nil || !strings.Contains(err.Error(), "command_rejected: agent_missing: gone cannot be started") {
		t.Errorf("got %v, want agent_missing", err)
	}
	h.prompt("hi")
	h.until("run ends error agent_failed: scripted: it speaks version 0 of the Agent Client Protocol, and noused speaks " +
		"version 1: update the older one")
	h.session = h.newSession("locked")
	h.prompt("hi")
	h.until("run ends error agent_failed: locked is not signed in: Authentication required")
}

// What an agent says is bounded, and nonsense ends nothing.
func TestAHostileAgent(t *testing.T) {
	h := newHost(t, "")
	h.prompt("!junk {not json\n!junk 17\n!junk {\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":7}\n" +
		"!flood 600\n!stop nowhere")
	got := h.until("for a reason that is not known: \"nowhere\"")
	if n := strings.Count(got[len(got)-3], "flood"); n != 600*1000 { // deltas may come together where this client is slow
		t.Errorf("got %d words, want all that it said", n)
	}
	h.prompt("!flood 2000")
	h.until("run ends error agent_failed: scripted: the message holds more than 4 MiB")
	h.prompt("!error -32603 it hurts")
	h.until("run ends error provider_error: scripted: it hurts")
	h.prompt("!stop refusal")
	h.until("run ends error refused: scripted: the model refused to answer")
	h.prompt("!say one\n!deaf\n!fork\n!hang")
	h.until("delta: one")
	h.Stop() // within its time, and nothing is left
	for _, line := range h.log("child") {
		if _, err := os.Stat("/proc/" + strings.TrimPrefix(line, "child ")); err == nil {
			t.Errorf("%s is left", line)
		}
	}
}
