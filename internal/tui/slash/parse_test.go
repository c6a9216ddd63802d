package slash_test

import (
	"strings"
	"testing"

	"noused/internal/tui/slash"
)

func TestCommandsAreToldFromTexts(t *testing.T) {
	for _, tc := range []struct{ text, command, rest, problem string }{
		{"hello", "", "hello", ""},
		{"//etc is a folder", "", "/etc is a folder", ""},
		{"/new a title", "new", "a title", ""},
		{"/NEW", "new", "", ""},
		{"/export  md  a file", "export", "md  a file", ""},
		{"/follow-up two\nlines", "follow-up", "two\nlines", ""},
		{"/", "", "", "no command /"},
		{"/tre/", "", "", "no command /tre/, did you mean /tree?"},
		{"/etc/passwd is odd", "", "", "no command /etc/passwd"},
		{"/quit now", "", "", "/quit takes no argument"},
		{"/search", "", "", "want /search TEXT"},
		{"/skill:review it\nall", "", "/skill:review it\nall", ""},
		{"/skill: review", "", "", "want /skill:NAME"},
	} {
		cmd, rest, err := slash.Parse(tc.text)
		name := ""
		if cmd != nil && err == nil {
			name = cmd.Name
		}
		switch {
		case tc.problem == "" && (err != nil || name != tc.command || rest != tc.rest):
			t.Errorf("%q: got %q %q %v, want %q %q", tc.text, name, rest, err, tc.command, tc.rest)
		case tc.problem != "" && (err == nil || !strings.Contains(err.Error(), tc.problem)):
			t.Errorf("%q: got %v, want %q", tc.text, err, tc.problem)
		}
	}
}
