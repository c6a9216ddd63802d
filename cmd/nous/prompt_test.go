package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

// These tests play the daemon line by line, for what a real one does not do on
// demand. What a real one does is in testdata/script.

type result struct {
	status      int
	out, errout string
}

// nous runs the program against a scripted daemon, and the script beside it.
func nous(t *testing.T, args []string, script func(*clienttest.Daemon)) result {
	t.Helper()
	return nousWaiting(t, patience, args, script)
}

func nousWaiting(t *testing.T, patience time.Duration, args []string, script func(*clienttest.Daemon)) result {
	t.Helper()
	d := clienttest.Listen(t)
	played := make(chan struct{})
	go func() {
		defer close(played)
		script(d)
	}()
	var out, errout bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errout)
	a.patience = patience
	status := a.main(append([]string{"--socket", d.Socket, "--active"}, args...))
	<-played
	return result{status, out.String(), errout.String()}
}

// meet is the beginning of a prompt: nous asks which daemon it has, and listens.
func meet(d *clienttest.Daemon) (events, commands *clienttest.Conn) {
	commands = d.Commands()
	id, _ := commands.Want("get_state")
	commands.Reply(id, "state", `{"run_state":"idle","run_id":"","session_id":"s","daemon":{"epoch":"e1"}}`)
	events = d.Events()
	events.Subscribed(subscribedAt1)
	return events, commands
}

// acceptPrompt accepts the prompt, too.
func acceptPrompt(d *clienttest.Daemon, run string) (events *clienttest.Conn) {
	events, commands := meet(d)
	defer commands.Close()
	id, _ := commands.Want("prompt")
	commands.Reply(id, "accepted", `{"command":"prompt","run_id":"`+run+`","session_id":"s","input_id":"i"}`)
	return events
}

// answer replies to one command on a connection of its own.
func answer(d *clienttest.Daemon, command, typ, payload string) {
	commands := d.Commands()
	defer commands.Close()
	id, _ := commands.Want(command)
	commands.Reply(id, typ, payload)
	commands.WantEOF()
}

const subscribedAt1 = `{"epoch":"e1","next_seq":1,"gap":false}`

func runEnd(reason string) string {
	return `{"run_id":"r","session_id":"s","stop_reason":"` + reason +
		`","turns":1,"usage":{"input_tokens":1,"output_tokens":1}}`
}

func delta(text string) string {
	return fmt.Sprintf(`{"run_id":"r","session_id":"s","turn_id":"1","message_id":"m","delta":%q}`, text)
}

