package servers

import (
	"strings"
	"testing"

	"noused/internal/mcpfile"
	"noused/internal/plaintext"
)

// Whatever a project's file has in it, all that is shown of it is in lines of our own
// making, and drives no terminal.
func FuzzProjectText(f *testing.F) {
	f.Add(
		`{"servers":{"a":{"command":"b\n\nTrust","args":["\u001b]0;x\u0007","\u202e"],"env":{"A\nB":"\r"},"headers":{}}}}`)
	f.Add("{\"servers\":{\"\\n\":{\"command\":\"b\"},\"c\":{\"url\":\"\\u0000\",\"trust\":\"all\",\"x\\ny\":1}}}")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := mcpfile.Parse("/p/.mcp.json", []byte(text))
		if err != nil {
			return
		}
		got := ProjectText(file, &mcpfile.File{})
		if clean := plaintext.Clean(got); clean != got {
			t.Errorf("%q\nis shown as %q", text, got)
		}
		lines := 3
		for _, s := range file.Servers {
			lines += 8 + len(s.Env) + len(s.Headers)
		}
		lines += 3 * len(file.Errors)
		if n := strings.Count(got, "\n"); n > lines+2 {
			t.Errorf("%d lines of %q: %q", n, text, got)
		}
	})
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"": "''", "a": "a", "${X}/b": "${X}/b", "a b": "'a b'", "it's": `'it'\''s'`,
		"$(x)": "'$(x)'", "a;b": "'a;b'",
	} {
		if got := ShellWord(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

func TestSecretsOfAURLAreHidden(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.org/mcp":                          "https://example.org/mcp",
		"https://me:word@example.org:8080/a@b?k=v&x=1&y#z": "https://…@example.org:8080/a@b?k=…&x=…&…",
		"https://me:w@rd@example.org":                      "https://…@example.org",
		"https://${HOST}/mcp?key=${KEY}":                   "https://${HOST}/mcp?key=…",
		"${URL}":                                           "${URL}",
		"me:word@example.org?k=v":                          "…@example.org?k=…",
	} {
		if got := Runs(mcpfile.Server{URL: address}); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}
