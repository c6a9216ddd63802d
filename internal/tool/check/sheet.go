package check

import (
	"fmt"
	"strings"
	"unicode"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

// clause is one thing that a specification asks for.
type clause struct{ spec, what, fix string }

// sheet is a list of clauses with what was found about each. The first failure
// of a clause is kept.
type sheet struct {
	clauses []*clause
	notes   map[*clause]*note
}

type note struct {
	status Status
	seen   string
	more   int // failures after the first
}

func newSheet(clauses []*clause) *sheet {
	return &sheet{clauses, make(map[*clause]*note)}
}

// hold notes that a clause was kept, once more.
func (s *sheet) hold(c *clause) {
	if n := s.notes[c]; n == nil || n.status == Skip {
		s.notes[c] = &note{status: OK}
	}
}

// fail notes that a clause was broken.
func (s *sheet) fail(c *clause, format string, args ...any) {
	if n := s.notes[c]; n != nil && n.status == Fail {
		n.more++
		return
	}
	s.notes[c] = &note{status: Fail, seen: fmt.Sprintf(format, args...)}
}

// skip says why nothing is known of a clause.
func (s *sheet) skip(c *clause, why string) {
	if s.notes[c] == nil {
		s.notes[c] = &note{status: Skip, seen: why}
	}
}

// test notes a clause as kept if reason is empty.
func (s *sheet) test(c *clause, reason string) bool {
	if reason != "" {
		s.fail(c, "%s", reason)
		return false
	}
	s.hold(c)
	return true
}

func (s *sheet) failed(c *clause) bool {
	n := s.notes[c]
	return n != nil && n.status == Fail
}

// findings returns one for each clause, in order. unseen is the reason for
// those that nothing is known of.
func (s *sheet) findings(operation, unseen string) []Finding {
	var all []Finding
	for _, c := range s.clauses {
		f := Finding{Status: Skip, Clause: c.spec, Operation: operation, What: c.what, Seen: unseen}
		if n := s.notes[c]; n != nil {
			f.Status, f.Seen = n.status, n.seen
			if n.more > 0 {
				f.Seen += fmt.Sprintf(" (and %d more)", n.more)
			}
		}
		if f.Status == Fail {
			f.Fix = c.fix
		}
		all = append(all, f)
	}
	return all
}

// quote is what a tool said, for one line of a report: printable, and short.
func quote[T ~string | ~[]byte](text T) string {
	const most = 160
	s := string(text)
	cut := len(s) > most
	if cut {
		s = s[:most]
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if cut {
		s += "…"
	}
	return s
}

// object decodes a JSON object and keeps its values as they came.
func object(text []byte) (map[string]jsontext.Value, bool) {
	var m map[string]jsontext.Value
	if jsontext.Value(text).Kind() != '{' || jsonx.Unmarshal(text, &m) != nil {
		return nil, false
	}
	return m, true
}

// given reports whether a value is there and not null.
func given(v jsontext.Value) bool { return v != nil && v.Kind() != 'n' }

// The functions below say what is wrong with a field, "" if nothing is.

func needText(m map[string]jsontext.Value, name string) string {
	if s, ok := tool.Text(m[name]); !ok || s == "" {
		return name + " is " + quote(tool.Shorten(m[name])) + ", want a string that is not empty"
	}
	return ""
}

func needBool(m map[string]jsontext.Value, name string) string {
	if k := m[name].Kind(); k != 't' && k != 'f' {
		return name + " is " + quote(tool.Shorten(m[name])) + ", want true or false"
	}
	return ""
}

func needObject(m map[string]jsontext.Value, name string) string {
	if m[name].Kind() != '{' {
		return name + " is " + quote(tool.Shorten(m[name])) + ", want an object"
	}
	return ""
}

func needLevel(m map[string]jsontext.Value) string {
	switch level, _ := tool.Text(m["level"]); level {
	case "debug", "info", "warn", "error":
		return ""
	}
	return "level is " + quote(tool.Shorten(m["level"])) + `, want "debug", "info", "warn" or "error"`
}

// mayText and mayObject accept an absent field. null is not absent.
func mayText(m map[string]jsontext.Value, name string) string {
	if v, ok := m[name]; ok && v.Kind() != '"' {
		return name + " is " + quote(tool.Shorten(v)) + ", want a string"
	}
	return ""
}

func mayObject(m map[string]jsontext.Value, name string) string {
	if _, ok := m[name]; ok {
		return needObject(m, name)
	}
	return ""
}

func first(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return r
		}
	}
	return ""
}
