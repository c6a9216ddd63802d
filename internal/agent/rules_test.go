package agent

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"testing"

	"noused/internal/acp"
	"noused/internal/model"
)

// What an agent asks is held against the rules of our tools that would do the same.
func TestWhatACallConcerns(t *testing.T) {
	at := []acp.Location{{Path: "/w/main.go"}}
	for name, c := range map[string]struct {
		call
		want []string // the first tool of each place; nil: it asks
	}{
		"a command":             {call{kind: "execute", input: []byte(`{"command":"ls"}`)}, []string{"bash"}},
		"no command":            {call{kind: "execute", input: []byte(`{}`)}, nil},
		"a command apart":       {call{kind: "execute", input: []byte(`{"command":"git","args":["push"]}`)}, nil},
		"an edit":               {call{kind: "edit", places: at}, []string{"edit"}},
		"an edit of nothing":    {call{kind: "edit"}, nil},
		"a title like a tool":   {call{name: "main.go", kind: "edit", places: at}, []string{"edit"}},
		"a tool of a server":    {call{name: "mcp__hub__merge", kind: "edit", places: at}, []string{"hub.merge"}},
		"one with another name": {call{name: "hub.merge", kind: "other"}, []string{"hub.merge"}},
		"another kind":          {call{name: "thinks", kind: "think"}, nil},
	} {
		var got []string
		for _, place := range c.concerns() {
			got = append(got, place[0].Tool)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestTheCommandOfACall(t *testing.T) {
	for input, want := range map[string]string{
		`{"command":"ls -l"}`:                  "ls -l",
		`{"command":["bash","-lc","ls; pwd"]}`: "ls; pwd",
		`{"command":["rm","a b","it's"]}`:      `'rm' 'a b' 'it'\''s'`,
		`{"command":[]}`:                       "",
		`{"command":7}`:                        "",
		`[`:                                    "",
	} {
		if got := commandOf([]byte(input)); got != want {
			t.Errorf("%s: got %q, want %q", input, got, want)
		}
	}
}

// A text that the journal has not as sent counts as such where the agent tells it again, and
// not where it tells one that is like it, or one that was said before.
func TestWhetherAnAgentHasTexts(t *testing.T) {
	const long = "a text that is long enough to be known again"
	for name, c := range map[string]struct {
		told, said, fresh []string
		want              []string
	}{
		"the same":                 {[]string{"one", "yes\n"}, []string{"one"}, []string{"yes"}, nil},
		"a part of another":        {[]string{"yes, mend it"}, nil, []string{"yes"}, []string{"yes"}},
		"a long one in more":       {[]string{"<user>" + long + "</user>"}, nil, []string{long}, nil},
		"two of three":             {[]string{"a", "b", "c"}, []string{"a"}, []string{"b", "c"}, nil},
		"the first of two":         {[]string{"a", "b"}, []string{"a"}, []string{"b", "c"}, []string{"c"}},
		"the second alone":         {[]string{"b"}, nil, []string{"a", "b"}, []string{"a"}},
		"the same words, before":   {[]string{"a", "yes"}, []string{"a", "yes"}, []string{"yes"}, []string{"yes"}},
		"the same words, twice":    {[]string{"yes", "a", "yes"}, []string{"yes", "a"}, []string{"yes"}, nil},
		"before one that was lost": {[]string{"a", "b"}, nil, []string{"a"}, nil},
		"an older one was lost":    {[]string{"b", "c"}, []string{"a", "b"}, []string{"c"}, nil},
		"nothing was told":         {nil, nil, []string{"a"}, []string{"a"}},
		"no text is looked for":    {nil, nil, nil, nil},
	} {
		r := &replay{}
		for _, text := range c.told {
			r.add(true, text)
		}
		ahead, err := r.beyond(t.Context(), c.said)
		if err != nil {
			t.Fatal(err)
		}
		p := &link{ahead: ahead}
		var fresh []model.Message
		for _, text := range c.fresh {
			fresh = append(fresh, model.Message{Text: text})
		}
		if got := textsOf(p.lacks(fresh)); !slices.Equal(got, c.want) {
			t.Errorf("%s: lacks %q, want %q", name, got, c.want)
		}
	}
}

// What is kept of a session that is told again is bounded, in one text as in many.
func TestAReplayIsBounded(t *testing.T) {
	chunk := string(make([]byte, 1<<20))
	one, many := &replay{}, &replay{}
	for range 10 {
		one.add(false, chunk)
		many.add(true, chunk)
	}
	for _, r := range []*replay{one, many} {
		n := 0
		for _, text := range r.texts {
			n += len(text)
		}
		if n > maxReplay {
			t.Errorf("%d bytes are kept, want at most %d", n, maxReplay)
		}
	}
}

// Empty texts of a session that is told again are none, however many there are, and of short ones so many are
// kept, the newest.
func TestShortTextsOfAReplayAreBounded(t *testing.T) {
	r := &replay{}
	for i := range 1_000_000 {
		r.add(true, "")
		if i%10 == 0 {
			r.add(false, strconv.Itoa(i))
		}
	}
	r.add(false, "!")
	if n := len(r.texts); n > maxTexts || n == 0 || string(r.texts[n-1]) != "!" || string(r.texts[n-2]) != "999990" {
		t.Errorf("%d texts are kept, want at most %d, the newest", n, maxTexts)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(io.EOF)
	if told, err := r.beyond(ended, []string{"!"}); !errors.Is(err, io.EOF) || told != nil {
		t.Errorf("after an abort: %v, and %d texts", err, len(told))
	}
}
