package highlight

import (
	"cmp"
	"strings"
)

// lines scans what is told by how a line begins: differences, and Markdown.
func (s *scanner) lines() {
	fence := ""
	for s.at < len(s.text) {
		line := s.text[s.at : s.at+s.line()]
		trimmed := strings.TrimLeft(line, " ")
		kind := Text
		switch {
		case has(s.names, "diff"):
			kind = ofDiff(line)
		case fence != "" || strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			kind = String
			if fence == "" {
				fence = trimmed[:3]
			} else if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
		case strings.HasPrefix(line, "#"):
			kind = Name
		case strings.HasPrefix(trimmed, ">"):
			kind = Comment
		}
		if kind == Text {
			s.inline(s.at + len(line))
		}
		s.emit(kind, s.line())
		s.emit(Text, 1)
	}
}

// inline takes the text of a line of Markdown, in which code stands out.
func (s *scanner) inline(end int) {
	for s.at < end {
		n := strings.IndexByte(s.text[s.at:end], '`')
		if n < 0 {
			return
		}
		s.emit(Text, n)
		length := strings.IndexByte(s.text[s.at+1:end], '`')
		if length < 0 {
			return
		}
		s.emit(String, length+2)
	}
}

func ofDiff(line string) Kind {
	for _, head := range []string{
		"diff ", "index ", "--- ", "+++ ", "@@", "new file", "deleted file", "rename ",
		"similarity ",
	} {
		if strings.HasPrefix(line, head) {
			return Meta
		}
	}
	switch {
	case strings.HasPrefix(line, "+"):
		return Added
	case strings.HasPrefix(line, "-"):
		return Removed
	}
	return Text
}

// console scans commands of a shell behind prompts, among what they have written.
func (s *scanner) console() {
	whole := s.text
	for s.at < len(whole) {
		s.text = whole[:s.at+until(whole[s.at:], "\n")]
		prompt := 0
		for _, mark := range []string{"$ ", "# ", "% ", "> ", "PS> "} {
			if strings.HasPrefix(s.rest(), mark) {
				prompt = len(mark)
			}
		}
		if s.emit(Meta, prompt); prompt > 0 {
			s.code(0, 0)
		}
		s.emit(Text, len(s.rest()))
		s.text = whole
		s.emit(Text, 1)
	}
}

// markup scans HTML and XML.
func (s *scanner) markup() {
	for s.at < len(s.text) {
		rest := s.rest()
		switch {
		case rest[0] == '&':
			if end := strings.IndexByte(rest[:min(len(rest), 12)], ';'); end > 0 {
				s.emit(Number, end+1)
			} else {
				s.emit(Text, 1)
			}
		case rest[0] != '<':
			n := strings.IndexAny(rest, "<&")
			s.emit(Text, cmp.Or(max(n, 0), len(rest)))
		case s.comment():
		case strings.HasPrefix(rest, "<!") || strings.HasPrefix(rest, "<?"):
			s.emit(Meta, until(rest, ">")+1)
		case len(rest) > 1 && (isLetter(rest[1]) || rest[1] == '/'):
			s.tag()
		default:
			s.emit(Text, 1)
		}
	}
}

// tag takes a tag and its attributes.
func (s *scanner) tag() {
	n := len(s.rest()) - len(strings.TrimLeft(s.rest(), "</"))
	s.emit(Text, n)
	s.emit(Tag, s.word(s.rest()))
	for s.at < len(s.text) && s.text[s.at] != '<' {
		switch c := s.text[s.at]; {
		case c == '>':
			s.emit(Text, 1)
			return
		case isLetter(c) || c == '@' || c == ':':
			s.emit(Name, max(s.word(s.rest()), 1))
		case !s.quoted(maxDepth):
			s.emit(Text, 1)
		}
	}
}
