package lookup

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// listed is a daemon with three sessions, two of which begin alike.
type listed struct{}

func (listed) Send(context.Context, string, protocol.Params) (jsontext.Value, error) {
	return jsontext.Value(`{"sessions":[{"session_id":"ses-11","title":"fix the parser"},` +
		`{"session_id":"ses-12","title":"fix the lexer"},{"session_id":"ses-2","title":"\u001b[2Jevil"}]}`), nil
}

// A name means one session, or it is an error that says what it may mean.
func TestSessionsByName(t *testing.T) {
	for name, want := range map[string]string{
		"ses-2": "ses-2", "2": "ses-2", "3": "", "ses-1": "", "ses-11": "ses-11", "fix the l": "ses-12", "fix": "",
		"ses-9": "",
		"ses-01a221d1-f388-752b-b9e6-cc090fa26ffb": "ses-01a221d1-f388-752b-b9e6-cc090fa26ffb", // the daemon's to refuse
	} {
		got, err := SessionID(t.Context(), listed{}, name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
	_, err := SessionID(t.Context(), listed{}, "fix")
	if err == nil || !strings.Contains(err.Error(), "ses-11 fix the parser, ses-12 fix the lexer") {
		t.Errorf("the error names no sessions: %v", err)
	}
	var wire *protocol.Error
	if _, err := SessionID(t.Context(), listed{}, "nothing"); !errors.As(err, &wire) ||
		wire.Code != protocol.SessionNotFound {
		t.Errorf("no session: got %v", err)
	}
}
