package jsonschema

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// base is what a root schema's $id is relative to.
const base = "schema:///"

// compiler makes a Schema of a decoded document: first it finds all subschemas,
// identifiers and anchors, then it compiles the keywords of each.
type compiler struct {
	nodes     map[any]*node // by the identity of the decoded object
	reached   []*node       // those that some value may come to
	resources map[string]*resource
	patterns  int // instructions so far
}

// resource is a schema with an identifier of its own, which is the base of the
// references in it.
type resource struct {
	uri      *url.URL
	root     any
	draft    int // 4, 6, 7, 2019, 2020
	anchors  map[string]*node
	dynamics map[string]*node
}

// always and never are the schemas true and false.
var (
	always = &node{expansion: 1}
	never  = &node{expansion: 1, rules: []rule{func(c *checker, _ any, at *place, _ *seen) bool {
		return c.fail(at, "not allowed")
	}}}
)

func (c *compiler) document(doc any) (*node, error) {
	uri, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	res := c.resource(uri, doc, 2020)
	return c.scan(doc, nil, nil, res)
}

func (c *compiler) resource(uri *url.URL, root any, draft int) *resource {
	r := &resource{uri: uri, root: root, draft: draft, anchors: map[string]*node{}, dynamics: map[string]*node{}}
	c.resources[uri.String()] = r
	return r
}

func identity(m map[string]any) any { return reflect.ValueOf(m).UnsafePointer() }

// scan makes a node of each schema in v, and knows its identifier and anchors.
func (c *compiler) scan(v any, up *node, at []string, res *resource) (*node, error) {
	if b, ok := v.(bool); ok {
		if b {
			return always, nil
		}
		return never, nil
	}
	n := &node{up: up, at: at, res: res}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, n.errorf("got %s, want a schema: an object or a boolean", kindOf(v))
	}
	if known := c.nodes[identity(m)]; known != nil {
		return known, nil
	}
	if len(c.nodes) == MaxSchemas {
		return nil, fmt.Errorf("more than %d schemas", MaxSchemas)
	}
	n.raw = m
	c.nodes[identity(m)] = n
	if err := c.identify(n); err != nil {
		return nil, err
	}
	return n, c.children(n)
}

// identify takes in $schema, $id and the anchors.
func (c *compiler) identify(n *node) error {
	draft := n.res.draft
	if s, ok := n.raw["$schema"]; ok {
		d, ok := draftOf(s)
		if !ok {
			return n.errorf("$schema: %s is not a draft that is known", display(s))
		}
		draft = d
	}
	if _, ok := n.raw["$ref"]; ok && draft <= 7 {
		if n.up == nil {
			n.res.draft = draft
		}
		return nil // nothing beside $ref counts
	}
	if err := c.rebase(n, draft); err != nil {
		return err
	}
	for key, dynamic := range map[string]bool{"$anchor": false, "$dynamicAnchor": true} {
		name, ok, err := n.text(key)
		if err != nil {
			return err
		}
		if ok {
			n.res.anchors[name] = n
		}
		if ok && dynamic {
			n.res.dynamics[name] = n
		}
	}
	return nil
}

// rebase begins a resource at a schema with an $id.
func (c *compiler) rebase(n *node, draft int) error {
	key := "$id"
	if draft == 4 {
		key = "id"
	}
	id, ok, err := n.text(key)
	if err != nil {
		return err
	}
	if n.up == nil {
		n.res.draft = draft
	}
	if !ok {
		return nil
	}
	uri, err := url.Parse(id)
	if err != nil {
		return n.errorf("%s: not a URI reference", key)
	}
	if draft <= 7 && uri.Fragment != "" { // what an anchor was then
		n.res.anchors[uri.Fragment] = n
	}
	if strings.HasPrefix(id, "#") {
		return nil
	}
	uri = n.res.uri.ResolveReference(uri)
	uri.Fragment = ""
	n.res = c.resource(uri, n.raw, draft)
	return nil
}

func draftOf(v any) (int, bool) {
	s, _ := v.(string)
	_, s, _ = strings.Cut(strings.TrimSuffix(s, "#"), "://json-schema.org/")
	d, ok := map[string]int{
		"draft-04/schema": 4, "draft-06/schema": 6, "draft-07/schema": 7, "schema": 2020,
		"draft/2019-09/schema": 2019, "draft/2020-12/schema": 2020,
	}[s]
	return d, ok
}

