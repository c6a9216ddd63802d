package main

import (
	"context"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

func (h *hosting) setAgent(agent string) error {
	_, err := client.Call(context.Background(), h.dial(), protocol.SetAgent, protocol.SetAgentParams{
		Scope: protocol.Scope{SessionID: h.session}, Agent: agent,
	})
	return err
}

// listed is what list_sessions says makes the session's turns.
func (h *hosting) listed() string {
	h.t.Helper()
	list, err := client.Call(context.Background(), h.dial(), protocol.ListSessions, protocol.ListSessionsParams{})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range list.Sessions {
		if s.SessionID == h.session {
			return s.Agent
		}
	}
	return "none"
}

// What makes a session's turns can be chosen until something was said in it. The session stays the
// same one, with its settings, and keeps the choice when the daemon is killed.
func TestTheAgentIsChosenBeforeTheFirstText(t *testing.T) {
	h := newHost(t, "options,load")
	h.session = h.newSession("noused")
	scope := protocol.Scope{SessionID: h.session}
	_, err := client.Call(context.Background(), h.dial(), protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: scope, Mode: protocol.ApprovalsDeny,
	})
	if err == nil {
		_, err = client.Call(context.Background(), h.dial(), protocol.SetTitle, protocol.SetTitleParams{
			Scope: scope, Title: "mine",
		})
	}
	if err == nil {
		err = h.setAgent("scripted")
	}
	if err != nil {
		t.Fatal(err)
	}
	st := h.state()
	if st.Agent != "scripted" || st.ApprovalMode != protocol.ApprovalsDeny || st.Title != "mine" {
		t.Errorf("got agent %s, approvals %s, title %q", st.Agent, st.ApprovalMode, st.Title)
	}
	h.Kill()
	h.Start()
	h.follow()
	if got := h.listed(); got != "scripted" {
		t.Errorf("list_sessions has %s", got)
	}
	h.prompt("!say it is me")
	h.sees("run ends completed", "message end: it is me")
	const want = "session_begun: session "
	if err := h.setAgent("noused"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := h.setAgent("scripted"); err != nil {
		t.Errorf("the agent that it has: %v", err)
	}
	if got := h.state().Agent; got != "scripted" {
		t.Errorf("got %s", got)
	}
}

// A conversation that was rewound to its beginning can come back: its agent stays.
func TestTheAgentOfARewoundSessionStays(t *testing.T) {
	h := newHost(t, "load")
	h.session = h.newSession("noused")
	scope := protocol.Scope{SessionID: h.session}
	if _, err := client.Call(context.Background(), h.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: scope, Text: "hello",
	}); err != nil {
		t.Fatal(err)
	}
	said, err := client.Call(context.Background(), h.dial(), protocol.GetMessages,
		protocol.GetMessagesParams{Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(context.Background(), h.dial(), protocol.Rewind, protocol.RewindParams{
		Scope: scope, To: decode[protocol.Message](t, said.Messages[0]).ID, What: protocol.RewindConversation,
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.setAgent("scripted"); err == nil || !strings.Contains(err.Error(), "session_begun") {
		t.Errorf("got %v, want session_begun", err)
	}
}

// An agent that was started for its options is ended when another one is chosen, and what was chosen
// of its options is forgotten.
func TestAnotherAgentIsChosen(t *testing.T) {
	h := newHost(t, "options,load")
	h.mustChoose("model", "large")
	const want = `invalid_payload: agent: there is no agent "nobody", only noused`
	if err := h.setAgent("nobody"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := h.setAgent("noused"); err != nil {
		t.Fatal(err)
	}
	if st := h.state(); st.Agent != "noused" || st.AgentOptions != nil {
		t.Errorf("got %s with %+v", st.Agent, st.AgentOptions)
	}
	if pids := h.agents(); len(pids) != 1 || !gone(pids[0]) {
		t.Errorf("the agent still runs: %v", pids)
	}
	if err := h.setAgent("scripted"); err != nil {
		t.Fatal(err)
	}
	h.wants([]string{h.said()}, "small low ask false")
}
