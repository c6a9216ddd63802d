package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"

	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

// evil is what a model, a tool or a server may say: it clears the screen, rings,
// names the window, in 7 and in 8 bits, and turns the line round.
const evil = "ev\x1b[2J\x1b]0;owned\x07\u009b31m\u0085\x00\x7f\u202e\u2066\u200f\u061cil"

// evilText is evil in a JSON string, with as little escaped as JSON allows.
var evilText = func() string {
	text, err := json.Marshal(evil)
	if err != nil {
		panic(err)
	}
	return string(text)
}()

func drives(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

// evilAnswers are command lines and what the daemon answers: every string that
// it chooses is evil.
var evilAnswers = []struct{ args, command, typ, payload string }{
	{"ping", "ping", "pong", `{"message":E}`},
	{"messages --full", "get_messages", "messages", `{"session_id":E,"leaf_id":E,"messages":[
		{"type":"compaction","id":E,"summary":E},
		{"type":"message","id":E,"role":"user","text":E,"turn_kind":E,"attachments":[{"media_type":E,"name":E,"size":1,"path":E}]},
		{"type":"message","id":E,"role":"assistant","text":E,"tool_calls":[{"id":E,"name":E,"arguments":{"a":E}}]},
		{"type":"message","id":E,"role":"tool","text":E,"tool_name":E,"ok":false}]}`},
	{"tree", "get_tree", "tree", `{"session_id":E,"leaf_id":E,"nodes":[{"id":E,"role":E,"snippet":E}]}`},
	{"search x", "search_sessions", "search_results", `{"matches":[{"session_id":E,"title":E,"role":E,"snippet":E}]}`},
	{
		"tools", "list_tools", "tools",
		`{"tools":[{"name":E,"protocol":E,"description":E,"healthy":true},{"name":E,"protocol":E,"problem":E}]}`,
	},
	{"tools reload", "reload_tools", "tools_reloaded", `{"added":[E],"changed":[E],"removed":[E],"errors":[E]}`},
	{"ext a", "extension_command", "result", `{"ok":true,"result":E,"outputs":{}}`},
	{"ext a", "extension_command", "result", `{"ok":true,"outputs":{"a":E}}`},
	{"ext a", "extension_command", "result", `{"ok":false,"result":E,"error":{"code":E,"message":E}}`},
	{"models", "list_models", "models", `{"models":[{"model":E,"name":E,"source":E,"base_url":E,"problem":E}]}`},
	{"set-model x", "set_model", "accepted", `{"model":{"provider":E,"name":E,"base_url":E}}`},
	{"compact", "compact_session", "compaction", `{"summary":E,"first_kept_entry_id":E}`},
	{"new", "new_session", "session", `{"session_id":E}`},
	{"abort", "abort", "accepted", `{"run_id":E,"discarded":[{"input_id":E,"kind":E,"text":E}]}`},
	{"prompt --async x", "prompt", "accepted", `{"run_id":E}`},
	{
		"state", "get_state", "state",
		`{"session_id":E,"run_state":E,"run_id":E,"steering_mode":E,"queued":{"steer":[E],"follow_up":[E]},
		"partial":{"text":E},"model":{"provider":E,"name":E},"active_tools":[E],"session_state":{"a":E},"assets":[{"asset_id":E,"path":E,"media_type":E}],
		"runs":[{"run_id":"r2","run_state":E,"session_id":E}],"daemon":{"version":E,"epoch":E}}`,
	},
}

func TestNoCommandPrintsControls(t *testing.T) {
	for _, tc := range evilAnswers {
		payload := evilPayload(tc.payload)
		for _, flags := range []string{"", "--json "} {
			t.Run(flags+tc.args, func(t *testing.T) {
				got := nous(t, strings.Fields(flags+tc.args), func(d *clienttest.Daemon) { answer(d, tc.command, tc.typ, payload) })
				for name, text := range map[string]string{"output": got.out, "errors": got.errout} {
					if i := strings.IndexFunc(text, drives); i >= 0 {
						t.Errorf("the %s have %U: %q", name, []rune(text[i:])[0], text)
					}
				}
				if !strings.Contains(got.out+got.errout, "evil") && flags == "" {
					t.Errorf("got %q and %q, want the text that is left", got.out, got.errout)
				}
				if flags != "" {
					wantEqualJSON(t, got.out, payload)
				}
			})
		}
	}
}

func wantEqualJSON(t *testing.T, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("not JSON: %v: %q", err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(a, json.Deterministic(true))
	y, _ := json.Marshal(b, json.Deterministic(true))
	if string(x) != string(y) {
		t.Errorf("got the value %s, want %s", x, y)
	}
}

// evilRun is a run in which everybody is evil.
func evilRun(d *clienttest.Daemon) {
	events := acceptPrompt(d, "r")
	defer events.Close()
	for i, ev := range [][2]string{
		{"turn_start", `{"run_id":"r","kind":E}`},
		{"message_start", `{"run_id":"r","role":"user","text":E}`},
		{"message_update", `{"run_id":"r","thinking_delta":E}`},
		{"message_update", `{"run_id":"r","delta":E}`},
		{"tool_execution_start", `{"run_id":"r","tool_name":E,"arguments":{"a":E}}`},
		{"tool_execution_update", `{"run_id":"r","tool_name":E,"delta":E}`},
		{"tool_execution_end", `{"run_id":"r","tool_name":E,"ok":true,"result":E}`},
		{"tool_execution_end", `{"run_id":"r","tool_name":E,"ok":false,"error":{"code":E,"message":E}}`},
		{"status", `{"run_id":"r","message":E,"code":E}`},
		{"warning", `{"run_id":"r","message":E,"code":E}`},
		{"error", `{"run_id":"r","message":E,"code":E,"cause":E}`},
		{"agent_end", `{"run_id":"r","stop_reason":"completed","error":{"code":E,"message":E}}`},
	} {
		events.Event(i+1, ev[0], strings.ReplaceAll(ev[1], "E", evilText))
	}
}

func TestPromptPrintsNoControls(t *testing.T) {
	for _, args := range []string{"prompt x", "--json prompt x"} {
		got := nous(t, strings.Fields(args), evilRun)
		if i := strings.IndexFunc(got.out+got.errout, drives); i >= 0 || got.status != 0 || !strings.Contains(got.out, "ev") {
			t.Errorf("%s: got a control character or another end than 0: %q", args, fmt.Sprint(got))
		}
	}
}

// --raw is for those who want the bytes; what goes to standard error is for
// people all the same.
func TestRawPrintsTheTextAsItIs(t *testing.T) {
	got := nous(t, []string{"prompt", "--raw", "x"}, evilRun)
	if got.out != evil+"\n" || strings.ContainsFunc(got.errout, drives) {
		t.Errorf("got %q, want the text as it is and nothing of the kind among the errors", fmt.Sprint(got))
	}
	for _, tc := range evilAnswers {
		if tc.command != "get_messages" && tc.command != "extension_command" && tc.command != "compact_session" ||
			strings.Contains(tc.payload, `"ok":false,"r`) {
			continue
		}
		args := append(strings.Fields(tc.args), "--raw")
		got := nous(t, args, func(d *clienttest.Daemon) {
			answer(d, tc.command, tc.typ, evilPayload(tc.payload))
		})
		if !strings.Contains(got.out, evil+"\n") {
			t.Errorf("%q: got %q, want the text as it is", args, got.out)
		}
	}
}

func TestServersErrorsDriveNoTerminal(t *testing.T) {
	for _, flags := range []string{"", "--json "} {
		got := nous(t, strings.Fields(flags+"abort"), func(d *clienttest.Daemon) {
			commands := d.Commands()
			defer commands.Close()
			id, _ := commands.Want("abort")
			commands.Fail(id, &protocol.Error{Code: "internal_error", Message: evil, Cause: evil})
		})
		if strings.ContainsFunc(got.out+got.errout, drives) || !strings.Contains(got.errout, "evil") {
			t.Errorf("%sabort: got %q", flags, fmt.Sprint(got))
		}
	}
}

func TestEventsPrintNoControls(t *testing.T) {
	for _, flags := range []string{"", "--json "} {
		got := nousWaiting(t, time.Nanosecond, strings.Fields(flags+"events"), func(d *clienttest.Daemon) {
			answer(d, "list_sessions", "sessions", `{"sessions":[]}`)
			events := d.Events()
			events.Subscribed(subscribedAt1)
			for i, typ := range []string{
				"agent_start", "agent_end", "turn_start", "turn_end", "message_update",
				"tool_execution_start", "warning", "of_tomorrow",
			} {
				events.Event(i+1, typ, strings.ReplaceAll(
					`{"run_id":E,"session_id":E,"turn_id":E,"kind":E,"stop_reason":E,"delta":E,"tool_name":E,"arguments":E,"message":E,"code":E}`, "E", evilText))
			}
			d.Stop()
			events.Close()
		})
		if strings.ContainsFunc(got.out+got.errout, drives) || strings.Count(got.out, "\n") != 8 {
			t.Errorf("%sevents: got %q", flags, fmt.Sprint(got))
		}
	}
}

func evilPayload(payload string) string {
	return strings.NewReplacer("E", evilText, "\n", "", "\t", "").Replace(payload)
}
