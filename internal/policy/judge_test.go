package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// simple is a second judge, which knows next to nothing of shell: a line of
// letters, digits, blanks, a few harmless characters, &&, ||, ; and |, and texts
// in single quotes. It looks at each character once. ok is false for all else.
func simple(line string) (list []string, ok bool) {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,+@^:"
	var words []string
	word, inWord := "", false
	endWord := func() {
		if inWord {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	endCommand := func() bool {
		endWord()
		if len(words) == 0 {
			return false
		}
		list = append(list, fmt.Sprintf("%q", words))
		words = nil
		return true
	}
	for line != "" {
		c := line[0]
		switch {
		case strings.IndexByte(harmless, c) >= 0:
			word, inWord = word+string(c), true
		case c == '\'':
			end := strings.IndexByte(line[1:], '\'')
			if end < 0 || strings.ContainsFunc(line[1:1+end], func(r rune) bool { return r < ' ' || r >= 0x7f }) {
				return nil, false
			}
			word, inWord = word+line[1:1+end], true
			line = line[end+1:]
		case c == ' ':
			endWord()
		case strings.HasPrefix(line, "&&"), strings.HasPrefix(line, "||"):
			line = line[1:]
			if !endCommand() {
				return nil, false
			}
		case c == ';' || c == '|':
			if !endCommand() {
				return nil, false
			}
		default:
			return nil, false
		}
		line = line[1:]
	}
	if !endCommand() {
		return nil, false
	}
	slices.Sort(list)
	return list, true
}

// Both judges agree wherever the simple one dares to speak; and what is quoted in
// any way is the text that a third reading of quotes gives.
func FuzzAgainstASimplerJudge(f *testing.F) {
	seed(f)
	allows, both := rulesOf(f, sensible), rulesOf(f, sensible+denials)
	strictness := map[Verdict]int{Allow: 0, Ask: 1, Deny: 2}
	f.Fuzz(func(t *testing.T, line string) {
		for _, outside := range []bool{true, false} {
			some, more := allows.Decide(bashCall(line, outside)), both.Decide(bashCall(line, outside))
			if strictness[more.Verdict] < strictness[some.Verdict] {
				t.Errorf("%q: got %s, and with rules that deny %s", line, some.Rule, more.Rule)
			}
		}
		got, plain := plainly(line)
		if want, ok := simple(line); ok && plain && !slices.Equal(got, want) {
			t.Errorf("%q: we read %s, the simple judge %s", line, got, want)
		}
		if plain {
			if want, ok := unquote(line); !ok || !slices.Equal(got, want) {
				t.Errorf("%q: we read %s, without quotes it is %s (%t)", line, got, want, ok)
			}
		}
	})
}

// unquote is a third judge: it splits a line at each operator and blank that is
// not quoted, and takes quotes away. ok is false where it meets anything that is
// neither.
func unquote(line string) (list []string, ok bool) {
	var commands [][]string
	var words []string
	var word *strings.Builder
	put := func(c byte) {
		if word == nil {
			word = &strings.Builder{}
		}
		word.WriteByte(c)
	}
	cut := func(command bool) {
		if word != nil {
			words = append(words, word.String())
			word = nil
		}
		if command && words != nil {
			commands, words = append(commands, words), nil
		}
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t':
			cut(false)
		case '\n', ';', '|':
			cut(true)
		case '&':
			if i+1 == len(line) || line[i+1] != '&' {
				return nil, false
			}
			i++
			cut(true)
		case '>': // >&1 or 2>&1
			if rest := line[i:]; len(rest) < 3 || rest[1] != '&' {
				return nil, false
			}
			if word != nil && word.Len() == 1 && i > 0 && line[i-1] >= '0' && line[i-1] <= '9' &&
				(i < 2 || strings.IndexByte(" \t\n;|&<>'\"", line[i-2]) >= 0) {
				word = nil
			}
			cut(false)
			for i += 2; i < len(line) && (line[i] == ' ' || line[i] == '\t'); i++ {
			}
			if i == len(line) || line[i] < '0' || line[i] > '9' {
				return nil, false
			}
		case '\\':
			if i++; i == len(line) || line[i] == '\n' {
				return nil, false
			}
			put(line[i])
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, false
			}
			if word == nil {
				word = &strings.Builder{}
			}
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
		case '"':
			if word == nil {
				word = &strings.Builder{}
			}
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '$' || line[i] == '`' {
					return nil, false
				}
				if line[i] == '\\' && i+1 < len(line) && strings.IndexByte("$`\"\\", line[i+1]) >= 0 {
					i++
				}
				word.WriteByte(line[i])
			}
			if i == len(line) {
				return nil, false
			}
		case '$', '`', '(', ')', '<', '{', '}', '*', '?', '#', '!', '\r', 0:
			return nil, false
		default:
			put(c)
		}
	}
	cut(true)
	for _, words := range commands {
		list = append(list, fmt.Sprintf("%q", words))
	}
	slices.Sort(list)
	return list, true
}
