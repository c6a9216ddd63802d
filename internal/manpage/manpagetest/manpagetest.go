// Package manpagetest shows pages of the manual as their reader would, for tests.
//
// Concurrency: a test calls it.
//
// It refuses a page that is shown with a warning.
package manpagetest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// Show returns what man prints of files, one upon the other, 80 columns wide, and
// fails the test where man says anything besides. The test is skipped where there
// is no man.
func Show(t *testing.T, files ...string) string {
	t.Helper()
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed: nothing can show the pages")
	}
	var all bytes.Buffer
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	cmd := exec.CommandContext(t.Context(), "man", "--warnings=w", "-P", "cat", "-l", "-")
	cmd.Stdin = &all
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80", "MAN_KEEP_FORMATTING=", "MANROFFOPT=", "MANOPT=")
	var out, warnings bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &warnings
	if err := cmd.Run(); err != nil || warnings.Len() > 0 {
		t.Errorf("man -l: %v\n%s", err, &warnings)
	}
	return out.String()
}
