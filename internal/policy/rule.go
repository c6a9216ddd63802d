package policy

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rule is one [[policy.rule]] (approvals.md §1). It can be kept as JSON, and
// comes back as it was.
type Rule struct {
	Tool     string  `json:"tool"` // pattern of tool names: * and ? and [a-z]
	Decision Verdict `json:"decision"`
	// Command are words of a simple command, from the first; of bash only. Whatever
	// follows them is not looked at: a rule that allows a program allows what its
	// options can do.
	Command Words `json:"command,omitempty"`
	// Path are globs with ** from the session's folder; of the built-in tools for
	// files only.
	Path     []string `json:"path,omitempty"`
	Workdir  string   `json:"workdir,omitempty"` // the session's folder, exactly; "": any
	Match    []string `json:"match,omitempty"`   // examples, as [Rule.Check] takes them
	NotMatch []string `json:"not_match,omitempty"`
	Place    Place    `json:"-"`
	lines    map[string]int
}

// Words are what the words of a command may be, from the first.
type Words []Word

// Word is what one word of a command may be.
type Word []string

func (w Word) has(text string) bool { return slices.Contains(w, text) }

// mostLater is how many words an option may be away from the rule's next word.
const mostLater = 64

// follow tells whether the rule's words come one after another, with others
// between them.
func (ws Words) follow(c command) bool {
	c = c[:min(len(c), mostLater)]
	for _, want := range ws {
		i := slices.IndexFunc(c, func(w word) bool { return !w.known || want.has(w.text) })
		if i < 0 {
			return false
		}
		c = c[i+1:]
	}
	return true
}

// Place is where a rule stands. Line and Rule count from 1; 0: not known.
type Place struct {
	File string
	Line int
	Rule int // of the [[policy.rule]] tables of a file
}

// String is "rules.toml:12: rule 3", "" for the zero value.
func (p Place) String() string {
	text := p.File
	if p.Line > 0 {
		text += ":" + strconv.Itoa(p.Line)
	}
	if p.Rule > 0 {
		text += ": rule " + strconv.Itoa(p.Rule)
	}
	return strings.TrimPrefix(text, ": ")
}

// Error is what is wrong with a rule: where, in which field, and what.
type Error struct {
	Place   Place
	Field   string
	Problem string
}

func (e *Error) Error() string {
	parts := []string{e.Place.String(), e.Field, e.Problem}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

func (r Rule) wrong(field, format string, args ...any) error {
	place := r.Place
	name, _, _ := strings.Cut(field, "[")
	if line := r.lines[name]; line > 0 {
		place.Line = line
	}
	return &Error{place, field, fmt.Sprintf(format, args...)}
}

// whole tells whether the rule is about every call of a tool.
func (r Rule) whole() bool { return r.Command == nil && r.Path == nil && r.Workdir == "" }

// Pattern says which calls the rule is about: "bash: git push …". It is one line
// without control characters.
func (r Rule) Pattern() string {
	text := printable(r.Tool)
	if r.Command != nil {
		text += ":"
		for _, w := range r.Command {
			text += " " + w.String()
		}
		text += " …"
	}
	if r.Path != nil {
		text += ": " + printable(strings.Join(r.Path, ", "))
	}
	if r.Workdir != "" {
		text += " in " + printable(r.Workdir)
	}
	return text
}

// String is the word, quoted where it must be, or its alternatives: git|hg.
func (w Word) String() string {
	texts := make([]string, len(w))
	for i, text := range w {
		texts[i] = text
		if !allPlain(text) {
			texts[i] = strconv.QuoteToGraphic(text)
		}
	}
	return strings.Join(texts, "|")
}

func printable(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Matches is a pattern of tool names in the manner of a shell, in which no
// character separates: * and ? and [a-z].
func Matches(pattern, name string) bool {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return pattern == name
	}
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// Undotted is a tool's name for providers that forbid dots (tools.md §1).
func Undotted(name string) string { return strings.ReplaceAll(name, ".", "__") }

func checkPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return fmt.Errorf("%q is no pattern", pattern)
	}
	return nil
}

// fileTools are the built-in tools that have a path; true for those that look
// below it, too.
var fileTools = map[string]bool{"read": false, "write": false, "edit": false, "ls": false, "find": true, "grep": true}

const bashTool = "bash"

// changers are the file tools that change files.
var changers = []string{"edit", "write"}

// changersPattern is a pattern of tool names that fits these, and no other tool.
const changersPattern = "[ew][dr]it*"

