package runs

import (
	"bytes"
	"testing"

	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// Anyone who comes while an answer is being said, or misses its beginning, has it whole
// all the same, and once.
func TestAnAnswerWhoseBeginningWasMissedIsWhole(t *testing.T) {
	const text = "good old days"
	end := protocol.MessageEnd{Role: "assistant", Text: text, StopReason: protocol.StopEnd}
	for name, events := range map[string][]protocol.Event{
		"all of it": {
			protocol.MessageStart{Role: "assistant"},
			protocol.MessageUpdate{Delta: "good "},
			protocol.MessageUpdate{Delta: "old days"},
			end,
		},
		"no beginning":  {protocol.MessageUpdate{Delta: "days"}, end},
		"the end alone": {end},
		"after the user": {
			protocol.MessageStart{Role: "user", Text: "x"},
			protocol.MessageEnd{Role: "user", Text: "x"},
			protocol.MessageUpdate{Delta: "days"},
			end,
		},
		"no end either": {
			protocol.MessageUpdate{Delta: "good "},
			protocol.MessageUpdate{Delta: "old days"},
			protocol.AgentEnd{StopReason: protocol.StopCompleted},
		},
		"after a message": {
			protocol.MessageStart{Role: "assistant"},
			protocol.MessageEnd{Role: "assistant", StopReason: "tool_use"},
			protocol.MessageUpdate{Delta: "days"},
			end,
		},
	} {
		var out, errout bytes.Buffer
		v := &TextView{Console: &Console{Printer: &plain.Printer{Out: &out, Err: &errout}}}
		for _, ev := range events {
			v.Event(ev, nil)
		}
		if got := out.String(); got != text+"\n" {
			t.Errorf("%s: got %q, want %q", name, got, text+"\n")
		}
	}
}
