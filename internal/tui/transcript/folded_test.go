package transcript

import (
	"strings"
	"testing"

	"noused/internal/client/conversation"
)

// What an edit of several places adds is seen before anybody unfolds it.
func TestAFoldedDiffShowsWhatIsAdded(t *testing.T) {
	context := strings.Repeat(" same\n", 10)
	for name, c := range map[string]struct {
		diff string
		want string
		more int
	}{
		"short":             {"-a\n+b\n c\n", "-a\n+b\n c", 0},
		"long context":      {context + "-a\n+b\n" + context, "-a\n+b", 20},
		"much is taken out": {strings.Repeat("-a\n", 30) + "+b\n", "+b", 30},
		"only taken out":    {strings.Repeat("-a\n", 30), strings.TrimSuffix(strings.Repeat("-a\n", 12), "\n"), 18},
		"much is added": {
			context + strings.Repeat("+b\n", 100), strings.TrimSuffix(strings.Repeat("+b\n", 100), "\n"),
			10,
		},
		"several, under @@": {
			"@@ 1 of 2 @@\n" + context + "-a\n+b\n@@ 2 of 2 @@\n" + context + "+c\n",
			"@@ 1 of 2 @@\n-a\n+b\n@@ 2 of 2 @@\n+c", 20,
		},
		"an empty line stays": {context + "+b\n+\n\n" + context, "+b\n+", 21},
	} {
		shown, more := foldDiff(c.diff, diffShown)
		if shown != c.want || more != c.more {
			t.Errorf("%s: got %d more of\n%s\nwant %d more of\n%s", name, more, shown, c.more, c.want)
		}
	}
}

// The replacements of one call are a diff, while it runs and when its result has none.
func TestSeveralEditsAreADiff(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"path":"f","edits":[{"old_text":"a\nb","new_text":"a\nc"},{"old_text":"x","new_text":"y\nz"}]}`: "@@ 1 of 2 @@\n a\n-b\n+c\n@@ 2 of 2 @@\n-x\n+y\n+z\n",
		`{"path":"f","edits":[{"old_text":"x","new_text":"y"}]}`:                                          "-x\n+y\n",
		`{"path":"f","edits":[{"old_text":"x"}]}`:                                                         "",
		`{"path":"f","edits":[]}`:                                                                         "",
		`{"path":"f","edits":"none"}`:                                                                     "",
		`{"path":"f","edits":[7]}`:                                                                        "",
	} {
		c := &conversation.Call{Name: "edit", Arguments: []byte(arguments), State: conversation.Running}
		list, _ := argumentsOf(c)
		if got, ok := callDiff(c, list); got != want || ok != (want != "") {
			t.Errorf("%s: got %t\n%s\nwant\n%s", arguments, ok, got, want)
		}
		c.State, c.Result = conversation.Succeeded, "f: 2 places\n@@ -1,2 +1,2 @@\n-b\n+c\n"
		if got, ok := callDiff(c, list); want != "" && (!ok || !strings.HasPrefix(got, "@@ -1,2 +1,2 @@")) {
			t.Errorf("%s: the result's own diff is not shown, but %t\n%s", arguments, ok, got)
		}
	}
}
