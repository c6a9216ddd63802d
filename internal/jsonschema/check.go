package jsonschema

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

const (
	// maxWork bounds one check, about two seconds of it.
	maxWork = 20_000_000
	// maxDepth bounds how deeply schemas are applied within each other: some 10 MB
	// of the stack.
	maxDepth = 10_000

	maxProblems = 5   // reported
	maxNamed    = 10  // names or values in one of them
	maxProblem  = 200 // bytes of one, and of its place
)

var (
	errWork  = errors.New("checking them against the schema takes too long")
	errDepth = errors.New("the schema or the value is nested too deeply")
)

// checker is the state of one check.
type checker struct {
	budget   int
	depth    int
	scope    []*resource // those entered, for $dynamicRef
	problems *problems   // nil: only whether the value fits is asked
	err      error       // a bound is exceeded; the answer means nothing
}

type problems struct {
	texts []string
	more  int
}

// place is where in the value a check is.
type place struct {
	up    *place
	name  string
	index int
	item  bool
}

// Check reports what is wrong with a value, as Decode makes them: the first few
// places, each as a JSON pointer with what was expected there.
func (s *Schema) Check(v any) error {
	c := &checker{budget: maxWork}
	fits := c.apply(s.root, v, nil, nil)
	if c.err != nil || fits {
		return c.err
	}
	c = &checker{budget: maxWork, problems: &problems{}}
	c.apply(s.root, v, nil, nil)
	if len(c.problems.texts) == 0 { // told nothing before it had to give up
		return errWork
	}
	return c.problems
}

// Error lists the problems.
func (p *problems) Error() string {
	texts := p.texts
	if p.more > 0 {
		texts = append(texts[:len(texts):len(texts)], fmt.Sprintf("and %d more", p.more))
	}
	return strings.Join(texts, "; ")
}

// fail notes a problem and is false.
func (c *checker) fail(at *place, format string, args ...any) bool {
	switch p := c.problems; {
	case p == nil || c.err != nil:
	case len(p.texts) == maxProblems:
		p.more++
	default:
		text := shortened(fmt.Sprintf(format, args...))
		if where := shortened(at.pointer()); where != "" {
			text = where + ": " + text
		}
		p.texts = append(p.texts, text)
	}
	return false
}

// hurried reports whether the first failure is enough.
func (c *checker) hurried() bool { return c.problems == nil || c.err != nil }

// names are those of an object's properties: in order, where problems are told.
func (c *checker) names(m map[string]any) iter.Seq[string] {
	if c.problems == nil {
		return maps.Keys(m)
	}
	return slices.Values(sorted(m))
}

// charge takes work off the budget. False: there is no more.
func (c *checker) charge(work int) bool {
	c.budget -= work
	if c.budget < 0 && c.err == nil {
		c.err = errWork
	}
	return c.err == nil
}

// apply checks a value against a schema, and merges what it has evaluated into s
// if it fits.
func (c *checker) apply(n *node, v any, at *place, s *seen) bool {
	if !c.charge(1) {
		return false
	}
	if len(n.rules) == 0 {
		return true
	}
	if c.depth == maxDepth {
		c.err = errDepth
		return false
	}
	c.depth++
	scope := len(c.scope)
	if n.res != nil && (scope == 0 || c.scope[scope-1] != n.res) {
		c.scope = append(c.scope, n.res)
	}
	fits := c.try(n, v, at, s)
	c.scope = c.scope[:scope]
	c.depth--
	return fits
}

func (c *checker) try(n *node, v any, at *place, s *seen) bool {
	var own *seen
	if s != nil || n.unevaluated {
		own = &seen{}
	}
	fits := true
	for i, r := range n.rules {
		if !fits && n.unevaluated && i == len(n.rules)-1 {
			break // it would report what the others have not come to
		}
		if !r(c, v, at, own) {
			fits = false
			if c.hurried() {
				return false
			}
		}
	}
	if fits && s != nil && c.charge(len(own.names)+len(own.indexes)) {
		s.merge(own)
	}
	return fits
}

// probe asks whether a value fits, and reports no problem.
func (c *checker) probe(n *node, v any, at *place, s *seen) bool {
	problems := c.problems
	c.problems = nil
	fits := c.apply(n, v, at, s)
	c.problems = problems
	return fits
}

// seen is what the keywords have evaluated of one value. A nil one notes nothing.
type seen struct {
	names   map[string]bool
	first   int // items
	indexes map[int]bool
}

func (s *seen) property(name string) {
	if s == nil {
		return
	}
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

func (s *seen) items(first int) {
	if s != nil {
		s.first = max(s.first, first)
	}
}

func (s *seen) item(i int) {
	if s == nil {
		return
	}
	if s.indexes == nil {
		s.indexes = map[int]bool{}
	}
	s.indexes[i] = true
}

func (s *seen) hasProperty(name string) bool { return s.names[name] }
func (s *seen) hasItem(i int) bool           { return i < s.first || s.indexes[i] }

func (s *seen) merge(other *seen) {
	s.first = max(s.first, other.first)
	if s.names == nil {
		s.names = other.names
	} else {
		maps.Copy(s.names, other.names)
	}
	if s.indexes == nil {
		s.indexes = other.indexes
	} else {
		maps.Copy(s.indexes, other.indexes)
	}
}

// Fill adds the defaults of absent properties to v, deeply, and reports whether
// it added one. Defaults themselves are not descended into. It fills values that
// do not fit, too.
func (s *Schema) Fill(v any) (bool, error) {
	c := &checker{budget: maxWork}
	filled := c.fill(s.root, v)
	return filled, c.err
}

func (c *checker) fill(n *node, v any) bool {
	if n == nil || !c.charge(1) {
		return false
	}
	if c.depth == maxDepth {
		c.err = errDepth
		return false
	}
	c.depth++
	defer func() { c.depth-- }()
	filled := false
	for _, sub := range n.refs {
		filled = c.fill(sub, v) || filled
	}
	for _, sub := range n.allOf {
		filled = c.fill(sub, v) || filled
	}
	switch v := v.(type) {
	case map[string]any:
		filled = c.fillObject(n, v) || filled
	case []any:
		for i, item := range v {
			sub := n.items
			if i < len(n.prefix) {
				sub = n.prefix[i]
			}
			filled = c.fill(sub, item) || filled
		}
	}
	return filled
}

func (c *checker) fillObject(n *node, m map[string]any) bool {
	filled := false
	for name, sub := range n.properties {
		if value, ok := m[name]; ok {
			filled = c.fill(sub, value) || filled
		} else if d, ok := c.defaultOf(sub); ok {
			m[name] = d
			filled = true
		}
	}
	return filled
}

// defaultOf is a schema's default, or that of the one it refers to.
func (c *checker) defaultOf(n *node) (any, bool) {
	for c.charge(1) {
		if n.hasDefault {
			return n.standard, true
		}
		if len(n.refs) == 0 {
			break
		}
		n = n.refs[0]
	}
	return nil, false
}
