package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/manpage/manpagetest"
	"noused/internal/tui/settings"
)

// Every command has its page in the manual, which says nothing of the machine it
// was made on, and man shows all of them.
func TestManual(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/4711")
	dir := t.TempDir()
	var stderr strings.Builder
	if status := run([]string{"man-pages", dir}, strings.NewReader(""), io.Discard, &stderr); status != 0 {
		t.Fatalf("nous man-pages: exit status %d\n%s", status, &stderr)
	}
	for _, name := range []string{"nous", "nous-prompt", "nous-mcp-add", "nous-exit-status"} {
		if _, err := os.Stat(filepath.Join(dir, name+".1")); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	shown := manpagetest.Show(t, files...)
	for _, name := range files {
		section := filepath.Ext(name)
		if heading := strings.ToUpper(strings.TrimSuffix(filepath.Base(name), section)) + "(" + section[1:] +
			")"; !strings.Contains(shown, heading) {
			t.Errorf("man shows no %s", heading)
		}
	}
	for _, key := range settings.Keys() {
		if !strings.Contains(shown, "       "+key.Name+" = "+key.Value) {
			t.Errorf("nous.toml(5) does not have %s", key.Name)
		}
	}
	for _, action := range settings.Actions() {
		if !strings.Contains(shown, "       "+action.Name+" = "+strings.Join(action.Keys, ", ")) {
			t.Errorf("nous.toml(5) does not have %s", action.Name)
		}
	}
	manpagetest.Uninstalls(t, files...)
	if strings.Contains(shown, "4711") {
		t.Error("the manual has a path of this machine")
	}
}
