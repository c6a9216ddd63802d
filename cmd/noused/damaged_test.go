package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/protocol"
)

// counting is a daemon, not started, with a tool that counts its calls in a file and asks nobody.
func counting(t *testing.T) (d *daemon, calls string) {
	t.Helper()
	d, calls = unstarted(t, "noused"), filepath.Join(t.TempDir(), "calls")
	d.write("tools/count.json",
		`{"name":"count","kind":"tool","protocol":"narratoria","capabilities":[],"transport":{"type":"stdio","command":["./count.sh"]},"operations":{"it":{}}}`, 0o600)
	d.write("tools/count.sh", "#!/bin/sh\ncat >/dev/null &\nprintf x >>"+calls+
		"\necho '{\"version\":\"0\",\"type\":\"done\",\"ok\":true}'\n", 0o700)
	d.write("noused/rules.toml", "[[policy.rule]]\ntool = \"count.it\"\ndecision = \"allow\"\n", 0o600)
	return d, calls
}

// record is a line of a journal.
func record(kind, data string) string {
	return fmt.Sprintf(`{"v":1,"at":"2026-01-02T03:04:05Z","type":%q,"data":%s}`+"\n", kind, data)
}

// inACall is the journal of a session whose run is about to make a call.
func inACall(id string) string {
	return record("created", `{"session_id":"`+id+`"}`) +
		record("input", `{"input_id":"in-1","kind":"prompt","command":"prompt","text":"count","run_id":"run-1"}`) +
		record("run_started", `{"run_id":"run-1"}`) +
		record("turn_started", `{"run_id":"run-1","turn":1,"kind":"prompt","input_ids":["in-1"]}`) +
		record("message",
			`{"id":"m1","run_id":"run-1","turn_kind":"prompt","input_id":"in-1","message":{"role":"user","text":"count"}}`) +
		record("message",
			`{"id":"m2","parent_id":"m1","run_id":"run-1","turn_kind":"prompt","stop_reason":"tool_calls","message":{"role":"assistant","text":"","tool_calls":[{"id":"call-1","name":"count.it","arguments":{}}]}}`)
}

func callsIn(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(text)
}

// One changed byte of a journal costs the line that it is in: the rest of the session is
// there, and so are the others.
func TestAMessageThatHasLostItsID(t *testing.T) {
	d := unstarted(t, "noused")
	const said = `{"id":"m%d","parent_id":"m%d","run_id":"run-1","turn_kind":"prompt","message":{"role":"user","text":"text %[1]d"}}`
	text := record("created", `{"session_id":"ses-1"}`)
	for i := range 4 {
		text += record("message", fmt.Sprintf(said, i+1, i))
	}
	text = strings.Replace(text, `,"parent_id":"m0"`, "", 1) + record("leaf_set", `{"leaf_id":"m4"}`)
	d.write("state/sessions/ses-1.jsonl", strings.Replace(text, `"id":"m2"`, `"ie":"m2"`, 1), 0o600)
	d.write("state/sessions/ses-2.jsonl", strings.ReplaceAll(text, "ses-1", "ses-2"), 0o600)
	d.write("state/sessions/ses-3.jsonl", strings.NewReplacer("ses-1", "ses-3", `"id":"m1"`, `"ie":"m1"`).Replace(text),
		0o600)
	d.Start()
	c := d.commands()
	for id, want := range map[string]int{"ses-1": 3, "ses-2": 4, "ses-3": 3} {
		got := into[protocol.Messages](t, c.request(`{"v":"1","id":"m","type":"get_messages","payload":{"session_id":"`+id+`"}}`))
		if len(got.Messages) != want {
			t.Errorf("%s has %d messages, want %d", id, len(got.Messages), want)
		}
		if r := c.request(`{"v":"1","id":"p","type":"prompt","payload":{"session_id":"` + id + `","text":"go on"}}`); !r.OK {
			t.Errorf("%s takes no prompt: %+v", id, r.Error)
		}
	}
	d.Stop()
	if want := "ses-1.jsonl:3: at byte "; !strings.Contains(d.Log.String(), want) {
		t.Errorf("the log does not tell %q", want)
	}
}

