package terminal

import "testing"

// The bar goes to terminals that draw one; to others its sequence is a notification.
func TestProgressIsForTerminalsThatDrawIt(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"nothing known":    {nil, false},
		"ghostty":          {map[string]string{"TERM_PROGRAM": "ghostty", "TERM_PROGRAM_VERSION": "1.2.0"}, true},
		"an older ghostty": {map[string]string{"TERM_PROGRAM": "ghostty", "TERM_PROGRAM_VERSION": "1.1.3"}, false},
		"WezTerm in tmux":  {map[string]string{"TERM_PROGRAM": "WezTerm", "TMUX": "/tmp/t"}, false},
		"Windows Terminal": {map[string]string{"WT_SESSION": "x"}, true},
		"iTerm": {
			map[string]string{"TERM_PROGRAM": "iTerm.app", "TERM_FEATURES": "T3LrMSc7UUw9Ts3BFGsSyHNoSxFP"},
			true,
		},
		"iTerm without it": {map[string]string{"TERM_PROGRAM": "iTerm.app", "TERM_FEATURES": "T3LrMSc7Po"}, false},
	} {
		if got := ShowsProgress(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
