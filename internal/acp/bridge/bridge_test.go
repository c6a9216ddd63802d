package bridge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// The whole way of a text: the answer comes as chunks, then the prompt is answered.
func TestAPromptIsAnswered(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	from := e.mark()
	if got := e.say(s, "?let me see\nhello world"); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	want := []string{"thought: let me see", "agent: hello world"}
	if diff := cmp.Diff(want, conversation(e.updates(s, from, -1))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A replay shows what the session has, and nothing else; who resumes is shown what
// comes from then on only.
func TestLoadShowsWhatWasSaid(t *testing.T) {
	d := startDaemon(t, "")
	live := newEditor(t, d.Socket)
	s := live.open(d.Dir)
	from := live.mark()
	live.say(s, "?hm\nfirst\n!write {\"path\":\"x.txt\",\"content\":\"a\\n\"}\n!read {\"path\":\"none\"}")
	live.say(s, "second")
	said := conversation(live.updates(s, from, -1))

	for _, again := range []*editor{live, newEditor(t, d.Socket)} { // open here already, and not
		from := again.mark()
		id := again.send(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
		_, at := again.await(from, "the answer", func(m message) bool { return m.Method == "" && string(m.ID) == id })
		got := conversation(again.updates(s, from, at))
		want := slices.Insert(slices.Clone(said), 0,
			"user: ?hm\nfirst\n!write {\"path\":\"x.txt\",\"content\":\"a\\n\"}\n!read {\"path\":\"none\"}")
		want = slices.Insert(want, len(want)-1, "user: second")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the replay (-want +got):\n%s", diff)
		}
	}

	quiet := newEditor(t, d.Socket)
	quiet.must(acp.SessionResume, `{"sessionId":"`+s+`","cwd":"/"}`)
	quiet.say(s, "third")
	if diff := cmp.Diff([]string{"agent: third"}, conversation(quiet.updates(s, 0, -1))); diff != "" {
		t.Errorf("who resumes (-want +got):\n%s", diff)
	}
	live.awaitUpdate(s, 0, "the other editor's text", func(u update) bool {
		return u.Kind == acp.UserChunk && u.text() == "third"
	})
}

// What is typed while the session runs waits its turn, and is answered at the end of
// its own.
func TestTextsThatWaitAreAnsweredInTheirTurn(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	first := e.prompt(s, "one\n!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	second, third := e.prompt(s, "two"), e.prompt(s, "three")
	steered := e.send(acp.Steer, textPrompt(s, "quickly"))
	if m := e.reply(steered); m.Error != nil {
		t.Fatal(m.Error)
	}
	d.Write("go", "x\n")
	for _, id := range []string{first, second, third} {
		if got := e.stop(id); got != acp.EndTurn {
			t.Errorf("prompt %s: got %s, want end_turn", id, got)
		}
	}
	// Each answer stands behind the chunks of its own turn, before the next.
	var order []string
	for _, m := range e.all() {
		if u, ok := updateOf(s, m); ok && u.Kind == acp.AgentChunk {
			order = append(order, u.text())
		} else if m.Method == "" && slices.Contains([]string{first, second, third}, string(m.ID)) {
			order = append(order, "answer")
		}
	}
	if diff := cmp.Diff([]string{"one", "answer", "quickly", "two", "answer", "three", "answer"}, order); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A cancel answers every open prompt, and says which texts were not delivered.
func TestCancel(t *testing.T) {
	d := slowDaemon(t, "")
	e, other := newEditor(t, d.Socket), newEditor(t, d.Socket)
	s := e.open(d.Dir)
	other.must(acp.SessionResume, `{"sessionId":"`+s+`","cwd":"/"}`)
	first := e.prompt(s, "a long story\n!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	second := e.prompt(s, "and another")
	others := other.prompt(s, "a third")
	var state protocol.State
	for len(state.Queued.Inputs) < 2 {
		state = stateOf(t, d.Socket, s)
	}
	e.notify(acp.SessionCancel, `{"sessionId":"`+s+`"}`)
	for id, by := range map[string]*editor{first: e, second: e, others: other} {
		if got := by.stop(id); got != acp.StopCancelled {
			t.Errorf("prompt %s: got %s, want cancelled", id, got)
		}
	}
	for _, text := range []string{"and another", "a third"} {
		e.awaitUpdate(s, 0, "what was handed back", func(u update) bool {
			return u.Kind == acp.AgentChunk && strings.Contains(u.text(), "Not delivered") && strings.Contains(u.text(), text)
		})
	}
	e.notify(acp.SessionCancel, `{"sessionId":"`+s+`"}`) // nothing runs any more
	if got := e.say(s, "/model"); got != acp.EndTurn {
		t.Errorf("after it: got %s, want end_turn", got)
	}
}

// A request that is taken back is: a text that waits alone, one that is worked at
// with the run.
func TestATextThatIsTakenBack(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	first := e.prompt(s, "a long story\n!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	second := e.prompt(s, "and another")
	for len(stateOf(t, d.Socket, s).Queued.Inputs) < 1 {
	}
	e.notify(acp.CancelRequest, `{"requestId":`+second+`}`)
	if got := e.stop(second); got != acp.StopCancelled {
		t.Errorf("the one that waited: got %s, want cancelled", got)
	}
	if got := stateOf(t, d.Socket, s).RunState; got != protocol.StateRunning {
		t.Errorf("the run is %s, want it running", got)
	}
	e.notify(acp.CancelRequest, `{"requestId":`+first+`}`)
	if got := e.stop(first); got != acp.StopCancelled {
		t.Errorf("the one that ran: got %s, want cancelled", got)
	}
}

func stateOf(t *testing.T, socket, session string) protocol.State {
	t.Helper()
	return command(t, socket, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
}

// command is what another client does.
func command[P protocol.Params, R protocol.Reply](t testing.TB, socket string, def protocol.Def[P, R], p P) R {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := client.Call(t.Context(), c, def, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Where no model is chosen, editors learn that a key is missing, and what to do.
func TestAPromptWithoutAModelWantsAKey(t *testing.T) {
	d := daemontest.New(t, noused, "")
	d.Modelless = true
	d.Start()
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	from := e.mark()
	id := e.send(acp.SessionPrompt, `{"sessionId":"`+s+`","prompt":[{"type":"text","text":"hello"}]}`)
	got, _ := e.await(from, "the answer", func(m message) bool { return m.Method == "" && string(m.ID) == id })
	if got.Error == nil || got.Error.Code != acp.AuthRequired || got.Error.Message != "no model is chosen: nous setup" {
		t.Errorf("got %+v", got.Error)
	}
}
