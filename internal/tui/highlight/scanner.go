package highlight

import (
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep code in strings in code is told from the strings.
const maxDepth = 6

// scanner goes through a text once, from its beginning to its end.
type scanner struct {
	*language
	text   string
	at     int
	tokens []Token
	fresh  bool // only white space stands before it in its line
	next   Kind // what the next word is, where the word before it says that

	last [utf8.RuneSelf]int // behind the last place of a quotation mark, 0 if not looked for
}

// emit adds the next n bytes as a token, to the last one if that is of the same kind.
func (s *scanner) emit(kind Kind, n int) {
	to := min(s.at+n, len(s.text))
	if last := len(s.tokens) - 1; last >= 0 && s.tokens[last].Kind == kind {
		s.tokens[last].Text = s.text[s.at-len(s.tokens[last].Text) : to]
	} else if to > s.at {
		s.tokens = append(s.tokens, Token{kind, s.text[s.at:to]})
	}
	s.at = to
}

func (s *scanner) rest() string { return s.text[s.at:] }

// before is the byte that stands before the next one, a line break at the beginning.
func (s *scanner) before() byte {
	if s.at == 0 {
		return '\n'
	}
	return s.text[s.at-1]
}

// line is how far it is to the end of the line.
func (s *scanner) line() int { return until(s.rest(), "\n") }

// until is where something begins in a text, or the text's length.
func until(text, what string) int {
	if i := strings.Index(text, what); i >= 0 {
		return i
	}
	return len(text)
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
}
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// inWord tells whether a byte goes on in a word of the language.
func (s *scanner) inWord(c byte) bool {
	return isLetter(c) || isDigit(c) || strings.IndexByte(s.letters, c) >= 0
}

// word is how long the word is at the beginning of a text.
func (s *scanner) word(text string) (n int) {
	for n < len(text) && s.inWord(text[n]) {
		n++
	}
	return n
}

// code scans up to a bracket that closes what it is in, which is left to the caller, or
// to the end of the text.
func (s *scanner) code(end byte, depth int) {
	for open := 0; s.at < len(s.text); {
		switch c := s.text[s.at]; {
		case end != 0 && c == end && open == 0:
			return
		case end != 0 && c == end:
			open--
		case end == '}' && c == '{' || end == ')' && c == '(':
			open++
		}
		s.step(depth)
	}
}

// step takes the next token.
func (s *scanner) step(depth int) {
	c, fresh, next := s.text[s.at], s.fresh, s.next
	if isSpace(c) {
		s.fresh = fresh || c == '\n'
		s.emit(Text, 1)
		return
	}
	s.fresh, s.next = false, Text
	switch {
	case s.comment(), s.quoted(depth), s.number(), s.variable(), fresh && s.directive(), s.decorator(), s.regexp():
	case isLetter(c), s.lisp && c != '.' && s.inWord(c), c == '-' && s.word(s.rest()) > 1:
		s.named(fresh, next)
	case s.mode == css && (c == '.' || c == '#') && s.word(s.rest()[1:]) > 0:
		s.selector()
	case fresh && c == '[' && s.sections:
		s.emit(Tag, s.line())
	default:
		s.fresh = fresh && c == '-' && s.keys == ":" // an item of a list in YAML
		s.emit(Text, 1)
	}
}

func (s *scanner) comment() bool {
	rest := s.rest()
	if s.open != "" && strings.HasPrefix(rest, s.open) {
		s.emit(Comment, len(s.open)+s.endOfBlock(rest[len(s.open):]))
		return true
	}
	for opener := range strings.SplitSeq(s.comments, " ") {
		if opener == "" || !strings.HasPrefix(rest, opener) {
			continue
		}
		if opener == "#" && (isLetter(s.before()) || isDigit(s.before()) || strings.IndexByte("$&{}", s.before()) >= 0) {
			continue // a#b, $#, ${#a}
		}
		s.emit(Comment, s.line())
		return true
	}
	return false
}

// endOfBlock is where a block comment is over that begins before a text.
func (s *scanner) endOfBlock(text string) int {
	for i, level := 0, 1; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], s.close):
			if i += len(s.close) - 1; level == 1 {
				return i + 1
			}
			level--
		case s.nested && strings.HasPrefix(text[i:], s.open):
			i += len(s.open) - 1
			level++
		}
	}
	return len(text)
}

