package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// What a question looks like.

// printQuestions lists questions, each in a few lines, or as they are on the wire.
func (a *app) printQuestions(q questions, now time.Time) {
	switch {
	case q.incomplete:
		defer a.notef(incomplete + ": list them again")
	case len(q.list) == 0 && !a.json:
		a.notef("no question waits")
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
	a.printSpans(span{text: cellText(where)}, span{cellText(one.ApprovalID), asBold}, span{"  " + age(now.Sub(one.CreatedAt)), asDim})
	a.println("  " + cellText(strings.Join(slices.DeleteFunc([]string{one.SessionID, oneLine(s.Title, 40), one.Workdir}, empty), "  ")))
	a.println("  " + asksFor(one, lineWidth))
	a.printSpans(span{"  " + cellText(whyAsked(one)), asDim})
	a.printSpans(span{"  " + cellText(optionIDs(one)), asDim})
}

func empty(text string) bool { return text == "" }

// age is how long ago something was, in its largest unit or two.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min ago", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// whyAsked is the rule that asks, and the reason that the model gives.
func whyAsked(q protocol.Approval) string {
	if q.Kind == protocol.ApprovalBudget || isForm(q) || q.Reason == "" {
		return q.Rule
	}
	return q.Rule + ": " + q.Reason
}

func optionIDs(q protocol.Approval) string {
	ids := make([]string, len(q.Options))
	for i, o := range q.Options {
		ids[i] = o.ID
		if o.Pattern != "" {
			ids[i] += " (" + o.Pattern + ")"
		}
	}
	return strings.Join(ids, ", ")
}

// asksFor is what a question is about in one line: the tool and its command or
// path. A line break in it is shown, for it ends a command.
func asksFor(q protocol.Approval, width int) string {
	if q.Kind == protocol.ApprovalBudget {
		return oneLine(q.Reason, width)
	}
	if isForm(q) {
		return oneLine(q.ToolName+" asks: "+strings.ReplaceAll(strings.TrimSpace(q.Reason), "\n", " ⏎ "), width)
	}
	if q.Shortened {
		return oneLine(q.ToolName+", a long call: nous approvals "+q.ApprovalID, width)
	}
	what := string(q.Arguments)
	for _, arg := range arguments(q.Arguments) {
		if arg.name == "command" || arg.name == "path" {
			what = arg.text
			break
		}
	}
	return oneLine(q.ToolName+" "+strings.ReplaceAll(strings.TrimSpace(what), "\n", " ⏎ "), width)
}

// argument is one of a call's: a string's text, or the JSON of what is none.
type argument struct{ name, text string }

// arguments are those of an object, in its order; none of what is no object.
func arguments(object jsontext.Value) (list []argument) {
	dec := jsontext.NewDecoder(strings.NewReader(string(object)), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
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
		if value.Kind() != '"' || json.Unmarshal(value, &arg.text, jsontext.AllowInvalidUTF8(true)) != nil {
			arg.text = string(value)
		}
		list = append(list, arg)
	}
	return list
}

// questionText is a question in full, as its reader is to judge it.
func questionText(q protocol.Approval) string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	if q.Kind == protocol.ApprovalBudget {
		line("May the run go on? %s", q.Reason)
		return out.String()
	}
	if isForm(q) {
		return formText(q)
	}
	line("May %s be called? %s", q.ToolName, whyAsked(q))
	list := arguments(q.Arguments)
	if len(list) == 0 {
		line("%s", indent(string(q.Arguments), "  "))
	}
	for _, arg := range list {
		if strings.Contains(arg.text, "\n") {
			line("  %s:\n%s", arg.name, indent(arg.text, "    "))
		} else {
			line("  %s: %s", arg.name, arg.text)
		}
	}
	if q.Diff != "" {
		line("%s", indent(strings.TrimRight(q.Diff, "\n"), "  "))
	}
	return out.String()
}

// hides tells whether a terminal is not shown all of a text.
func hides(text string) bool { return plaintext.Clean(text) != text }

const hidden = "not shown: characters that could drive a terminal; nous approvals --json has them"

// printQuestion prints a question in full.
func (a *app) printQuestion(q protocol.Approval, now time.Time) {
	text := questionText(q)
	a.printPairs([][2]string{
		{"id", cellText(q.ApprovalID)},
		{"session", cellText(q.SessionID)},
		{"folder", cellText(q.Workdir)},
		{"asked", q.CreatedAt.Local().Format(time.DateTime) + ", " + age(now.Sub(q.CreatedAt))},
	})
	a.print(text)
	if !a.raw && hides(text) {
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
	case o.ID == answerCancel:
		text += " " + o.ID
	case o.Decision == protocol.DecisionDeny:
		text = nous + " deny " + q.ApprovalID
	case o.ID != yes(q):
		text += " " + o.ID
	}
	if o.Pattern != "" {
		text += "    # " + o.Pattern
	}
	return text
}
