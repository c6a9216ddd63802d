package main

import (
	"slices"
	"strings"
	"time"

	"noused/internal/client/approval"
	"noused/internal/client/plain"
	"noused/internal/format"
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
	a.printSpans(plain.Span{Text: plain.Cell(where)}, plain.Span{Text: plain.Cell(one.ApprovalID), Look: plain.Bold},
		plain.Span{Text: "  " + format.Age(one.CreatedAt, now), Look: plain.Dim})
	a.println("  " + strings.Join(slices.DeleteFunc([]string{
		one.SessionID, plain.OneLine(s.Title, 40),
		plaintext.RevealLine(one.Workdir),
	}, empty), "  "))
	a.println(a.fold("  " + approval.Summary(one, plain.LineWidth)))
	a.printSpans(plain.Span{Text: a.fold("  " + approval.WhyAsked(one)), Look: plain.Dim})
	a.printSpans(plain.Span{Text: a.fold("  " + approval.OptionIDs(one)), Look: plain.Dim})
}

func empty(text string) bool { return text == "" }

// fold is folded for standard output, where that is a terminal.
func (a *app) fold(text string) string {
	if !a.outStyle.Terminal {
		return text
	}
	return strings.TrimSuffix(plain.Fold(text, plain.WidthOf(a.out.w)), "\n")
}

// printQuestion prints a question in full.
func (a *app) printQuestion(q protocol.Approval, now time.Time) {
	text := approval.Text(q)
	a.printPairs([][2]string{
		{"id", plain.Cell(q.ApprovalID)},
		{"session", plain.Cell(q.SessionID)},
		{"folder", plaintext.RevealLine(q.Workdir)},
		{"asked", q.CreatedAt.Local().Format(time.DateTime) + ", " + format.Age(q.CreatedAt, now)},
	})
	a.println(a.fold(strings.TrimSuffix(text, "\n")))
	if approval.Hides(text) {
		a.notef(approval.HiddenNote)
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
