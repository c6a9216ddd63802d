package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/client/conversation"
)

// maxCompared is how many lines of a side are compared one by one; of more, only
// what both sides have at the ends is left alone.
const maxCompared = 400

// callDiff is what an edit or a write changes, each line after "+", "-" or a space.
// The tools' own has the lines' numbers, and stands in the result.
func callDiff(c *conversation.Call, list []argument) (string, bool) {
	before, hasBefore := get(list, "old_text")
	after, hasAfter := get(list, "new_text")
	content, hasContent := get(list, "content")
	edits, hasEdits := editsDiff(list)
	own := strings.Index(c.Result, "\n@@ ")
	switch {
	case (hasBefore && hasAfter || hasEdits) && own >= 0 && c.State == conversation.Succeeded:
		return c.Result[own+1:], true
	case hasEdits:
		return edits, true
	case hasBefore && hasAfter:
		return lineDiff(conversation.Bounded(before), conversation.Bounded(after)), true
	case baseName(c) == "write" && hasContent:
		return prefixed("+", splitLines(conversation.Bounded(content))), true
	}
	if c.State == conversation.Succeeded && isDiff(c.Result) {
		return c.Result, true
	}
	return "", false
}

// editsDiff is what the replacements of an edit change, each under a line that counts them.
func editsDiff(list []argument) (string, bool) {
	i := slices.IndexFunc(list, func(a argument) bool { return a.name == "edits" && !a.quoted })
	if i < 0 {
		return "", false
	}
	var edits []struct {
		Before *string `json:"old_text"`
		After  *string `json:"new_text"`
	}
	if json.Unmarshal([]byte(conversation.Bounded(list[i].text)), &edits) != nil || len(edits) == 0 {
		return "", false
	}
	var out strings.Builder
	for n, e := range edits {
		if e.Before == nil || e.After == nil {
			return "", false
		}
		if len(edits) > 1 {
			fmt.Fprintf(&out, "@@ %d of %d @@\n", n+1, len(edits))
		}
		out.WriteString(lineDiff(*e.Before, *e.After))
	}
	return out.String(), true
}

// foldDiff is a diff in about so many lines: what stays goes first, then what is taken out,
// but all that is added is there. It tells how many lines are left out.
func foldDiff(diff string, about int) (shown string, more int) {
	lines := splitLines(strings.TrimRight(diff, "\r\n"))
	if len(lines) <= about+1 { // a line that says so is no shorter
		return strings.Join(lines, "\n"), 0
	}
	changed := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return strings.HasPrefix(line, " ") || line == ""
	})
	if len(changed) > about {
		changed = slices.DeleteFunc(changed, func(line string) bool { return strings.HasPrefix(line, "-") })
	}
	if len(changed) == 0 { // nothing is added
		changed = lines[:about]
	}
	return strings.Join(changed, "\n"), len(lines) - len(changed)
}

// isDiff tells whether a tool has answered with a unified diff.
func isDiff(text string) bool {
	return (strings.HasPrefix(text, "diff ") || strings.HasPrefix(text, "--- ")) && strings.Contains(text, "\n+++ ") &&
		strings.Contains(text, "\n@@ ")
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func prefixed(mark string, lines []string) string {
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(mark)
		out.WriteString(line)
		out.WriteByte('\n')
	}
	return out.String()
}

// lineDiff is the difference of two texts by lines: the shortest where they are
// short enough.
func lineDiff(before, after string) string {
	a, b := splitLines(before), splitLines(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return prefixed(" ", a[:head]) + middle(a[head:len(a)-tail], b[head:len(b)-tail]) + prefixed(" ", a[len(a)-tail:])
}

func middle(a, b []string) string {
	if len(a) > maxCompared || len(b) > maxCompared {
		return prefixed("-", a) + prefixed("+", b)
	}
	// common[i][j] is how many lines a[i:] and b[j:] have in common, in order.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out.WriteString(" " + a[i] + "\n")
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			out.WriteString("-" + a[i] + "\n")
			i++
		default:
			out.WriteString("+" + b[j] + "\n")
			j++
		}
	}
	return out.String()
}
