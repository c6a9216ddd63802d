package jsonschema

import (
	"slices"
	"strings"
)

func combinations(c *compiler, n *node) error {
	n.allOf = c.subs(n, "allOf")
	anyOf, oneOf, not := c.subs(n, "anyOf"), c.subs(n, "oneOf"), c.has(n, "not")
	n.inPlace = slices.Concat(n.inPlace, n.allOf, anyOf, oneOf)
	for _, sub := range n.allOf {
		n.add(func(c *checker, v any, at *place, s *seen) bool { return c.apply(sub, v, at, s) })
	}
	if len(anyOf) > 0 {
		n.add(func(c *checker, v any, at *place, s *seen) bool {
			return c.satisfied(anyOf, v, at, s) > 0 || c.explain(anyOf, v, at)
		})
	}
	if len(oneOf) > 0 {
		n.add(func(c *checker, v any, at *place, s *seen) bool {
			switch c.satisfied(oneOf, v, at, s) {
			case 0:
				return c.explain(oneOf, v, at)
			case 1:
				return true
			}
			return c.fail(at, "fits more than one of the schemas of oneOf")
		})
	}
	if not != nil {
		n.inPlace = append(n.inPlace, not)
		n.add(func(c *checker, v any, at *place, _ *seen) bool {
			return !c.probe(not, v, at, nil) || c.fail(at, "fits the schema of not")
		})
	}
	return nil
}

// satisfied counts the schemas that a value fits. All are tried, as each that
// fits has evaluated something.
func (c *checker) satisfied(list []*node, v any, at *place, s *seen) int {
	fit := 0
	for _, sub := range list {
		if c.probe(sub, v, at, s) {
			fit++
		}
	}
	return fit
}

// explain says what is wrong with a value that fits none.
func (c *checker) explain(list []*node, v any, at *place) bool {
	if c.problems == nil {
		return false
	}
	for _, sub := range list {
		c.apply(sub, v, at, nil)
	}
	return false
}

func conditional(c *compiler, n *node) error {
	cond := c.has(n, "if")
	if cond == nil {
		return nil
	}
	then, other := c.has(n, "then"), c.has(n, "else")
	if then == nil {
		then = always
	}
	if other == nil {
		other = always
	}
	n.inPlace = append(n.inPlace, cond, then, other)
	n.add(func(c *checker, v any, at *place, s *seen) bool {
		if c.probe(cond, v, at, s) {
			return c.apply(then, v, at, s)
		}
		return c.apply(other, v, at, s)
	})
	return nil
}

// dependents are what an object needs that has some property.
func dependents(c *compiler, n *node) error {
	for _, key := range []string{"dependentSchemas", "dependencies"} {
		subs := c.named(n, key)
		for _, name := range sorted(subs) {
			n.inPlace = append(n.inPlace, subs[name])
			n.add(func(c *checker, v any, at *place, s *seen) bool {
				m, _ := v.(map[string]any)
				_, has := m[name]
				return !has || c.apply(subs[name], v, at, s)
			})
		}
	}
	for _, key := range []string{"dependentRequired", "dependencies"} {
		if err := n.dependentRequired(key); err != nil {
			return err
		}
	}
	required, err := n.strings("required")
	if len(required) > 0 {
		n.add(func(c *checker, v any, at *place, _ *seen) bool {
			m, ok := v.(map[string]any)
			return !ok || c.require(m, required, at, "")
		})
	}
	return err
}

func (n *node) dependentRequired(key string) error {
	m, ok := n.raw[key].(map[string]any)
	if _, has := n.raw[key]; has && !ok {
		return n.invalid(key, "an object")
	}
	for _, name := range sorted(m) {
		required, ok := texts(m[name])
		if !ok && key == "dependencies" {
			continue
		}
		if !ok {
			return n.invalid(key, "arrays of strings in it")
		}
		n.add(func(c *checker, v any, at *place, _ *seen) bool {
			m, _ := v.(map[string]any)
			_, has := m[name]
			return !has || c.require(m, required, at, ", which "+quoted(name)+" needs")
		})
	}
	return nil
}

func (c *checker) require(m map[string]any, names []string, at *place, why string) bool {
	if !c.charge(len(names)) {
		return false
	}
	var missing []string
	for _, name := range names {
		if _, ok := m[name]; !ok {
			missing = append(missing, name)
		}
	}
	switch len(missing) {
	case 0:
		return true
	case 1:
		return c.fail(at, "missing property %s%s", quoted(missing[0]), why)
	}
	return c.fail(at, "missing properties %s%s", list(missing), why)
}

// object are the keywords that say what an object's properties are like.
type object struct {
	properties map[string]*node
	patterns   []pattern
	additional *node
	names      *node
}

type pattern struct {
	re *expression
	n  *node
}

func objects(c *compiler, n *node) error {
	o := object{
		properties: c.named(n, "properties"), additional: c.has(n, "additionalProperties"),
		names: c.has(n, "propertyNames"),
	}
	n.properties = o.properties
	byPattern := c.named(n, "patternProperties")
	for _, text := range sorted(byPattern) {
		re, err := c.pattern(n, text)
		if err != nil {
			return err
		}
		o.patterns = append(o.patterns, pattern{re, byPattern[text]})
	}
	if o.properties == nil && o.patterns == nil && o.additional == nil && o.names == nil {
		return nil
	}
	n.add(func(c *checker, v any, at *place, s *seen) bool {
		m, ok := v.(map[string]any)
		return !ok || o.check(c, m, at, s)
	})
	return nil
}