func TestPromptKeepsEventsThatOvertakeTheReply(t *testing.T) {
	got := nous(t, []string{"prompt", "hello"}, func(d *clienttest.Daemon) {
		events, commands := meet(d)
		defer events.Close()
		defer commands.Close()
		id, payload := commands.Want("prompt")
		if want := `{"text":"hello","wait":false,"approvals":"deny","idempotency_key":"`; !strings.HasPrefix(string(payload),
			want) {
			t.Errorf("got payload %s, want %s", payload, want)
		}
		events.Event(1, "agent_start", `{"run_id":"other","session_id":"s2"}`)
		events.Event(2, "agent_start", `{"run_id":"r","session_id":"s"}`)
		events.Event(3, "message_start", `{"run_id":"r","message_id":"m","role":"assistant"}`)
		events.Event(4, "message_update", delta("all "))
		events.Event(5, "message_update", `{"run_id":"other","message_id":"x","delta":"not mine"}`)
		events.Event(6, "message_update", delta("here"))
		events.Event(7, "message_end", `{"run_id":"r","message_id":"m","role":"assistant","text":"all here"}`)
		events.Event(8, "agent_end", runEnd("completed"))
		commands.Reply(id, "accepted", `{"command":"prompt","run_id":"r","session_id":"s","input_id":"i"}`)
	})
	if diff := cmp.Diff(result{0, "all here\n", ""}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestPromptKeepsStandardOutputClean(t *testing.T) {
	got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		defer events.Close()
		for i, ev := range [][2]string{
			{"agent_start", `{"run_id":"r"}`},
			{"turn_start", `{"run_id":"r","kind":"prompt","input_ids":["i"]}`},
			{"message_start", `{"run_id":"r","message_id":"u","role":"user","text":"x"}`},
			{"message_end", `{"run_id":"r","message_id":"u","role":"user","text":"x"}`},
			{"message_start", `{"run_id":"r","message_id":"m","role":"assistant"}`},
			{"message_update", `{"run_id":"r","message_id":"m","thinking_delta":"hm\u001b[2J"}`},
			{"message_update", delta("Let me look")},
			{"message_end", `{"run_id":"r","message_id":"m","role":"assistant","text":"Let me look"}`},
			{"tool_execution_start", `{"run_id":"r","tool_call_id":"t","tool_name":"files.read","arguments":{"path":"a"}}`},
			{"tool_execution_update", `{"run_id":"r","tool_call_id":"t","tool_name":"files.read","delta":"half\nway\n"}`},
			{
				"tool_execution_end",
				`{"run_id":"r","tool_call_id":"t","tool_name":"files.read","ok":true,"result":"text of a","duration_ms":1500}`,
			},
			{"tool_execution_start", `{"run_id":"r","tool_call_id":"t2","tool_name":"bad","arguments":{}}`},
			{
				"tool_execution_end",
				`{"run_id":"r","tool_call_id":"t2","tool_name":"bad","ok":false,"result":"x","error":{"code":"tool_failed","message":"no"},"duration_ms":2}`,
			},
			{"tool_execution_start", `{"run_id":"r","tool_call_id":"t3","tool_name":"late","arguments":{}}`},
			{
				"tool_execution_end",
				`{"run_id":"r","tool_call_id":"t3","tool_name":"late","ok":false,"skipped":true,"result":"skipped","duration_ms":0}`,
			},
			{"turn_end", `{"run_id":"r","stop_reason":"steered"}`},
			{"turn_start", `{"run_id":"r","kind":"steer","input_ids":["i2"]}`},
			{"message_start", `{"run_id":"r","message_id":"u2","role":"user","text":"rather this"}`},
			{"message_start", `{"run_id":"r","message_id":"m","role":"assistant"}`},
			{"message_update", delta("Done.\n")},
			{"message_end", `{"run_id":"r","message_id":"m","role":"assistant","text":"Done.\n"}`},
			{"warning", `{"run_id":"r","message":"odd","code":"x"}`},
			{"agent_end", runEnd("completed")},
		} {
			events.Event(i+1, ev[0], ev[1])
		}
	})
	want := result{0, "Let me look\nDone.\n", `hm
→ files.read {"path":"a"}
  half
  way
✓ files.read 1.5s text of a
→ bad {}
✗ bad 2ms no (tool_failed)
→ late {}
- late skipped
steer: rather this
warning: odd
`}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestExitStatusTellsHowTheRunEnded(t *testing.T) {
	for _, tc := range []struct {
		reason, errout string
		status         int
	}{
		{"completed", "", 0},
		{"error", "nous: the run ended in error\n", 1},
		{"aborted", "nous: the run was aborted\n", exitAborted},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
				events := acceptPrompt(d, "r")
				defer events.Close()
				events.Event(1, "agent_end", runEnd(tc.reason))
			})
			if got.status != tc.status || got.errout != tc.errout {
				t.Errorf("got %d %q, want %d %q", got.status, got.errout, tc.status, tc.errout)
			}
		})
		t.Run("last "+tc.reason, func(t *testing.T) {
			got := nous(t, []string{"prompt", "--wait", "x"}, func(d *clienttest.Daemon) {
				events := acceptPrompt(d, "r")
				defer events.Close()
				events.Event(1, "message_end", `{"run_id":"r","role":"assistant","text":"first"}`)
				events.Event(2, "message_update", `{"run_id":"r","message_id":"m","delta":"la"}`)
				events.Event(3, "message_end", `{"run_id":"r","role":"assistant","text":"last"}`)
				events.Event(4, "agent_end", runEnd(tc.reason))
			})
			if got.status != tc.status || got.errout != tc.errout || got.out != "last\n" {
				t.Errorf("got %d %q %q, want %d, the last answer alone and %q", got.status, got.out, got.errout, tc.status,
					tc.errout)
			}
		})
		t.Run("wait "+tc.reason, func(t *testing.T) {
			got := nous(t, []string{"prompt", "--json", "--wait", "x"}, func(d *clienttest.Daemon) {
				answer(d, "prompt", "result",
					`{"output":"o","session_id":"s","run_id":"r","events":[{"type":"agent_end","payload":`+runEnd(tc.reason)+`}]}`)
			})
			if got.status != tc.status || !strings.HasPrefix(got.out, `{"output":"o",`) {
				t.Errorf("got %d %q, want %d and the payload", got.status, got.out, tc.status)
			}
		})
	}
}

