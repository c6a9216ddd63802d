package bridge

import (
	"os"
	"path/filepath"
	"testing"

	"noused/internal/acp"
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

	hosted, _, folder := hostedEditor(t, "")
	if m := hosted.reply(hosted.send(acp.SetMode, `{"sessionId":"`+hosted.open(folder)+`","modeId":"plan"}`)); m.Error == nil {
		t.Error("a session of another agent takes the mode plan")
	}
}