func (o *object) check(c *checker, m map[string]any, at *place, s *seen) bool {
	ok := true
	var surplus []string
	for name := range c.names(m) {
		inside := &place{up: at, name: name}
		if o.names != nil && !c.apply(o.names, name, inside, nil) {
			ok = false
		}
		known, fine := o.property(c, name, m[name], inside)
		ok = ok && fine
		switch {
		case known:
			s.property(name)
		case o.additional == never:
			surplus = append(surplus, name)
		case o.additional != nil:
			ok = c.apply(o.additional, m[name], inside, nil) && ok
			s.property(name)
		}
		if !ok && c.hurried() {
			return false
		}
	}
	if surplus != nil {
		there := ""
		if len(o.properties) > 0 {
			there = ": there are " + list(sorted(o.properties))
		}
		return c.fail(at, "additional properties %s not allowed%s", list(surplus), there)
	}
	return ok
}

// property checks one that properties or patternProperties know.
func (o *object) property(c *checker, name string, v any, at *place) (known, ok bool) {
	ok = true
	if sub := o.properties[name]; sub != nil {
		known, ok = true, c.apply(sub, v, at, nil)
	}
	for _, p := range o.patterns {
		if c.match(p.re, name) {
			known, ok = true, c.apply(p.n, v, at, nil) && ok
		}
	}
	return known, ok
}

// arrays are the keywords for the items of an array by their place, with which
// array form of items for prefixItems the drafts before 2020-12 have.
func arrays(c *compiler, n *node) error {
	n.prefix, n.items = c.subs(n, "prefixItems"), c.has(n, "items")
	if _, ok := n.raw["items"].([]any); ok {
		n.prefix, n.items = c.subs(n, "items"), c.has(n, "additionalItems")
	}
	prefix, items := n.prefix, n.items
	if len(prefix) > 0 || items != nil {
		n.add(func(c *checker, v any, at *place, s *seen) bool {
			list, ok := v.([]any)
			return !ok || c.items(list, prefix, items, at, s)
		})
	}
	return unique(n)
}

func (c *checker) items(list []any, prefix []*node, rest *node, at *place, s *seen) bool {
	ok := true
	for i, v := range list {
		sub := rest
		if i < len(prefix) {
			sub = prefix[i]
		}
		if sub == nil {
			s.items(i)
			return ok
		}
		if !c.apply(sub, v, &place{up: at, index: i, item: true}, nil) {
			ok = false
			if c.hurried() {
				return false
			}
		}
	}
	s.items(len(list))
	return ok
}

func unique(n *node) error {
	v, ok := n.raw["uniqueItems"]
	if _, is := v.(bool); ok && !is {
		return n.invalid("uniqueItems", "true or false")
	}
	if v != true {
		return nil
	}
	n.add(func(c *checker, v any, at *place, _ *seen) bool {
		list, _ := v.([]any)
		known := make(map[string]int, len(list))
		for i, v := range list {
			key := string(c.canonical(nil, v))
			if before, ok := known[key]; ok {
				return c.fail(at, "items %d and %d are equal", before, i)
			}
			known[key] = i
		}
		return true
	})
	return nil
}

func contains(c *compiler, n *node) error {
	least, limited, err := n.count("minContains")
	if err != nil {
		return err
	}
	most, bounded, err := n.count("maxContains")
	sub := c.has(n, "contains")
	if err != nil || sub == nil {
		return err
	}
	if !limited {
		least = 1
	}
	evaluates := n.res.draft >= 2020
	n.add(func(c *checker, v any, at *place, s *seen) bool {
		list, ok := v.([]any)
		if !ok {
			return true
		}
		if !evaluates {
			s = nil
		}
		found := c.containing(list, sub, at, s)
		if found < least {
			return c.fail(at, "%d items fit the schema of contains, want at least %d", found, least)
		}
		return !bounded || found <= most || c.fail(at, "%d items fit the schema of contains, want at most %d", found, most)
	})
	return nil
}

func (c *checker) containing(list []any, sub *node, at *place, s *seen) int {
	found := 0
	for i, v := range list {
		if c.probe(sub, v, &place{up: at, index: i, item: true}, nil) {
			found++
			s.item(i)
		}
	}
	return found
}

// unevaluated are the keywords for what no other has evaluated.
func unevaluated(c *compiler, n *node) error {
	items, properties := c.has(n, "unevaluatedItems"), c.has(n, "unevaluatedProperties")
	n.unevaluated = items != nil || properties != nil
	if !n.unevaluated {
		return nil
	}
	n.add(func(c *checker, v any, at *place, s *seen) bool {
		switch v := v.(type) {
		case []any:
			return items == nil || c.restItems(v, items, at, s)
		case map[string]any:
			return properties == nil || c.restProperties(v, properties, at, s)
		}
		return true
	})
	return nil
}

func (c *checker) restItems(list []any, sub *node, at *place, s *seen) bool {
	ok := true
	for i, v := range list {
		if !s.hasItem(i) {
			ok = c.apply(sub, v, &place{up: at, index: i, item: true}, nil) && ok
		}
	}
	s.items(len(list))
	return ok
}

func (c *checker) restProperties(m map[string]any, sub *node, at *place, s *seen) bool {
	ok := true
	for name := range c.names(m) {
		if !s.hasProperty(name) {
			ok = c.apply(sub, m[name], &place{up: at, name: name}, nil) && ok
			s.property(name)
		}
	}
	return ok
}

func list(names []string) string {
	more := len(names) - maxNamed
	names = slices.Clone(names[:min(len(names), maxNamed)])
	for i, name := range names {
		names[i] = quoted(name)
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += " and more"
	}
	return text
}
