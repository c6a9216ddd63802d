package bridge

import (
	"os"
	"path/filepath"
	"testing"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// In the mode plan a prompt writes nothing; in another one it does. An agent of another maker has
// no such mode.
func TestAnEditorPlans(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	made := filepath.Join(d.Dir, "made")
	from := e.mark()
	e.must(acp.SetMode, `{"sessionId":"`+s+`","modeId":"plan"}`)
	e.awaitUpdate(s, from, "the mode", func(u update) bool { return u.Mode == "plan" })
	e.say(s, `!write {"path":"made","content":"x"}`)
	if _, err := os.Stat(made); err == nil {
		t.Error("the mode plan has written a file")
	}
	if got := stateOf(t, d.Socket, s).LastRun; got == nil || got.As != "plan" {
		t.Errorf("got the last run %+v, want one as plan", got)
	}
	e.must(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"approvals","value":"ask"}`)
	e.say(s, `!write {"path":"made","content":"x"}`)
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}

	// A prompt that comes right behind the choice is planned, too.
	if err := os.Remove(made); err != nil {
		t.Fatal(err)
	}
	e.send(acp.SetMode, `{"sessionId":"`+s+`","modeId":"plan"}`)
	e.say(s, `!write {"path":"made","content":"x"}`)
	if _, err := os.Stat(made); err == nil {
		t.Error("a prompt behind the choice of the mode plan has written a file")
	}

	hosted, _, folder := hostedEditor(t, "")
	if m := hosted.reply(hosted.send(acp.SetMode, `{"sessionId":"`+hosted.open(folder)+`","modeId":"plan"}`)); m.Error == nil {
		t.Error("a session of another agent takes the mode plan")
	}
}

// A prompt that is to be planned waits for what follows a turn, and what follows is not held until the prompt is sent:
// a hook, or another client, may have the run go on, and the daemon may die.
func TestAPlannedPromptWaitsForNothingThatIsHeld(t *testing.T) {
	for name, next := range map[string]follow.Update{
		"another's turn": follow.Events{List: []follow.Event{{Event: protocol.TurnStart{InputIDs: []string{"in-other"}}}}},
		"a snapshot":     follow.Snapshot{},
		"no daemon":      follow.Disconnected{},
	} {
		w := &window{id: "ses-1", settled: make(chan struct{}), lost: true, draw: newDrawing()}
		w.sending.Add(1) // as it is from before it waits
		w.applyUpdate(next)
		select {
		case <-w.settled:
		default:
			t.Errorf("%s: the prompt waits on", name)
		}
	}
}
