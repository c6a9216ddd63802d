package bridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"noused/internal/acp"
)

// A cancel is about the prompts that came before it: one that comes right behind it is
// worked at, however often.
func TestACancelIsAboutWhatCameBefore(t *testing.T) {
	tries := 1000
	if raceEnabled {
		tries = 50
	}
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	for i := range tries {
		var before []string
		for n := range i % 3 { // nothing runs, one is on its way, and one waits behind it
			before = append(before, e.prompt(s, fmt.Sprintf("before %d.%d", i, n)))
		}
		e.notify(acp.SessionCancel, `{"sessionId":"`+s+`"}`)
		behind := e.prompt(s, fmt.Sprintf("behind %d", i))
		if got := e.stop(behind); got != acp.EndTurn {
			t.Fatalf("try %d: the prompt behind a cancel: got %s, want end_turn", i, got)
		}
		for _, id := range before {
			if got := e.stop(id); got != acp.StopCancelled && got != acp.EndTurn {
				t.Errorf("try %d: the prompt before it: got %s", i, got)
			}
		}
	}
	if got := conversation(e.updates(s, 0, -1)); !slices.Contains(got, fmt.Sprintf("agent: behind %d", tries-1)) {
		t.Errorf("the last one was not worked at: %q", got[max(0, len(got)-5):])
	}
}

// Of two choices that an editor sends at once, the later one holds.
func TestTheLaterOfTwoChoicesHolds(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	choose := func(steering string) string {
		return e.send(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"steering","value":"`+steering+`"}`)
	}
	for i := range 50 {
		first, last := choose("all"), choose("one-at-a-time")
		if i%2 == 1 {
			first, last = last, choose("all")
		}
		e.reply(first)
		var r acp.OptionsResult
		e.decode(e.reply(last).Result, &r)
		want := []string{"one-at-a-time", "all"}[i%2]
		is, told := string(stateOf(t, d.Socket, s).SteeringMode), chosen(r.Options)
		if is != want || !strings.Contains(told, "steering="+want) {
			t.Fatalf("try %d: got %s and %s, want %s", i, is, told, want)
		}
	}
}