// Check reports what is wrong with a rule: a pattern that is none, a field that
// does not go with the others, an example that the rule does not bear out. What
// Match has must fit, what NotMatch has must not: lines of shell for a rule with
// Command, paths for one with Path, else names of tools. A rule that may fit does
// not. The error is an *Error.
func (r Rule) Check() error {
	for _, check := range []func(Rule) error{Rule.checkTool, Rule.checkCommand, Rule.checkPath, Rule.checkExamples} {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

func (r Rule) checkTool() error {
	if err := checkPattern(r.Tool); err != nil {
		return r.wrong("tool", "%v", err)
	}
	switch r.Decision {
	case Allow, Ask, Deny:
	default:
		return r.wrong("decision", "got %q, want allow, ask or deny", r.Decision)
	}
	if r.Workdir != "" && (!filepath.IsAbs(r.Workdir) || filepath.Clean(r.Workdir) != r.Workdir) {
		return r.wrong("workdir", "got %q, want an absolute path without . or .. or a slash at its end", r.Workdir)
	}
	return nil
}

func (r Rule) checkCommand() error {
	if r.Command == nil {
		return nil
	}
	switch {
	case r.Path != nil:
		return r.wrong("path", "a rule has command or path, not both")
	case !Matches(r.Tool, bashTool):
		return r.wrong("command", "only bash has commands, and %q does not fit it", r.Tool)
	case len(r.Command) == 0:
		return r.wrong("command", "has no word")
	}
	for i, w := range r.Command {
		if err := r.checkWord(fmt.Sprintf("command[%d]", i), i, w); err != nil {
			return err
		}
	}
	return nil
}

func (r Rule) checkWord(field string, i int, w Word) error {
	if len(w) == 0 {
		return r.wrong(field, "has no alternative")
	}
	for _, text := range w {
		switch {
		case text == "":
			return r.wrong(field, "is empty")
		case i == 0 && strings.ContainsAny(text, " \t\n"):
			return r.wrong(field, "%q has a blank: each word of a command stands by itself", text)
		case i == 0 && r.Decision == Allow && runsOthers(text):
			return r.wrong(field, "%q runs other commands or changes the shell: no rule can allow it", text)
		case i == 0 && r.Decision == Allow && shells[base(text)] && len(r.Command) == 1:
			return r.wrong(field, "%q runs what its next word says: the rule must name it", text)
		}
	}
	return nil
}

func (r Rule) checkPath() error {
	if r.Path == nil {
		return nil
	}
	fits := false
	for name := range fileTools {
		fits = fits || Matches(r.Tool, name)
	}
	switch {
	case !fits:
		return r.wrong("path", "only read, write, edit, ls, find and grep have paths, and %q fits none of them", r.Tool)
	case len(r.Path) == 0:
		return r.wrong("path", "has no glob")
	}
	for i, glob := range r.Path {
		if err := checkGlob(glob); err != nil {
			return r.wrong(fmt.Sprintf("path[%d]", i), "%q %v", glob, err)
		}
	}
	return nil
}

func checkGlob(glob string) error {
	switch {
	case glob == "" || !doublestar.ValidatePattern(glob):
		return errors.New("is no glob")
	case strings.HasPrefix(glob, "/") || strings.HasPrefix(glob, "~"):
		return errors.New("starts somewhere else, want it from the session's folder")
	case glob != "." && path.Clean(glob) != glob || strings.HasPrefix(glob, "../") || glob == "..":
		return errors.New("has . or .. or a slash too many: no path has them when it is compared")
	}
	return nil
}

// exampleDir is the session's folder of examples where a rule has none.
const exampleDir = "/session"

func (r Rule) checkExamples() error {
	for i, example := range r.Match {
		if !r.bears(example) {
			return r.wrong(fmt.Sprintf("match[%d]", i), "the rule does not match %q", example)
		}
	}
	for i, example := range r.NotMatch {
		if r.bears(example) {
			return r.wrong(fmt.Sprintf("not_match[%d]", i), "the rule matches %q", example)
		}
	}
	return nil
}

// bears tells whether the rule alone would allow, ask about or deny an example.
func (r Rule) bears(example string) bool {
	one := rule{r, Undotted(r.Tool), false, false}
	f := &facts{Call: Call{Tool: example, Kind: Builtin, Workdir: r.Workdir}, undotted: Undotted(example)}
	switch {
	case r.Command != nil:
		f.Tool, f.isBash, f.command = bashTool, true, example
		if r.Decision == Allow {
			return (&Set{rules: []rule{one}}).allowingLine(f) != nil
		}
	case r.Path != nil:
		f.isFile, f.path = true, example
		if f.Workdir == "" {
			f.Workdir = exampleDir
		}
	default:
		return one.concerns(f)
	}
	fit, _ := one.fits(f)
	return fit == yes
}
