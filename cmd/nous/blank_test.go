package main

import (
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// A client that only looks makes the active session, whose id it needs. Nobody sees that in a
// list before something was said in it, and nous itself makes none to look.
func TestToLookLeavesNoSessionInLists(t *testing.T) {
	testenv.Long(t)
	d := daemontest.Start(t, program(t, "noused"), "")
	c, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sessions := func() []protocol.SessionInfo {
		t.Helper()
		r, err := client.Call(t.Context(), c, protocol.ListSessions, protocol.ListSessionsParams{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Sessions
	}
	nous := func(args ...string) string {
		t.Helper()
		out, status := ranIn(t, d.Dir, d.Env(), append([]string{program(t, "nous")}, args...)...)
		if status != exitOK {
			t.Errorf("nous %q: exit status %d: %s", args, status, out)
		}
		return out
	}
	for _, args := range [][]string{{"sessions"}, {"statusline"}, {"status"}, {"tools"}, {"models"}, {"agents"}} {
		nous(args...)
	}
	if made := sessions(); len(made) > 0 {
		t.Errorf("to look has made %v", made)
	}
	state, err := client.Call(t.Context(), c, protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		t.Fatal(err)
	}
	if made := sessions(); len(made) != 1 || made[0].SessionID != state.SessionID || !made[0].Blank() {
		t.Errorf("get_state told %q, and list_sessions has %v", state.SessionID, made)
	}
	short := state.SessionID[len(state.SessionID)-8:]
	if out := nous("sessions"); strings.Contains(out, short) {
		t.Errorf("nous sessions shows it before its first text:\n%s", out)
	}
	nous("prompt", "hello")
	if out := nous("sessions"); !strings.Contains(out, short) {
		t.Errorf("nous sessions does not show it after its first text:\n%s", out)
	}
}
