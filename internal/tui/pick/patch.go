package pick

import (
	"fmt"
	"strings"

	"noused/internal/format"
)

// maxPatchLines bounds how many lines of a file's diff are kept.
const maxPatchLines = 50_000

// patchLine is a line of the diff of a file. Mark is that of the diff, '@' for the head of a
// hunk, or 'i' for what else is said of the file.
type patchLine struct {
	mark   byte
	number int    // in the file as it was for '-', else as it is
	text   string // behind the mark
}

// old tells whether the line is of the file as it was.
func (l patchLine) old() bool { return l.mark == '-' }

// code tells whether it is a line of the file.
func (l patchLine) code() bool { return l.mark == '+' || l.mark == '-' || l.mark == ' ' }

// maxQuote is how much of a line goes with a comment, in bytes.
const maxQuote = 300

// quote is the line as a comment quotes it.
func (l patchLine) quote() string {
	text := format.Cut(l.text, maxQuote)
	if len(text) < len(l.text) {
		text += "…"
	}
	return string(l.mark) + text
}

// parsePatch reads a diff of git's, of one file. Cut tells that it is too long to be kept whole.
func parsePatch(diff string) (lines []patchLine, cut bool) {
	var was, is, wasLeft, isLeft int
	for line := range strings.Lines(diff) {
		if len(lines) == maxPatchLines {
			return lines, true
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if wasLeft <= 0 && isLeft <= 0 {
			if rest, ok := strings.CutPrefix(line, "@@ -"); ok {
				was, wasLeft, is, isLeft = hunkHead(rest)
				lines = append(lines, patchLine{mark: '@', number: is, text: line})
			} else if told(line) {
				lines = append(lines, patchLine{mark: 'i', text: strings.TrimPrefix(line, "\\ ")})
			}
			continue
		}
		mark, text := byte(' '), ""
		if line != "" {
			mark, text = line[0], line[1:]
		}
		switch mark {
		case '-':
			lines = append(lines, patchLine{mark, was, text})
			was, wasLeft = was+1, wasLeft-1
		case '+':
			lines = append(lines, patchLine{mark, is, text})
			is, isLeft = is+1, isLeft-1
		case '\\':
			lines = append(lines, patchLine{mark: 'i', text: strings.TrimSpace(text)})
		default:
			lines = append(lines, patchLine{' ', is, text})
			was, wasLeft, is, isLeft = was+1, wasLeft-1, is+1, isLeft-1
		}
	}
	return lines, false
}

// told tells whether a line between hunks says something that the list of files does not.
func told(line string) bool {
	for _, begin := range []string{"old mode ", "new mode ", "\\ ", "Binary files ", "GIT binary patch"} {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return false
}

// hunkHead reads "1,4 +1,5 @@", where a count that is not written is 1.
func hunkHead(head string) (was, wasLines, is, isLines int) {
	before, rest, _ := strings.Cut(head, " +")
	after, _, _ := strings.Cut(rest, " ")
	was, wasLines = span(before)
	is, isLines = span(after)
	return was, wasLines, is, isLines
}

func span(text string) (first, lines int) {
	lines = 1
	if _, err := fmt.Sscanf(text, "%d,%d", &first, &lines); err != nil {
		lines = 1
	}
	return first, lines
}
