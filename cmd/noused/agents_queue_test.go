package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/protocol"
)

// An agent that takes a prompt while it works gets a steer at once, and its turn is not cancelled.
func TestASteerGoesToAnAgentThatQueuesAtOnce(t *testing.T) {
	h := newHost(t, "queue")
	h.prompt("!say one\n!wait " + h.gate("gate") + "\n!say two")
	h.until("delta: one")
	lines := h.steerAtOnce("and this")
	h.open("gate")
	h.wants(append(lines, h.until("run ends completed")...), "message end: one", "turn ends steered", "turn steer",
		"user: and this", "delta: two", "delta: and this", "message end: twoand this", "turn ends end", "run ends completed")
	if usage := h.state().Usage; usage.InputTokens != 20 {
		t.Errorf("got %d tokens, want those of both prompts", usage.InputTokens)
	}

	h.prompt("!call c1 execute\n!begin c1\n!wait " + h.gate("gate2") + "\n!show c1 out\n!done c1") // a call runs
	h.until("call do execute {}")
	lines = h.steerAtOnce("three\n!say four")
	h.open("gate2")
	h.wants(append(lines, h.until("run ends completed")...), "result (it goes on)", "turn ends steered", "turn steer",
		"user: three\n!say four", "message tool_calls: ", "call do execute {}", "result out", "delta: three", "delta: four",
		"message end: three|four", "turn ends end", "run ends completed")

	if got := h.log("cancel"); len(got) != 0 {
		t.Errorf("the agent was told %q", got)
	}
}

// So does one that ends the prompt that it works on when another comes.
func TestASteerEndsThePromptOfAnAgentThatHandsOff(t *testing.T) {
	h := newHost(t, "handoff")
	h.prompt("!say one\n!hang")
	h.until("delta: one")
	h.queue(protocol.KindSteer, "instead")
	h.queue(protocol.KindFollowUp, "later")
	h.wants(h.until("run ends completed"), "message end: one", "turn ends steered", "turn steer", "user: instead",
		"delta: instead", "message end: instead", "turn ends end", "turn follow_up", "user: later", "delta: later",
		"message end: later", "turn ends end", "run ends completed")
	if got := h.log("end"); len(got) != 3 || got[0] != "end cancelled" || len(h.log("cancel")) != 0 {
		t.Errorf("got %q, and cancels %q", got, h.log("cancel"))
	}
}

// An abort ends both prompts, and what comes then is a turn of its own.
func TestAnAbortEndsAllPromptsInFlight(t *testing.T) {
	h := newHost(t, "queue")
	h.prompt("!say one\n!hang")
	h.until("delta: one")
	h.steerAtOnce("two\n!hang")
	h.abort()
	h.until("run ends aborted")
	h.prompt("still there")
	h.wants(h.until("run ends completed")[2:], "delta: still there", "message end: still there", "turn ends end",
		"run ends completed")
	if got := h.log("start", "cancel"); len(got) != 2 {
		t.Errorf("got %q, want one process and one cancel", got)
	}
}

// An approval that is open is taken back by a steer, which the agent has at once.
func TestASteerTakesAnApprovalBackFromAnAgentThatQueues(t *testing.T) {
	h := newHost(t, "queue")
	h.prompt("!call c1 execute {\"command\":\"ls\"}\n!ask c1\n!say after")
	h.until("asks*")
	h.queue(protocol.KindSteer, "no")
	h.wants(h.until("run ends completed"), "answered withdrawn", `call do execute {"command":"ls"}`,
		"skipped skipped: the user steered the run before this call", "turn ends steered", "turn steer", "user: no",
		"delta: after", "delta: no", "message end: afterno", "turn ends end", "run ends completed")
}

// A steer in flight is neither lost nor sent twice to an agent that has it, whatever ends or starts anew.
func TestASteerInFlightOutlives(t *testing.T) {
	killAgent := func(h *hosting) { _ = syscall.Kill(h.agents()[0], syscall.SIGKILL) }
	for what, c := range map[string]struct {
		can  string
		do   func(h *hosting)
		has  bool // the agent works on the steer by then
		same bool // the agent is the same process
	}{
		"nous restart": {can: "queue,load", do: func(h *hosting) { h.restart() }, same: true},
		"nous restart, and the agent has it": {
			can: "handoff,load", do: func(h *hosting) { h.restart() }, same: true, has: true,
		},
		"kill -9":                             {can: "queue,load", do: (*hosting).killed},
		"kill -9, and the agent has it":       {can: "handoff,load", do: (*hosting).killed, has: true},
		"kill -9, and it resumes, too":        {can: "handoff,load,resume", do: (*hosting).killed, has: true},
		"the agent is killed":                 {can: "queue,load", do: killAgent},
		"the agent is killed, and has it":     {can: "handoff,load", do: killAgent, has: true},
		"the agent is killed, and resumes it": {can: "handoff,load,resume", do: killAgent, has: true},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t, c.can)
			h.prompt("!say one\n!wait " + h.gate("gate") + "\n!say two")
			h.until("delta: one")
			const steer = "the text of the steer, which nobody writes twice by chance"
			h.steerAtOnce("!wait " + h.gate("gate") + "\n" + steer)
			if c.has {
				h.logged("prompt", steer)
			}
			c.do(h)
			h.open("gate")
			lines := h.until("run ends completed")
			if last := lines[len(lines)-2]; last != "turn ends end" {
				t.Errorf("got %q, want the turn to end well", lines)
			}
			if n := strings.Count(strings.Join(h.log("prompt"), "\n"), steer); n != 1 {
				t.Errorf("the agent has worked on the steer %d times, want once: %q", n, h.log("prompt"))
			}
			if pids := h.agents(); (len(pids) == 1) != c.same {
				t.Errorf("agents %v were started, the same: %t", pids, c.same)
			}
			if err := h.checker.Done(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (h *hosting) gate(name string) string { return filepath.Join(h.Dir, name) }

// open opens what the agent waits at, for all that comes.
func (h *hosting) open(gate string) { h.write(gate, "", 0o600) }

// steerAtOnce steers, waits until the agent has that, and reads events until it is delivered.
func (h *hosting) steerAtOnce(text string) (lines []string) {
	h.t.Helper()
	h.queue(protocol.KindSteer, text)
	first, _, _ := strings.Cut(text, "\n")
	h.logged("queue", first)
	return h.until("user: " + first + "*")
}

// logged waits until the agent's log has such a line.
func (h *hosting) logged(word, text string) {
	h.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(time.Minute); !strings.Contains(strings.Join(h.log(word), "\n"), text); {
		if time.Now().After(until) {
			h.t.Fatalf("the agent's log has no %s %q: %q", word, text, h.log("prompt", "queue", "end", "start"))
		}
		<-tick.C
	}
}

// killed kills the daemon and starts another.
func (h *hosting) killed() {
	h.Kill()
	h.Start()
	h.follow()
}
