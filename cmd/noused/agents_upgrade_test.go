package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/protocol"
)

// restart has the daemon start anew, reads what the old one has said to its end, and follows the
// new one.
func (h *hosting) restart() (lines []string) {
	h.t.Helper()
	c := h.dial()
	lines = h.depart(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for { // until the old one has hung up
		if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
			break
		}
	}
	// Who connects from here on waits for the next one.
	if _, err := client.Call(ctx, h.dial(), protocol.Ping, protocol.PingParams{}); err != nil {
		h.t.Fatal(err)
	}
	h.follow()
	return lines
}

// depart has the daemon start anew, and reads what the old one has said to its end.
func (h *hosting) depart(c *client.Client) (lines []string) {
	h.t.Helper()
	p := protocol.ShutdownParams{Restart: true}
	if _, err := client.Call(context.Background(), c, protocol.Shutdown, p); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		env, _, err := h.events.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				h.t.Fatal(err)
			}
			return lines
		}
		ev, err := client.Decode(env)
		if err == nil && h.alone && ev.Where().SessionID != h.session {
			continue
		}
		if err == nil && h.checker != nil {
			err = h.checker.Event(ev)
		}
		if err != nil {
			h.t.Fatal(err)
		}
		if line := shown(ev); line != "" {
			lines = append(lines, line)
		}
	}
}

// agents are the processes that were started, by the agent's own word.
func (h *hosting) agents() (pids []int) {
	for _, line := range h.log("start") {
		pid, _ := strconv.Atoi(strings.TrimPrefix(line, "start "))
		pids = append(pids, pid)
	}
	return pids
}

// A turn goes on while the daemon starts anew, again and again: each word is told once and in order,
// in one message, the run ends once, and the agent is the same process.
func TestATurnGoesOnWhileTheDaemonStartsAnew(t *testing.T) {
	h := newHost(t, "load")
	const words = 3000
	h.prompt(fmt.Sprintf("!count %d", words))
	lines := h.until("delta: 0,")
	for range 4 {
		lines = append(lines, h.until("9,")...)
		lines = append(lines, h.restart()...)
	}
	lines = append(lines, h.until("run ends completed")...)
	var told strings.Builder
	ends := 0
	for _, line := range lines {
		if word, ok := strings.CutPrefix(line, "delta: "); ok {
			told.WriteString(word)
		}
		if line == "resumed" || strings.HasPrefix(line, "warning") {
			t.Errorf("people are told: %s", line)
		}
		if strings.HasPrefix(line, "message end") {
			ends++
		}
	}
	var want strings.Builder
	for i := range words {
		fmt.Fprintf(&want, "%d,", i)
	}
	if told.String() != want.String() {
		t.Errorf("told %d bytes, want %d: %.300s", told.Len(), want.Len(), told.String())
	}
	if ends != 1 {
		t.Errorf("%d messages have ended, want 1", ends)
	}
	if pids := h.agents(); len(pids) != 1 {
		t.Errorf("agents %v were started, want one", pids)
	}
	if err := h.checker.Done(); err != nil {
		t.Error(err)
	}
}

// Whenever the daemon starts anew: each accepted text reaches the agent once, nothing that it says is
// lost or told twice, each run ends once and well, no approval is lost, and the agent is the
// same process, also for another session. NOUSED_TEST_RESTARTS says how many turns.
func TestHostedTurnsOutliveRestartsAtAnyMoment(t *testing.T) {
	turns := 20
	if n, err := strconv.Atoi(os.Getenv("NOUSED_TEST_RESTARTS")); err == nil {
		turns = n
	}
	rng := rand.New(rand.NewPCG(1, uint64(turns)))
	all := newHosts(t, 2, "load")
	h, other := all[0], all[1]
	h.prompt("!say first")
	h.until("run ends completed")
	restarts := 0
	const script = "said\n!think a\n!count 20\n!call c1 execute {\"command\":\"true\"}\n!ask c1\n!count 3\n" +
		"!call c2 read\n!begin c2\n!show c2 some\n!count 10\n!done c2\n!say end"
	for range turns {
		h.prompt(script)
		other.prompt("!count 40")
		var lines, beside []string
		for stops := rng.IntN(3); !runEnded(lines); stops-- {
			if stops <= 0 {
				lines = append(lines, h.answering("run ends")...)
				continue
			}
			lines = append(lines, h.some(rng.IntN(45))...)
			if !runEnded(lines) {
				lines = append(lines, h.restart()...)
				beside = append(beside, other.rest()...)
				restarts++
				h.allow("asks ") // what nobody is told again
			}
		}
		if !runEnded(beside) {
			beside = append(beside, other.until("run ends completed")...)
		}
		other.countedOnce(40, beside)
		if h.toldOnce(script, lines); t.Failed() {
			break
		}
	}
	t.Logf("%d turns, %d restarts", turns, restarts)
	if pids := h.agents(); len(pids) != 1 {
		t.Errorf("agents %v were started, want one", pids)
	}
	if prompts := h.log("prompt"); len(prompts) != 2*turns+1 {
		t.Errorf("the agent has had %d prompts, want %d", len(prompts), 2*turns+1)
	}
	if err := errors.Join(h.checker.Done(), other.checker.Done()); err != nil {
		t.Error(err)
	}
}

