package main

import (
	"strings"
	"testing"

	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

const oneAsks = `{"approval_id":"apr-1-ses-1","session_id":"ses-1","kind":"tool","tool_name":"bash","arguments":{"command":"ls"},"options":[{"id":"once","decision":"allow"}]}`

// states answers as a daemon does that knows, state by state, what waits.
func states(d *clienttest.Daemon, payloads ...string) {
	for _, payload := range payloads {
		for _, reply := range [][3]string{
			{"list_sessions", "sessions", `{"sessions":[{"session_id":"ses-1"}]}`},
			{"get_state", "state", payload},
		} {
			commands := d.Commands()
			id, _ := commands.Want(reply[0])
			commands.Reply(id, reply[1], reply[2])
			commands.Close()
		}
	}
}

// A daemon that has just started may not know yet what its runs have asked: that is
// waited for, and "none" or "the only one" is not said before.
func TestApprovalsThatAreNotKnownYetAreWaitedFor(t *testing.T) {
	know := func(list string) string { return `{"approval_mode":"ask","pending_approvals":[` + list + `]}` }
	reads := func(list string) string { return strings.TrimSuffix(know(list), "}") + `,"approvals_incomplete":true}` }
	never := func(list string) (all []string) {
		for range mostStates {
			all = append(all, reads(list))
		}
		return all
	}
	for name, c := range map[string]struct {
		args     string
		payloads []string
		status   int
		out, err string
	}{
		"one comes": {
			"approvals",
			[]string{reads(""), reads(""), know(oneAsks)},
			exitOK, "apr-1-ses-1",
			"waiting for them\n",
		},
		"none comes":        {"approvals", []string{reads(""), know("")}, exitOK, "", "no approval waits\n"},
		"it takes for ever": {"approvals", never(oneAsks), exitOK, "apr-1-ses-1", "list them again\n"},
		"as lines":          {"approvals --json", never(oneAsks), exitOK, oneAsks, "list them again\n"},
		"none so far":       {"approve", never(""), exitFailed, "", "give the whole id, or try again\n"},
		"one so far":        {"deny", never(oneAsks), exitFailed, "", "give the whole id, or try again\n"},
		"a beginning":       {"approve apr-1", never(oneAsks), exitFailed, "", "give the whole id, or try again\n"},
	} {
		got := nous(t, strings.Fields(c.args), func(d *clienttest.Daemon) { states(d, c.payloads...) })
		if got.status != c.status || !strings.Contains(got.out, c.out) || c.out == "" && got.out != "" ||
			!strings.HasSuffix(got.errout, c.err) {
			t.Errorf("%s: got %+v, want %d %q %q", name, got, c.status, c.out, c.err)
		}
		if n := strings.Count(got.errout, "waiting for them"); n != 1 {
			t.Errorf("%s: waiting is said %d times: %s", name, n, got.errout)
		}
	}
	got := nous(t, []string{"deny", "apr-1-ses-1"}, func(d *clienttest.Daemon) {
		states(d, never(oneAsks)...)
		commands := d.Commands()
		defer commands.Close()
		id, payload := commands.Want("approve")
		if !strings.Contains(string(payload), `"apr-1-ses-1"`) {
			t.Errorf("sent %s", payload)
		}
		commands.Reply(id, "accepted", `{"command":"approve","approval_id":"apr-1-ses-1","outcome":"denied"}`)
	})
	if got.status != exitOK || got.out != "denied: bash ls\n" {
		t.Errorf("a whole id: got %+v", got)
	}
}

// The number of an approval is not the beginning of another one.
func TestTheBeginningOfAnApproval(t *testing.T) {
	q := waitingApprovals{list: []protocol.Approval{{ApprovalID: "apr-12-ses-34"}}}
	for id, want := range map[string]bool{
		"": true, "apr-12": true, "apr-12-": true, "apr-12-ses-3": true, "apr-12-ses-34": true,
		"apr-1": false, "apr": true, "ap": false, "apr-12-ses-4": false,
	} {
		if one, err := q.one(id); err != nil || (one.ApprovalID != "") != want {
			t.Errorf("%q: got %q, %v", id, one.ApprovalID, err)
		}
	}
}
