package policy

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxLine is the longest line that is parsed, in bytes.
	maxLine = 64 << 10
	// maxFrames is how deep the parser may be in itself. It calls itself for each
	// level of nesting, a few to twenty times, and a goroutine's stack that
	// overflows takes the daemon with it.
	maxFrames = 1000
	// maxPlain is how many commands of a line are held against rules that allow.
	maxPlain = 500
	// chunk is how many bytes the parser gets before its depth is looked at again.
	chunk = 256
)

// line is what a line of shell turned out to be.
type line struct {
	file *syntax.File // nil: it cannot be parsed
	// why says what no rule with a command can allow; "": the line is plain, a list
	// of simple commands of which every word is literal.
	why   string
	plain []command
	moves bool // changes its folder
	found *finder
	text  string
}

// command is a simple command: its words, at least one.
type command []word

// word is a word of a command. One that is not known stands for any text, and
// for any number of words if it is many; of a path, the last name can be known.
type word struct {
	text        string
	known, many bool
	base        string
}

var (
	errLong = errors.New("a line that is too long")
	errDeep = errors.New("a line that is nested too deeply")
)

// readLine parses a line as bash does, and looks whether a rule may allow it.
func readLine(text string) *line {
	l := &line{text: text}
	var err error
	if l.file, err = parse(text); err != nil {
		l.why = unparsable(err)
		return l
	}
	if l.why = unsafeBytes(text); l.why == "" {
		l.why = l.list(l.file.Stmts)
	}
	if l.why == "" && len(l.plain) == 0 {
		l.why = "has no command"
	}
	return l
}

// outside says what a person should know who lets the line run outside the sandbox;
// "": nothing that the line does not say.
func (l *line) outside() string {
	for _, c := range l.search().commands {
		if name := base(c[0].text); folderRunners[name] {
			return name + " runs what files of its folder say, which tools can write"
		}
	}
	return l.why
}

func unparsable(err error) string {
	if errors.Is(err, errLong) || errors.Is(err, errDeep) {
		return err.Error()
	}
	return "a line that cannot be parsed"
}

// parse is bounded in time and memory, whatever the text.
func parse(text string) (file *syntax.File, err error) {
	if len(text) > maxLine {
		return nil, errLong
	}
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, errors.New("the parser failed")
		}
	}()
	p := parsers.Get().(*syntax.Parser)
	if file, err = p.Parse(&shallow{rest: text}, ""); err != nil {
		return nil, err // not what comes before the error
	}
	parsers.Put(p) // one that has failed is not used again
	return file, nil
}

// parsers have large buffers, and begin anew for each line.
var parsers = sync.Pool{New: func() any {
	return syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true))
}}

// shallow is a text that ends with an error when its reader is in a recursion
// that is too deep. What can nest in shell, and what only looks like it in a
// quoted text, only the parser knows.
type shallow struct {
	rest string
	read bool
}

func (s *shallow) Read(p []byte) (int, error) {
	if s.rest == "" {
		return 0, io.EOF
	}
	var pc [1]uintptr
	if s.read && runtime.Callers(maxFrames, pc[:]) > 0 {
		return 0, errDeep
	}
	n := copy(p[:min(len(p), chunk)], s.rest)
	s.rest, s.read = s.rest[n:], true
	return n, nil
}

// unsafeBytes says what makes a text one that shells, or this parser, may read
// differently. The parser joins lines over a backslash even in a comment, where
// bash does not.
func unsafeBytes(text string) string {
	if strings.Contains(text, "\\\n") {
		return "has a line that goes on in the next"
	}
	for _, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return "has a control character or an unusual space"
		}
	}
	return "" // the parser has refused what is not UTF-8
}

// list takes the commands of a list, and returns what is not plain in it.
func (l *line) list(stmts []*syntax.Stmt) string {
	for _, s := range stmts {
		if why := l.stmt(s); why != "" {
			return why
		}
	}
	if len(l.file.Last) > 0 {
		return "has a comment"
	}
	return ""
}