// countedOnce compares what people have heard of a turn with a count.
func (h *hosting) countedOnce(n int, lines []string) {
	h.t.Helper()
	want := []string{"turn prompt", fmt.Sprintf("user: !count %d", n)}
	var text strings.Builder
	for i := range n {
		want = append(want, fmt.Sprintf("delta: %d,", i))
		fmt.Fprintf(&text, "%d,", i)
	}
	h.wants(lines, append(want, "message end: "+text.String(), "turn ends end", "run ends completed")...)
}

func runEnded(lines []string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "run ends") })
}

// some reads so many events at most, and allows what is asked.
func (h *hosting) some(n int) (lines []string) {
	h.t.Helper()
	for range n {
		lines = append(lines, h.next())
		if h.allow(lines[len(lines)-1]); runEnded(lines) {
			break
		}
	}
	return lines
}

// answering reads to the end of the run, and allows what is asked.
func (h *hosting) answering(what string) (lines []string) {
	h.t.Helper()
	for !runEnded(lines) {
		lines = append(lines, h.next())
		h.allow(lines[len(lines)-1])
	}
	return lines
}

// next is the next event that these tests look at.
func (h *hosting) next() string {
	h.t.Helper()
	lines := h.until("")
	return lines[len(lines)-1]
}

// allow allows what is asked.
func (h *hosting) allow(line string) {
	h.t.Helper()
	if !strings.HasPrefix(line, "asks ") {
		return
	}
	for _, a := range h.state().PendingApprovals {
		if _, err := client.Call(context.Background(), h.dial(), protocol.Approve, protocol.ApproveParams{
			ApprovalID: a.ApprovalID, Option: "once",
		}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// toldOnce compares what people have heard of a turn with its script.
func (h *hosting) toldOnce(script string, lines []string) {
	h.t.Helper()
	want := []string{"turn prompt", "user: " + script, "delta: said", "thinks: a"}
	count := func(n int) (text string) {
		for i := range n {
			want = append(want, fmt.Sprintf("delta: %d,", i))
			text += fmt.Sprintf("%d,", i)
		}
		return text
	}
	text := count(20)
	want = append(want, "message tool_calls: said|"+text, "asks ask: bash outside the sandbox", "answered allowed",
		`call do execute {"command":"true"}`, "result ")
	text = count(3)
	want = append(want, "message tool_calls: "+text, "call do read {}", "result some")
	text = count(10)
	h.wants(lines, append(want, "delta: end", "message end: "+text+"end", "turn ends end", "run ends completed")...)
}

// replaceable has the daemon started by a path at which another program can be put.
func replaceable(t *testing.T, h *hosting) (path string) {
	t.Helper()
	real, err := exec.LookPath("noused")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(h.Dir, "bin", "noused")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(real, path)); err != nil {
		t.Fatal(err)
	}
	h.Stop()
	h.Args = append(h.Args, "--drain-timeout", "100ms")
	environ := h.Environ()
	h.Environ = func() []string { return append(environ, "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH")) }
	h.Start()
	h.follow()
	return path
}

// A program that cannot take over what this one leaves, or cannot read it, resumes the run as after a
// crash, and the agent is started again. None is left over.
func TestAnAgentThatCannotBeTakenOverIsStartedAgain(t *testing.T) {
	for what, script := range map[string]string{
		"another version": `if [ "$1" = try ]; then exec 2>/dev/null; fi
exec noused "$@"`,
		"broken": `[ "$1" = try ] || exec 9</dev/null
NOUSED_INHERIT=$(printf %s "$NOUSED_INHERIT" | sed 's/agents=[0-9]*/agents=9/')
export NOUSED_INHERIT
exec noused "$@"`,
	} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t, "load")
			path := replaceable(t, h)
			h.prompt("!say one\n!fork\n!wait " + h.agentDir() + "/go")
			h.until("delta: one")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("#!/bin/sh\nPATH=${PATH#*:}\n"+script), 0o700); err != nil {
				t.Fatal(err)
			}
			h.restart()
			h.until("message error: one")
			if err := os.WriteFile(h.agentDir()+"/go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			h.until("run ends completed")
			pids := h.agents()
			if len(pids) != 2 || !gone(pids[0]) {
				t.Errorf("agents %v were started, and the first is to be gone", pids)
			}
			h.Stop()
			h.noneLeft()
		})
	}
}

