package runloop

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

var errNoRoute = errors.New("no route to host")

// A client that comes in the middle finds out what happened to its text: the state
// says which texts the open turn delivers, the message which text it is, and the
// end of a turn why it failed even where the run goes on.
func TestATextIsFoundInItsTurn(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.step(queueIn{nil, protocol.KindFollowUp, protocol.SteerParams{Text: "and then"}, nil})
	first := w.events[1].(protocol.TurnStart).InputIDs
	if diff := cmp.Diff(&protocol.TurnInfo{TurnID: "1", Kind: protocol.KindPrompt, InputIDs: first},
		w.m.state().Turn); diff != "" {
		t.Errorf("the open turn (-want +got):\n%s", diff)
	}
	w.step(modelDoneIn{w.work.gen, errNoRoute})
	end := w.events[slices.IndexFunc(w.events, func(ev protocol.Event) bool {
		return ev.Type() == "turn_end"
	})].(protocol.TurnEnd)
	if want := (protocol.RunError{Code: protocol.ProviderError, Message: errNoRoute.Error()}); end.Error == nil ||
		*end.Error != want {
		t.Errorf("the turn's end says %+v, want %+v", end.Error, want)
	}
	second := w.m.state().Turn.InputIDs
	w.finish()
	if got := w.m.state().Turn; got != nil {
		t.Errorf("got %+v after the run, want no turn", got)
	}
	var told, kept []string
	for _, ev := range w.events {
		if start, ok := ev.(protocol.MessageStart); ok && start.Role == "user" {
			told = append(told, start.InputID)
		}
	}
	path, _ := w.m.s.Path("")
	for _, e := range path {
		if m := wireEntry("", e.Body()).(protocol.Message); m.Role == "user" {
			kept = append(kept, m.InputID)
		}
	}
	if want := slices.Concat(first, second); !slices.Equal(told, want) || !slices.Equal(kept, want) {
		t.Errorf("events say %q, messages %q, want %q", told, kept, want)
	}
}
