package tui

import (
	"os"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/cell"
)

// Who has no model yet is told what gives one, in the words of the README, so that
// it can be copied at any width; and is not told once there is a conversation.
func TestFirstScreenSaysWhatGivesAModel(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.send(tea.WindowSizeMsg{Width: 130, Height: 30})
	h.sees("This is nous", "No model is chosen yet")
	for _, line := range append([]string{byHand}, modelLines...) {
		h.sees("  " + line + "\n")
	}
	h.write("hello")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && strings.Count(h.screen(), "hello") >= 2 })
	if strings.Contains(h.screen(), "No model is chosen") {
		t.Errorf("a conversation begins with\n%s", h.screen())
	}
}

func TestModelLinesAreThoseOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(modelLines, "\n"); !strings.Contains(string(readme), "\n"+want+"\n") || !strings.Contains(string(readme), byHand) {
		t.Errorf("README.md has other lines than\n%s\n%s", want, byHand)
	}
}

func TestAShellsLineMeansTheSameAtAnyWidth(t *testing.T) {
	for _, line := range append([]string{byHand}, modelLines...) {
		for width := 1; width < 120; width++ {
			parts := shellLines(line, width)
			if got := strings.Join(parts, "\n"); strings.ReplaceAll(got, " \\\n", " ") != line {
				t.Errorf("at %d cells: %q", width, got)
			}
			for _, part := range parts {
				if cell.Width(part) > width && strings.Contains(strings.TrimSuffix(part, ` \`), " ") {
					t.Errorf("%q has more than %d cells", part, width)
				}
			}
		}
	}
}
