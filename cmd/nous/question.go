package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// What a question looks like.

// printQuestions lists questions, each in a few lines, or as they are on the wire.
func (a *app) printQuestions(q questions, now time.Time) {
	switch {
	case q.incomplete:
		defer a.notef(incomplete + ": list them again")
	case len(q.list) == 0 && !a.json:
		a.notef("no approval waits")
	}
	if a.json {
		for _, raw := range q.raw {
			a.printJSON(raw)
		}
		return
	}
	for i, one := range q.list {
		if i > 0 {
			a.println("")
		}
		a.printWaiting("", one, q.sessions[one.SessionID], now)
	}
}

// printWaiting prints a question of a list; where is the host that it is of, or "".
func (a *app) printWaiting(where string, one protocol.Approval, s protocol.SessionInfo, now time.Time) {
	a.printSpans(span{text: cellText(where)}, span{cellText(one.ApprovalID), asBold},
		span{"  " + format.Age(one.CreatedAt, now), asDim})
	a.println("  " + strings.Join(slices.DeleteFunc([]string{
		one.SessionID, oneLine(s.Title, 40),
		plaintext.RevealLine(one.Workdir),
	}, empty), "  "))
	a.println(a.fold("  " + asksFor(one, lineWidth)))
	a.printSpans(span{a.fold("  " + whyAsked(one)), asDim})
	a.printSpans(span{a.fold("  " + optionIDs(one)), asDim})
}

func empty(text string) bool { return text == "" }

// whyAsked is the rule that asks, and the reason that the model gives, in one line.
func whyAsked(q protocol.Approval) string {
	if q.Kind == protocol.ApprovalBudget || approval.IsForm(q) || q.Reason == "" {
		return plaintext.RevealLine(q.Rule)
	}
	return plaintext.RevealLine(q.Rule + ": " + q.Reason)
}

func optionIDs(q protocol.Approval) string {
	ids := make([]string, len(q.Options))
	for i, o := range q.Options {
		ids[i] = o.ID
		if o.Pattern != "" {
			ids[i] += " (" + o.Pattern + ")"
		}
	}
	return plaintext.RevealLine(strings.Join(ids, ", "))
}

// asksFor is what a question is about in one line, of which at most width characters
// are shown: the tool and its command or path.
func asksFor(q protocol.Approval, width int) string {
	if q.Kind == protocol.ApprovalBudget {
		return headOf(q, q.Reason, width)
	}
	if approval.IsForm(q) {
		return headOf(q, q.ToolName+" asks: "+q.Reason, width)
	}
	if q.Shortened {
		return headOf(q, q.ToolName+", a long call: nous approvals "+q.ApprovalID, width)
	}
	what := string(q.Arguments)
	for _, arg := range arguments(q.Arguments) {
		if arg.name == "command" || arg.name == "path" {
			what = arg.text
			break
		}
	}
	return headOf(q, q.ToolName+" "+what, width)
}

// headOf is the beginning of a text of a question, and how much more there is of it.
func headOf(q protocol.Approval, text string, width int) string {
	shown, left := plaintext.RevealHead(text, width)
	if left > 0 {
		shown += fmt.Sprintf(" … %d bytes more: nous approvals %s", left, q.ApprovalID)
	}
	return shown
}

// argument is one of a call's: a string's text, or the JSON of what is none.
type argument struct {
	name, text string
	isText     bool
}

// arguments are those of an object, in its order; none of what is no object.
func arguments(object jsontext.Value) (list []argument) {
	dec := jsontext.NewDecoder(strings.NewReader(string(object)), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil
		}
		arg := argument{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil
		}
		arg.isText = value.Kind() == '"' && json.Unmarshal(value, &arg.text, jsontext.AllowInvalidUTF8(true)) == nil
		if !arg.isText {
			_ = value.Compact() // what has several lines is a text
			arg.text = string(value)
		}
		list = append(list, arg)
	}
	return list
}

