package registry

import (
	"strings"
	"testing"
)

// Nothing in a text ends its fence; a long text of nothing but ticks has one as soon.
func TestFences(t *testing.T) {
	for text, want := range map[string]int{
		"": 3, "a `b` c": 3, "```go\n```": 4, "a ````` b ```": 6,
		strings.Repeat("`", maxExpanded): maxExpanded + 1,
	} {
		if got := fenceFor(text); got != strings.Repeat("`", want) {
			t.Errorf("%.20q: got %d ticks, want %d", text, len(got), want)
		}
	}
}