func (l *line) stmt(s *syntax.Stmt) string {
	switch {
	case s.Negated:
		return "has a !"
	case s.Background || s.Coprocess || s.Disown:
		return "runs in the background"
	case len(s.Comments) > 0:
		return "has a comment"
	}
	for _, r := range s.Redirs {
		if !duplicates(r) {
			return "redirects input or output"
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		return l.call(c)
	case *syntax.BinaryCmd:
		return l.binary(c)
	case nil:
		return "has no command"
	}
	return "has more than simple commands"
}

func (l *line) binary(b *syntax.BinaryCmd) string {
	switch b.Op {
	case syntax.AndStmt, syntax.OrStmt, syntax.Pipe:
	default:
		return "pipes its errors"
	}
	if why := l.stmt(b.X); why != "" {
		return why
	}
	return l.stmt(b.Y)
}

// duplicates tells whether a redirection is one such as 2>&1. Two digits are a
// word in some shells.
func duplicates(r *syntax.Redirect) bool {
	digit := func(text string) bool { return len(text) == 1 && text >= "0" && text <= "9" }
	return r.Op == syntax.DplOut && (r.N == nil || digit(r.N.Value)) && digit(r.Word.Lit())
}

func (l *line) call(c *syntax.CallExpr) string {
	if len(c.Assigns) > 0 {
		return "has an assignment"
	}
	if len(l.plain) == maxPlain {
		return "has too many commands"
	}
	words := make(command, len(c.Args))
	for i, w := range c.Args {
		text, why := literal(w, i == 0)
		if why != "" {
			return why
		}
		words[i] = word{text: text, known: true}
	}
	if why := words.unfit(); why != "" {
		return why
	}
	l.moves = l.moves || movers[words[0].text]
	l.plain = append(l.plain, words)
	return ""
}

// unfit says why no rule can allow a command whose words are all known.
func (c command) unfit() string {
	name := c[0].text
	switch {
	case name == "" || strings.ContainsAny(name, "=%! \t\n") || isOption(name):
		return "has a command of an odd name"
	case syntax.IsKeyword(name) || name == "elif":
		return "has a word of the shell's own for a command"
	case runsOthers(name), shells[base(name)] && (len(c) < 2 || c[1].text == "" || isOption(c[1].text) ||
		isInput(c[1].text)):
		return base(name) + " runs other commands or changes the shell"
	}
	for _, w := range c[1:] {
		for _, option := range riskyOptions[base(name)] {
			if strings.HasPrefix(w.text, option) {
				return base(name) + " " + option + " does more than it seems"
			}
		}
	}
	return ""
}

// isPlain tells whether a character means itself wherever it stands in a word
// without quotes.
func isPlain(c byte) bool {
	switch c {
	case '-', '_', '.', '/', ':', ',', '+', '@', '%', '^', '=':
		return true
	}
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// allPlain tells whether a text is a word that means itself.
func allPlain(text string) bool {
	for i := range len(text) {
		if !isPlain(text[i]) {
			return false
		}
	}
	return text != ""
}

const notLiteral = "has a word that is not literal"

// literal is a word's text, or why it is not known, or not the same in all
// shells. name: it is a command's.
func literal(w *syntax.Word, name bool) (text, why string) {
	if len(w.Parts) == 1 {
		if lit, ok := w.Parts[0].(*syntax.Lit); ok && allPlain(lit.Value) {
			if name && strings.Contains(lit.Value, "=") {
				return "", "has an assignment"
			}
			return lit.Value, ""
		}
	}
	var b strings.Builder
	for _, part := range w.Parts {
		if !literalPart(&b, part, len(w.Parts) == 1) {
			return "", notLiteral
		}
	}
	return b.String(), ""
}

func literalPart(b *strings.Builder, part syntax.WordPart, alone bool) bool {
	switch p := part.(type) {
	case *syntax.Lit:
		return alone && (p.Value == "[" || p.Value == "]") && add(b, p.Value) || unquoted(b, p.Value)
	case *syntax.SglQuoted:
		return !p.Dollar && add(b, p.Value)
	case *syntax.DblQuoted:
		if p.Dollar {
			return false
		}
		for _, inner := range p.Parts {
			lit, ok := inner.(*syntax.Lit)
			if !ok || !doubleQuoted(b, lit.Value) {
				return false
			}
		}
		return true
	}
	return false
}

func add(b *strings.Builder, text string) bool {
	b.WriteString(text)
	return true
}

// unquoted adds what stands without quotes, in which a backslash quotes the next
// character, and a ~ is the home folder at the beginning and after = and :.
func unquoted(b *strings.Builder, text string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case isPlain(c):
		case c == '~' && i > 0 && text[i-1] != '=' && text[i-1] != ':':
		case c == '\\' && i+1 < len(text) && text[i+1] >= ' ' && text[i+1] < 0x7f:
			i++
			c = text[i]
		default:
			return false
		}
		b.WriteByte(c)
	}
	return true
}

// doubleQuoted adds what stands between double quotes. In some encodings a
// backslash can be half of a character: it and others are not together here.
func doubleQuoted(b *strings.Builder, text string) bool {
	escapes := strings.Contains(text, `\`)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case escapes && c >= utf8.RuneSelf, c == '$', c == '`':
			return false
		case c == '\\' && i+1 == len(text):
			return false
		case c == '\\' && strings.IndexByte("$`\"\\", text[i+1]) >= 0:
			i++
			c = text[i]
		}
		b.WriteByte(c)
	}
	return true
}
