package format

import "testing"

func TestUnmarkedLines(t *testing.T) {
	for line, want := range map[string]string{
		"## The cause":                            "The cause",
		"> # quoted":                              "quoted",
		"**Done:** the `parser` is **mended**.":   "Done: the parser is mended.",
		"it is **`bold code`** and (**both**)":    "it is bold code and (both)",
		"see [the docs](docs/tui.md#keys), ~~x~~": "see the docs, x",
		"``a code`` and `b`":                      "a code and b",
		"```go":                                   "",
		"plain text":                              "plain text",
		"src/**/*.go and lib/**/x stay":           "src/**/*.go and lib/**/x stay",
		"2 ** 3 ** 4, #12 and a > b":              "2 ** 3 ** 4, #12 and a > b",
		"issue #12 of __init__ and *a*":           "issue #12 of __init__ and *a*",
		"a ` alone":                               "a ` alone",
		"#hashtag":                                "#hashtag",
	} {
		if got := Unmarked(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
