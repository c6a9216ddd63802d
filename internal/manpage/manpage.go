// Package manpage writes manual pages in the macros of man(7): what a command's
// help says, and whatever else it is given.
//
// Concurrency: a [Page] belongs to one goroutine.
//
// It refuses to make a page with nothing in it: a command, or a flag, that
// nobody has described is an error.
package manpage

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Title is what stands above and below every page. Date and Source may be "".
type Title struct {
	Name    string // as in man NAME
	Section int
	Summary string // one line, for apropos
	Date    string // like 2026-11-22
	Source  string // the program and its version
}

// Page is a page in the making.
type Page struct {
	b       bytes.Buffer
	section bool // one has just begun
}

// New begins a page.
func New(t Title) *Page {
	p := &Page{}
	p.macro(".TH", strings.ToUpper(t.Name), fmt.Sprint(t.Section), t.Date, shortened(t.Source), manuals[t.Section])
	p.line(".nr HY 0\n.nh\n.ad l") // what is hyphenated cannot be copied
	p.Section("NAME")
	p.line(Escape(t.Name) + ` \- ` + Escape(t.Summary))
	return p
}

// maxSource is what fits beside the date below a page of 80 columns.
const maxSource = 32

// shortened is a program and its version, or where that is long, as that of a commit
// without a tag is, the last part, which names the commit.
func shortened(source string) string {
	program, version, _ := strings.Cut(source, " ")
	if i := strings.LastIndexByte(version, '-'); i >= 0 && len(source) > maxSource {
		version = version[i+1:]
	}
	return strings.TrimSpace(program + " " + version)
}

var manuals = map[int]string{1: "User Commands", 5: "File Formats", 7: "Miscellaneous Information"}

// Bytes are the page so far.
func (p *Page) Bytes() []byte { return p.b.Bytes() }

// Section and Subsection begin one.
func (p *Page) Section(title string)    { p.macro(".SH", title); p.section = true }
func (p *Page) Subsection(title string) { p.macro(".SS", title); p.section = true }

// Paragraph is text that was escaped already, with fonts in it.
func (p *Page) Paragraph(escaped string) {
	p.startParagraph()
	p.Line(escaped)
}

// Item is a tag, and beside it what it means; both were escaped already.
func (p *Page) Item(tag, escaped string) {
	p.line(".TP")
	p.Line(tag)
	p.Line(escaped)
}

// Key is a key of a configuration file, what it is set to, and what that does.
func (p *Page) Key(name, value, text string) {
	p.Item(Bold(name)+" = "+Italic(value), Escape(text))
}

// SeeAlso is the section of that name, with pages like nous(1).
func (p *Page) SeeAlso(pages ...string) {
	p.Section("SEE ALSO")
	pages = slices.Clone(pages)
	for i, page := range pages {
		name, section, _ := strings.Cut(page, "(")
		pages[i] = Bold(name) + "(" + section
	}
	p.Line(strings.Join(pages, ",\n"))
}

// Macro is a request with arguments that need no escaping.
func (p *Page) Macro(words ...string) { p.line(strings.Join(words, " ")) }

// Line is text that was escaped already. None of its lines is taken for a request.
func (p *Page) Line(escaped string) {
	for line := range strings.Lines(escaped) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		if line != "" {
			p.line(line)
		}
	}
}

// Code is shown as it is.
func (p *Page) Code(text string) {
	p.startParagraph()
	p.line(".RS 4\n.EX")
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		p.line(`\&` + Escape(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), "\n")))
	}
	p.line(".EE\n.RE")
}

// Text is paragraphs as a command's help has them: with an empty line between
// two, and what is indented as it is.
func (p *Page) Text(text string) {
	for block := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		switch {
		case strings.TrimSpace(block) == "":
		case indented(block):
			p.Code(outdent(block))
		default:
			p.Paragraph(Escape(block))
		}
	}
}

func indented(block string) bool {
	for line := range strings.Lines(block) {
		if line[0] == ' ' || line[0] == '\t' {
			return true
		}
	}
	return false
}

// outdent takes the space away that all lines begin with.
func outdent(block string) string {
	lines := strings.Split(strings.ReplaceAll(block, "\t", "    "), "\n")
	least := len(block)
	for _, line := range lines {
		if bare := strings.TrimLeft(line, " "); bare != "" {
			least = min(least, len(line)-len(bare))
		}
	}
	for i, line := range lines {
		lines[i] = line[min(least, len(line)):]
	}
	return strings.Join(lines, "\n")
}

func (p *Page) macro(name string, args ...string) {
	p.b.WriteString(name)
	for _, arg := range args {
		p.b.WriteString(` "` + strings.ReplaceAll(Escape(arg), `"`, `\(dq`) + `"`)
	}
	p.b.WriteByte('\n')
}

// startParagraph begins a paragraph, which a section does by itself.
func (p *Page) startParagraph() {
	if !p.section {
		p.line(".PP")
	}
}

func (p *Page) line(text string) {
	p.b.WriteString(text + "\n")
	p.section = false
}

// Characters that roff takes for something else, or shows as another one, which
// could then not be copied.
var escapes = strings.NewReplacer(`\`, `\(rs`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// A long word can be broken behind these, which roff has to be told; it would
// break no other word than at a hyphen.
var (
	long     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\S{30,}`) })
	breaking = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[,/:;&?]`) })
)

// Escape is text as it has to stand in a page.
func Escape(text string) string {
	text = long().ReplaceAllStringFunc(text, func(word string) string { return breaking().ReplaceAllString(word, "$0\v") })
	return strings.ReplaceAll(escapes.Replace(text), "\v", `\:`)
}

// Bold and Italic are text in that font, escaped.
func Bold(text string) string   { return `\fB` + Escape(text) + `\fR` }
func Italic(text string) string { return `\fI` + Escape(text) + `\fR` }
