package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxNested is how deep lines are looked for in the words of others.
	maxNested = 4
	// maxSearched is how many bytes of lines are parsed for one call, of which each
	// line counts for minSearched at least.
	maxSearched, minSearched = 2 * maxLine, 128
	// maxFound is how many commands are found in a line.
	maxFound = 20_000
)

// finder finds the simple commands of a line for rules that ask and deny: in
// substitutions, in functions, in what a wrapper runs, in words that a shell
// would read. It is best effort: it finds too many rather than too few, and says
// where it could not look.
type finder struct {
	commands []command
	opaque   string // what could not be looked into; "": nothing
	bytes    int    // that were parsed
}

// search finds the commands of a line, once.
func (l *line) search() *finder {
	if l.found != nil {
		return l.found
	}
	l.found = &finder{bytes: len(l.text)}
	switch {
	case l.why == "": // nothing is in anything else
		l.found.commands = l.plain
	case l.file == nil:
		l.found.opaque = l.why
	default:
		l.found.walk(l.file, 0)
	}
	return l.found
}

func (f *finder) hidden(why string) {
	if f.opaque == "" {
		f.opaque = why
	}
}

// add takes a command, and reports whether there is room for another.
func (f *finder) add(c command) bool {
	if len(f.commands) == maxFound {
		f.hidden("more commands than are looked at")
		return false
	}
	f.commands = append(f.commands, c)
	return true
}

// text looks into a text that a shell would read.
func (f *finder) text(text string, depth int) {
	if f.bytes += max(len(text), minSearched); depth > maxNested || f.bytes > maxSearched {
		f.hidden("more lines in lines than are looked at")
		return
	}
	file, err := parse(text)
	if err != nil {
		f.hidden(unparsable(err))
		return
	}
	f.walk(file, depth)
}

func (f *finder) walk(file *syntax.File, depth int) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				f.command(wordsOf(n.Args), depth)
			}
		case *syntax.DeclClause:
			f.add(command{{text: n.Variant.Value, known: true}, {many: true}})
		case *syntax.Comment:
			if strings.HasSuffix(n.Text, "\\\n") { // bash ends it there, this parser does not
				f.hidden("a comment that ends with a backslash")
			}
		}
		return true
	})
}

func wordsOf(args []*syntax.Word) command {
	words := make(command, len(args))
	for i, w := range args {
		if text, why := literal(w, false); why == "" {
			words[i] = word{text: text, known: true}
		} else if w.Lit() == "{}" { // of find and xargs
			words[i] = word{text: "{}", known: true}
		} else if many, base := unknown(w); many {
			words[i] = word{many: true}
		} else {
			words[i] = word{base: base}
		}
	}
	return words
}

// unknown tells whether a word that is not literal can become several, and the
// last name of the path that it may be, "" where that is not known.
func unknown(w *syntax.Word) (many bool, base string) {
	slash := false
	for _, part := range w.Parts {
		parts, quoted := []syntax.WordPart{part}, false
		if q, ok := part.(*syntax.DblQuoted); ok {
			parts, quoted = q.Parts, true
		}
		for _, part := range parts {
			text, isText := textOf(part)
			if !isText && (!quoted || isMany(part)) || isText && !quoted && spreads(text) {
				return true, ""
			}
			if i := strings.LastIndexByte(text, '/'); i >= 0 {
				base, slash = text[i+1:], true
			} else {
				base += text
			}
			slash = slash && isText
		}
	}
	if !slash {
		base = ""
	}
	return false, base
}

func textOf(part syntax.WordPart) (string, bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		return p.Value, true
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar
	}
	return "", false
}

// spreads tells whether a text without quotes can become several words.
func spreads(text string) bool {
	return strings.ContainsAny(text, "*?[") || strings.Contains(text, "{") &&
		(strings.Contains(text, ",") || strings.Contains(text, ".."))
}

// isMany tells whether an expansion can be several words in double quotes, too.
func isMany(part syntax.WordPart) bool {
	p, ok := part.(*syntax.ParamExp)
	return ok && (p.Param == nil || p.Param.Value == "@" || p.Index != nil || p.Excl)
}

// command takes a command, and what it runs in turn.
func (f *finder) command(c command, depth int) {
	if !f.add(c) || c[0].many {
		return
	}
	name := c[0].base
	if c[0].known {
		name = base(c[0].text)
	}
	switch {
	case name == "": // "$x" -c '…'
		f.inner(c, depth)
	case shells[name]:
		f.shell(c, depth)
	case name == "." || name == "source":
		if len(c) > 1 && (c[1].many || isInput(c[1].text)) {
			f.hidden("a script that is not a file")
		}
	case name == "eval":
		f.eval(c, depth)
	case name == "xargs" || name == "parallel":
		f.inner(append(c[:len(c):len(c)], word{many: true}), depth)
	case wrappers[name] || shellWords[name] || finders[name]:
		f.inner(c, depth)
	}
}

// inner takes what may be a command in the arguments of another: it may begin at
// each of its words, and each may be a line. A word that is not known is one only
// where nothing but options and numbers stands before it.
func (f *finder) inner(c command, depth int) {
	if readers[base(c[0].text)] {
		f.hidden(base(c[0].text) + " may read what it runs")
	}
	options := true
	for i := 1; i < len(c); i++ {
		if (c[i].known || options) && !f.add(c[i:]) {
			return
		}
		if shells[base(c[i].text)] {
			f.shell(c[i:], depth)
		}
		f.argument(c[i], depth)
		options = options && c[i].known && (isOption(c[i].text) || isNumber(c[i].text) || strings.Contains(c[i].text, "="))
	}
}

// argument looks into a word that is more than a name. One without a blank that
// is no line, such as a parenthesis, is none.
func (f *finder) argument(w word, depth int) {
	if _, value, assigns := strings.Cut(w.text, "="); assigns { // alias, env
		f.add(command{{text: value, known: true}})
		f.argument(word{text: value}, depth)
	}
	if strings.ContainsAny(w.text, " \t\n") {
		f.text(w.text, depth+1)
	} else if strings.ContainsAny(w.text, ";|&()<>`$") {
		opaque := f.opaque
		f.text(w.text, depth+1)
		f.opaque = opaque
	}
}

// shell looks into the arguments of a shell, and says if there is a line that is
// not to be seen. A file that it runs is not looked at.
func (f *finder) shell(c command, depth int) {
	found := false // what it runs
	for i, w := range c[1:] {
		switch {
		case found:
		case !w.known:
			f.hidden("a shell whose line is not known before it runs")
			found = true
		case w.text == "-s" || w.text == "-" || isInput(w.text):
			f.hidden("a shell that reads what it runs")
			found = true
		default:
			found = !isOption(w.text)
		}
		if w.known && !f.add(c[i+1:]) {
			return
		}
		f.argument(w, depth)
	}
	if !found {
		f.hidden("a shell that reads what it runs")
	}
}

// eval looks into the line that its words are together.
func (f *finder) eval(c command, depth int) {
	texts := make([]string, 0, len(c))
	for _, w := range c[1:] {
		if !w.known {
			f.hidden("an eval of what is not known before it runs")
		}
		texts = append(texts, w.text)
	}
	f.text(strings.Join(texts, " "), depth+1)
}