// What the journal may have said of a call, in a line that cannot be read, is not passed
// over: the call may have been made, or may have been waiting for an answer.
func TestACallWhoseRecordsAreDamagedIsNotMade(t *testing.T) {
	d, calls := counting(t)
	journal := inACall("ses-1")
	d.write("state/sessions/ses-1.jsonl", journal+record("tool_started", `{"run_id":"run-1","call_id":""}`), 0o600)
	d.write("state/sessions/ses-2.jsonl", strings.ReplaceAll(journal, "ses-1", "ses-2")+"\x00\x00\x00\n", 0o600)
	d.Start()
	c, events := d.commands(), d.sinceStart(d.dial())
	for range 2 {
		await(t, events, func(ev protocol.Event) bool { _, ok := ev.(protocol.AgentEnd); return ok })
	}
	for _, id := range []string{"ses-1", "ses-2"} {
		if r := c.request(`{"v":"1","id":"p","type":"prompt","payload":{"session_id":"` + id + `","text":"go on"}}`); !r.OK {
			t.Errorf("%s: no prompt is accepted after the run: %+v", id, r.Error)
		}
	}
	if n := callsIn(t, calls); n > 0 {
		t.Errorf("%d calls were made", n)
	}
	d.Stop()
	for _, id := range []string{"ses-1", "ses-2"} {
		text, err := os.ReadFile(filepath.Join(d.Dir, "state/sessions", id+".jsonl"))
		if err != nil || !strings.Contains(string(text),
			`"type":"run_ended","data":{"run_id":"run-1","stop_reason":"error","code":"session_error","error":"the journal cannot be read where`) {
			t.Errorf("%s: the run has not ended with the reason: %v", id, err)
		}
	}
}

// What a newer version may have said of a call in a record of its own, an older one does
// not pass over: the session can be read, and nothing is done there or written.
func TestASessionThatANewerVersionWroteCanOnlyBeRead(t *testing.T) {
	d, calls := counting(t)
	future := record("approval_asked_twice", `{"run_id":"run-1","call_id":"call-1"}`)
	journal := inACall("ses-1") + future + `{"v":1,"at":"2026` // torn, too
	d.write("state/sessions/ses-1.jsonl", journal, 0o600)
	d.write("state/sessions/ses-2.jsonl", record("created", `{"session_id":"ses-2"}`), 0o600)
	path := filepath.Join(d.Dir, "state/sessions/ses-1.jsonl")
	const why = `ses-1.jsonl:7: at byte `
	for range 2 {
		d.Start()
		c := d.commands()
		for kind, more := range map[string]string{
			"prompt": `,"text":"go on"`, "steer": `,"text":"go on"`, "follow_up": `,"text":"go on","if_idle":"prompt"`,
			"abort": ``, "set_leaf": `,"leaf_id":"m1"`,
			"set_title": `,"title":"x"`, "mark_read": ``, "compact_session": ``, "branch_session": ``, "delete_session": ``,
			"set_active_tools": `,"tools":[]`, "set_approval_mode": `,"mode":"deny"`, "extension_command": `,"name":"count.it"`,
		} {
			r := c.request(`{"v":"1","id":"w","type":"` + kind + `","payload":{"session_id":"ses-1"` + more + `}}`)
			if r.OK || r.Error.Code != protocol.SessionError || !strings.Contains(r.Error.Cause, why) ||
				!strings.Contains(r.Error.Cause,
					`record type "approval_asked_twice": a newer version of noused wrote the session`) {
				t.Errorf("%s: got %+v, want that it can only be read", kind, r.Error)
			}
		}
		got := into[protocol.Messages](t, c.request(`{"v":"1","id":"m","type":"get_messages","payload":{"session_id":"ses-1"}}`))
		if len(got.Messages) != 2 {
			t.Errorf("got %d messages, want 2", len(got.Messages))
		}
		st := into[protocol.State](t, c.request(`{"v":"1","id":"s","type":"get_state","payload":{"session_id":"ses-1"}}`))
		if st.RunState != protocol.StateIdle || st.RunID != "" || !strings.Contains(st.ReadOnly, why) {
			t.Errorf("the state is %s %q, read only %q", st.RunState, st.RunID, st.ReadOnly)
		}
		if tree := into[protocol.Tree](t,
			c.request(`{"v":"1","id":"t","type":"get_tree","payload":{"session_id":"ses-1"}}`)); len(tree.Nodes) != 2 {
			t.Errorf("the tree has %d nodes", len(tree.Nodes))
		}
		list := into[protocol.Sessions](t, c.request(`{"v":"1","id":"l","type":"list_sessions"}`))
		if len(list.Sessions) != 2 || list.Sessions[1].SessionID != "ses-1" ||
			list.Sessions[1].RunState != protocol.StateIdle {
			t.Errorf("the list is %+v", list.Sessions)
		}
		if r := c.request(`{"v":"1","id":"p","type":"prompt","payload":{"session_id":"ses-2","text":"hello"}}`); !r.OK {
			t.Errorf("another session takes no prompt: %+v", r.Error)
		}
		d.Stop()
	}
	if n := callsIn(t, calls); n > 0 {
		t.Errorf("%d calls were made", n)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != journal {
		t.Errorf("the journal was changed (%v): %s", err, text)
	}
}
