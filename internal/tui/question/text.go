package question

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// kind says how a line of what is asked about is drawn.
type kind int

const (
	plain kind = iota
	quiet
	added
	removed
	warning
	prose
)

type text struct {
	kind kind
	line string
}

// content is what would be done, in full.
func content(a protocol.Approval) []text {
	if a.Kind == protocol.ApprovalBudget {
		return revealed(prose, a.Reason)
	}
	if approval.IsForm(a) {
		return formLines(a)
	}
	if a.Shortened {
		return []text{{quiet, "too long to be shown here: its session shows it in full"}}
	}
	list, ok := members(a.Arguments)
	command, runs := "", false
	if ok {
		command, runs = list.text("command")
	}
	var all []text
	switch {
	case a.Diff != "":
		path, _ := list.text("path")
		all = append(oneLine(quiet, path), diff(a.Diff)...)
	case runs:
		all = append(revealed(plain, command), list.others(a.Reason)...)
	default:
		all = arguments(a.Arguments)
	}
	return all
}

// behind is what stands below everything else: a diff is what the daemon makes of
// the arguments, and these are what runs.
func behind(a protocol.Approval) []text {
	if a.Diff == "" {
		return nil
	}
	return append([]text{{quiet, "the call in full:"}}, arguments(a.Arguments)...)
}

// revealed are the lines of a text, with what cannot be seen as numbers.
func revealed(k kind, s string) []text {
	shown, hidden := plaintext.Reveal(s)
	return linesOf(k, shown, hidden)
}

// oneLine is revealed with no line break: one would look like another line of the
// question.
func oneLine(k kind, s string) []text {
	shown := plaintext.RevealLine(s)
	return linesOf(k, shown, strings.Contains(shown, "⟨"))
}

func linesOf(k kind, shown string, hidden bool) []text {
	var all []text
	if hidden {
		all = append(all, text{warning, "characters that a terminal does not show are written as ⟨number⟩"})
	}
	for line := range strings.SplitSeq(shown, "\n") {
		all = append(all, text{k, line})
	}
	return all
}

func diff(s string) []text {
	shown, hidden := plaintext.RevealDiff(s)
	all := linesOf(plain, shown, hidden)
	for i, t := range all {
		switch {
		case t.kind == warning || t.line == "":
		case t.line[0] == '+':
			all[i].kind = added
		case t.line[0] == '-':
			all[i].kind = removed
		case t.line[0] == '@':
			all[i].kind = quiet
		}
	}
	return all
}

func arguments(raw jsontext.Value) []text {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	shown := raw.Clone()
	if shown.Indent(jsontext.WithIndent("  ")) != nil {
		shown = raw
	}
	return revealed(plain, string(plaintext.JSON(shown)))
}

// member is one of the arguments; value is as it stands there.
type member struct {
	name  string
	value jsontext.Value
}

type list []member

// members are the arguments of a call; false where they are no object.
func members(raw jsontext.Value) (all list, ok bool) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '{' {
		return nil, false
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		all = append(all, member{key, value.Clone()})
	}
	return all, true
}

func (l list) text(name string) (string, bool) {
	for _, m := range l {
		if m.name == name && m.value.Kind() == '"' {
			s, err := jsontext.AppendUnquote(nil, m.value)
			return string(s), err == nil
		}
	}
	return "", false
}

// others are the arguments beside the command, but for the reason that stands
// elsewhere.
func (l list) others(reason string) []text {
	var all []text
	for _, m := range l {
		if said, ok := l.text("reason"); m.name == "command" || m.name == "reason" && ok && said == reason {
			continue
		}
		name := m.name
		if strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-'
		}) {
			name = strconv.Quote(name) // or it could look like another line
		}
		all = append(all, revealed(quiet, name+": "+string(plaintext.JSON(m.value)))...)
	}
	return all
}

// fact is what is said of a question.
type fact struct{ name, value string }

func facts(a protocol.Approval) []fact {
	var all []fact
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	if title := Title(a); cell.Width(cell.Line(title, maxTitle)) > maxTitle/2 || odd(title) {
		add("tool", a.ToolName)
	}
	if a.Kind == protocol.ApprovalTool {
		add("reason", a.Reason)
	}
	add("leads to", a.Path)
	add("folder", a.Workdir)
	add("rule", a.Rule)
	return all
}

// maxTitle is how long a title is, in cells, that has no room everywhere, twice.
const maxTitle = 56

func odd(s string) bool {
	_, hidden := plaintext.Reveal(s)
	return hidden
}

// Title asks for the approval in one line. Names in it may hold any characters.
func Title(a protocol.Approval) string {
	if a.Kind == protocol.ApprovalBudget {
		return "Continue this run?"
	}
	if approval.IsForm(a) {
		return a.ToolName + " asks"
	}
	return approval.Headline(a)
}

// does says what an option stands for. Its pattern is shown as it is.
func does(o protocol.ApprovalOption) string {
	pattern := plaintext.RevealLine(o.Pattern)
	switch {
	case o.ID == "session":
		return "from now on in this session: " + pattern
	case o.ID == "always":
		return "from now on in every session: " + pattern
	case pattern != "":
		return pattern
	case o.ID == "once":
		return "this call"
	case o.ID == protocol.OptionAccept:
		return "fill in the form"
	case o.ID == protocol.OptionCancel:
		return "neither yes nor no"
	case o.ID == "continue":
		return "the run goes on"
	case o.Decision == protocol.DecisionDeny:
		return "no"
	}
	return string(o.Decision)
}

// Lines are a question line by line: for screen readers.
func Lines(a protocol.Approval) []string {
	lines := []string{plaintext.RevealLine(Title(a))}
	for _, t := range append(content(a), behind(a)...) {
		lines = append(lines, "  "+t.line)
	}
	for _, f := range facts(a) {
		lines = append(lines, f.name+": "+plaintext.RevealLine(f.value))
	}
	for _, o := range a.Options {
		lines = append(lines, plaintext.RevealLine(o.ID)+": "+does(o))
	}
	return lines
}