func TestPromptJSONPrintsTheRunsLines(t *testing.T) {
	got := nous(t, []string{"--json", "prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		defer events.Close()
		events.Line(
			`{"v":"1","id":"evt-1","type":"agent_start","payload":{"run_id":"r"},"ts":"2026-02-12T10:00:00Z","seq":1}`)
		events.Line(
			`{"v":"1","id":"evt-2","type":"status","payload":{"message":"m","code":"c"},"ts":"2026-02-12T10:00:00Z","seq":2}`)
		events.Line(
			`{"v":"1","id":"evt-3","type":"agent_end","payload":{"run_id":"r","stop_reason":"completed"},"ts":"2026-02-12T10:00:00Z","seq":3}`)
	})
	want := `{"v":"1","id":"evt-1","type":"agent_start","payload":{"run_id":"r"},"ts":"2026-02-12T10:00:00Z","seq":1}
{"v":"1","id":"evt-3","type":"agent_end","payload":{"run_id":"r","stop_reason":"completed"},"ts":"2026-02-12T10:00:00Z","seq":3}
`
	if diff := cmp.Diff(want, got.out); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestLostConnectionGoesOnWhereItWas(t *testing.T) {
	got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		events.Event(1, "message_update", delta("one "))
		events.Close()
		again := d.Events()
		defer again.Close()
		params := again.Subscribed(`{"epoch":"e1","next_seq":2,"gap":false}`)
		if want := `{"epoch":"e1","after":1}`; string(params) != want {
			t.Errorf("got subscribe %s, want %s", params, want)
		}
		again.Event(2, "message_update", delta("two"))
		again.Event(3, "agent_end", runEnd("completed"))
	})
	if got.status != 0 || got.out != "one two\n" || !strings.Contains(got.errout, "connected again\n") {
		t.Errorf("got %+v", got)
	}
}

func TestRestartedDaemonGoesOnWithTheRun(t *testing.T) {
	got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		events.Event(1, "message_update", delta("cut of"))
		d.Stop()
		events.Close()
		d.Start()
		again := d.Events()
		defer again.Close()
		again.Subscribed(`{"epoch":"e2","next_seq":1,"gap":true}`)
		answer(d, "get_state", "state", `{"run_id":"r","run_state":"running","session_id":"s","last_seq":1}`)
		again.Event(1, "status", `{"run_id":"r","message":"the run goes on","code":"run_resumed"}`)
		again.Event(2, "message_start", `{"run_id":"r","message_id":"m2","role":"assistant"}`)
		again.Event(3, "message_update", delta("whole"))
		again.Event(4, "agent_end", runEnd("completed"))
	})
	if got.status != 0 || got.out != "cut of\nwhole\n" {
		t.Errorf("got %d %q, want 0 and both texts", got.status, got.out)
	}
	if !strings.Contains(got.errout, "the daemon was restarted") || !strings.Contains(got.errout, "the run goes on") {
		t.Errorf("got stderr %q, want it to report the restart", got.errout)
	}
}