// quoted takes a string.
func (s *scanner) quoted(depth int) bool {
	rest := s.rest()
	for _, q := range s.quotes {
		if !strings.HasPrefix(rest, q.open) || isLetter(q.open[0]) && s.inWord(s.before()) {
			continue
		}
		if q.as&char != 0 {
			n := charLen(rest)
			s.emit(String, n)
			return n > 0
		}
		s.quote(q, depth)
		return true
	}
	return false
}

// charLen is how long the character between single quotes is that a text begins with,
// 0 if none is: the quote is a lifetime's or a symbol's.
func charLen(text string) int {
	if len(text) < 3 || text[1] == '\n' || text[1] == '\'' {
		return 0
	}
	if text[1] == '\\' {
		if end := strings.IndexByte(text[min(3, len(text)):min(14, len(text))], '\''); end >= 0 {
			return 3 + end + 1
		}
		return 0
	}
	if _, n := utf8.DecodeRuneInString(text[1:]); 1+n < len(text) && text[1+n] == '\'' {
		return n + 2
	}
	return 0
}

// quote takes a string, and the code in it. One that may be longer than a line and does
// not end is a line long: an apostrophe in a text is not the beginning of the rest.
func (s *scanner) quote(q quote, depth int) {
	mark := q.close[0]
	if s.last[mark] == 0 {
		s.last[mark] = 1 + strings.LastIndexByte(s.text, mark)
	}
	long := q.as&multi != 0 && (len(q.open) > 1 || s.last[mark] > s.at+1)
	s.emit(String, len(q.open))
	for s.at < len(s.text) {
		rest := s.rest()
		switch {
		case strings.HasPrefix(rest, q.close):
			s.emit(String, len(q.close))
			if s.isKey(true) {
				s.tokens[len(s.tokens)-1].Kind = Name
			}
			return
		case rest[0] == '\n' && !long:
			return
		case q.as&holes != 0 && s.hole != "" && depth < maxDepth && strings.HasPrefix(rest, s.hole):
			s.emit(Text, len(s.hole))
			s.code(closer(s.hole), depth+1)
			s.emit(Text, 1)
		case q.as&holes != 0 && rest[0] == '$' && s.variable():
		case rest[0] == '\\' && q.as&raw == 0 && len(rest) > 1 && rest[1] != '\n':
			s.emit(String, 2)
		default:
			s.emit(String, 1)
		}
	}
}

func closer(hole string) byte {
	if strings.HasSuffix(hole, "(") {
		return ')'
	}
	return '}'
}

func (s *scanner) number() bool {
	rest := s.rest()
	if !isDigit(rest[0]) && (rest[0] != '.' || len(rest) < 2 || !isDigit(rest[1])) || s.inWord(s.before()) {
		return false
	}
	n, hex := 1, len(rest) > 1 && rest[0] == '0' && rest[1]|' ' == 'x'
	for ; n < len(rest); n++ {
		c := rest[n]
		exponent := (c == '-' || c == '+') && rest[n-1]|' ' == 'e' && !hex
		point := c == '.' && rest[n-1] != '.' && n+1 < len(rest) && isDigit(rest[n+1])
		if !isLetter(c) && !isDigit(c) && !exponent && !point && (c != '%' || s.mode != css) {
			break
		}
	}
	s.emit(Number, n)
	return true
}

// variable takes a name with its mark: $name, ${name}, $?, @name, :name.
func (s *scanner) variable() bool {
	rest := s.rest()
	if strings.IndexByte(s.marks, rest[0]) < 0 || len(rest) < 2 || rest[0] != '$' &&
		(s.inWord(s.before()) || s.before() == ':') {
		return false
	}
	body := strings.TrimLeft(rest[1:min(3, len(rest))], "@$")
	n := min(3, len(rest)) - len(body)
	switch {
	case n < len(rest) && (isLetter(rest[n]) || isDigit(rest[n]) && rest[0] == '$'):
		n += s.word(rest[n:])
	case rest[0] != '$':
		return false
	case rest[1] == '{':
		if n = strings.IndexAny(rest[:min(len(rest), 200)], "}\n") + 1; n == 0 || rest[n-1] == '\n' {
			return false
		}
	case strings.IndexByte("?#@*!-$", rest[1]) >= 0:
		n = 2
	default:
		return false
	}
	s.emit(Name, n)
	return true
}

