package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// schema has what the document uses of JSON Schema to describe a payload.
type schema struct {
	Ref         string             `json:"$ref"`
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Enum        []string           `json:"enum"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
	Values      *schema            `json:"additionalProperties"`
	OneOf       []*schema          `json:"oneOf"`
	AllOf       []*schema          `json:"allOf"` // of an envelope
}

// document is the schema document, as far as types are made of it.
type document struct {
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
	Commands map[string]struct {
		Summary   string  `json:"summary"`
		Payload   schema  `json:"payload"`
		Responses []reply `json:"responses"`
	} `json:"x-commands"`
	Events map[string]reply `json:"x-events"`
}

type reply struct {
	Payload schema `json:"payload"`
}

// record is an object type: an object within another one has a name, too, made of the
// other's and the field's, so that names stay when others are added.
type record struct {
	name   string
	fields []field
}

type field struct {
	name, is, doc string
	required      bool
}

// language says how types are written.
type language struct {
	any, text, integer, number, boolean string

	list, dict      func(of string) string
	literal, either func(of []string) string
}

func readDocument(text []byte) (*document, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	maps.DeleteFunc(d.Components.Schemas, func(name string, s *schema) bool {
		return name == "EnvelopeBase" || s.AllOf != nil
	})
	return &d, nil
}

// records are all object types, those within others first.
func (d *document) records(l language) (all []record) {
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		all = l.record(all, name, d.Components.Schemas[name])
	}
	return all
}

func (l language) record(all []record, name string, s *schema) []record {
	r := record{name: name}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		f := field{name: key, doc: s.Properties[key].Description, required: slices.Contains(s.Required, key)}
		f.is, all = l.of(all, name+camel(key), s.Properties[key])
		r.fields = append(r.fields, f)
	}
	return append(all, r)
}

// of is the type of a value, and all with the records that it needs.
func (l language) of(all []record, name string, s *schema) (string, []record) {
	var is string
	switch {
	case s.Ref != "":
		return target(*s), all
	case s.OneOf != nil:
		var choices []string
		for _, choice := range s.OneOf {
			is, all = l.of(all, name, choice)
			choices = append(choices, is)
		}
		return l.either(choices), all
	case s.Enum != nil:
		return l.literal(s.Enum), all
	case s.Items != nil:
		is, all = l.of(all, name, s.Items)
		return l.list(is), all
	case s.Properties != nil:
		return name, l.record(all, name, s)
	case s.Values != nil:
		is, all = l.of(all, name, s.Values)
		return l.dict(is), all
	}
	switch s.Type {
	case "object":
		return l.dict(l.any), all
	case "string":
		return l.text, all
	case "integer":
		return l.integer, all
	case "number":
		return l.number, all
	case "boolean":
		return l.boolean, all
	default:
		return l.any, all
	}
}

// target is the name that a reference ends in.
func target(s schema) string { return path.Base(s.Ref) }

// answers are the types of a command's replies.
func (d *document) answers(command string) (names []string) {
	for _, r := range d.Commands[command].Responses {
		names = append(names, target(r.Payload))
	}
	return names
}

// camel is snake_case as CamelCase.
func camel(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// quoted are strings as literals of both languages.
func quoted(all []string, sep string) string { return `"` + strings.Join(all, `"`+sep+`"`) + `"` }
