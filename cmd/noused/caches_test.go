package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/testenv"
)

// run runs a command in the sandbox of a session.
func (d *daemon) run(session, command string) (ok bool, said string) {
	d.t.Helper()
	text, err := json.Marshal(map[string]any{"command": command})
	if err != nil {
		d.t.Fatal(err)
	}
	got := d.extension(session, "bash", string(text))
	return got.OK, got.Result
}

// housed is a daemon whose user has a home of his own, and two projects in it.
func housed(t *testing.T) (d *daemon, home string) {
	t.Helper()
	home = t.TempDir()
	for name, text := range map[string]string{
		".cache/go-build/ab/tool": "built", ".cache/other/key": "sk-other",
		".secret/key": "sk-secret", "project/x": "", "other/x": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	for name, folder := range map[string]string{
		"XDG_CACHE_HOME": ".cache", "XDG_DATA_HOME": ".local/share",
		"XDG_STATE_HOME": ".local/state",
	} {
		t.Setenv(name, filepath.Join(home, folder))
	}
	d = newDaemon(t)
	if ok, _ := d.run(d.session(filepath.Join(home, "project")), "touch "+home+"/x"); ok {
		t.Skip("no sandbox here")
	}
	return d, home
}

// What tools put into the user's cache, his other programs would run: go run has its
// executables there.
func TestNoToolChangesTheUsersCache(t *testing.T) {
	d, home := housed(t)
	for _, folder := range []string{"project", "."} {
		session := d.session(filepath.Join(home, folder))
		for _, command := range []string{
			"echo changed >~/.cache/go-build/ab/tool", "cp /bin/true ~/.cache/go-build/ab/new", "rm -r ~/.cache/go-build",
			"mv ~/.cache ~/away; mkdir -p ~/.cache/go-build/ab; echo changed >~/.cache/go-build/ab/tool",
			"ln -sfn /tmp ~/.cache", "ln -s /tmp ~/.cache/new", `echo changed >"$(dirname "$XDG_CACHE_HOME")/folder"`,
		} {
			if ok, said := d.run(session, "set -e; "+command); ok {
				t.Errorf("in %s: %s worked: %s", folder, command, said)
			}
		}
		if ok, said := d.run(session, `mkdir -p "$GOCACHE" && echo x >"$GOCACHE/x" && cat "$GOCACHE/x"`); !ok {
			t.Errorf("in %s: it has no cache of its own: %s", folder, said)
		}
	}
	if text, err := os.ReadFile(filepath.Join(home, ".cache/go-build/ab/tool")); string(text) != "built" {
		t.Errorf("got %q, %v", text, err)
	}
	if entries, err := os.ReadDir(filepath.Join(home, ".cache/go-build/ab")); len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
}

// In a session of the home folder nothing that can be replaced leads to what is hidden.
func TestNoLinkInTheHomeLeadsToTheHidden(t *testing.T) {
	testenv.Long(t)
	d, home := housed(t)
	session := d.session(home)
	state := filepath.Join(d.Dir, "state")
	for _, link := range []string{
		".cache", ".cargo", ".cargo/bin", ".rustup", ".nvm", ".local/bin", ".config/git",
		".bashrc",
	} {
		for _, target := range []string{state, home + "/.secret", home + "/.secret/key", home + "/.cache/other"} {
			_, _ = d.run(session, fmt.Sprintf("mv ~/%s ~/away$$; mkdir -p $(dirname ~/%s); ln -s %s ~/%s", link, link, target,
				link))
			_, said := d.run(session, fmt.Sprintf("cat ~/%s ~/%s/* ~/%s/key %s/audit.jsonl ~/.secret/key; ls %s/sessions", link,
				link, link, state, state))
			if strings.Contains(said, "sk-") || strings.Contains(said, `"event"`) || strings.Contains(said, "ses-") {
				t.Errorf("%s to %s: %s", link, target, said)
			}
			if ok, said := d.run(session, fmt.Sprintf("echo x >~/%s/planted && ls %s/planted", link, target)); ok {
				t.Errorf("%s to %s: it could write there: %s", link, target, said)
			}
			_, _ = d.run(session, "rm ~/"+link)
		}
	}
	if _, err := os.Stat(filepath.Join(state, "planted")); err == nil {
		t.Error("a tool wrote into the daemon's state")
	}
}
