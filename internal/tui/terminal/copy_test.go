package terminal

import (
	"os"
	"path/filepath"
	"testing"
)

// A text goes to the clipboard's programs that are there, whole and as it is.
func TestATextIsCopiedByThePrograms(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "copied")
	for name, script := range map[string]string{"wl-copy": "cat >" + file, "xclip": "exit 1", "tmux": "exit 1"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	env := map[string]string{"WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}
	const text = "a $(b)\n'c'"
	took := Copy(t.Context(), func(name string) string { return env[name] }, text)
	if got, err := os.ReadFile(file); len(took) != 1 || took[0] != "wl-copy" || err != nil || string(got) != text {
		t.Errorf("taken by %q: %q, %v; want by wl-copy, which has the text", took, got, err)
	}
}
