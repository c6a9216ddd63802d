package tui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/protocol"
	"noused/internal/tui/slash"
)

// wrote tells whether the daemon's folder has the file that the test has written.
func wrote(h *hand, name string) bool {
	_, err := os.Stat(filepath.Join(h.state.Workdir, name))
	return err == nil
}

// plans has a text sent in plan mode and waits for the plan.
func (h *hand) planned(text string) {
	h.t.Helper()
	before := h.plannedRun()
	h.write(text)
	h.press("enter")
	h.until("plan", func() bool { return h.readyPlan() != "" && h.plannedRun() != before })
	h.sees("the plan is ready: d does it", "plan mode")
}

// A plan is made without a file being written, changed by another text, and carried out with a key.
func TestAPlanIsMadeChangedAndCarriedOut(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	h.planned(`/plan !write {"path":"made","content":"x"}`)
	h.reads("write is no tool of the agent plan")
	h.planned(` !write {"path":"made","content":"changed"}`)
	if wrote(h, "made") {
		t.Fatal("a plan has written a file")
	}
	h.later()
	h.write("don't") // begins with the key
	if h.input.Text() != "don't" {
		t.Fatalf("got %q in the input", h.input.Text())
	}
	h.press("ctrl+c")
	h.write("d")
	h.until("carrying out", func() bool { return !h.planning() && h.input.Empty() })
	h.until("end", func() bool {
		return !h.running() && len(h.unsent) == 0 && h.state.LastRun != nil && h.state.LastRun.As == ""
	})
	h.sees(carryOut)
	h.write(` !write {"path":"made","content":"x"}`)
	h.press("enter")
	h.until("file", func() bool { return wrote(h, "made") && !h.running() })
}

// A screen that comes later knows that a plan is ready; Esc leaves plan mode, and what is sent then
// has all tools.
func TestAPlanIsReadyForAnotherScreen(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	beside(h, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: h.state.SessionID}, Text: "think", As: slash.Plan,
	})
	other := useDaemon(t, d.Socket)
	other.sees("the plan is ready: d does it", "plan mode")
	other.press("esc")
	if other.planning() || strings.Contains(other.screen(), "the plan is ready") {
		t.Fatalf("Esc did not leave plan mode:\n%s", other.screen())
	}
	other.write("/plan")
	other.press("enter")
	other.sees("plan mode: what you send is planned")
	if strings.Contains(other.screen(), "the plan is ready") {
		t.Errorf("a plan that was left is ready again:\n%s", other.screen())
	}
	other.write("/plan")
	other.press("enter")
	other.write(` !write {"path":"made","content":"x"}`)
	other.press("enter")
	other.until("file", func() bool { return wrote(other, "made") })
}

// A text for a named agent is not taken into a run that has more tools: it comes back.
func TestATextForANamedAgentComesBackFromARun(t *testing.T) {
	d := startNoused(t, "")
	h := useDaemon(t, d.Socket)
	release := h.held(t.TempDir())
	for _, text := range []string{"/as explore where is it", "/plan what then"} {
		h.write(text)
		h.press("enter")
		h.until("text back", func() bool { return h.input.Text() == text })
		h.press("ctrl+c")
	}
	if !h.planning() {
		t.Error("plan mode is off")
	}
	release()
	h.until("end", func() bool { return !h.running() })
}

// The named agents are in the menu, and in a list where none is named.
func TestANamedAgentIsChosen(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("/as ex")
	h.until("agent in the menu", func() bool {
		return h.input.Menu.Open() && h.input.Menu.Rows[0].Text == "explore"
	})
	h.press("tab")
	h.write(" ")
	h.press("enter")
	h.sees("want a text: /as explore TEXT")
	h.write("/as nobody x")
	h.press("enter")
	h.sees("there is no agent nobody")
	h.press("ctrl+c")
	h.write("/as ")
	h.press("enter")
	h.sees("Send a text as", "ends with a plan")
	h.press("enter")
	if !strings.HasPrefix(h.input.Text(), "/as ") || h.input.Text() == "/as " {
		t.Errorf("got %q in the input", h.input.Text())
	}
}

// The status line names the agent that makes the run, also to a screen that came later.
func TestTheStatusLineNamesTheAgentOfTheRun(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.model.state.RunState, h.model.state.RunID, h.model.state.As = protocol.StateRunning, "run-1", "explore"
	if !strings.Contains(h.screen(), "as explore") {
		t.Error(h.screen())
	}
	h.model.state.RunState = protocol.StateIdle
	if strings.Contains(h.screen(), "as explore") {
		t.Error(h.screen())
	}
}