// Where the daemon is gone and does not come back, people learn that the run is not lost.
func TestARunWhoseDaemonIsGoneIsKept(t *testing.T) {
	got := nousWaiting(t, time.Millisecond, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		d.Stop()
		events.Close()
	})
	const want = "run r is kept, and goes on as soon as a daemon runs\n"
	if got.status != exitNoDaemon || !strings.Contains(got.errout, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// afterRestart plays a run that is over when its reader is back.
func afterRestart(t *testing.T, lastSeq string, then func(*clienttest.Daemon, *clienttest.Conn)) result {
	return nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		events.Close()
		again := d.Events()
		defer again.Close()
		again.Subscribed(`{"epoch":"e2","next_seq":1,"gap":true}`)
		for range 2 {
			answer(d, "get_state", "state", `{"run_id":"","run_state":"idle","session_id":"s","last_seq":`+lastSeq+`}`)
		}
		then(d, again)
	})
}

func TestEndSeenAfterTheRestart(t *testing.T) {
	got := afterRestart(t, "2", func(_ *clienttest.Daemon, again *clienttest.Conn) {
		again.Event(1, "status", `{"message":"m","code":"c"}`)
		again.Event(2, "agent_end", runEnd("aborted"))
	})
	if got.status != exitAborted {
		t.Errorf("got %+v, want status %d", got, exitAborted)
	}
}

func TestEndMissedIsMadeUpFromTheSession(t *testing.T) {
	got := afterRestart(t, "0", func(d *clienttest.Daemon, _ *clienttest.Conn) {
		answer(d, "get_messages", "messages", `{"session_id":"s","messages":[
			{"type":"message","role":"assistant","run_id":"r","text":"the answer","stop_reason":"end"},
			{"type":"message","role":"user","run_id":"r2","text":"next"}]}`)
	})
	if got.status != 0 || got.out != "the answer\n" || !strings.Contains(got.errout, "r has ended") {
		t.Errorf("got %+v", got)
	}
}

// An answer of which a part was missed is no answer, though the run's end was seen.
func TestAnswerMissedIsMadeUpFromTheSession(t *testing.T) {
	for flag, want := range map[string]string{
		"--wait": "the answer\n", "--wait=false": "the \nthe answer\n", "--json=result": `{"output":"the answer",`,
	} {
		got := nous(t, []string{"prompt", flag, "x"}, func(d *clienttest.Daemon) {
			events := acceptPrompt(d, "r")
			events.Event(1, "message_start", `{"run_id":"r","message_id":"m","role":"assistant"}`)
			events.Event(2, "message_update", delta("the "))
			d.Stop()
			events.Close()
			d.Start()
			again := d.Events()
			defer again.Close()
			again.Subscribed(`{"epoch":"e1","next_seq":5,"gap":true}`)
			answer(d, "get_state", "state", `{"run_id":"r","run_state":"running","session_id":"s","last_seq":4}`)
			again.Event(5, "agent_end", runEnd("completed"))
			answer(d, "get_messages", "messages", `{"session_id":"s","messages":[
				{"type":"message","role":"assistant","run_id":"r","text":"the answer","stop_reason":"end"}]}`)
		})
		if got.status != 0 || !strings.HasPrefix(got.out, want) {
			t.Errorf("%s: got %+v, want %q", flag, got, want)
		}
	}
}

func TestEndMissedAndNotRemembered(t *testing.T) {
	got := afterRestart(t, "0", func(d *clienttest.Daemon, _ *clienttest.Conn) {
		answer(d, "get_messages", "messages", `{"session_id":"s","messages":[]}`)
	})
	if got.status != exitFailed || got.out != "" {
		t.Errorf("got %+v, want status %d", got, exitFailed)
	}
}

func TestDaemonThatStaysAway(t *testing.T) {
	got := nousWaiting(t, time.Nanosecond, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		d.Stop()
		events.Close()
	})
	if got.status != exitNoDaemon {
		t.Errorf("got %+v, want status %d", got, exitNoDaemon)
	}
}

