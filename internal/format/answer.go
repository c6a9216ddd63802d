package format

import "strings"

// JSONAnswer is what of a model's answer is to be JSON: all of it, or what stands in the
// one code fence that it consists of.
func JSONAnswer(text string) string {
	text = strings.TrimSpace(text)
	body, fenced := strings.CutPrefix(text, "```")
	body, closed := strings.CutSuffix(body, "```")
	info, inside, more := strings.Cut(body, "\n")
	if !fenced || !closed || !more || strings.ContainsAny(info, "{[\"`") || strings.Contains(inside, "```") {
		return text
	}
	return strings.TrimSpace(inside)
}
