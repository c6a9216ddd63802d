package format

import "testing"

func TestJSONAnswer(t *testing.T) {
	for text, want := range map[string]string{
		" {\"a\":1}\n":              `{"a":1}`,
		"```json\n{\"a\":1}\n```":   `{"a":1}`,
		"```\n[1]\n```\n":           `[1]`,
		"``````":                    "``````",
		"so:\n```json\n{}\n```":     "so:\n```json\n{}\n```",
		"```a\n1\n```\n```\n2\n```": "```a\n1\n```\n```\n2\n```",
		"":                          "",
	} {
		if got := JSONAnswer(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
