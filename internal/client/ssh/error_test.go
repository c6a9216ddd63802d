package ssh

import (
	"strings"
	"testing"

	"noused/internal/protocol"
)

// What a far machine says of its failure is a line that is not long, whatever it says.
func TestAFarFailureIsShort(t *testing.T) {
	for _, code := range []protocol.Code{CodeNoDaemon, "other", "x\nnous: FAKE"} {
		f := failure{
			Error:  &protocol.Error{Code: code, Message: "no\nnous: FAKE " + strings.Repeat("x", 1<<20)},
			Socket: "/s\nnous: FAKE",
		}
		text := f.of("box", false).Error()
		if len(text) > 3*maxSaid || strings.Contains(text, "\n") || !strings.Contains(text, " nous: FAKE") {
			t.Errorf("%q: %d bytes: %.200q", code, len(text), text)
		}
	}
}
