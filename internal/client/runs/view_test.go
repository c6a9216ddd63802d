package runs

import (
	"bytes"
	"testing"

	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// What is said by the way, such as that the time is up, has a line of its own on a terminal.
func TestComplaintsHaveALineOfTheirOwn(t *testing.T) {
	var both bytes.Buffer
	terminal := plain.Style{Terminal: true}
	c := &Console{Printer: &plain.Printer{Out: &both, Err: &both, OutStyle: terminal, ErrStyle: terminal}}
	v := &TextView{Console: c}
	v.Event(protocol.MessageStart{Role: "assistant"}, nil)
	v.Event(protocol.MessageUpdate{Delta: "one"}, nil)
	c.Complain("the time is up")
	v.Event(protocol.MessageUpdate{Delta: "two"}, nil)
	c.Notef("aborting")
	v.Event(protocol.MessageUpdate{ThinkingDelta: "hm"}, nil)
	c.Complain("lost")
	v.Event(protocol.MessageEnd{Role: "assistant", Text: "onetwo"}, nil)
	if got, want := both.String(), "one\nnous: the time is up\ntwo\naborting\nhm\nnous: lost\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

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
