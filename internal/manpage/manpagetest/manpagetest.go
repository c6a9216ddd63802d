// Package manpagetest shows pages of the manual as their reader would, and takes
// them away as make uninstall does, for tests.
//
// Concurrency: a test calls it.
//
// It refuses a page that is shown with a warning.
package manpagetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// Uninstalls has make uninstall remove pages from where make install puts them, and
// finds fault with what it leaves, and with what it removes besides.
func Uninstalls(t *testing.T, files ...string) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Log("make is not installed: nobody looks whether make uninstall removes the manual")
		return
	}
	prefix := t.TempDir()
	others := filepath.Join(prefix, "share", "man", "man1", "nousage.1")
	for _, name := range append(files, others) {
		path := filepath.Join(prefix, "share", "man", "man"+filepath.Ext(name)[1:], filepath.Base(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("make", "-s", "-C", "../..", "uninstall", "PREFIX="+prefix, "UNITDIR="+prefix, "DESTDIR=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make uninstall: %v\n%s", err, out)
	}
	left, err := filepath.Glob(filepath.Join(prefix, "share", "man", "*", "*"))
	if err != nil || !slices.Equal(left, []string{others}) {
		t.Errorf("make uninstall leaves %q (%v), want what is not noused's alone", left, err)
	}
}
