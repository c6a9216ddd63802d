package sessiontest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// givenUp is a journal whose run is given up beside a child of its second call, before any was told.
const givenUp = `{"type":"created","data":{"session_id":"ses-1"}}
{"type":"input","data":{"input_id":"in-1","kind":"prompt","command":"prompt","text":"go","run_id":"run-1"}}
{"type":"run_started","data":{"run_id":"run-1"}}
{"type":"turn_started","data":{"run_id":"run-1","turn":1,"kind":"prompt","input_ids":["in-1"]}}
{"type":"message","data":{"id":"m1","run_id":"run-1","input_id":"in-1","message":{"role":"user","text":"go"}}}
{"type":"message","data":{"id":"m2","run_id":"run-1","stop_reason":"tool_calls","message":{"role":"assistant",` +
	`"tool_calls":[{"id":"call-1","name":"t.x","arguments":"{}"},{"id":"call-2","name":"agent","arguments":"{}"}]}}}
{"type":"message","data":{"id":"m3","run_id":"run-1","not_run":"aborted","message":{"role":"tool",` +
	`"tool_call_id":"call-2","text":"the child was stopped"}}}
`

// A call that was not run as its run was given up is not announced: the checker wanted it to be told behind the calls
// before it (found by the simulator). A run that does so ends.
func TestACallThatIsNotRunAsItsRunIsGivenUp(t *testing.T) {
	for next, wrong := range map[string]string{
		`{"type":"turn_ended","data":{"run_id":"run-1","turn":1,"stop_reason":"error"}}
{"type":"run_ended","data":{"run_id":"run-1","stop_reason":"error"}}`: "",
		`{"type":"tool_started","data":{"run_id":"run-1","call_id":"call-1"}}`: "run run-1 goes on",
		`{"type":"message_started","data":{"run_id":"run-1","id":"m4"}}`:       "run run-1 goes on",
	} {
		path := filepath.Join(t.TempDir(), "ses-1.jsonl")
		if err := os.WriteFile(path, []byte(givenUp+next+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := New("ses-1")
		if err := s.Take(path); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Wrong, "\n"); wrong == "" && got != "" || !strings.Contains(got, wrong) {
			t.Errorf("%s: got %q, want %q", next, got, wrong)
		}
	}
}

// A run that was let go on past its limit waits no more: that it was given up for its crashes after that was told as
// wrong (found by the simulator).
func TestARunThatMayGoOnCrashes(t *testing.T) {
	const journal = `{"type":"created","data":{"session_id":"ses-1"}}
{"type":"input","data":{"input_id":"in-1","kind":"prompt","command":"prompt","text":"go","run_id":"run-1"}}
{"type":"run_started","data":{"run_id":"run-1"}}
{"type":"turn_started","data":{"run_id":"run-1","turn":1,"kind":"prompt","input_ids":["in-1"]}}
{"type":"message","data":{"id":"m1","run_id":"run-1","input_id":"in-1","message":{"role":"user","text":"go"}}}
{"type":"approval_asked","data":{"approval_id":"apr-1","run_id":"run-1","kind":"budget",` +
		`"options":[{"id":"continue","decision":"allow"}]}}
{"type":"approval_decided","data":{"approval_id":"apr-1","run_id":"run-1","outcome":"allowed","option":"continue"}}
{"type":"run_resumed","data":{"run_id":"run-1"}}
{"type":"run_resumed","data":{"run_id":"run-1"}}
{"type":"run_resumed","data":{"run_id":"run-1"}}
{"type":"turn_ended","data":{"run_id":"run-1","turn":1,"stop_reason":"error","code":"crash_loop"}}
{"type":"run_ended","data":{"run_id":"run-1","stop_reason":"error","code":"crash_loop"}}
`
	path := filepath.Join(t.TempDir(), "ses-1.jsonl")
	if err := os.WriteFile(path, []byte(journal), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New("ses-1")
	if err := s.Take(path); err != nil || len(s.Wrong) > 0 {
		t.Errorf("got %v, %q", err, s.Wrong)
	}
}
