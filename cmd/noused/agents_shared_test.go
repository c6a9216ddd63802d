package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// beside is another session with the same agent in the same folder, whose events alone it reads.
func (h *hosting) beside() *hosting {
	other := *h
	other.checker, other.alone = newHostedChecker(), true
	other.session = h.newSession("scripted")
	other.follow()
	return &other
}

// newHosts is newHost with so many sessions.
func newHosts(t testing.TB, n int, can string, more ...string) (all []*hosting) {
	h := newHost(t, can, more...)
	h.alone = true
	for all = append(all, h); len(all) < n; {
		all = append(all, h.beside())
	}
	return all
}

// rest reads what the daemon has said before it started anew, and follows the next.
func (h *hosting) rest() (lines []string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		env, _, err := h.events.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				h.t.Fatal(err)
			}
			h.follow()
			return lines
		}
		ev, err := client.Decode(env)
		if err == nil && ev.Where().SessionID == h.session {
			if err = h.checker.Event(ev); err == nil && shown(ev) != "" {
				lines = append(lines, shown(ev))
			}
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *hosting) oneAgent() {
	h.t.Helper()
	if pids := h.agents(); len(pids) != 1 {
		h.t.Errorf("agents %v were started, want one", pids)
	}
}

// Sessions with the same agent in the same folder have one process, and each hears of its own only:
// of what is said, asked, queued, cut and called in it.
func TestSessionsOfAFolderShareAnAgent(t *testing.T) {
	all := newHosts(t, 4, "load,close")
	asks, talks, hangs, late := all[0], all[1], all[2], all[3]
	asks.prompt("!call c1 execute {\"command\":\"ls\"}\n!ask c1\n!say asked")
	talks.prompt("!say one\n!wait " + talks.gate("go"))
	hangs.prompt("!call c1 execute\n!begin c1\n!hang")
	asks.until("asks ask: bash outside the sandbox")
	talks.until("delta: one")
	hangs.until("call do execute {}")

	late.prompt("!foreign\n!elsewhere nobody hears it\n!say late")
	late.wants(late.until("run ends completed")[2:], "delta: late", "message end: late", "turn ends end",
		"run ends completed")
	late.wants(late.log("foreign"), `foreign {"outcome":{"outcome":"cancelled"}}`)

	hangs.abort()
	hangs.wants(hangs.until("run ends aborted"), "failed aborted: stopped; it may have done part of its work; check",
		"turn ends aborted", "run ends aborted")
	talks.queue(protocol.KindFollowUp, "later")
	hangs.prompt("!say again\n!hang")
	hangs.until("delta: again")
	hangs.queue(protocol.KindSteer, "instead")
	hangs.wants(hangs.until("run ends completed"), "message aborted: again", "turn ends steered", "turn steer",
		"user: instead", "delta: instead", "message end: instead", "turn ends end", "run ends completed")
	talks.open("go")
	talks.wants(talks.until("run ends completed"), "message end: one", "turn ends end", "turn follow_up", "user: later",
		"delta: later", "message end: later", "turn ends end", "run ends completed")
	asks.allow("asks ")
	asks.wants(asks.until("run ends completed"), "answered allowed", `call do execute {"command":"ls"}`, "result ",
		"delta: asked", "message end: asked", "turn ends end", "run ends completed")
	asks.oneAgent()

	// One that is deleted is closed in the agent, and the others go on.
	if _, err := client.Call(context.Background(), late.dial(), protocol.DeleteSession, protocol.DeleteSessionParams{
		SessionID: late.session,
	}); err != nil {
		t.Fatal(err)
	}
	talks.prompt("still there")
	talks.until("run ends completed")
	if closed := talks.log("close"); len(closed) != 1 {
		t.Errorf("the agent was told %q, want that one session is closed", closed)
	}
	talks.oneAgent()
	for _, h := range all[:3] {
		if err := h.checker.Done(); err != nil {
			t.Error(err)
		}
	}
	talks.Stop()
	talks.noneLeft()
}

// An agent that ends cuts all its sessions, and each goes on where it was. What has ended it is not
// known, so that each has one of its own then.
func TestTheEndOfAnAgentCutsAllItsSessions(t *testing.T) {
	all := newHosts(t, 2, "load")
	a, b := all[0], all[1]
	b.prompt("!say two\n!wait " + b.gate("go"))
	b.until("delta: two")
	a.prompt("!say one\n!once ended")
	const ended = "warning agent_ended: scripted has ended (exit status 7: once) and is started again"
	a.until(ended)
	b.until(ended)
	b.open("go")
	a.until("run ends completed")
	b.until("run ends completed")
	if pids := a.agents(); len(pids) != 3 {
		t.Errorf("agents %v were started, want three", pids)
	}
	b.prompt("!say three\n!wait " + b.gate("go2"))
	b.until("delta: three")
	a.prompt("!once more")
	a.until("run ends completed")
	b.open("go2")
	b.wants(b.until("run ends completed"), "message end: three", "turn ends end", "run ends completed")
}

