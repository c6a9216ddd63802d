package offline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
)

func user(texts ...string) []model.Message {
	var out []model.Message
	for _, t := range texts {
		out = append(out, model.Message{Role: model.User, Text: t})
	}
	return out
}

// show puts a stream into one line a delta.
func show(t *testing.T, req model.Request) []string {
	t.Helper()
	var out []string
	for d, err := range (Model{}).Stream(t.Context(), req) {
		switch {
		case err != nil:
			t.Fatal(err)
		case d.Text != "":
			out = append(out, "say "+d.Text)
		case d.Thinking != "":
			out = append(out, "think "+d.Thinking)
		case d.ToolCall != nil:
			out = append(out, "call "+d.ToolCall.Name+" "+string(d.ToolCall.Arguments))
		default:
			out = append(out, "stop "+string(d.Stop))
		}
	}
	return out
}

func TestStream(t *testing.T) {
	results := append(user("!a.b\n!c.d"),
		model.Message{Role: model.Assistant, ToolCalls: []model.ToolCall{{Name: "a.b"}, {Name: "c.d"}}},
		model.Message{Role: model.Tool, ToolName: "a.b", Text: "went well"},
		model.Message{Role: model.Tool, ToolName: "c.d", Text: "no"})
	for name, c := range map[string]struct {
		req  model.Request
		want []string
	}{
		"a word a delta, the space stays with the word before it": {
			model.Request{Messages: user("say  this back")}, []string{"say say  ", "say this ", "say back", "stop end"},
		},
		"not what was said to an earlier turn": {
			model.Request{Messages: []model.Message{
				{Role: model.User, Text: "!a.b", Opens: true},
				{Role: model.User, Text: "two", Opens: true},
				{Role: model.User, Text: "three"},
			}},
			[]string{"say two\n", "say three", "stop end"},
		},
		"lines keep their breaks": {
			model.Request{Messages: user("one two\n\nthree")}, []string{"say one ", "say two\n\n", "say three", "stop end"},
		},
		"a thought is one delta": {
			model.Request{Messages: user("?let me see\nyes")}, []string{"think let me see", "say yes", "stop end"},
		},
		"tool lines become calls after the text": {
			model.Request{Messages: user("!a.b {\"x\": 1}\nhello\n!c.d")},
			[]string{"say hello", `call a.b {"x": 1}`, "call c.d {}", "stop tool_calls"},
		},
		"nothing but tool lines has no text": {
			model.Request{Messages: user("!a.b")}, []string{"call a.b {}", "stop tool_calls"},
		},
		"broken arguments are passed on for the tool host to refuse": {
			model.Request{Messages: user("!a.b {oops")}, []string{"call a.b {oops", "stop tool_calls"},
		},
		"a lone mark is text": {model.Request{Messages: user("! ?")}, []string{"say ! ", "say ?", "stop end"}},
		"several messages are read together": {
			model.Request{Messages: append(append(user("old"), model.Message{Role: model.Assistant, Text: "old"}),
				user("one", "two")...)},
			[]string{"say one\n", "say two", "stop end"},
		},
		"results are told a line each, and nothing more is called": {
			model.Request{Messages: results}, []string{
				"say a.b: ", "say went ", "say well\n", "say c.d: ", "say no",
				"stop end",
			},
		},
		"a summary is the first line of each message": {
			model.Request{Summary: true, Messages: user("first\nmore", "", "second")},
			[]string{"say first\n", "say second", "stop end"},
		},
		"an older summary goes into the next one whole": {
			model.Request{Summary: true, Messages: append([]model.Message{{Role: model.User, Text: "a\nb", Summary: true}},
				user("c\nd")...)},
			[]string{"say a\n", "say b\n", "say c", "stop end"},
		},
		"a summary is not said back": {
			model.Request{Messages: append([]model.Message{{Role: model.User, Text: "a", Summary: true}}, user("b")...)},
			[]string{"say b", "stop end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, show(t, c.req)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUsageCountsWords(t *testing.T) {
	var got model.Usage
	for d := range (Model{}).Stream(t.Context(), model.Request{Messages: user("three small words\n!a.b {}")}) {
		got = got.Add(d.Usage)
	}
	if want := (model.Usage{InputTokens: 5, OutputTokens: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDelayIsCutByCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		time.AfterFunc(2500*time.Millisecond, func() { cancel(cause) })
		began, said := time.Now(), 0
		var err error
		for d, e := range (Model{Delay: time.Second}).Stream(ctx, model.Request{Messages: user("a b c d e")}) {
			if err = e; d.Text != "" {
				said++
			}
		}
		if said != 2 || !errors.Is(err, cause) || time.Since(began) != 2500*time.Millisecond {
			t.Errorf("got %d words and %v after %v, want 2 and %v after 2.5s", said, err, time.Since(began), cause)
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add("hello world\n!a.b {}\n?hm")
	f.Fuzz(func(t *testing.T, text string) {
		var said strings.Builder
		stops := 0
		for d, err := range (Model{}).Stream(t.Context(), model.Request{Messages: user(text)}) {
			if err != nil {
				t.Fatal(err)
			}
			said.WriteString(d.Text)
			if d.Stop != "" {
				stops++
			}
		}
		var want []string
		for line := range strings.SplitSeq(text, "\n") {
			_, call := parseCall(line)
			if !call && (!strings.HasPrefix(line, "?") || line == "?") {
				want = append(want, line)
			}
		}
		if got := said.String(); got != strings.Join(want, "\n") || stops != 1 {
			t.Errorf("got %q and %d stops, want %q and one", got, stops, strings.Join(want, "\n"))
		}
	})
}
