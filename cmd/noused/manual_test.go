package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"noused/internal/manpage/manpagetest"
)

// The daemon's manual has a page for each command, and one for the configuration
// with all keys that the daemon reads.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	var stderr strings.Builder
	if status := execute([]string{"man-pages", dir}, os.Getenv, io.Discard, &stderr); status != 0 {
		t.Fatalf("noused man-pages: exit status %d\n%s", status, &stderr)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	shown := manpagetest.Show(t, files...)
	manpagetest.Uninstalls(t, files...)
	for _, heading := range []string{"NOUSED(1)", "NOUSED-DOCTOR(1)", "NOUSED-EXTENSION-CHECK(1)", "NOUSED.TOML(5)"} {
		if !strings.Contains(shown, heading) {
			t.Errorf("man shows no %s", heading)
		}
	}
	for _, key := range slices.Concat(fileKeys, providerKeys, agentKeys, factKeys) {
		if !strings.Contains(shown, "       "+key.name+" = "+key.value) {
			t.Errorf("noused.toml(5) does not have %s", key.name)
		}
	}
}

// A key that the manual says nothing of is of no use to anybody.
func TestEachKeyIsDescribed(t *testing.T) {
	flags := pflag.NewFlagSet("noused", pflag.ContinueOnError)
	registerFlags(flags)
	for _, key := range slices.Concat(fileKeys, providerKeys, agentKeys, factKeys) {
		if key.value == "" || !strings.HasSuffix(key.says(flags), ".") {
			t.Errorf("%s = %q: got %q, want a sentence", key.name, key.value, key.says(flags))
		}
	}
}
