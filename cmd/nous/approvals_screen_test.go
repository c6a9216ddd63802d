package main

import (
	"testing"

	"noused/internal/daemontest"
	"noused/internal/protocol"
)

const (
	keyF4 = "\x1bOS"
	keyF5 = "\x1b[15~"
	keyF6 = "\x1b[17~"
)

// asksIn begins a run of a session that asks about a command outside the sandbox.
func asksIn(t *testing.T, d *daemontest.Daemon, session string) {
	t.Helper()
	p := protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session},
		Text:  `!bash {"command":"echo done","outside_sandbox":true,"reason":"r"}`, Wait: new(bool),
	}
	askDaemon(t, d.Socket, protocol.Prompt, p)
}

// A run that reaches its limit asks on the screen whether it goes on, and takes a
// key as the answer.
func TestALimitIsAskedAboutOnTheScreen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "[limits]\nrun_tokens = 1\n")
	s := openScreen(t, d, look{})
	s.say("!shout.run")
	s.Wait("Continue this run?", "run_tokens", "the run goes on", "F5")
	s.Type("c d.") // is written, and answers nothing
	s.Wait("c d.", "Continue this run?")
	s.Type(keyF5 + "c")
	s.Wait("approval: allowed", "LOUD")
	s.Wait("idle")
	s.WaitGone("Continue this run?")

	s.Press("ctrl+c")
	s.say("!shout.run")
	s.Wait("Continue this run?")
	s.Type(keyF5 + "d")
	s.Wait("approval: denied", "idle")
	s.WaitGone("Continue this run?")
}

// What another session asks is counted on the screen at once, though nothing
// happens in its own session; F6 leads there, and an answer from elsewhere ends it.
func TestApprovalsOfOtherSessionsReachTheScreen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := openScreen(t, d, look{cols: 132, rows: 30})
	off := false
	other := askDaemon(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Title: "Elsewhere", Activate: &off}).
		SessionID
	asksIn(t, d, other)
	s.Wait("1 approval elsewhere")
	q := state(t, d.Socket).PendingApprovals[0]
	askDaemon(t, d.Socket, protocol.Approve, protocol.ApproveParams{ApprovalID: q.ApprovalID, Option: "once"})
	s.WaitGone("approval elsewhere")
	s.WaitGone("1 other run")

	asksIn(t, d, other)
	s.Wait("1 approval elsewhere")
	s.Type(keyF6)
	s.Wait("Elsewhere", "Allow bash to run OUTSIDE", "echo done")
	s.WaitGone("approval elsewhere")
	s.Type(keyF5 + "o")
	s.Wait("approval: allowed", "idle")
}
