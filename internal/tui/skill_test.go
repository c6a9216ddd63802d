package tui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/slash"
	"noused/internal/tui/tuitest"
)

// withSkill gives the daemon a skill named review.
func withSkill(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(d.Dir, ".agents", "skills", "review"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.Write(".agents/skills/review/SKILL.md",
		"---\nname: review\ndescription: How a change is read here.\n---\n\nTests first, then the rest.\n")
}

func TestASkillGoesWithTheText(t *testing.T) {
	d := startNoused(t, "")
	withSkill(t, d)
	h := useDaemon(t, d.Socket)
	h.write("/ski")
	h.until("command in the menu", func() bool { return h.input.Menu.Open() })
	h.press("enter")
	h.until("skill in the menu", func() bool {
		return h.input.Menu.Open() && h.input.Menu.Rows[0].Text == "/skill:review"
	})
	h.sees("How a change is read here.")
	h.press("enter")
	h.write("the last commit")
	h.press("enter")
	h.until("end of the run", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 && len(h.unsent) == 0 })
	h.sees("Use the skill review", "Tests first, then the rest.", "the last commit")
	if !h.input.Empty() {
		t.Errorf("got %q in the input", h.input.Text())
	}
	said := asked(t, h)
	if want := "Use the skill review. Its folder is " + filepath.Join(d.Dir, ".agents", "skills", "review") +
		", and it says:\n\nTests first, then the rest.\n\nthe last commit"; said != want {
		t.Errorf("sent was %q, want %q", said, want)
	}
}

// asked is the first text of the session that is shown.
func asked(t *testing.T, h *hand) string {
	t.Helper()
	r, err := slash.Ask(t.Context(), h.place(), protocol.GetMessages, protocol.GetMessagesParams{Scope: h.place().Scope()})
	if err != nil || len(r.Messages) == 0 {
		t.Fatal(r, err)
	}
	var m protocol.Message
	if err := json.Unmarshal(r.Messages[0], &m); err != nil {
		t.Fatal(err)
	}
	return m.Text
}

func TestAnUnknownSkillLeavesTheTextInTheInput(t *testing.T) {
	d := startNoused(t, "")
	withSkill(t, d)
	h := useDaemon(t, d.Socket)
	h.write("/skill:revue the last commit")
	h.press("enter")
	h.until("refusal", func() bool { return strings.Contains(h.screen(), "there is no skill") })
	h.sees(`there is no skill "revue"; there are review`)
	if got := h.input.Text(); got != "/skill:revue the last commit" {
		t.Errorf("got %q in the input", got)
	}
}

func TestPlainSkill(t *testing.T) {
	d := startNoused(t, "")
	withSkill(t, d)
	k := talk(t, d.Socket)
	k.hears("session ses-")
	k.types("/skill:nothing")
	k.hears(`there is no skill "nothing"; there are review`)
	k.types("/skill:review now")
	k.hears("assistant: Use the skill review", "Tests first")
}

func TestSkillsOfAnOlderCore(t *testing.T) { tuitest.EachHabit(t, testSkillsOfAnOlderCore) }

func testSkillsOfAnOlderCore(t *testing.T, habits tuitest.Habits) {
	k := talk(t, tuitest.StartOldCore(t, habits).Socket)
	k.hears("an older one")
	k.types("/skill:review now")
	k.hears("this core is an older one and does not know how to use skills")
}

// A file in the session's folder makes a command: the menu has it, with its description, and
// what it says goes to the model with what stands behind it.
func TestACommandOfAFile(t *testing.T) {
	d := startNoused(t, "")
	file := filepath.Join(t.TempDir(), ".claude", "commands", "mend-it.md")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "---\ndescription: Mend an issue.\n---\nMend issue $1 as asked: $ARGUMENTS.\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := useDaemon(t, d.Socket)
	folder := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	made := beside(h, protocol.NewSession, protocol.NewSessionParams{Title: "Elsewhere", Workdir: folder})
	h.write("/switch " + made.SessionID)
	h.press("enter")
	h.until("the session", func() bool { return h.state.SessionID == made.SessionID })
	h.write("/mend")
	h.until("the command in the menu", func() bool {
		return h.input.Menu.Open() && h.input.Menu.Rows[0].Text == "/mend-it"
	})
	h.sees("Mend an issue.")
	h.press("enter")
	h.write("12 today")
	h.press("enter")
	h.until("end of the run", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 && len(h.unsent) == 0 })
	if said, want := asked(t, h), "Mend issue 12 as asked: 12 today."; said != want {
		t.Errorf("sent was %q, want %q", said, want)
	}
}
