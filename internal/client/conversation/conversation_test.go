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

func TestARetryIsOneLineThatCounts(t *testing.T) {
	w := protocol.Warning{Code: "provider_retry", Attempt: 2, Attempts: 5, DelayMS: 3000}
	for left, want := range map[time.Duration]string{
		3 * time.Second: "retrying in 3 s (2 of 5)", 2100 * time.Millisecond: "retrying in 3 s (2 of 5)",
		-time.Second: "retrying now (2 of 5)",
	} {
		if got := Retrying(w, left); got != want {
			t.Errorf("%s before: got %q, want %q", left, got, want)
		}
	}
	if got := Retrying(protocol.Warning{Attempt: 7}, time.Second); got != "retrying in 1 s (attempt 7)" {
		t.Errorf("without an end: got %q", got)
	}
}
