package client_test

import (
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// The text of an error loses neither that the core is an older one, nor its code.
func TestTheTextOfAnErrorLosesNothing(t *testing.T) {
	older := &client.OlderError{
		Command: "list_sessions", Err: protocol.Errorf(protocol.InvalidCommand, "unknown_command: %q", "list_sessions"),
	}
	if got := protocol.ErrorText(older); !strings.Contains(got, "older") {
		t.Errorf("got %q of %q", got, older)
	}
	if got := protocol.ErrorText(protocol.Errorf(protocol.SessionError, ": x")); !strings.Contains(got, "session_error") {
		t.Errorf("got %q", got)
	}
}
