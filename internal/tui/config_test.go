package tui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
)

// written is a config file with that text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigSaysKeysThemeMouseAndNotifications(t *testing.T) {
	got, err := loadConfig(written(t, `
theme = "light"
mouse = false
autostart = false
[notify]
bell = false
after = "1m"
on = ["approval"]
[keys]
unfold-all = ["Ctrl+G", "shift+ctrl+f5"]
sessions = "alt+s"
tree = []
`))
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		theme: "light", mouse: new(bool), start: false, notify: notify{
			osc: true, after: time.Minute,
			on: []string{"approval"},
		},
		keys: map[string][]string{"unfold-all": {"ctrl+g", "ctrl+shift+f5"}, "sessions": {"alt+s"}, "tree": {}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{}, notify{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorsOfTheConfigNameFileLineAndKey(t *testing.T) {
	for _, tc := range []struct{ text, line, want string }{
		{"theme = 3", "1", "theme: want one of auto, dark, light, none"},
		{"\n\ntheme = \"pink\"", "3", "theme: want one of"},
		{"mouse = \"yes\"", "1", "mouse: want true or false"},
		{"autostart = \"no\"", "1", "autostart: want true or false"},
		{"mose = true", "1", "mose: there is no such key"},
		{"[notify]\nafter = 10", "2", "notify.after: want a duration"},
		{"[notify]\nafter = \"-1s\"", "2", "notify.after: want a duration"},
		{"[notify]\non = [\"all\"]", "2", "notify.on: want one of approval"},
		{"notify = 3", "1", ""},
		{"[keys]\nfly = \"ctrl+f\"", "2", "keys.fly: there is no such action"},
		{"[keys]\nhelp = \"h\"", "2", "writes a character"},
		{"[keys]\nhelp = \"ctrl+\"", "2", "is no key"},
		{"[keys]\nhelp = \"f99\"", "2", "is no key"},
		{"[keys]\nhelp = 1", "2", "keys.help: want a text"},
		{"[keys]\nhelp = \"f5\"\ntree = \"F5\"", "3", "keys.tree: f5 is a key of help already"},
		{"[keys]\nhelp = ", "2", ""},
		{"[other]\na = 1", "1", "other"},
	} {
		path := written(t, tc.text)
		got, err := loadConfig(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+":"+tc.line+": ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want line %s and %q", tc.text, err, tc.line, tc.want)
		}
		if diff := cmp.Diff(defaults(), got, cmp.AllowUnexported(config{}, notify{})); diff != "" {
			t.Errorf("%q: half of it holds (-want +got):\n%s", tc.text, diff)
		}
	}
}

// What is no file of the user's own is not read, and nothing is waited for.
func TestConfigIsARegularFileOfTheUsers(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(written(t, "mouse = false"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link: "is a symbolic link", dir: "is not a regular file", "/dev/zero": "is not a regular file",
		written(t, "#"+strings.Repeat("x", maxConfig)): "more than 65536 bytes",
	} {
		if _, err := loadConfig(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if got, err := loadConfig(filepath.Join(dir, "none")); err != nil || got.mouse != nil {
		t.Errorf("without a file: got %v", err)
	}
}

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
	if got := h.input.text(); got != "a\nb" || h.running() {
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

// Every action has its line in docs/tui.md, with its keys.
func TestDocsHaveEveryAction(t *testing.T) {
	text, err := os.ReadFile("../../docs/tui.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range keyActions {
		var keys []string
		for _, key := range a.keys {
			keys = append(keys, "`"+key+"`")
		}
		if line := "| `" + a.name + "` | " + strings.Join(keys, ", ") + " |"; !strings.Contains(string(text), line) {
			t.Errorf("docs/tui.md has no line\n%s", line)
		}
	}
}

// Every key of the configuration is described, and stands in docs/tui.md.
func TestDocsHaveEveryKeyOfTheConfig(t *testing.T) {
	text, err := os.ReadFile("../../docs/tui.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range ConfigKeys() {
		if k.Value == "" || !strings.HasSuffix(k.Text, ".") {
			t.Errorf("%s = %q: %q, want a sentence", k.Name, k.Value, k.Text)
		}
		at := strings.LastIndex(k.Name, ".")
		section, name := strings.ReplaceAll(k.Name[:max(at, 0)], "NAME", "box"), k.Name[at+1:]
		if section != "" && !strings.Contains(string(text), "\n    ["+section+"]") {
			t.Errorf("docs/tui.md has no section [%s]", section)
		}
		if name != strings.ToUpper(name) && !strings.Contains(string(text), "\n    "+name+" = ") {
			t.Errorf("docs/tui.md does not have %s", k.Name)
		}
	}
}
