package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInstructions(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	dir := filepath.Join(root, "a", "b")
	write := func(path, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, ".git", "HEAD"), "")
	write(filepath.Join(root, "AGENTS.md"), "of the root")
	write(filepath.Join(dir, "CLAUDE.md"), strings.Repeat("x", maxAgents)+"y")
	write(filepath.Join(outside, "keys"), "secret")
	if err := errors.Join(os.Symlink("CLAUDE.md", filepath.Join(dir, "AGENTS.md")), os.Symlink(filepath.Join(outside, "keys"), filepath.Join(root, "a", "AGENTS.md"))); err != nil {
		t.Fatal(err)
	}
	text, files := instructions(dir, "of the configuration")
	if want := []string{filepath.Join(root, "AGENTS.md"), filepath.Join(dir, "AGENTS.md")}; strings.Join(files, " ") != strings.Join(want, " ") {
		t.Errorf("got %v, want %v: the one that links out of the repository is none", files, want)
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "y\n") || !strings.Contains(text, "[cut after 32768 bytes") ||
		strings.Index(text, "of the root") > strings.Index(text, "xxx") || !strings.HasSuffix(text, "of the configuration") {
		t.Errorf("got %.300q…%q", text, text[len(text)-200:])
	}
	if _, files := instructions(outside, ""); files != nil {
		t.Errorf("got %v where there is no repository and no file", files)
	}
}