func TestDroppedEventsRaiseTheQuestion(t *testing.T) {
	got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		defer events.Close()
		events.Event(9, "warning", `{"message":"events 1 to 9 were dropped","code":"events_dropped","from_seq":1,"to_seq":9}`)
		for range 2 {
			answer(d, "get_state", "state", `{"run_id":"","session_id":"s","last_seq":9}`)
		}
		answer(d, "get_messages", "messages",
			`{"session_id":"s","messages":[{"type":"message","role":"assistant","run_id":"r","text":"a","stop_reason":"error"}]}`)
	})
	if got.status != exitFailed || got.out != "a\n" || !strings.Contains(got.errout, "were dropped") {
		t.Errorf("got %+v", got)
	}
}

func TestDaemonGoneBeforeItAnswered(t *testing.T) {
	got := nousWaiting(t, 100*time.Millisecond, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events, commands := meet(d)
		defer events.Close()
		commands.Want("prompt")
		d.Stop()
		commands.Close()
	})
	if got.status != exitNoDaemon || !strings.Contains(got.errout, "may have been done") {
		t.Errorf("got %+v", got)
	}
}

// A text whose answer is lost is sent again, with the key that it had.
func TestATextIsSentAgainWithItsKey(t *testing.T) {
	for command, args := range map[string][]string{
		"prompt": {"prompt", "--async", "x"}, "steer": {"steer", "x"},
		"follow_up": {"follow-up", "x"},
	} {
		t.Run(command, func(t *testing.T) {
			var keys [2]string
			got := nous(t, args, func(d *clienttest.Daemon) {
				for i := range keys {
					if i > 0 {
						answer(d, "list_sessions", "sessions", `{"sessions":[]}`)
					}
					commands := d.Commands()
					id, payload := commands.Want(command)
					var p struct {
						Key string `json:"idempotency_key"`
					}
					if err := json.Unmarshal(payload, &p); err != nil {
						t.Error(err)
					}
					if keys[i] = p.Key; i > 0 {
						commands.Reply(id, "accepted", `{"command":"`+command+`","run_id":"r","session_id":"s","input_id":"i"}`)
					}
					commands.Close()
				}
			})
			if got.status != exitOK || got.out != "r\n" || keys[0] == "" || keys[0] != keys[1] {
				t.Errorf("got %+v with keys %q", got, keys)
			}
		})
	}
}

// An older core knows no keys: it might do it twice.
func TestNothingIsSentAgainToAnOlderCore(t *testing.T) {
	got := nous(t, []string{"steer", "x"}, func(d *clienttest.Daemon) {
		commands := d.Commands()
		commands.Want("steer")
		commands.Close()
		commands = d.Commands()
		defer commands.Close()
		id, _ := commands.Want("list_sessions")
		commands.Fail(id, &protocol.Error{Code: "invalid_command", Message: "unknown_command: list_sessions"})
		commands.WantEOF()
	})
	if got.status != exitNoDaemon || !strings.Contains(got.errout, "older core") {
		t.Errorf("got %+v", got)
	}
}

func TestErrorsNameMessageCauseAndCode(t *testing.T) {
	got := nous(t, []string{"abort"}, func(d *clienttest.Daemon) {
		commands := d.Commands()
		defer commands.Close()
		id, _ := commands.Want("abort")
		commands.Fail(id, &protocol.Error{Code: "command_rejected", Message: "no_active_run: idle", Cause: "why"})
	})
	want := result{1, "", "nous: idle: why (no_active_run)\n"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// interrupt is a Ctrl-C.
func interrupt(t *testing.T) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Error(err)
	}
}