// directive takes a line's beginning that is for a preprocessor, and attributes in the
// manner of Rust.
func (s *scanner) directive() bool {
	rest := s.rest()
	if rest[0] != '#' || !s.directives {
		return false
	}
	if strings.HasPrefix(rest, "#[") || strings.HasPrefix(rest, "#![") {
		s.emit(Meta, s.line())
		return true
	}
	spaces := len(rest[1:]) - len(strings.TrimLeft(rest[1:], " "))
	n := 1 + spaces + s.word(rest[1+spaces:])
	include := strings.HasSuffix(rest[:n], "include")
	if s.emit(Meta, n); include && strings.HasPrefix(s.rest(), " <") {
		s.emit(Text, 1)
		s.emit(String, s.line())
	}
	return true
}

func (s *scanner) decorator() bool {
	rest := s.rest()
	if rest[0] != '@' || !s.decorators || s.inWord(s.before()) || len(rest) < 2 || !isLetter(rest[1]) {
		return false
	}
	s.emit(Meta, 1+s.word(rest[1:]))
	return true
}

// regexp takes a pattern between slashes, where a division cannot stand.
func (s *scanner) regexp() bool {
	if !s.patterns || s.text[s.at] != '/' {
		return false
	}
	i := s.at - 1
	for i >= 0 && i > s.at-40 && (s.text[i] == ' ' || s.text[i] == '\t') {
		i--
	}
	if i >= 0 && strings.IndexByte("(,=:[!&|?{};\n~", s.text[i]) < 0 && !strings.HasSuffix(s.text[:i+1], "return") {
		return false
	}
	rest, class := s.rest(), false
	for n := 1; n < min(len(rest), 400) && rest[n] != '\n'; n++ {
		switch c := rest[n]; {
		case c == '\\' && n+1 < len(rest) && rest[n+1] != '\n':
			n++
		case c == '[' || c == ']':
			class = c == '['
		case c == '/' && !class:
			s.emit(String, n+1+s.word(rest[n+1:]))
			return true
		}
	}
	return false
}

// selector takes a class or an id of CSS, or a colour.
func (s *scanner) selector() {
	n := 1 + s.word(s.rest()[1:])
	word := s.rest()[:n]
	if word[0] == '#' && strings.Trim(word[1:], "0123456789abcdefABCDEF") == "" && (n == 4 || n == 5 || n == 7 || n == 9) {
		s.emit(Number, n)
		return
	}
	s.emit(Tag, n)
}

// isKey tells whether what stands before the next byte is a key, by what follows it.
func (s *scanner) isKey(fresh bool) bool {
	if s.keys == "" || !fresh && !s.loose {
		return false
	}
	rest := strings.TrimLeft(s.text[s.at:min(s.at+40, len(s.text))], " \t")
	if rest == "" || strings.IndexByte(s.keys, rest[0]) < 0 {
		return false
	}
	if rest[0] == '=' {
		return !strings.HasPrefix(rest, "==")
	}
	return s.loose || len(rest) == 1 || isSpace(rest[1]) || s.keys != ":"
}

// constants are the words that mean a value in most languages.
const constants = "true false nil null NULL None True False undefined NaN nullptr this self super"

// Words before the name of a function, and of a type.
const (
	functionOf = "func fn fun function def defp sub proc defn defun define defmacro macro"
	typeOf     = "class struct enum interface trait type protocol object module namespace union record extends " +
		"implements new defmodule"
)

// named takes a word.
func (s *scanner) named(fresh bool, next Kind) {
	n := max(s.word(s.rest()), 1)
	word := s.rest()[:n]
	member := s.before() == '.' && !strings.HasSuffix(s.text[:s.at], "..")
	called := s.lisp && s.before() == '('
	s.emit(s.kindOf(word, member, called, fresh, next), n)
}

func (s *scanner) kindOf(word string, member, called, fresh bool, next Kind) Kind {
	after := s.at + len(word)
	called = called || !s.lisp && (strings.HasPrefix(s.text[after:], "(") || strings.HasPrefix(s.text[after:], "!("))
	at := s.at
	s.at = after
	key := s.isKey(fresh)
	s.at = at
	look := word
	if s.fold {
		look = strings.ToLower(word)
	}
	switch {
	case key:
		return Name
	case member:
	case has(s.keywords, look):
		if has(functionOf, look) {
			s.next = Function
		} else if has(typeOf, look) {
			s.next = Type
		}
		return Keyword
	case has(s.types, look):
		return Type
	case has(constants, look):
		return Number
	}
	switch upper := s.capitals && 'A' <= word[0] && word[0] <= 'Z'; {
	case next != Text:
		return next
	case upper && len(word) > 1 && strings.ToUpper(word) == word:
		return Number
	case upper:
		return Type
	case called:
		return Function
	}
	return Text
}
