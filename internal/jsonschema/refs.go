package jsonschema

import (
	"net/url"
	"strconv"
	"strings"
)

// references compiles $ref, $recursiveRef and $dynamicRef.
func references(c *compiler, n *node) error {
	for _, key := range []string{"$ref", "$recursiveRef"} {
		ref, ok, err := n.text(key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		target, _, err := c.resolve(n, ref)
		if err != nil {
			return err
		}
		n.refs = append(n.refs, c.reach(target))
		n.inPlace = append(n.inPlace, target)
		n.add(func(c *checker, v any, at *place, s *seen) bool { return c.apply(target, v, at, s) })
	}
	return dynamic(c, n)
}

func dynamic(c *compiler, n *node) error {
	ref, ok, err := n.text("$dynamicRef")
	if !ok {
		return err
	}
	target, anchor, err := c.resolve(n, ref)
	if err != nil {
		return err
	}
	n.inPlace = append(n.inPlace, c.reach(target))
	if target.res == nil || target.res.dynamics[anchor] != target {
		anchor = ""
	}
	for _, res := range c.resources {
		if n := res.dynamics[anchor]; n != nil {
			c.reach(n)
		}
	}
	n.add(func(c *checker, v any, at *place, s *seen) bool {
		return c.apply(c.outermost(anchor, target), v, at, s)
	})
	return nil
}

// outermost is the dynamic anchor of that name in the resource that the check
// entered first; target if there is none.
func (c *checker) outermost(anchor string, target *node) *node {
	if anchor == "" {
		return target
	}
	for _, res := range c.scope {
		c.charge(1)
		if n := res.dynamics[anchor]; n != nil {
			return n
		}
	}
	return target
}

// resolve finds what a reference in n refers to, and the anchor in it.
func (c *compiler) resolve(n *node, ref string) (*node, string, error) {
	u, err := url.Parse(ref)
	if err != nil {
		return nil, "", n.errorf("$ref: not a URI reference")
	}
	u = n.res.uri.ResolveReference(u)
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	res := c.resources[u.String()]
	if res == nil {
		return nil, "", n.errorf("$ref: %s lies outside the schema", shortened(ref))
	}
	if fragment == "" || fragment[0] == '/' {
		target, err := c.follow(n, res, fragment)
		return target, "", err
	}
	if target := res.anchors[fragment]; target != nil {
		return target, fragment, nil
	}
	return nil, "", n.errorf("$ref: %s is not in the schema", shortened(ref))
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// follow finds what a JSON pointer refers to, also where no keyword has schemas.
func (c *compiler) follow(n *node, res *resource, pointer string) (*node, error) {
	if pointer == "" {
		return c.scan(res.root, nil, nil, res)
	}
	v, from, tokens := res.root, &node{res: res}, []string(nil)
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = unescape.Replace(token)
		tokens = append(tokens, token)
		next, ok := member(v, token)
		if !ok {
			return nil, n.errorf("$ref: %s is not in the schema", shortened("#"+pointer))
		}
		v = next
		if m, ok := v.(map[string]any); ok && c.nodes[identity(m)] != nil {
			from, tokens = c.nodes[identity(m)], nil
		}
	}
	return c.scan(v, from, tokens, from.res)
}

func member(v any, token string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		out, ok := v[token]
		return out, ok
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != token {
			return nil, false
		}
		return v[i], true
	}
	return nil, false
}
