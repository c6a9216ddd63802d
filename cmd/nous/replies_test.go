package main

import (
	"strings"
	"testing"

	"noused/internal/client/clienttest"
)

// Whatever listens on the socket may answer anything: every command then ends
// with an error or with an answer, and never with a panic.
func TestCommandsEndWithRepliesThatAreNone(t *testing.T) {
	for args, command := range map[string]string{
		"prompt --async x": "prompt", "prompt --wait --json x": "prompt", "steer x": "steer", "follow-up x": "follow_up",
		"abort": "abort",
		"state": "get_state", "messages": "get_messages", "tree": "get_tree", "sessions": "list_sessions",
		"tools":  "list_tools",
		"models": "list_models", "new": "new_session", "compact": "compact_session", "search x": "search_sessions",
		"ping":       "ping",
		"set-leaf x": "set_leaf", "set-model x": "set_model",
		"branch ses-00000000-0000-0000-0000-000000000000": "branch_session",
	} {
		for _, reply := range []string{``, `,"payload":null`, `,"payload":[]`, `,"payload":"x"`} {
			got := nous(t, strings.Fields(args), func(d *clienttest.Daemon) {
				commands := d.Commands()
				defer commands.Close()
				id, _ := commands.Want(command)
				commands.Line(`{"v":"1","id":"` + id + `","type":"accepted","ok":true` + reply + `}`)
			})
			if got.status == exitOK || !strings.Contains(got.errout, "no payload") {
				t.Errorf("%s, answered %s: got %+v", args, reply, got)
			}
		}
	}
}

func TestAPromptThatIsAnsweredWithoutARun(t *testing.T) {
	for _, payload := range []string{`{}`, `{"run_id":""}`, `{"output":"done"}`} {
		got := nous(t, []string{"prompt", "x"}, func(d *clienttest.Daemon) {
			events, commands := meet(d)
			defer events.Close()
			defer commands.Close()
			id, _ := commands.Want("prompt")
			commands.Reply(id, "accepted", payload)
		})
		if got.status != exitFailed || !strings.Contains(got.errout, "names no run") {
			t.Errorf("%s: got %+v", payload, got)
		}
	}
}
