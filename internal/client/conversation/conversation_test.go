package conversation

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// seen counts what a view is told.
type seen struct{ inserted, changed, grew, dropped int }

func (s *seen) Emptied()               { *s = seen{} }
func (s *seen) Inserted(*Entry, int)   { s.inserted++ }
func (s *seen) Grew(*Entry)            { s.grew++ }
func (s *seen) Changed(*Entry)         { s.changed++ }
func (s *seen) Dropped(n int)          { s.dropped += n }
func (s *seen) Noticed(string, string) {}

// What a tool writes, and what it says beside, is kept to a bound.
func TestARunningCallIsBounded(t *testing.T) {
	c := New(&seen{})
	for range maxNotes + 50 {
		c.Apply(protocol.ToolUpdate{ToolCallID: "k", Delta: strings.Repeat("line\n", 200)}, time.Time{})
		c.Apply(protocol.ToolUpdate{ToolCallID: "k", Delta: "x", Update: jsontext.Value(`{"type":"ui_event","event":"e"}`)},
			time.Time{})
	}
	call := c.Entries()[0].Call
	if len(call.Output) > 2*maxOutput || len(call.Notes) > maxNotes || !call.Cut {
		t.Errorf("%d bytes and %d notes of a running tool are kept, cut %t", len(call.Output), len(call.Notes), call.Cut)
	}
}

// A delta says that a text is longer, and nothing else.
func TestADeltaLetsATextGrow(t *testing.T) {
	v := &seen{}
	c := New(v)
	for _, delta := range []string{"a", "b", "c"} {
		c.Apply(protocol.MessageUpdate{MessageID: "m", Delta: delta}, time.Time{})
	}
	if *v != (seen{inserted: 1, grew: 3}) || c.Entries()[0].Text.String() != "abc" {
		t.Errorf("got %+v, %q", *v, c.Entries()[0].Text.String())
	}
	c.Apply(protocol.MessageEnd{MessageID: "m", Role: "assistant", Text: "another", StopReason: protocol.StopEnd},
		time.Time{})
	if text := &c.Entries()[0].Text; text.String() != "another" || text.Replaced() != 1 {
		t.Errorf("got %q, replaced %d times", text.String(), text.Replaced())
	}
}
