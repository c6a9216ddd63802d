package export

import "testing"

func TestFencesAreLongerThanWhatTheyHold(t *testing.T) {
	for text, want := range map[string]string{
		"":          "```\n\n```",
		"a `b` c":   "```\na `b` c\n```",
		"```":       "````\n```\n````",
		"x ````` y": "``````\nx ````` y\n``````",
	} {
		if got := fenced("", text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"a": "`a`", "`a": "`` `a ``", "a``b": "```a``b```", "a\nb": "`a b`"} {
		if got := code(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
