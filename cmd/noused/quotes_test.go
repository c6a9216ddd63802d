package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
)

// A prompt that is waited for gets its answer also where that and the run's events together
// are longer as JSON than all that clients may have: then without the events.
func TestALongAnswerOfQuotesIsTold(t *testing.T) {
	s := newSwamp(t, plainDaemon(t), nil)
	text := strings.Repeat(`"`, 15_500_000/2)
	s.commands().send("{") // somebody else is there, who has a little
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	got := into[protocol.PromptResult](t,
		s.commands().request(fmt.Sprintf(`{"v":"1","id":"p","type":"prompt","payload":{"text":%s}}`, quoted)))
	if got.Output != text {
		t.Errorf("got %d bytes, want %d", len(got.Output), len(text))
	}
}

// The offline model says a long text back without having all of its words in memory, and
// what it took is given back.
func TestMemoryOfALongPromptToTheOfflineModel(t *testing.T) {
	for name, text := range map[string]string{
		"words":              strings.Repeat("lengthy-word ", sized(3_000_000, 15_500_000)/13),
		"control characters": strings.Repeat("\x01", 15_000_000/6),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwamp(t, plainDaemon(t), nil)
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			r := s.commands().request(fmt.Sprintf(`{"v":"1","id":"p","type":"prompt","payload":{"text":%s}}`, quoted))
			if got := into[protocol.PromptResult](t, r).Output; got != text {
				t.Errorf("got %d bytes, want %d", len(got), len(text))
			}
			_, most := s.resident()
			t.Logf("%s: %d KiB of JSON, at most %d KiB more than idle", name, len(quoted)>>10, most-s.idle)
			s.rests()
			if grew := most - s.idle; grew > maxMissed { // the goal is four times the JSON
				t.Errorf("grew by %d KiB, want at most %d", grew, maxMissed)
			}
		})
	}
}
