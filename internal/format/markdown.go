package format

import (
	"regexp"
	"strings"
	"sync"
)

// What Markdown marks in one line. A pair of stars counts at the edge of a word only: in
// src/**/*.go they are a pattern. Single stars and underscores stay, as they are in names and
// patterns more often than not.
var (
	lineMark = pattern(`^\s*(?:#{1,6}\s+|>\s*)+`)
	strong   = pattern(`(^|[\s("'\[*_])(\*\*|~~)([^\s*~](?:[^*~]*[^\s*~])?)(\*\*|~~)`)
	code     = pattern("``?([^`]+)``?")
	link     = pattern(`!?\[([^\[\]]+)\]\([^()\s]+\)`)
	fence    = pattern("^\\s*```+[\\w+-]*\\s*$")
)

// pattern compiles an expression when it is first used: most commands use none.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Unmarked is a line of Markdown as people read it, without the marks of headings, quotes,
// bold and struck text, code and links.
func Unmarked(line string) string {
	if !strings.ContainsAny(line, "#>*~`[") {
		return line
	}
	line = fence().ReplaceAllString(line, "")
	line = lineMark().ReplaceAllString(line, "")
	line = link().ReplaceAllString(line, "$1")
	line = strong().ReplaceAllString(line, "$1$3")
	return code().ReplaceAllString(line, "$1")
}
