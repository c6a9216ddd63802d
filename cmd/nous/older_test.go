package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// older runs the program on an older core.
func older(t *testing.T, core *tuitest.OldCore, stdin string, args ...string) result {
	t.Helper()
	var out, errout bytes.Buffer
	a := newApp(strings.NewReader(stdin), &out, &errout)
	a.look = time.Millisecond
	status := a.main(append([]string{"--socket", core.Socket}, args...))
	return result{status, out.String(), errout.String()}
}

// Every command does on a v1 core what the frozen commands allow, or says in a
// line what that core lacks, whatever the core leaves out.
func TestCommandsOnAnOlderCore(t *testing.T) {
	tuitest.EachHabit(t, func(t *testing.T, habits tuitest.Habits) {
		core := tuitest.StartOldCore(t, habits)
		does := func(want string, args ...string) string {
			t.Helper()
			got := older(t, core, "", args...)
			if got.status != exitOK || !strings.Contains(got.out, want) {
				t.Errorf("nous %s: got %+v, want %q", strings.Join(args, " "), got, want)
			}
			return strings.TrimSpace(got.out)
		}
		lacks := func(want string, args ...string) {
			t.Helper()
			got := older(t, core, "", args...)
			if got.status != exitFailed || !strings.Contains(got.errout, want) || strings.Count(got.errout, "\n") > 2 {
				t.Errorf("nous %s: got %+v, want a line with %q, and at most one that says what to do", strings.Join(args, " "),
					got, want)
			}
		}
		does("pong", "ping")
		does("good old days\n", "prompt", "good old days")
		does("tool please\n", "prompt", "--wait", "tool please")
		does(`"output":"at once"`, "prompt", "--wait", "--json", "at once")
		does("run-", "prompt", "--async", "hold on")
		does("running", "state")
		does("run-", "steer", "hold left")
		does("run-", "follow-up", "hold then")
		does("run-", "abort")
		does("good old days", "messages")
		first := does("ses-", "switch", "ses-1")
		branch := does("ses-", "branch")
		does("good old days", "export")
		does("good old days", "export", "--format", "html")
		does("good old days", "--session", first, "messages")
		does("all", "set-mode", "steering", "all")
		does("", "set-tools", "--none")
		does("ses-", "new")
		lacks("works in its active session only", "--session", branch, "prompt", "x")
		lacks("works in its active session only", "--session", branch, "steer", "x")
		lacks("takes no images", "prompt", "-i", "older_test.go", "x")
		lacks("knows no --key", "prompt", "--key", "k", "x")
		lacks("asks nobody", "prompt", "--approvals", "deny", "x")
		lacks("branches at the end only", "branch", "--leaf", "msg-1")
		for _, args := range []string{
			"sessions", "tree", "tools", "models", "compact", "search x", "set-model a/b",
			"set-leaf x", "sessions rm x", "approvals", "approve", "deny apr-1", "set-approval-mode auto",
		} {
			lacks("this core is an older one and has no", strings.Fields(args)...)
		}
		lacks("extension_command_not_found", "ext", "files.read")
		lacks("session_not_found", "switch", "ses-none")
	})
}

// What an older core does not answer at all is waited for half a minute, and
// said; here it is shorter.
func TestACoreThatDoesNotAnswer(t *testing.T) {
	core := tuitest.StartOldCore(t, tuitest.Habits{Mute: true})
	var out, errout bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errout)
	a.answer = time.Nanosecond
	status := a.main([]string{"--socket", core.Socket, "--active", "tree"})
	if want := "get_tree: the daemon has not answered for 1ns"; status != exitNoDaemon ||
		!strings.Contains(errout.String(), want) {
		t.Errorf("got %d %q, want %d and %q", status, errout.String(), exitNoDaemon, want)
	}
}

// The events of an older core are followed without asking for them.
func TestEventsOfAnOlderCore(t *testing.T) {
	core := tuitest.StartOldCore(t, tuitest.AllHabits)
	var errout bytes.Buffer
	seen := make(chan string, 100)
	ended := make(chan int)
	go func() {
		a := newApp(strings.NewReader(""), lines(seen), &errout)
		ended <- a.main([]string{"--socket", core.Socket, "events"})
	}()
	core.Listened()
	askDaemon(t, core.Socket, protocol.Prompt, protocol.PromptParams{Text: "hello there", Wait: new(bool)})
	for line := range seen {
		if strings.Contains(line, "agent_end") {
			break
		}
	}
	interrupt(t)
	if got := <-ended; got != exitOK || !strings.Contains(errout.String(), "an older one") {
		t.Errorf("got %d %q", got, errout.String())
	}
}

// lines passes on what is written to it.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}
