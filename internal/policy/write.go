package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// TOML is the rule as a table [[policy.rule]] to be appended to a rules file,
// with a comment that says when and in which session it was made. Whatever the
// texts are, what is read from it is this rule and nothing else. The error is
// Check's.
func (r Rule) TOML(when time.Time, session, title string) (string, error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	for _, text := range slices.Concat(append(r.Command, r.Path, r.Match, r.NotMatch, Word{r.Tool, r.Workdir})...) {
		if !utf8.ValidString(text) {
			return "", r.wrong("", "%q is not UTF-8", text)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n# %s, session %s", when.UTC().Format(time.RFC3339), remark(session))
	if title != "" {
		fmt.Fprintf(&b, ": %s", remark(title))
	}
	fmt.Fprintf(&b, "\n[[policy.rule]]\ntool = %s\ndecision = %s\n", quoted(r.Tool), quoted(string(r.Decision)))
	if r.Command != nil {
		fmt.Fprintf(&b, "command = %s\n", r.Command.toml())
	}
	for _, field := range []struct {
		name  string
		texts []string
	}{{"path", r.Path}, {"match", r.Match}, {"not_match", r.NotMatch}} {
		if field.texts != nil {
			fmt.Fprintf(&b, "%s = %s\n", field.name, array(field.texts, quoted))
		}
	}
	if r.Workdir != "" {
		fmt.Fprintf(&b, "workdir = %s\n", quoted(r.Workdir))
	}
	return b.String(), nil
}

func (ws Words) toml() string {
	return array(ws, func(w Word) string {
		if len(w) == 1 {
			return quoted(w[0])
		}
		return array(w, quoted)
	})
}

func array[T any](elements []T, text func(T) string) string {
	texts := make([]string, len(elements))
	for i, e := range elements {
		texts[i] = text(e)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// quoted is a basic string of TOML, on one line, without a character that is not
// seen.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// maxRemark is how many characters of a text a comment has.
const maxRemark = 120

// remark is a text for a comment: one line of what can be seen.
func remark(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > maxRemark {
			b.WriteRune('…')
			break
		}
		if !unicode.IsPrint(r) {
			r = '\uFFFD'
		}
		b.WriteRune(r)
	}
	return b.String()
}
