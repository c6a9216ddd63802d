package form

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
)

// readField reads one of a form's properties.
func readField(m member) (f Field, err error) {
	f.Name = m.name
	words, err := members(m.value)
	if err != nil {
		return f, err
	}
	r := reader{field: &f}
	for _, w := range words {
		if err := r.keyword(w); err != nil {
			return f, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if err := r.end(); err != nil {
		return f, err
	}
	if f.check, err = jsonschema.Compile(m.value); err != nil {
		return f, err
	}
	if f.Default != nil {
		err = told("default", f.Check(f.Default))
	}
	return f, err
}

// reader takes a field's keywords in, in any order.
type reader struct {
	field  *Field
	kind   string   // of the type
	names  []string // the older way to title the options of an enum
	named  bool
	listed bool // the options are those of items
	chosen bool // there are options
	bounds []string
}

func (r *reader) keyword(w member) (err error) {
	f := r.field
	switch w.name {
	case "type":
		r.kind, err = unquoted(w.value)
	case "title":
		f.Title, err = unquoted(w.value)
	case "description":
		f.Description, err = unquoted(w.value)
	case "format":
		if f.Format, err = unquoted(w.value); err == nil && formats[f.Format] == "" {
			err = fmt.Errorf("%.40q is none of email, uri, date and date-time", f.Format)
		}
	case "default":
		if f.Default = w.value; w.value.Kind() == 'n' {
			f.Default = nil
		}
	case "enum":
		err = r.enum(w.value)
	case "enumNames":
		r.named = true
		r.names, err = texts(w.value)
	case "oneOf":
		err = r.titled(w.value)
	case "items":
		err = r.items(w.value)
	case "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
		"maxItems", "pattern":
		r.bounds = append(r.bounds, fmt.Sprintf(boundWords[w.name], bound(w.value)))
	case "uniqueItems", "$comment", "examples", "deprecated", "readOnly", "writeOnly":
	default:
		err = errors.New("a form's field cannot have that")
	}
	return err
}

var boundWords = map[string]string{
	"minLength": "at least %s characters", "maxLength": "at most %s characters",
	"minimum": "at least %s", "maximum": "at most %s", "exclusiveMinimum": "more than %s",
	"exclusiveMaximum": "less than %s",
	"multipleOf":       "a multiple of %s", "minItems": "at least %s of them", "maxItems": "at most %s of them",
	"pattern": "like %s",
}

// bound is a keyword's value for people.
func bound(v jsontext.Value) string {
	if text, err := unquoted(v); err == nil {
		return text
	}
	return string(v)
}

func (r *reader) enum(v jsontext.Value) error {
	values, err := texts(v)
	if err != nil {
		return err
	}
	return r.options(values, nil)
}

// titled are options that each have a title.
func (r *reader) titled(v jsontext.Value) error {
	list, err := items(v)
	if err != nil {
		return err
	}
	values, titles := make([]string, len(list)), make([]string, len(list))
	for i, one := range list {
		words, err := members(one)
		if err != nil {
			return err
		}
		found := false
		for _, w := range words {
			switch w.name {
			case "const":
				found = true
				values[i], err = unquoted(w.value)
			case "title":
				titles[i], err = unquoted(w.value)
			case "description":
			default:
				err = errors.New("an option cannot have that")
			}
			if err != nil {
				return told(w.name, err)
			}
		}
		if !found {
			return errors.New("an option without a const")
		}
	}
	return r.options(values, titles)
}

func (r *reader) options(values, titles []string) error {
	switch {
	case r.chosen:
		return errors.New("the options stand there twice")
	case len(values) == 0:
		return errors.New("there is no option")
	}
	r.chosen = true
	for i, value := range values {
		o := Option{Value: value}
		if titles != nil {
			o.Title = titles[i]
		}
		r.field.Options = append(r.field.Options, o)
	}
	return nil
}

// items are the options of a field that takes several.
func (r *reader) items(v jsontext.Value) error {
	words, err := members(v)
	if err != nil {
		return err
	}
	r.listed = true
	for _, w := range words {
		switch w.name {
		case "type":
			if text, _ := unquoted(w.value); text != "string" {
				err = errors.New("only texts can be chosen")
			}
		case "enum":
			err = r.enum(w.value)
		case "anyOf", "oneOf":
			err = r.titled(w.value)
		default:
			err = errors.New("the options of a form cannot have that")
		}
		if err != nil {
			return told(w.name, err)
		}
	}
	return nil
}

// end settles what kind of field it is.
func (r *reader) end() error {
	f := r.field
	kinds := map[string]Kind{"string": Text, "number": Number, "integer": Integer, "boolean": Boolean, "array": Choices}
	kind, ok := kinds[r.kind]
	switch {
	case !ok:
		return fmt.Errorf("type %.40q is none of string, number, integer, boolean and array", r.kind)
	case r.listed != (kind == Choices) || kind == Choices && !r.chosen:
		return errors.New("an array, and nothing else, has items, and these the options")
	case r.chosen && kind != Text && kind != Choices:
		return errors.New("only texts can be chosen")
	case f.Format != "" && kind != Text:
		return errors.New("only a text has a format")
	case r.named && len(r.names) != len(f.Options):
		return fmt.Errorf("enumNames has %d names for %d options", len(r.names), len(f.Options))
	}
	if f.Kind = kind; r.chosen && kind == Text {
		f.Kind = Choice
	}
	for i, name := range r.names {
		f.Options[i].Title = name
	}
	f.Bounds = strings.Join(r.bounds, ", ")
	return nil
}

// formats are those a text may have, for people.
var formats = map[string]string{
	"email": "email address", "uri": "URI", "date": "date like 2006-01-31",
	"date-time": "time like 2006-01-31T15:04:05Z",
}

// fits tells whether a text has a format.
func fits(format, text string) bool {
	var err error
	switch format {
	case "email":
		var a *mail.Address
		a, err = mail.ParseAddress(text)
		return err == nil && a.Address == text
	case "uri":
		var u *url.URL
		u, err = url.Parse(text)
		return err == nil && u.IsAbs()
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	return err == nil
}

// Takes says in words what the field takes, for people: what is hostile in it is as
// the server wrote it.
func (f *Field) Takes() string {
	words := map[Kind]string{
		Number: "a number", Integer: "a whole number", Boolean: "yes or no", Choice: "one of these",
		Choices: "any of these",
	}[f.Kind]
	parts := []string{}
	for _, part := range []string{words, formats[f.Format], f.Bounds} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if !f.Required {
		parts = append(parts, "may be left out")
	}
	return strings.Join(parts, ", ")
}

// Value is what somebody has typed as the field's JSON. A choice is typed by its
// value, its title or its number, counted from 1; several with commas between
// them. The error says what the field takes.
func (f *Field) Value(typed string) (jsontext.Value, error) {
	var v jsontext.Value
	var err error
	switch f.Kind {
	case Number, Integer:
		v = jsontext.Value(strings.TrimSpace(typed))
		if v.Kind() != '0' || !v.IsValid() {
			err = errors.New("this is no number")
		}
	case Boolean:
		v, err = yesOrNo(typed)
	case Choice:
		v, err = f.chosen(typed)
	case Choices:
		v, err = f.several(typed)
	default:
		v, err = jsontext.AppendQuote(nil, typed)
	}
	if err != nil {
		return nil, err
	}
	return v, f.Check(v)
}

func yesOrNo(typed string) (jsontext.Value, error) {
	switch strings.ToLower(strings.TrimSpace(typed)) {
	case "y", "yes", "true":
		return jsontext.Value("true"), nil
	case "n", "no", "false":
		return jsontext.Value("false"), nil
	}
	return nil, errors.New("want yes or no")
}

func (f *Field) chosen(typed string) (jsontext.Value, error) {
	typed = strings.TrimSpace(typed)
	for i, o := range f.Options {
		if o.Value == typed || o.Title == typed && typed != "" {
			return jsontext.AppendQuote(nil, f.Options[i].Value)
		}
	}
	for i, o := range f.Options {
		if fmt.Sprint(i+1) == typed {
			return jsontext.AppendQuote(nil, o.Value)
		}
	}
	return nil, fmt.Errorf("%.40q is none of the options", typed)
}

func (f *Field) several(typed string) (jsontext.Value, error) {
	out := jsontext.Value{'['}
	for part := range strings.SplitSeq(typed, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		one, err := f.chosen(part)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return append(out, ']'), nil
}

// Typed is a value of the field as somebody would have typed it; "" is none.
func (f *Field) Typed(v jsontext.Value) string {
	switch {
	case len(v) == 0:
		return ""
	case f.Kind == Boolean:
		return map[jsontext.Kind]string{'t': "yes", 'f': "no"}[v.Kind()]
	case f.Kind == Choices:
		list, _ := texts(v)
		return strings.Join(list, ", ")
	}
	return bound(v)
}
