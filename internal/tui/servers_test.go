package tui

import (
	"testing"

	"noused/internal/protocol"
)

// Above the tools stands how the servers are that they come from, whatever those are
// called.
func TestServersLine(t *testing.T) {
	got := serversLine([]protocol.ServerInfo{{Name: "git", State: "ready"}, {Name: "a\x1b[2J\nb", State: "needs_login"}})
	if want := " · servers: git ready, a b needs login"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := serversLine(nil); got != "" {
		t.Errorf("without servers: %q", got)
	}
}