// noneLeft reports processes of agents that are still there, and of what they have started.
func (h *hosting) noneLeft() {
	h.t.Helper()
	for _, line := range h.log("start", "child") {
		_, text, _ := strings.Cut(line, " ")
		if pid, _ := strconv.Atoi(text); !ended(h.t, pid, 5*time.Second) {
			h.t.Errorf("left over: %s", line)
		}
	}
}

// What a daemon has taken over ends with it, whatever ends it.
func TestAnAgentThatWasTakenOverLeavesNoOrphan(t *testing.T) {
	const allKilled = "kill -9 of the guardian, too"
	for what, end := range map[string]func(h *hosting){
		"kill -9": func(h *hosting) { h.Kill() },
		allKilled: func(h *hosting) {
			for _, pid := range h.children() {
				if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "exe" {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			h.Kill()
		},
		"stop": func(h *hosting) { h.Stop() },
		"kill -9 at the exec": func(h *hosting) {
			h.depart(h.dial())
			h.Kill()
		},
		"kill -9 after the exec": func(h *hosting) {
			h.depart(h.dial())
			_, _ = client.Call(context.Background(), h.dial(), protocol.Ping, protocol.PingParams{})
			h.Kill()
		},
		"stop while it starts anew": func(h *hosting) {
			_, _ = client.Call(context.Background(), h.dial(), protocol.Shutdown, protocol.ShutdownParams{Restart: true})
			h.Stop()
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t, "load")
			fork := "!fork\n"
			if what == allKilled {
				fork = "" // nobody is left to end what an agent leaves
			}
			h.prompt("!say one\n" + fork + "!hang")
			h.until("delta: one")
			h.restart()
			h.restart()
			end(h)
			h.noneLeft()
			if pids := h.agents(); len(pids) != 1 {
				t.Errorf("agents %v were started, want one", pids)
			}
		})
	}
}

// So does one in the sandbox, with its temporary files.
func TestASandboxedAgentOutlivesARestart(t *testing.T) {
	h := newHost(t, "load", "sandbox = true")
	h.prompt("!say one\n!touch\n!count 500\n!touch")
	h.until("delta: one")
	h.restart()
	h.until("run ends completed")
	if pids, touched := h.agents(), h.log("touched"); len(pids) != 1 || len(touched) != 2 {
		t.Errorf("agents %v were started, want one; its temporary folder: %q", pids, touched)
	}
	h.Stop()
	h.noneLeft()
}

// An agent without a turn lives on too, though its session is not opened in between, and the daemon's
// own tools are as ever.
func TestAnIdleAgentOutlivesRestarts(t *testing.T) {
	h := newHost(t, "load")
	h.prompt("!say one")
	h.until("run ends completed")
	h.restart()
	h.restart()
	h.prompt("!say two")
	h.until("run ends completed")
	other := h.daemon.session(h.Dir)
	r := h.extension(other, "bash", `{"command":"(sleep 1000 & echo $!); (setsid sleep 1000 & echo $!)"}`)
	if !r.OK {
		t.Fatalf("bash: %+v", r)
	}
	for _, text := range strings.Fields(r.Result) {
		if pid, err := strconv.Atoi(text); err != nil || !ended(t, pid, 5*time.Second) {
			t.Errorf("a command's child is left: %q", text)
		}
	}
	h.restart()
	h.prompt("!say three")
	h.until("run ends completed")
	if pids := h.agents(); len(pids) != 1 {
		t.Errorf("agents %v were started, want one", pids)
	}
	h.Stop()
	h.noneLeft()
}

// What an agent that lived on has offered is in the session's state all the same, and what was
// chosen is still so.
func TestOptionsOutliveRestarts(t *testing.T) {
	h := newHost(t, "load,options,commands")
	h.mustChoose("model", "large")
	before := h.state()
	h.restart()
	h.prompt("!chosen")
	h.wants(h.until("run ends completed")[2:], "delta: large low ask false", "message end: large low ask false",
		"turn ends end", "run ends completed")
	after := h.state()
	if diff := cmp.Diff(before.AgentOptions, after.AgentOptions); diff != "" || len(after.AgentCommands) == 0 {
		t.Errorf("commands %+v, options -before +after:\n%s", after.AgentCommands, diff)
	}
	if got := h.log("choose"); len(got) != 1 {
		t.Errorf("the agent was told %q, want one choice", got)
	}
}
