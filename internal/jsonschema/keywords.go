package jsonschema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// vocabulary are the keywords in the order in which they are tried: what asks
// what the others have evaluated comes last.
var vocabulary = []func(*compiler, *node) error{
	types, enum, constant, numbers, lengths, patterns, combinations, conditional, dependents,
	objects, counts, arrays, contains, unevaluated,
}

func (c *compiler) keywords(n *node) error {
	if err := references(c, n); err != nil {
		return err
	}
	if n.res.draft <= 7 && len(n.refs) > 0 {
		return nil
	}
	for _, compile := range vocabulary {
		if err := compile(c, n); err != nil {
			return err
		}
	}
	return nil
}

var kinds = []string{"null", "boolean", "object", "array", "number", "string", "integer"}

func types(_ *compiler, n *node) error {
	v, ok := n.raw["type"]
	if !ok {
		return nil
	}
	if one, ok := v.(string); ok {
		v = []any{one}
	}
	want, ok := texts(v)
	if !ok || len(want) == 0 || slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(kinds, s) }) {
		return n.invalid("type", "one or more of "+strings.Join(kinds, ", "))
	}
	n.add(func(c *checker, v any, at *place, _ *seen) bool {
		kind := kindOf(v)
		if slices.Contains(want, kind) || kind == "number" && slices.Contains(want, "integer") && c.whole(v) {
			return true
		}
		return c.fail(at, "got %s, want %s", kind, either(want))
	})
	return nil
}

func either(words []string) string {
	return strings.Join(words, " or ")
}

func enum(_ *compiler, n *node) error {
	v, ok := n.raw["enum"]
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return n.invalid("enum", "an array")
	}
	return n.among(list)
}

func constant(_ *compiler, n *node) error {
	if v, ok := n.raw["const"]; ok {
		return n.among([]any{v})
	}
	return nil
}

// among allows the values of a list.
func (n *node) among(list []any) error {
	allowed := make(map[string]bool, len(list))
	names := make([]string, 0, len(list))
	for _, v := range list {
		allowed[string((&checker{budget: maxWork}).canonical(nil, v))] = true
		if len(names) < maxNamed {
			names = append(names, display(v))
		}
	}
	if len(list) > maxNamed {
		names = append(names, fmt.Sprintf("%d more", len(list)-maxNamed))
	}
	n.add(func(c *checker, v any, at *place, _ *seen) bool {
		return allowed[string(c.canonical(nil, v))] || c.fail(at, "want %s", either(names))
	})
	return nil
}

func numbers(_ *compiler, n *node) error {
	exclusive := func(key string) bool { return n.raw[key] == true } // draft 4
	for _, k := range []struct {
		key, want string
		ok        func(order int) bool
		skip      bool
	}{
		{"minimum", "at least", func(o int) bool { return o >= 0 }, exclusive("exclusiveMinimum")},
		{"minimum", "more than", func(o int) bool { return o > 0 }, !exclusive("exclusiveMinimum")},
		{"maximum", "at most", func(o int) bool { return o <= 0 }, exclusive("exclusiveMaximum")},
		{"maximum", "less than", func(o int) bool { return o < 0 }, !exclusive("exclusiveMaximum")},
		{"exclusiveMinimum", "more than", func(o int) bool { return o > 0 }, n.res.draft == 4},
		{"exclusiveMaximum", "less than", func(o int) bool { return o < 0 }, n.res.draft == 4},
	} {
		if k.skip {
			continue
		}
		limit, ok, err := n.number(k.key)
		if err != nil {
			return err
		}
		if ok {
			text := display(n.raw[k.key])
			n.add(func(c *checker, v any, at *place, _ *seen) bool {
				d, is := c.decimal(v)
				return !is || k.ok(d.compare(limit)) || c.fail(at, "got %s, want %s %s", display(v), k.want, text)
			})
		}
	}
	return multiple(n)
}

func multiple(n *node) error {
	of, ok, err := n.number("multipleOf")
	if !ok {
		return err
	}
	if of.negative || of.digits == "" || len(of.digits) > maxDigits {
		return n.invalid("multipleOf", "a number above 0")
	}
	text := display(n.raw["multipleOf"])
	n.add(func(c *checker, v any, at *place, _ *seen) bool {
		d, is := c.decimal(v)
		return !is || d.multipleOf(of) || c.fail(at, "got %s, want a multiple of %s", display(v), text)
	})
	return nil
}

// bound is a keyword that bounds a count; size is -1 for values that have none.
type bound struct {
	key, what string
	least     bool
	size      func(v any) int
}

func (b bound) compile(n *node) error {
	limit, ok, err := n.count(b.key)
	if !ok {
		return err
	}
	n.add(func(c *checker, v any, at *place, _ *seen) bool {
		size := b.size(v)
		switch {
		case size < 0:
			return true
		case b.least && size < limit:
			return c.fail(at, "got %d %s, want at least %d", size, b.what, limit)
		case !b.least && size > limit:
			return c.fail(at, "got %d %s, want at most %d", size, b.what, limit)
		}
		return true
	})
	return nil
}

func bounds(n *node, list ...bound) error {
	for _, b := range list {
		if err := b.compile(n); err != nil {
			return err
		}
	}
	return nil
}

func lengths(_ *compiler, n *node) error {
	size := func(v any) int {
		if s, ok := v.(string); ok {
			return utf8.RuneCountInString(s)
		}
		return -1
	}
	return bounds(n, bound{"minLength", "characters", true, size}, bound{"maxLength", "characters", false, size})
}

func counts(_ *compiler, n *node) error {
	items := func(v any) int {
		if list, ok := v.([]any); ok {
			return len(list)
		}
		return -1
	}
	properties := func(v any) int {
		if m, ok := v.(map[string]any); ok {
			return len(m)
		}
		return -1
	}
	return bounds(n, bound{"minItems", "items", true, items}, bound{"maxItems", "items", false, items},
		bound{"minProperties", "properties", true, properties}, bound{"maxProperties", "properties", false, properties})
}

func patterns(c *compiler, n *node) error {
	text, ok, err := n.text("pattern")
	if !ok {
		return err
	}
	re, err := c.pattern(n, text)
	if err != nil {
		return err
	}
	n.add(func(c *checker, v any, at *place, _ *seen) bool {
		s, is := v.(string)
		return !is || c.match(re, s) || c.fail(at, "does not match the pattern %s", text)
	})
	return nil
}

// pattern compiles an ECMA 262 pattern. One that uses what Go's engine has not
// (lookahead, some escapes, large counts) is nil and matches anything; it is left
// to the tool to check.
func (c *compiler) pattern(n *node, text string) (*expression, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	var s *syntax.Error
	if errors.As(err, &s) {
		switch s.Code {
		case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatSize:
			return nil, nil
		}
		return nil, n.errorf("pattern: %v", err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, n.errorf("pattern: %v", err)
	}
	for i := range prog.Inst {
		c.patterns += 1 + len(prog.Inst[i].Rune)
	}
	if c.patterns > maxPatterns {
		return nil, n.errorf("the patterns of the schema are too large")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, n.errorf("pattern: %v", err)
	}
	return &expression{re, len(prog.Inst)}, nil
}

// expression is a pattern of so many instructions.
type expression struct {
	*regexp.Regexp
	size int
}

// match charges what a match may cost: Go's engine may be at each instruction for
// each byte of the text.
func (c *checker) match(e *expression, s string) bool {
	return e == nil || c.charge(1+(len(s)+8)*e.size/8) && e.MatchString(s)
}
