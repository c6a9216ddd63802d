package approvals

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
	list, ok := approval.Arguments(a.Arguments)
	command, runs := "", false
	if ok {
		command, runs = list.Text("command")
	}
	var all []text
	switch {
	case a.Diff != "":
		path, _ := list.Text("path")
		all = append(oneLine(quiet, path), diff(a.Diff)...)
	case runs:
		all = append(revealed(plain, command), others(list, a.Reason)...)
	case ok && len(list) > 0:
		all = others(list, a.Reason)
	default:
		all = arguments(a.Arguments)
	}
	return all
}

// behind is what stands below everything else: what stands above was made of the arguments,
// and these are what runs. They are folded until somebody asks for them.
func behind(a protocol.Approval, unfolded bool) []text {
	list, ok := approval.Arguments(a.Arguments)
	_, runs := list.Text("command")
	if a.Kind != protocol.ApprovalTool || a.Shortened || !ok || len(list) == 0 || runs && a.Diff == "" {
		return nil // or nothing was left out
	}
	if !unfolded {
		return []text{{quiet, "▸ " + unfoldKey + " shows the call as JSON"}}
	}
	return append([]text{{quiet, "▾ the call as JSON:"}}, arguments(a.Arguments)...)
}

// revealed are the lines of a text, with what cannot be seen as numbers.
func revealed(k kind, s string) []text {
	shown, hidden := plaintext.Reveal(s)
	return linesOf(k, shown, hidden)
}

// oneLine is revealed with no line break: one would look like another line of the
// approval.
func oneLine(k kind, s string) []text {
	shown := plaintext.RevealLine(s)
	return linesOf(k, shown, approval.Hides(shown))
}

func linesOf(k kind, shown string, hidden bool) []text {
	var all []text
	if hidden {
		all = append(all, text{warning, approval.Hidden})
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

// others are the arguments beside the command, but for the reason that stands
// elsewhere.
func others(l approval.List, reason string) []text {
	var all []text
	for _, m := range l {
		if said, ok := l.Text("reason"); m.Name == "command" || m.Name == "reason" && ok && said == reason {
			continue
		}
		name := m.Name
		if strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-'
		}) {
			name = strconv.Quote(name) // or it could look like another line
		}
		all = append(all, named(name, m.Value)...)
	}
	return all
}

// named is an argument behind its name. A text is as it is, its further lines further in, so
// that none looks like another argument.
func named(name string, value jsontext.Value) []text {
	s := string(plaintext.JSON(value))
	if unquoted, err := jsontext.AppendUnquote(nil, value); value.Kind() == '"' && err == nil {
		s = string(unquoted)
	}
	if !strings.Contains(s, "\n") {
		return revealed(quiet, name+": "+s)
	}
	all := []text{{quiet, name + ":"}}
	for _, t := range revealed(quiet, s) {
		all = append(all, text{t.kind, "  " + t.line})
	}
	return all
}

// fact is what is said of an approval.
type fact struct{ name, value string }

func facts(a protocol.Approval) []fact {
	var all []fact
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	if title := approval.Title(a); !approval.Outside(a) && cell.Width(cell.Line(title, maxTitle)) > maxTitle/2 ||
		odd(title) {
		add("tool", a.ToolName)
	}
	if a.Kind == protocol.ApprovalTool {
		add("reason", a.Reason)
	}
	add("session", approval.Path(a))
	add("leads to", a.Path)
	add("folder", a.Workdir)
	add("why", a.Because())
	return all
}

// maxTitle is how long a title is, in cells, that has no room everywhere, twice.
const maxTitle = 56

func odd(s string) bool {
	_, hidden := plaintext.Reveal(s)
	return hidden
}

// Lines are an approval line by line: for screen readers.
func Lines(a protocol.Approval) []string {
	lines := []string{plaintext.RevealLine(approval.Title(a))}
	for _, t := range append(content(a), behind(a, true)...) {
		lines = append(lines, "  "+t.line)
	}
	for _, f := range facts(a) {
		lines = append(lines, f.name+": "+plaintext.RevealLine(f.value))
	}
	for _, o := range a.Options {
		lines = append(lines, plaintext.RevealLine(o.ID)+": "+approval.Does(a.Kind, o))
	}
	return lines
}
