package transcript

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

const prose = "Here is *what* I found in `internal/server`: the reader waits for the writer, and the writer - " +
	"as you said - waits for the disk. See [the notes](https://example.org/notes) for more.\n\n" +
	"- the first thing to do\n- and the second one\n\n" +
	"```go\nfunc f(x int) string {\n\treturn fmt.Sprint(x) // as it was\n}\n```\n\nThat is all there is to say about it.\n"

// entries is a session of n messages: one of four is a user's, two are the
// assistant's, one is a tool's.
func longSession(n int) []jsontext.Value {
	list := make([]jsontext.Value, n)
	for i := range list {
		run := fmt.Sprint("run-", i/4)
		head := fmt.Sprintf(
			`{"type":"message","id":"msg-%d","run_id":%q,"turn_kind":"prompt","created_at":"2026-01-02T03:04:05Z",`, i, run)
		switch i % 4 {
		case 0:
			head += `"role":"user","text":"Look at the server, please, and say what you find."}`
		case 1:
			head += fmt.Sprintf(
				`"role":"assistant","text":"","thinking":"Where is it?","stop_reason":"tool_calls","tool_calls":[{"id":"call-%d","name":"bash","arguments":{"command":"go test ./..."}}]}`, i)
		case 2:
			head += fmt.Sprintf(
				`"role":"tool","text":"ok a\nok b\nok c\nok d\nok e\nok f\nok g\n","tool_call_id":"call-%d","tool_name":"bash","ok":true}`, i-1)
		default:
			text, _ := jsontext.AppendQuote(nil, prose)
			head += `"role":"assistant","stop_reason":"end","usage":{"input_tokens":10,"output_tokens":20},"text":` +
				string(text) + `}`
		}
		list[i] = jsontext.Value(head)
	}
	return list
}

var wide = Look{Width: 120, Dark: true, Color: true}

// BenchmarkLoad loads a session of 10,000 messages and draws the first view.
func BenchmarkLoad(b *testing.B) {
	list := longSession(10_000)
	b.ReportAllocs()
	for b.Loop() {
		t := New(wide)
		if err := t.Load(list, nil, nil); err != nil {
			b.Fatal(err)
		}
		t.View(50)
	}
}

// BenchmarkPage scrolls a page up through 10,000 messages, to where nothing was
// rendered yet.
func BenchmarkPage(b *testing.B) {
	t := New(wide)
	if err := t.Load(longSession(10_000), nil, nil); err != nil {
		b.Fatal(err)
	}
	t.View(50)
	for b.Loop() {
		if t.Page(-1); t.top == (place{}) {
			t.End()
		}
		t.View(50)
	}
}

// BenchmarkStream takes 1000 deltas and draws a view every 33, as at 30 views
// and 1000 deltas a second: ns/op is then the time spent in a second. "raw"
// appends the same bytes.
func BenchmarkStream(b *testing.B) {
	word := map[string]func(i int) string{
		"prose": func(i int) string {
			return []string{"some ", "words ", "**and** ", "more "}[i%4] + []string{"", "\n\n"}[b2i(i%60 == 59)]
		},
		"code": func(i int) string {
			if i == 0 {
				return "```go\n"
			}
			return []string{"fmt.", "Println(", "x, ", "1)\n"}[i%4]
		},
		"list": func(i int) string { return []string{"- an ", "item ", "of ", "these\n"}[i%4] },
		"line": func(int) string { return "plain " },
	}
	ref := protocol.Ref{RunID: "run-1", SessionID: "ses-1", TurnID: "1"}
	for _, name := range []string{"prose", "code", "list", "line"} {
		b.Run(name, func(b *testing.B) {
			t := New(wide)
			if err := t.Load(longSession(1000), nil, nil); err != nil {
				b.Fatal(err)
			}
			at := time.Now()
			for n := 0; b.Loop(); n++ {
				id := fmt.Sprint("live-", n)
				for i := range 1000 {
					t.Apply(protocol.MessageUpdate{Ref: ref, MessageID: id, Delta: word[name](i)}, at)
					if i%33 == 32 {
						t.View(50)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e9*100, "%core")
		})
	}
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			var text strings.Builder
			for i := range 1000 {
				text.WriteString(word["prose"](i))
			}
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
