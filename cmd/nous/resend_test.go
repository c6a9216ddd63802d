package main

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

// While the daemon is restarted again and again nobody is refused: what is said is
// accepted, once, and what is asked is answered.
func TestNobodyIsRefusedDuringRestarts(t *testing.T) {
	const people, texts = 4, 12
	d := newDaemon(t, "")
	d.Start()
	sessions := make([]string, people)
	for i := range sessions {
		sessions[i] = call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Title: fmt.Sprint("person ", i)}).
			SessionID
	}
	run := func(args ...string) {
		cmd := exec.Command("nous", args...)
		cmd.Env = d.Env()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nous %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	var all sync.WaitGroup
	var left atomic.Int32
	left.Store(people)
	for i, id := range sessions {
		all.Go(func() {
			defer left.Add(-1)
			for n := range texts {
				run("--session", id, "prompt", fmt.Sprintf("text %d of %d", n, i))
				run("--session", id, "rename", fmt.Sprintf("%d after %d", i, n))
				run("sessions", "--all")
			}
		})
	}
	for left.Load() > 0 {
		run("restart")
	}
	all.Wait()
	for i, id := range sessions {
		said := map[string]int{}
		for _, raw := range call1(t, d.Socket, protocol.GetMessages,
			protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}}).Messages {
			var m protocol.Message
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			if m.Role == "user" {
				said[m.Text]++
			}
		}
		for n := range texts {
			if text := fmt.Sprintf("text %d of %d", n, i); said[text] != 1 {
				t.Errorf("%q was said %d times", text, said[text])
			}
		}
	}
}

var stopping = protocol.Rejectf(protocol.ShuttingDown, "the daemon is stopping")

// older answers the question whether a daemon is an older one.
func notOlder(d *clienttest.Daemon) {
	answer(d, "list_sessions", "sessions", `{"sessions":[]}`)
}

// A proxy whose daemon goes before it has said hello joins the next one.
func TestAProxyJoinsTheDaemonAfterOneThatGoes(t *testing.T) {
	got := nous(t, []string{"proxy"}, func(d *clienttest.Daemon) {
		d.Commands().Close()
		d.Events().Close()
		d.Events().Close() // it was asked for its epoch
		notOlder(d)
		d.Commands().Close() // that it answers is enough
		commands, events := d.Commands(), d.Events()
		asked := d.Events()
		asked.Subscribed(`{"epoch":"next","next_seq":1,"gap":false}`)
		commands.WantEOF()
		for _, c := range []*clienttest.Conn{asked, commands, events} {
			c.Close()
		}
	})
	if got.status != exitOK || !strings.Contains(got.out, `"epoch":"next"`) {
		t.Errorf("got %+v", got)
	}
}

// What a daemon that stops has not done is sent to the next one; the same key goes with a
// text, as with one whose answer was lost.
func TestWhatADaemonThatStopsHasNotDoneIsSentToTheNext(t *testing.T) {
	begun := *stopping
	begun.Cause = protocol.CauseBegun
	for _, c := range []struct {
		args, command, typ, payload string
		refused                     *protocol.Error // nil: hangs up
		again                       bool
	}{
		{
			"prompt --async x", "prompt", "accepted", `{"command":"prompt","run_id":"r","session_id":"s","input_id":"i"}`,
			stopping, true,
		},
		{
			"prompt --async x", "prompt", "accepted", `{"command":"prompt","run_id":"r","session_id":"s","input_id":"i"}`, nil,
			true,
		},
		{"new", "new_session", "session", `{"session_id":"s","active":true}`, stopping, true},
		{"ping", "ping", "pong", `{"message":"pong"}`, nil, true},
		{"ext x", "extension_command", "extension_result", `{"ok":true}`, stopping, true},
		{"ext x", "extension_command", "extension_result", `{"ok":true}`, &begun, false},
		{"ext x", "extension_command", "extension_result", `{"ok":true}`, nil, false},
	} {
		var first, second string
		got := nous(t, strings.Fields(c.args), func(d *clienttest.Daemon) {
			commands := d.Commands()
			id, params := commands.Want(c.command)
			first = string(params)
			if c.refused != nil {
				commands.Fail(id, c.refused)
			}
			commands.Close()
			if !c.again {
				return
			}
			notOlder(d)
			commands = d.Commands()
			defer commands.Close()
			id, params = commands.Want(c.command)
			second = string(params)
			commands.Reply(id, c.typ, c.payload)
		})
		if (got.status == exitOK) != c.again {
			t.Errorf("%s, refused with %v: got %+v, want that it is sent again: %v", c.args, c.refused, got, c.again)
		}
		if c.again && first != second {
			t.Errorf("%s: sent %s, then %s", c.args, first, second)
		}
	}
}

// A core that does not say whether an operation succeeded has done it, unless there is an error.
func TestAnOperationThatIsNotSaidToHaveFailedSucceeded(t *testing.T) {
	for payload, want := range map[string]int{
		`{"result":"done"}`: exitOK, `{"ok":true}`: exitOK, `{}`: exitOK, `{"ok":false,"result":"no"}`: exitFailed,
		`{"error":{"code":"tool_failed","message":"no"}}`: exitFailed,
	} {
		got := nous(t, []string{"ext", "x"}, func(d *clienttest.Daemon) {
			answer(d, "extension_command", "extension_result", payload)
		})
		if got.status != want {
			t.Errorf("%s: got %+v, want exit status %d", payload, got, want)
		}
	}
}