func TestFirstInterruptAbortsAndWaits(t *testing.T) {
	got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		defer events.Close()
		events.Event(1, "message_update", delta("so far"))
		interrupt(t)
		commands := d.Commands()
		defer commands.Close()
		id, payload := commands.Want("abort")
		if want := `{"session_id":"s","run_id":"r"}`; string(payload) != want {
			t.Errorf("got payload %s, want %s", payload, want)
		}
		commands.Reply(id, "accepted",
			`{"command":"abort","run_id":"r","discarded":[{"input_id":"i2","kind":"follow_up","text":"and then"}]}`)
		events.Event(2, "agent_end", runEnd("aborted"))
	})
	if got.status != exitAborted || got.out != "so far\n" {
		t.Errorf("got %+v, want status %d", got, exitAborted)
	}
	want := "aborting r; Ctrl-C leaves without waiting for its end\nnot delivered (follow-up): and then\nnous: " +
		"the run was aborted\n"
	if got.errout != want {
		t.Errorf("got stderr %q, want %q", got.errout, want)
	}
}

func TestSecondInterruptLeaves(t *testing.T) {
	for name, args := range map[string][]string{"following": {"prompt", "x"}, "waiting": {
		"--json", "prompt", "--wait",
		"x",
	}} {
		t.Run(name, func(t *testing.T) {
			got := nous(t, args, func(d *clienttest.Daemon) {
				if name == "following" {
					events := acceptPrompt(d, "r")
					defer events.Close()
				} else {
					commands := d.Commands()
					defer commands.Close()
					commands.Want("prompt")
				}
				interrupt(t)
				commands := d.Commands()
				defer commands.Close()
				commands.Want("abort")
				interrupt(t)
				commands.WantEOF()
			})
			if got.status != exitLeft {
				t.Errorf("got %+v, want status %d", got, exitLeft)
			}
		})
	}
}

func TestInterruptWhileTheDaemonIsAway(t *testing.T) {
	got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
		events := acceptPrompt(d, "r")
		events.Close()
		again := d.Events()
		again.Want("subscribe")
		d.Stop()
		interrupt(t)
		again.WantEOF()
		again.Close()
	})
	if got.status != exitNoDaemon || !strings.Contains(got.errout, "aborting r") {
		t.Errorf("got %+v, want status %d", got, exitNoDaemon)
	}
}

func TestEventsGoesOnAfterARestart(t *testing.T) {
	got := nous(t, []string{"events", "--types", "status"}, func(d *clienttest.Daemon) {
		answer(d, "list_sessions", "sessions", `{"sessions":[]}`)
		events := d.Events()
		events.Subscribed(subscribedAt1)
		events.Event(7, "status", `{"message":"before","code":"c"}`)
		events.Close()
		again := d.Events()
		defer again.Close()
		params := again.Subscribed(`{"epoch":"e2","next_seq":1,"gap":true}`)
		if want := `{"epoch":"e1","after":7,"types":["status"]}`; string(params) != want {
			t.Errorf("got subscribe %s, want %s", params, want)
		}
		again.Event(1, "status", `{"message":"after","code":"c"}`)
		interrupt(t)
		again.WantEOF()
	})
	if got.status != 0 || !strings.Contains(got.out, "c: before\n") {
		t.Errorf("got %+v, want status 0 and the first event", got)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, fmt.Errorf("no space left") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	d := clienttest.Listen(t)
	go answer(d, "ping", "pong", `{"message":"pong"}`)
	var errout bytes.Buffer
	if got := run([]string{"--socket", d.Socket, "ping"}, strings.NewReader(""), fullDisk{}, &errout); got != exitFailed {
		t.Errorf("got status %d, want %d", got, exitFailed)
	}
	if !strings.Contains(errout.String(), "write output: no space left") {
		t.Errorf("got stderr %q", errout.String())
	}
}

// A daemon that systemd starts for the first client, and that fails, has only closed the
// connection: the client learns where it tells why.
func TestADaemonThatGoesAwayHasALog(t *testing.T) {
	got := nous(t, []string{"ping"}, func(d *clienttest.Daemon) {
		c := d.Commands()
		c.Want("ping")
		c.Close()
	})
	if got.status != exitNoDaemon || !strings.Contains(got.errout, "its log tells why; nous --socket ") {
		t.Errorf("got %+v, want status %d and where to look", got, exitNoDaemon)
	}
}
