package registry

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

func denied(name, pattern string) *tool.Fault {
	if pattern == "" {
		return tool.Faultf(tool.Forbidden, "the policy does not allow %s", name)
	}
	return tool.Faultf(tool.Forbidden, "the policy denies %s (%s)", name, pattern)
}

// object is a JSON object of strings, without those that are empty.
func object(pairs ...string) []byte {
	out := []byte{'{'}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendText(out, pairs[i]), ':')
		out = appendText(out, pairs[i+1])
	}
	return append(out, '}')
}

// appendText appends a JSON string, mended where it is not valid UTF-8.
func appendText(out []byte, text string) []byte {
	out, _ = jsontext.AppendQuote(out, strings.ToValidUTF8(text, "\uFFFD"))
	return out
}
