package main

import (
	"os"
	"path/filepath"
	"testing"

	"noused/internal/fleet"
)

// The id of a state folder is made once, and made anew where a power cut has left an empty
// file. Anything else in its place is refused.
func TestTheInstanceOfAStateFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), instanceFile)
	for _, text := range []string{"", "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		made, err := fleetInstance(path)
		if err != nil || fleet.CheckID(made) != nil {
			t.Fatalf("of %q: got %q, %v", text, made, err)
		}
		if kept, err := fleetInstance(path); kept != made || err != nil {
			t.Errorf("got %q, %v; want %q again", kept, err, made)
		}
	}
	if err := os.WriteFile(path, []byte("no id"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := fleetInstance(path); err == nil {
		t.Errorf("got %q of what is no id", id)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if id, err := fleetInstance(path); err != nil || fleet.CheckID(id) != nil {
		t.Errorf("of no file: got %q, %v", id, err)
	}
}