// questionText is a question in full, as its reader is to judge it: what somebody else
// says stands behind the question's own words in one line, or is indented further than
// any line of these.
func questionText(q protocol.Approval) string {
	if q.Kind == protocol.ApprovalBudget {
		return "Continue this run? " + plaintext.RevealLine(q.Reason) + "\n"
	}
	if approval.IsForm(q) {
		return formText(q)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", plaintext.RevealLine(approval.Headline(q)), whyAsked(q))
	if q.Path != "" {
		out.WriteString("The path leads to " + plaintext.RevealLine(q.Path) + "\n")
	}
	list := arguments(q.Arguments)
	if len(list) == 0 {
		out.WriteString(block(string(q.Arguments)))
	}
	for _, arg := range list {
		name := arg.shownName()
		if arg.isText && arg.name != "command" && !strings.Contains(arg.text, "\n") && jsontext.Value(arg.text).IsValid() {
			arg.text = strconv.Quote(arg.text) // or "1" would look like 1
		}
		if strings.Contains(arg.text, "\n") {
			out.WriteString("  " + name + ":\n" + block(arg.text))
		} else {
			out.WriteString("  " + name + ": " + plaintext.RevealLine(arg.text) + "\n")
		}
	}
	if q.Diff != "" {
		shown, _ := plaintext.RevealDiff(q.Diff)
		out.WriteString("  what would change:\n" + indent(shown, "    ") + "\n")
	}
	return out.String()
}

// block are the lines of a text, indented further than a question's own.
func block(text string) string {
	shown, _ := plaintext.Reveal(text)
	return indent(shown, "    ") + "\n"
}

// shownName is the argument's name, quoted where it could be mistaken for another
// line of the question.
func (a argument) shownName() string {
	for _, r := range a.name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' {
			return plaintext.RevealLine(strconv.Quote(a.name))
		}
	}
	return plaintext.RevealLine(a.name)
}

// hidden tells a reader what the numbers in a question are.
const hidden = "⟨…⟩ is a character that a terminal does not show as itself, or a line break"

// hides tells whether a text that is shown has such a number.
func hides(shown string) bool { return strings.Contains(shown, "⟨") }

// continued begins what is left of a line that is wider than the terminal. No line of
// a question does.
const continued = "  ⤷ "

// folded are the lines of a text in a width: what a terminal broke by itself would
// begin where the question's own lines do.
func folded(text string, width int) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		first := cell.Chop(line, width)[0]
		out.WriteString(first + "\n")
		if rest := line[len(first):]; rest != "" {
			for _, piece := range cell.Chop(rest, width-cell.Width(continued)) {
				out.WriteString(continued + piece + "\n")
			}
		}
	}
	return out.String()
}

// fold is folded for standard output, where that is a terminal.
func (a *app) fold(text string) string {
	if !a.outStyle.terminal {
		return text
	}
	return strings.TrimSuffix(folded(text, widthOf(a.out.w)), "\n")
}

// printQuestion prints a question in full.
func (a *app) printQuestion(q protocol.Approval, now time.Time) {
	text := questionText(q)
	a.printPairs([][2]string{
		{"id", cellText(q.ApprovalID)},
		{"session", cellText(q.SessionID)},
		{"folder", plaintext.RevealLine(q.Workdir)},
		{"asked", q.CreatedAt.Local().Format(time.DateTime) + ", " + format.Age(q.CreatedAt, now)},
	})
	a.println(a.fold(strings.TrimSuffix(text, "\n")))
	if hides(text) {
		a.notef(hidden)
	}
	for _, o := range q.Options {
		a.println(a.answerLine(q, o))
	}
}

// answerLine is the command that gives an answer, and what it allows.
func (a *app) answerLine(q protocol.Approval, o protocol.ApprovalOption) string {
	nous := "nous" + a.flags()
	text := nous + " approve " + q.ApprovalID
	switch {
	case o.ID == protocol.OptionCancel:
		text += " " + o.ID
	case o.Decision == protocol.DecisionDeny:
		text = nous + " deny " + q.ApprovalID
	case o.ID != approval.Yes(q):
		text += " " + o.ID
	}
	if o.Pattern != "" {
		text += "    # " + plaintext.RevealLine(o.Pattern)
	}
	return text
}
