package approval

import (
	"slices"
	"strings"

	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// Hidden tells a reader what the numbers in a text are that has such.
const Hidden = "characters that a terminal does not show are written as ⟨number⟩"

// Hides tells whether a text that is shown has such a number.
func Hides(shown string) bool { return strings.Contains(shown, "⟨") }

// Title asks for the approval in one line. Names in it may hold any characters.
func Title(a protocol.Approval) string {
	if a.Kind == protocol.ApprovalBudget {
		return "Continue this run?"
	}
	if IsForm(a) {
		return a.ToolName + " asks"
	}
	arguments, _ := Arguments(a.Arguments)
	path, named := arguments.Text("path")
	changes := named && (a.ToolName == "edit" || a.ToolName == "write")
	_, runs := arguments.Text("command")
	switch {
	case a.ToolName == "bash" && Outside(a):
		return "Allow bash to run OUTSIDE the sandbox: it can change all your files?"
	case changes && Outside(a):
		return "Allow this " + a.ToolName + " OUTSIDE the sandbox, of " + path + "?"
	case runs:
		return "Allow " + a.ToolName + " to run this?"
	case changes:
		return "Allow this " + a.ToolName + " of " + path + "?"
	}
	return "Allow this call of " + a.ToolName + "?"
}

// Does says what an option of an approval stands for. Its pattern is shown as it is.
func Does(kind protocol.ApprovalKind, o protocol.ApprovalOption) string {
	pattern := plaintext.RevealLine(o.Pattern)
	switch {
	case o.ID == protocol.OptionSession:
		return "from now on in this session: " + pattern
	case o.ID == protocol.OptionAlways:
		return "from now on in every session: " + pattern
	case pattern != "":
		return pattern
	case o.ID == protocol.OptionOnce:
		return "this call"
	case o.ID == protocol.OptionAccept:
		return "fill in the form"
	case o.ID == protocol.OptionCancel:
		return "neither yes nor no"
	case o.ID == protocol.OptionContinue:
		return "the run goes on, and may use as much again"
	case o.Decision == protocol.DecisionDeny && kind == protocol.ApprovalBudget:
		return "the run ends"
	case o.Decision == protocol.DecisionDeny:
		return "no"
	}
	return string(o.Decision)
}

// Choice is an option and the key that takes it on a screen.
type Choice struct {
	Key    string
	Option protocol.ApprovalOption
	Reason bool // it is a denial whose reason is asked for
	kind   protocol.ApprovalKind
}

// Choices are the options in their order, each with the first letter of its id, or its number
// where that is taken; behind them the denial with a reason.
func Choices(a protocol.Approval) []Choice {
	var all []Choice
	taken := map[string]bool{"r": true, "": true}
	for i, o := range a.Options {
		key := ""
		if o.ID != "" && 'a' <= o.ID[0] && o.ID[0] <= 'z' {
			key = o.ID[:1]
		}
		if taken[key] {
			key = string(rune('1' + i%9))
		}
		taken[key] = true
		all = append(all, Choice{Key: key, Option: o, kind: a.Kind})
	}
	if o := No(a); o != nil && a.Kind == protocol.ApprovalTool {
		all = append(all, Choice{Key: "r", Option: *o, Reason: true, kind: a.Kind})
	}
	return all
}

// Does says what a choice stands for.
func (c Choice) Does() string {
	if c.Reason {
		return "no, and tell the model why"
	}
	return Does(c.kind, c.Option)
}

// letters are what is typed on a line of its own for an option.
var letters = []struct{ letter, option string }{
	{"y", protocol.OptionOnce},
	{"s", protocol.OptionSession},
	{"a", protocol.OptionAlways},
	{"n", protocol.OptionDeny},
	{"c", protocol.OptionCancel},
}

// Typed is the option that a letter on a line means for an approval, "" where it is none.
func Typed(a protocol.Approval, letter string) string {
	for _, l := range letters {
		want := l.option
		switch {
		case want == protocol.OptionOnce:
			want = Yes(a)
		case want == protocol.OptionDeny && IsForm(a):
			want = protocol.OptionDecline
		}
		if strings.EqualFold(l.letter, letter) &&
			slices.ContainsFunc(a.Options, func(o protocol.ApprovalOption) bool { return o.ID == want }) {
			return want
		}
	}
	return ""
}

// Offer says what can be typed for an approval.
func Offer(a protocol.Approval) string {
	var keys []string
	for _, l := range letters {
		switch option := Typed(a, l.letter); option {
		case "":
		case protocol.OptionDeny:
			keys = append(keys, "n [REASON] deny")
		case protocol.OptionAccept:
			keys = append(keys, "y fill in")
		default:
			keys = append(keys, l.letter+" "+option)
		}
	}
	return strings.Join(keys, ", ")
}
