package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What a program says of its version is bounded, however much that is.
func TestTheVersionOfAnAgent(t *testing.T) {
	for script, want := range map[string]string{
		"echo 1.2.3; echo more":      "1.2.3",
		"exit 1":                     "-",
		"exec yes v9":                "v9",
		"echo 7; exit 1":             "-",
		"printf '\\033[2J1.0\\n'":    "1.0",
		"exec </dev/null >/dev/null": "-",
	} {
		path := filepath.Join(t.TempDir(), "agent")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := versionOf(t.Context(), path); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
}
