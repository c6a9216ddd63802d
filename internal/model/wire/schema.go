package wire

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What is read of a schema at most: one may refer to itself, many times over.
const (
	maxSchemaDepth = 12
	maxSchemaParts = 1000
)

// PlainSchema is a tool's parameters with nothing in them that a vendor is known
// to refuse: types, descriptions, properties, items and lists of values.
// References are put in; of alternatives the first one that says something
// stays. What the schema wants beyond that is still checked before a tool is
// called.
func PlainSchema(params []byte) jsontext.Value {
	r := reducer{root: Members(params), left: maxSchemaParts}
	plain := r.plain(r.root, 0)
	if plain.Get("type") == nil {
		plain = plain.Put(Member{"type", jsontext.Value(`"object"`)})
	}
	return Schema(plain.JSON())
}

// reducer makes plain schemas of one schema's parts.
type reducer struct {
	root Object
	left int // parts
}

func (r *reducer) plain(s Object, depth int) Object {
	out := Object{}
	if r.left--; depth > maxSchemaDepth || r.left < 0 {
		return out
	}
	s = r.chosen(s)
	if kind := plainType(s.Get("type")); kind != "" {
		quoted, _ := jsontext.AppendQuote(nil, kind)
		out = out.Put(Member{"type", quoted})
	}
	if v := s.Get("description"); v.Kind() == jsontext.KindString {
		out = out.Put(Member{"description", v})
	}
	if v := plainEnum(s); v != nil {
		out = out.Put(Member{"enum", v})
	}
	properties := Object{}
	for _, p := range Members(s.Get("properties")) {
		properties = append(properties, Member{p.Name, r.plain(Members(p.Value), depth+1).JSON()})
	}
	if len(properties) > 0 {
		out = out.Put(Member{"properties", properties.JSON()})
	}
	if names := plainRequired(s.Get("required"), properties); names != nil {
		out = out.Put(Member{"required", names})
	}
	if items := s.Get("items"); items.Kind() == jsontext.KindBeginObject {
		out = out.Put(Member{"items", r.plain(Members(items), depth+1).JSON()})
	} else if string(out.Get("type")) == `"array"` {
		out = out.Put(Member{"items", jsontext.Value(`{"type":"string"}`)})
	}
	return out
}

// chosen is the schema that a reference means, or the first of several that
// says something, with what stands beside it.
func (r *reducer) chosen(s Object) Object {
	for range maxSchemaDepth {
		next := slices.Clone(referred(Text(s.Get("$ref")), r.root))
		for _, name := range []string{"anyOf", "oneOf", "allOf"} {
			var list []jsontext.Value
			if next == nil && Read(s.Get(name), &list) == nil {
				next = firstThatSays(list)
			}
		}
		if next == nil {
			return s
		}
		for _, m := range s {
			if m.Name != "$ref" && m.Name != "anyOf" && m.Name != "oneOf" && m.Name != "allOf" {
				next = next.Put(m)
			}
		}
		s = next
	}
	return s
}

// referred is what a reference inside the schema points to, nil if nothing.
func referred(ref string, root Object) Object {
	path, inside := strings.CutPrefix(ref, "#/")
	if !inside {
		return nil
	}
	at := root
	for name := range strings.SplitSeq(path, "/") {
		at = Members(at.Get(strings.NewReplacer("~1", "/", "~0", "~").Replace(name)))
	}
	return at
}

func firstThatSays(list []jsontext.Value) Object {
	for _, v := range list {
		if o := Members(v); o != nil && string(o.Get("type")) != `"null"` {
			return o
		}
	}
	return nil
}

// plainType is one type, of several the first that is not null.
func plainType(v jsontext.Value) string {
	var names []string
	if v.Kind() == jsontext.KindString {
		return Text(v)
	}
	_ = Read(v, &names) // none where it is no list
	for _, name := range names {
		if name != "null" {
			return name
		}
	}
	return ""
}

// plainEnum are the values that a text may have.
func plainEnum(s Object) jsontext.Value {
	var values []jsontext.Value
	if c := s.Get("const"); c != nil {
		values = []jsontext.Value{c}
	} else if Read(s.Get("enum"), &values) != nil {
		return nil
	}
	var texts []jsontext.Value
	for _, v := range values {
		if v.Kind() == jsontext.KindString && len(v) > len(`""`) {
			texts = append(texts, v)
		}
	}
	if texts == nil || len(texts) != len(values) {
		return nil
	}
	return Array(texts)
}

func plainRequired(v jsontext.Value, properties Object) jsontext.Value {
	var names, known []string
	_ = Read(v, &names) // none where it is no list
	for _, name := range names {
		if properties.Get(name) != nil {
			known = append(known, name)
		}
	}
	if known == nil {
		return nil
	}
	list, _ := json.Marshal(known) // of strings
	return list
}
