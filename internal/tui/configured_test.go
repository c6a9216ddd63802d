package tui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// configured opens the screen with a config.
func configured(t *testing.T, text string) *hand {
	t.Helper()
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "nous"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "nous", "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := useIn(t, startNoused(t, "").Socket, map[string]string{"XDG_CONFIG_HOME": home})
	h.until("the session", func() bool { return h.known })
	return h
}

func TestKeysAreThoseOfTheConfig(t *testing.T) {
	h := configured(t, "[keys]\nhelp = \"ctrl+t\"\nsend = \"alt+enter\"\nnewline = \"enter\"\n")
	h.sees("/ commands · F4 board · Ctrl+T help")
	h.write("a")
	h.press("enter")
	h.write("b")
	if got := h.input.Text(); got != "a\nb" || h.running() {
		t.Fatalf("got %q in the input, want Enter to write a line", got)
	}
	h.press("alt+enter")
	h.until("the answer", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
	h.press("ctrl+t")
	h.sees("Alt+Enter", "the path of a file", "Ctrl+T")
	if strings.Contains(h.screen(), "the session's tree") {
		t.Errorf("the tree has a key that is help's:\n%s", h.screen())
	}
}

// A config that is wrong somewhere is told once, and the screen is there.
func TestWrongConfigIsToldAndTheScreenStarts(t *testing.T) {
	h := configured(t, "theme = \"dark\"\nmouse = 3\n")
	h.reads("nous/config.toml:2: mouse: want true or false; nous goes on as if nothing were configured")
	if n := strings.Count(unwrapped(h.screen()), "config.toml"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
	if !h.mouse || h.chosen != "" {
		t.Errorf("got mouse %t, theme %q, want what holds without a config", h.mouse, h.chosen)
	}
	h.write("on we go")
	h.press("enter")
	h.until("the answer", func() bool { return !h.running() && h.state.Usage.OutputTokens > 0 })
}

// What is changed in the screen holds in the next one, but where the config
// says otherwise.
func TestThemeAndMouseAreRemembered(t *testing.T) {
	socket := startNoused(t, "").Socket
	env := map[string]string{"XDG_STATE_HOME": t.TempDir(), "XDG_CONFIG_HOME": t.TempDir()}
	h := useIn(t, socket, env)
	h.until("the session", func() bool { return h.known })
	for _, line := range []string{"/theme light", "/mouse"} {
		h.write(line)
		h.press("enter")
	}
	h.sees("the mouse is the terminal's")
	h.write("/theme pink")
	h.press("enter")
	h.sees("want one of auto, dark, light, none")
	if got := h.input.Text(); got != "/theme pink" {
		t.Errorf("got %q in the input, want what is wrong", got)
	}
	next := useIn(t, socket, env)
	if next.isDark() || next.mouse {
		t.Errorf("got dark %t, mouse %t, want what was chosen", next.isDark(), next.mouse)
	}
	next.send(tea.BackgroundColorMsg{})
	if err := os.MkdirAll(filepath.Join(env["XDG_CONFIG_HOME"], "nous"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(env["XDG_CONFIG_HOME"], "nous", "config.toml"),
		[]byte("mouse = true\ntheme = \"none\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if last := useIn(t, socket, env); !last.mouse || last.isColored() {
		t.Errorf("got mouse %t, colour %t, want what the config says", last.mouse, last.isColored())
	}
}
