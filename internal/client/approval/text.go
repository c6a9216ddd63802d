package approval

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/form"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// AllowedText says what an answer does, and for session and always verbatim what
// it allows from now on.
func AllowedText(q protocol.Approval, option string, outcome protocol.ApprovalOutcome) string {
	pattern := ""
	for _, o := range q.Options {
		if o.ID == option {
			pattern = o.Pattern
		}
	}
	pattern = plaintext.RevealLine(pattern)
	what := Summary(q, 1<<20)
	switch {
	case what == "":
		return string(outcome)
	case outcome != protocol.OutcomeAllowed:
		return string(outcome) + ": " + what
	case option == protocol.OptionSession:
		return "allowed in this session: " + pattern
	case option == protocol.OptionAlways:
		return "allowed always, as a rule in rules.toml: " + pattern
	case option == protocol.OptionContinue:
		return "the run goes on: " + what
	case option == protocol.OptionAccept:
		return "filled in: " + what
	}
	return "allowed " + option + ": " + what
}

// formText is a form as its reader is to judge it.
func formText(q protocol.Approval) string {
	var out strings.Builder
	out.WriteString(FormAsks(q) + "\n")
	f, err := form.Parse(q.Schema)
	if err != nil {
		fmt.Fprintf(&out, "  a form that cannot be shown here: %s\n", plaintext.RevealLine(err.Error()))
		return out.String()
	}
	for i := range f.Fields {
		out.WriteString(format.Indent(strings.TrimSuffix(fieldText(&f.Fields[i]), "\n"), "  ") + "\n")
	}
	return out.String()
}

// FormAsks is what a form asks: its first line, and others indented.
func FormAsks(q protocol.Approval) string {
	says, _ := plaintext.Reveal(q.Reason)
	return plaintext.RevealLine(q.ToolName) + " asks: " + strings.ReplaceAll(says, "\n", "\n    ")
}

// fieldText says what a field is and takes, in a few lines.
func fieldText(f *form.Field) string {
	line := f.Name
	if f.Title != "" && f.Title != f.Name {
		line += " (" + f.Title + ")"
	}
	if takes := f.Takes(); takes != "" {
		line += ": " + takes
	}
	if f.Default != nil {
		line += "; default " + f.Typed(f.Default)
	}
	text := plaintext.RevealLine(line) + "\n"
	if f.Description != "" {
		says, _ := plaintext.Reveal(f.Description)
		text += format.Indent(says, "  ") + "\n"
	}
	for i, o := range f.Options {
		line := fmt.Sprintf("  %d %s", i+1, o.Value)
		if o.Title != "" && o.Title != o.Value {
			line += " (" + o.Title + ")"
		}
		text += plaintext.RevealLine(line) + "\n"
	}
	return text
}

// WhyAsked is why somebody is asked, and the reason that the model gives, in one line.
func WhyAsked(q protocol.Approval) string {
	in := ""
	if path := Path(q); path != "" {
		in = "in " + path + ": "
	}
	if IsForm(q) {
		return plaintext.RevealLine(in + q.Because())
	}
	text := in + "asks because " + q.Because()
	if q.Kind != protocol.ApprovalBudget && q.Reason != "" {
		text += ": " + q.Reason
	}
	return plaintext.RevealLine(text)
}

// Path is where the child session is that asks, from the root of its tree down to it: "fix login › run
// tests". It is "" for a session without a parent.
func Path(q protocol.Approval) string {
	if len(q.SessionPath) < 2 {
		return ""
	}
	titles := make([]string, len(q.SessionPath))
	for i, title := range q.SessionPath {
		titles[i] = format.Clip(format.Line(cmp.Or(title, "untitled")), maxPathTitle)
	}
	return strings.Join(titles, " › ")
}

const maxPathTitle = 60 // bytes of a title in a path

func OptionIDs(q protocol.Approval) string {
	ids := make([]string, len(q.Options))
	for i, o := range q.Options {
		ids[i] = o.ID
		if o.Pattern != "" {
			ids[i] += " (" + o.Pattern + ")"
		}
	}
	return plaintext.RevealLine(strings.Join(ids, ", "))
}

// Summary is what an approval is about in one line, of which at most width characters
// are shown: the tool and its command or path.
func Summary(q protocol.Approval, width int) string {
	if q.Kind == protocol.ApprovalBudget {
		return headOf(q, q.Reason, width)
	}
	if IsForm(q) {
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

// headOf is the beginning of a text of an approval, and how much more there is of it.
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

// Text is an approval in full, as its reader is to judge it: what somebody else
// says stands behind the approval's own words in one line, or is indented further than
// any line of these.
func Text(q protocol.Approval) string {
	if q.Kind == protocol.ApprovalBudget {
		text := Title(q) + " " + plaintext.RevealLine(q.Reason) + "\n"
		for _, o := range q.Options {
			text += "  " + plaintext.RevealLine(o.ID) + ": " + Does(q.Kind, o) + "\n"
		}
		return text
	}
	if IsForm(q) {
		return formText(q)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", plaintext.RevealLine(Title(q)), WhyAsked(q))
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
		out.WriteString("  what would change:\n" + format.Indent(shown, "    ") + "\n")
	}
	return out.String()
}

// block are the lines of a text, indented further than an approval's own.
func block(text string) string {
	shown, _ := plaintext.Reveal(text)
	return format.Indent(shown, "    ") + "\n"
}

// shownName is the argument's name, quoted where it could be mistaken for another
// line of the approval.
func (a argument) shownName() string {
	for _, r := range a.name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' {
			return plaintext.RevealLine(strconv.Quote(a.name))
		}
	}
	return plaintext.RevealLine(a.name)
}
