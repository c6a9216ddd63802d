package bridge

import (
	"testing"

	"noused/internal/acp"
	"noused/internal/protocol"
)

// What another client sets reaches the editor with the event that reports it, and what
// another client steers is shown, before anything else happens: the next event is waited
// for by nobody.
func TestWhatAnotherClientSetsAndSays(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	scope := protocol.Scope{SessionID: s}
	id := e.prompt(s, "one\n!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	from := e.mark()
	option := func(id, want string) func(update) bool {
		return func(u update) bool {
			for _, o := range u.Options {
				if o.ID == id && o.Current == want {
					return true
				}
			}
			return false
		}
	}
	for range 20 { // looked at every two seconds they would take 40 times as long
		command(t, d.Socket, protocol.SetApprovalMode, protocol.SetApprovalModeParams{Scope: scope, Mode: "auto"})
		e.awaitUpdate(s, from, "the mode", func(u update) bool { return u.Mode == "auto" })
		_, from = e.awaitUpdate(s, from, "the option", option(optionApprovals, "auto"))
		command(t, d.Socket, protocol.SetApprovalMode, protocol.SetApprovalModeParams{Scope: scope, Mode: "ask"})
		e.awaitUpdate(s, from, "the mode", func(u update) bool { return u.Mode == "ask" })
		_, from = e.awaitUpdate(s, from, "the option", option(optionApprovals, "ask"))
	}
	command(t, d.Socket, protocol.SetSteeringMode, protocol.SetModeParams{Scope: scope, Mode: protocol.ModeAll})
	_, from = e.awaitUpdate(s, from, "the option, which no event reports", option(optionSteering, "all"))
	command(t, d.Socket, protocol.Steer, protocol.SteerParams{Scope: scope, Text: "another way"})
	d.Write("go", "x\n")
	e.awaitUpdate(s, from, "what was steered", func(u update) bool {
		return u.Kind == acp.UserChunk && u.text() == "another way"
	})
	if got := e.stop(id); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
}

// An editor that opens sessions and says nothing there leaves none behind; what it, or
// anybody else, has used stays.
func TestEmptySessionsAreRemoved(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	used, titled, chosen := e.open(d.Dir), e.open(d.Dir), e.open(d.Dir)
	elsewhere := command(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	for range 5 {
		e.open(d.Dir)
	}
	e.must(acp.SessionResume, `{"sessionId":"`+elsewhere+`","cwd":"/"}`)
	e.say(used, "hello")
	command(t, d.Socket, protocol.SetTitle, protocol.SetTitleParams{
		Scope: protocol.Scope{SessionID: titled},
		Title: "later",
	})
	e.must(acp.SetMode, `{"sessionId":"`+chosen+`","modeId":"auto"}`)
	e.in.Close()
	<-e.ended
	left := map[string]bool{}
	for _, s := range command(t, d.Socket, protocol.ListSessions, protocol.ListSessionsParams{}).Sessions {
		left[s.SessionID] = true
	}
	if len(left) != 4 || !left[used] || !left[titled] || !left[chosen] || !left[elsewhere] {
		t.Errorf("left are %v, want %s, %s, %s and %s", left, used, titled, chosen, elsewhere)
	}
}
