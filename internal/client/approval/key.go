package approval

import (
	"strings"

	"noused/internal/protocol"
)

// keys are the keys of the answers.
var keys = map[string]string{
	"y": protocol.OptionOnce, "s": protocol.OptionSession, "a": protocol.OptionAlways,
	"n": protocol.OptionDeny, "c": protocol.OptionCancel,
}

// OptionOf is the option that a letter means for a question, "" where it is none.
func OptionOf(q protocol.Approval, letter string) string {
	want := keys[strings.ToLower(letter)]
	switch {
	case want == protocol.OptionOnce:
		want = Yes(q)
	case want == protocol.OptionDeny && IsForm(q):
		want = protocol.OptionDecline
	}
	for _, o := range q.Options {
		if o.ID == want {
			return want
		}
	}
	return ""
}
