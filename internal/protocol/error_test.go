package protocol

import (
	"errors"
	"fmt"
	"testing"
)

// TestErrorText: people read the sentence first, and find the word behind it.
func TestErrorText(t *testing.T) {
	for want, err := range map[string]error{
		"session s is running run-1 (run_in_progress)": Rejectf(RunInProgress, "session s is running run-1"),
		"there is no session x (session_not_found)":    Errorf(SessionNotFound, "session_id: there is no session x"),
		"guests: has to be filled in (invalid_payload)": fmt.Errorf("approve: %w",
			badField("guests", "has to be filled in")),
		"it cannot be read: line 3 (session_error)": &Error{
			Code: SessionError, Message: "it cannot be read", Cause: "line 3",
		},
		"401: no such key (key_refused)":     Errorf(ProviderError, "key_refused: 401: no such key"),
		"error: overloaded (provider_error)": Errorf(ProviderError, "error: overloaded\n"),
		"nothing runs (command_rejected)":    Errorf(CommandRejected, "nothing runs"),
		"forbidden":                          Rejectf(Forbidden, ""),
		"no daemon":                          errors.New("no daemon"),
	} {
		if got := ErrorText(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
