// Package form reads the forms that MCP servers have people fill in: the
// restricted JSON Schema of an elicitation, a flat object of texts, numbers, yes
// or no, and choices.
//
// A form is a stranger's. It is bounded (MaxSchema), a keyword that is none of a
// form's is refused by its name, and so are a reference and a nested object. What
// is filled in is checked here, by internal/jsonschema, and nowhere else.
//
// Concurrency: a Form never changes; any goroutine may use it.
//
// The package refuses to show anything: titles and descriptions are as the server
// wrote them, and anyone who shows them makes them harmless.
package form

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
)

// Bounds, in bytes.
const (
	MaxSchema  = 64 << 10
	MaxContent = 64 << 10
)

// Kind is what a field takes.
type Kind int

// The kinds of a field. Text has a Format in some forms; Choice takes one of the
// field's options, Choices any of them.
const (
	Text Kind = iota
	Number
	Integer
	Boolean
	Choice
	Choices
)

// Form has the fields to fill in, in the server's order.
type Form struct{ Fields []Field }

// Field is one of its lines. Default is JSON, nil for none.
type Field struct {
	Name, Title, Description string
	Kind                     Kind
	Format                   string // of a text: email, uri, date or date-time
	Required                 bool
	Default                  jsontext.Value
	Options                  []Option
	Bounds                   string // in words; "": there are none

	check *jsonschema.Schema
}

// Option is one of a field's choices.
type Option struct{ Value, Title string }

// Label is what to call the field.
func (f *Field) Label() string { return cmp.Or(f.Title, f.Name) }

// Label is what to call the option.
func (o Option) Label() string { return cmp.Or(o.Title, o.Value) }

// Parse reads the schema of a form. The error names the field and what is wrong
// with it.
func Parse(schema []byte) (*Form, error) {
	if len(schema) > MaxSchema {
		return nil, fmt.Errorf("the form has %d bytes, at most %d (%d KiB) are allowed", len(schema), MaxSchema,
			MaxSchema>>10)
	}
	top, err := members(schema)
	if err != nil {
		return nil, fmt.Errorf("the form is no JSON object: %w", err)
	}
	f, required := &Form{}, []string(nil)
	for _, m := range top {
		switch m.name {
		case "type":
			if text, _ := unquoted(m.value); text != "object" {
				return nil, fmt.Errorf("the form's type is %.40s, not \"object\"", m.value)
			}
		case "properties":
			err = f.read(m.value)
		case "required":
			required, err = texts(m.value)
			err = told("required", err)
		case "additionalProperties":
			if k := m.value.Kind(); k != 't' && k != 'f' {
				err = errors.New("additionalProperties can only be true or false in a form")
			}
		case "title", "description", "$schema", "$id", "$comment":
		default:
			err = fmt.Errorf("%.60q is no part of a form", m.name)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, f.require(required)
}

func (f *Form) read(properties jsontext.Value) error {
	all, err := members(properties)
	if err != nil {
		return fmt.Errorf("properties: %w", err)
	}
	for _, m := range all {
		field, err := readField(m)
		if err != nil {
			return fmt.Errorf("field %.60q: %w", m.name, err)
		}
		f.Fields = append(f.Fields, field)
	}
	return nil
}

func (f *Form) require(names []string) error {
	for _, name := range names {
		field := f.field(name)
		if field == nil {
			return fmt.Errorf("required: there is no field %.60q", name)
		}
		field.Required = true
	}
	return nil
}

func (f *Form) field(name string) *Field {
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			return &f.Fields[i]
		}
	}
	return nil
}

// Fill is the content of a form that is accepted: what was filled in and the
// defaults of what was not, in the form's order. No content is an empty one. The
// error names the field and what it takes.
func (f *Form) Fill(content []byte) (jsontext.Value, error) {
	if len(content) > MaxContent {
		return nil, fmt.Errorf("has %d bytes, at most %d (%d KiB) are allowed", len(content), MaxContent, MaxContent>>10)
	}
	given := map[string]jsontext.Value{}
	if len(bytes.TrimSpace(content)) > 0 {
		all, err := members(content)
		if err != nil {
			return nil, fmt.Errorf("is no JSON object: %w", err)
		}
		for _, m := range all {
			if f.field(m.name) == nil {
				return nil, fmt.Errorf("the form has no field %.60q", m.name)
			}
			given[m.name] = m.value
		}
	}
	for i := range f.Fields {
		field := &f.Fields[i]
		value, ok := given[field.Name]
		switch {
		case ok:
			if err := field.Check(value); err != nil {
				return nil, fmt.Errorf("%.60q: %w", field.Name, err)
			}
		case field.Default != nil:
			given[field.Name] = field.Default
		case field.Required:
			return nil, fmt.Errorf("%.60q has to be filled in", field.Name)
		}
	}
	return f.Content(given), nil
}

// Check reports what is wrong with a value, JSON, that the field is to have.
func (f *Field) Check(value jsontext.Value) error {
	v, err := jsonschema.Decode(value)
	if err != nil {
		return err
	}
	if err := f.check.Check(v); err != nil {
		return err
	}
	if text, ok := v.(string); ok && !fits(f.Format, text) {
		return fmt.Errorf("this is no %s", formats[f.Format])
	}
	return nil
}

// member is one of an object's.
type member struct {
	name  string
	value jsontext.Value
}

// members are those of an object, in its order.
func members(object []byte) (all []member, err error) {
	v := jsontext.Value(object).Clone()
	if err := v.Compact(); err != nil { // no name twice, no invalid text
		return nil, err
	}
	if v.Kind() != '{' {
		return nil, errors.New("it has to be an object")
	}
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = value.Clone()
		all = append(all, m)
	}
	return all, nil
}

func unquoted(v jsontext.Value) (string, error) {
	if v.Kind() != '"' {
		return "", errors.New("it has to be a text")
	}
	text, err := jsontext.AppendUnquote(nil, v)
	return string(text), err
}

// items are those of an array.
func items(array jsontext.Value) (all []jsontext.Value, err error) {
	if array.Kind() != '[' {
		return nil, errors.New("it has to be an array")
	}
	d := jsontext.NewDecoder(bytes.NewReader(array))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		all = append(all, v.Clone())
	}
	return all, nil
}

func texts(array jsontext.Value) ([]string, error) {
	list, err := items(array)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(list))
	for i, v := range list {
		if all[i], err = unquoted(v); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// told says where an error is, if there is one.
func told(where string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", where, err)
	}
	return err
}

// Content are values of fields by their names, as JSON, in the form's order: what
// Fill takes.
func (f *Form) Content(values map[string]jsontext.Value) jsontext.Value {
	out := []byte{'{'}
	for i := range f.Fields {
		value, ok := values[f.Fields[i].Name]
		if !ok {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, f.Fields[i].Name)
		out = append(append(out, ':'), value...)
	}
	return append(out, '}')
}
