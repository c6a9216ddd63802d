package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/tui/keymap"
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
	got, err := Load(written(t, `
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
	want := Config{
		Theme: "light", Mouse: new(bool), start: false, Notify: Notify{
			OSC: true, After: time.Minute,
			On: []string{"approval"},
		},
		Keys: map[string][]string{"unfold-all": {"ctrl+g", "ctrl+shift+f5"}, "sessions": {"alt+s"}, "tree": {}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Config{}, Notify{})); diff != "" {
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
		got, err := Load(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+":"+tc.line+": ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want line %s and %q", tc.text, err, tc.line, tc.want)
		}
		if diff := cmp.Diff(defaults(), got, cmp.AllowUnexported(Config{}, Notify{})); diff != "" {
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
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if got, err := Load(filepath.Join(dir, "none")); err != nil || got.Mouse != nil {
		t.Errorf("without a file: got %v", err)
	}
}

// Every action has its line in docs/tui.md, with its keys.
func TestDocsHaveEveryAction(t *testing.T) {
	text, err := os.ReadFile("../../../docs/tui.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range keymap.Actions {
		var keys []string
		for _, key := range a.Keys {
			keys = append(keys, "`"+key+"`")
		}
		if line := "| `" + a.Name + "` | " + strings.Join(keys, ", ") + " |"; !strings.Contains(string(text), line) {
			t.Errorf("docs/tui.md has no line\n%s", line)
		}
	}
}

// Every key of the configuration is described, and stands in docs/tui.md.
func TestDocsHaveEveryKeyOfTheConfig(t *testing.T) {
	text, err := os.ReadFile("../../../docs/tui.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
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
