package transcript

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// FuzzLoadAndApply takes lines of JSON as entries and as events. Whatever they
// are, the view has its size.
func FuzzLoadAndApply(f *testing.F) {
	for _, list := range [][]jsontext.Value{
		longSession(8),
		{jsontext.Value(`{"type":"compaction","id":"c","summary":"s"}`), jsontext.Value(`[1]`)},
	} {
		var lines []byte
		for _, entry := range list {
			lines = append(append(lines, entry...), '\n')
		}
		f.Add(lines, []byte{}, uint8(80), false)
	}
	var lines []byte
	for _, ev := range story() {
		payload, err := protocol.EncodePayload(ev)
		if err != nil {
			f.Fatal(err)
		}
		lines = protocol.AppendEvent(lines, ev.Type(), payload, noon, 1)
	}
	f.Add([]byte(`{"type":"message","id":"m2","role":"assistant","text":"x"}`), lines, uint8(40), true)
	f.Fuzz(func(t *testing.T, entries, events []byte, width uint8, plain bool) {
		tr := fresh(Look{Width: int(width), Dark: true, Color: true, Plain: plain})
		var list []jsontext.Value
		for line := range bytes.Lines(entries) {
			list = append(list, bytes.TrimSpace(line))
		}
		check := func() {
			lines := tr.View(17)
			if len(lines) != 17 {
				t.Fatalf("the view has %d lines, want 17", len(lines))
			}
			for _, line := range lines {
				if w := cell.Width(line); w > max(int(width), 1) {
					t.Fatalf("a line of %d cells, of which %d are there: %q", w, width, line)
				}
			}
		}
		_ = tr.Load(list, nil, &protocol.Partial{MessageID: "m2", Text: "x"}) // an error or not, it must go on
		check()
		for line := range bytes.Lines(events) {
			var env protocol.EventEnvelope
			if json.Unmarshal(line, &env) != nil {
				continue
			}
			if ev, err := client.Decode(env); err == nil {
				tr.Apply(ev, env.TS)
				check()
			}
		}
		tr.ToggleAll()
		tr.Focus(-1)
		tr.Scroll(-5)
		check()
		_ = tr.Load(list, nil, nil)
		check()
	})
}