// The keywords whose values hold schemas.
var (
	withSchema = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not", "propertyNames", "then",
		"unevaluatedItems", "unevaluatedProperties",
	}
	withList = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	withMap  = []string{"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)

func (c *compiler) children(n *node) error {
	for _, key := range withSchema {
		if v, ok := n.raw[key]; ok {
			if _, err := c.scan(v, n, []string{key}, n.res); err != nil {
				return err
			}
		}
	}
	for _, key := range withList {
		if v, ok := n.raw[key]; ok {
			if err := c.list(n, key, v); err != nil {
				return err
			}
		}
	}
	for _, key := range withMap {
		if v, ok := n.raw[key]; ok {
			if err := c.byName(n, key, v, false); err != nil {
				return err
			}
		}
	}
	return c.unions(n)
}

// unions are the keywords that hold schemas or something else.
func (c *compiler) unions(n *node) error {
	if v, ok := n.raw["dependencies"]; ok {
		if err := c.byName(n, "dependencies", v, true); err != nil {
			return err
		}
	}
	items, ok := n.raw["items"]
	if !ok {
		return nil
	}
	if _, ok := items.([]any); ok {
		return c.list(n, "items", items)
	}
	_, err := c.scan(items, n, []string{"items"}, n.res)
	return err
}

func (c *compiler) list(n *node, key string, v any) error {
	list, ok := v.([]any)
	if !ok {
		return n.errorf("%s: got %s, want an array of schemas", key, kindOf(v))
	}
	if len(list) == 0 && key != "items" && key != "prefixItems" {
		return n.errorf("%s: an empty array", key)
	}
	for i, v := range list {
		if _, err := c.scan(v, n, []string{key, strconv.Itoa(i)}, n.res); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) byName(n *node, key string, v any, lists bool) error {
	m, ok := v.(map[string]any)
	if !ok {
		return n.errorf("%s: got %s, want an object of schemas", key, kindOf(v))
	}
	for _, name := range sorted(m) {
		if _, ok := m[name].([]any); ok && lists {
			continue
		}
		if _, err := c.scan(m[name], n, []string{key, name}, n.res); err != nil {
			return err
		}
	}
	return nil
}

// sub is the node of a schema under a keyword, which scan has seen.
func (c *compiler) sub(v any) *node {
	switch v := v.(type) {
	case bool:
		if v {
			return always
		}
	case map[string]any:
		return c.reach(c.nodes[identity(v)])
	}
	return never
}

// reach has the keywords of a schema compiled, once. What nothing refers to may
// be wrong.
func (c *compiler) reach(n *node) *node {
	if n.res != nil && !n.reached {
		n.reached = true
		c.reached = append(c.reached, n)
	}
	return n
}

// has returns the node under a keyword, nil if there is none.
func (c *compiler) has(n *node, key string) *node {
	if v, ok := n.raw[key]; ok {
		return c.sub(v)
	}
	return nil
}

func (c *compiler) subs(n *node, key string) []*node {
	list, _ := n.raw[key].([]any)
	nodes := make([]*node, len(list))
	for i, v := range list {
		nodes[i] = c.sub(v)
	}
	return nodes
}

func (c *compiler) named(n *node, key string) map[string]*node {
	m, ok := n.raw[key].(map[string]any)
	if !ok {
		return nil
	}
	nodes := make(map[string]*node, len(m))
	for name, v := range m {
		if _, ok := v.([]any); !ok {
			nodes[name] = c.sub(v)
		}
	}
	return nodes
}

// add has a rule tried for each value.
func (n *node) add(r rule) { n.rules = append(n.rules, r) }

// errorf is an error at a place in the schema.
func (n *node) errorf(format string, args ...any) error {
	var tokens []string
	for ; n != nil; n = n.up {
		for _, token := range slices.Backward(n.at) {
			tokens = append(tokens, token)
		}
	}
	slices.Reverse(tokens)
	text := shortened(fmt.Sprintf(format, args...))
	if at := shortened(pointer(tokens)); at != "" {
		return fmt.Errorf("%s: %s", at, text)
	}
	return fmt.Errorf("%s", text)
}

// invalid is the error of a keyword whose value is none that it can have.
func (n *node) invalid(key, want string) error {
	n = &node{up: n, at: []string{key}}
	return n.errorf("got %s, want %s", display(n.up.raw[key]), want)
}

// text is a keyword's string.
func (n *node) text(key string) (string, bool, error) {
	v, ok := n.raw[key]
	if !ok {
		return "", false, nil
	}
	s, ok := v.(string)
	if !ok {
		return "", false, n.invalid(key, "a string")
	}
	return s, true, nil
}

// strings is a keyword's list of strings.
func (n *node) strings(key string) ([]string, error) {
	v, ok := n.raw[key]
	if !ok {
		return nil, nil
	}
	list, ok := texts(v)
	if !ok {
		return nil, n.invalid(key, "an array of strings")
	}
	return list, nil
}

func texts(v any) ([]string, bool) {
	list, ok := v.([]any)
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, is := v.(string)
		if !is {
			return nil, false
		}
		out = append(out, s)
	}
	return out, ok
}

// number is a keyword's number.
func (n *node) number(key string) (decimal, bool, error) {
	v, ok := n.raw[key]
	if !ok {
		return decimal{}, false, nil
	}
	num, _ := v.(json.Number)
	d, ok := parseDecimal(string(num))
	if !ok {
		return decimal{}, false, n.invalid(key, "a number")
	}
	return d, true, nil
}

// count is a keyword's whole number from 0 on.
func (n *node) count(key string) (int, bool, error) {
	d, ok, err := n.number(key)
	if !ok {
		return 0, false, err
	}
	i, ok := d.count()
	if !ok {
		return 0, false, n.invalid(key, "a whole number from 0 on")
	}
	return i, true, nil
}