// An agent that does not end a turn is ended, and what it did in other sessions goes on in another
// process: that is no failure of theirs.
func TestATurnThatDoesNotEndIsNotPaidForByOthers(t *testing.T) {
	all := newHosts(t, 2, "load")
	deaf, other := all[0], all[1]
	other.prompt("!say two\n!wait " + other.gate("go"))
	other.until("delta: two")
	deaf.prompt("!say one\n!deaf\n!wait /nowhere")
	deaf.until("delta: one")
	deaf.abort()
	deaf.until("run ends aborted")
	deaf.prompt("and then") // waits for the end of that
	other.until("warning agent_ended: scripted was ended, as it did not end a turn of session " + deaf.session +
		", and is started again")
	deaf.until("run ends completed")
	other.open("go")
	other.until("run ends completed")
	if prompts := other.log("prompt"); len(prompts) != 4 {
		t.Errorf("the agents were sent %q, want four prompts", prompts)
	}
}

// An agent that takes no second session, or takes two for one, has a process for each.
func TestAnAgentThatTakesOneSessionIsStartedForEach(t *testing.T) {
	for _, can := range []string{"one,load", "same,load"} {
		t.Run(can, func(t *testing.T) {
			all := newHosts(t, 3, can)
			for i, h := range all {
				h.prompt(fmt.Sprintf("!say %d\n!wait %s", i, h.gate("go")))
				h.until(fmt.Sprintf("delta: %d", i))
			}
			all[0].open("go")
			for i, h := range all {
				h.wants(h.until("run ends completed"), fmt.Sprintf("message end: %d", i), "turn ends end", "run ends completed")
			}
			if pids := all[0].agents(); len(pids) != 3 {
				t.Errorf("agents %v were started, want three", pids)
			}
			if refused := all[0].log("refuse"); len(refused) > 1 {
				t.Errorf("it has refused %d times, and once is enough to know", len(refused))
			}
		})
	}
}

// What is said in a session that waits for an answer is kept up to a bound. More than that ends its
// turn, and no other session of the agent waits for it.
func TestAFloodInASessionThatWaitsEndsItsTurn(t *testing.T) {
	all := newHosts(t, 2, "load")
	floods, other := all[0], all[1]
	floods.prompt("!call c1 execute {\"command\":\"ls\"}\n!asking c1\n!flood 1000\n!hang")
	floods.until("asks ask: bash outside the sandbox")
	for range 3 {
		other.prompt("!say here")
		other.until("run ends completed")
	}
	floods.allow("asks ")
	floods.until("run ends error agent_failed: scripted has said more than could be taken in, and other sessions of it " +
		"waited for that")
	floods.prompt("still there")
	floods.until("run ends completed")
	other.oneAgent()
}

// A restart of the daemon leaves an agent with all its sessions to the next program: with turns,
// questions and none.
func TestSessionsThatShareAnAgentOutliveRestarts(t *testing.T) {
	const words = 4000
	all := newHosts(t, 4, "load")
	counts, asks, idle, unread := all[0], all[1], all[2], all[3]
	idle.prompt("!say idle")
	idle.until("run ends completed")
	unread.prompt("!say idle, too")
	unread.until("run ends completed")
	asks.prompt("!call c1 execute {\"command\":\"ls\"}\n!ask c1\n!say asked")
	asks.until("asks ask: bash outside the sandbox")
	counts.prompt(fmt.Sprintf("!count %d", words))
	lines := counts.until("delta: 0,")
	for round := range 3 {
		lines = append(lines, counts.until("9,")...)
		lines = append(lines, counts.restart()...)
		asks.rest()
		idle.rest()
		if round > 0 { // and at once
			idle.prompt("!say more")
			idle.until("run ends completed")
		}
	}
	if !runEnded(lines) {
		lines = append(lines, counts.until("run ends completed")...)
	}
	var told, want strings.Builder
	for _, line := range lines {
		if word, ok := strings.CutPrefix(line, "delta: "); ok {
			told.WriteString(word)
		}
		if line == "resumed" || strings.HasPrefix(line, "warning") {
			t.Errorf("people are told: %s", line)
		}
	}
	for i := range words {
		fmt.Fprintf(&want, "%d,", i)
	}
	if told.String() != want.String() {
		t.Errorf("told %d bytes, want %d: %.300s", told.Len(), want.Len(), told.String())
	}
	asks.allow("asks ")
	asks.until("delta: asked")
	asks.until("run ends completed")
	unread.rest()
	unread.prompt("!say there, too")
	unread.until("run ends completed")
	counts.beside().prompt("!say a new one")
	counts.oneAgent()
	counts.Stop()
	counts.noneLeft()
}

// A kill -9 of the daemon cuts all, and the next one starts one agent for all.
func TestSessionsThatShareAnAgentAreResumedTogether(t *testing.T) {
	all := newHosts(t, 3, "load")
	for i, h := range all {
		h.prompt(fmt.Sprintf("!say %d\n!wait %s", i, h.gate("go")))
		h.until(fmt.Sprintf("delta: %d", i))
	}
	all[0].Kill()
	all[0].Start()
	all[0].open("go")
	for _, h := range all {
		h.follow()
		h.until("run ends completed")
	}
	if pids := all[0].agents(); len(pids) != 2 {
		t.Errorf("agents %v were started, want two", pids)
	}
	if prompts := all[0].log("prompt"); len(prompts) != 6 {
		t.Errorf("the agent was sent %q, want six prompts", prompts)
	}
}
