// Package jsonschema checks JSON values against JSON Schema: draft 2020-12, and
// what the drafts 4 to 2019-09 say otherwise of the keywords that tools use.
//
// Schemas come from tools and values from models, so neither is trusted: a
// schema is bounded when it is compiled (MaxSchemas, its patterns, what one value
// is checked against), and each check has a budget of work and of depth. What
// exceeds a bound is an error, never a panic. Nothing outside a schema is read: a
// reference to another document is refused.
//
// "format" and the "content" keywords are not enforced, as draft 2020-12 has it
// by default.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxSchemas bounds the subschemas of one schema.
	MaxSchemas = 50_000
	// maxExpansion bounds the schemas that one value is checked against.
	maxExpansion = 100_000
	// maxPatterns bounds the instructions and rune ranges of all patterns of a
	// schema, about 10 MB.
	maxPatterns = 100_000
)

// Schema is a compiled schema. It may be used by many goroutines at once.
type Schema struct {
	root *node
}

// node is one subschema. Its rules are tried in order.
type node struct {
	raw map[string]any
	res *resource
	up  *node    // the schema around it
	at  []string // where in that

	rules       []rule
	unevaluated bool // a rule asks what the others have evaluated
	inPlace     []*node
	expansion   int // see expand
	reached     bool

	// For Fill.
	refs       []*node
	allOf      []*node
	properties map[string]*node
	prefix     []*node
	items      *node
	standard   any // its default
	hasDefault bool
}

// rule is what a keyword, or a few that belong together, say of a value. It
// notes in s what it has evaluated, where s is not nil.
type rule func(c *checker, v any, at *place, s *seen) bool

// Decode reads one JSON value in the form that schemas check: numbers are
// json.Number.
func Decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("unexpected end of JSON")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

// Compile reads a schema. The error names the place in it, as a JSON pointer.
func Compile(text []byte) (*Schema, error) {
	doc, err := Decode(text)
	if err != nil {
		return nil, err
	}
	c := &compiler{nodes: map[any]*node{}, resources: map[string]*resource{}}
	root, err := c.document(doc)
	if err != nil {
		return nil, err
	}
	c.reach(root)
	for i := 0; i < len(c.reached); i++ { // it grows
		if err := c.keywords(c.reached[i]); err != nil {
			return nil, err
		}
	}
	for _, n := range c.reached {
		if expand(n) > maxExpansion {
			return nil, fmt.Errorf("a cycle of references, or combinations that come to more than %d schemas for one value",
				maxExpansion)
		}
	}
	for _, n := range c.nodes {
		n.standard, n.hasDefault = n.raw["default"]
		n.raw, n.up, n.at = nil, nil, nil // the document is needed no more
	}
	for _, r := range c.resources {
		r.root = nil
	}
	return &Schema{root}, nil
}

const expanding = maxExpansion + 1

// expand counts the schemas that are applied to one value, each as often as it
// is reached, up to a little more than the limit. A schema that reaches itself
// that way has no end.
func expand(n *node) int {
	if n.expansion > 0 {
		return n.expansion
	}
	n.expansion = expanding // while it is being counted
	total := 1
	for _, sub := range n.inPlace {
		total = min(total+expand(sub), expanding)
	}
	n.expansion = total
	return total
}
