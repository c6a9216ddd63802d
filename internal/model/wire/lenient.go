package wire

import (
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What is odd in an answer must not end it (models-today.md §3): a member of
// another type than expected counts as left out. These are the types of members
// that are read that way.

// Maybe is a member that has the expected form, or the zero value.
type Maybe[T any] struct{ V T }

// UnmarshalJSONFrom reads any value.
func (m *Maybe[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var read T
	if json.Unmarshal(v, &read, lenient) == nil {
		m.V = read
	}
	return nil
}

// Str is a text: what a string holds, "" for anything else.
type Str string

// UnmarshalJSONFrom reads any value.
func (s *Str) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err == nil && v.Kind() == jsontext.KindString {
		var text string
		_ = json.Unmarshal(v, &text, lenient) // a string is one
		*s = Str(text)
	}
	return err
}

// Count is a number of tokens, or of a block: 12, 12.0 or "12". What is less
// than none, or no number, is 0; what is more than fits is the most that does.
type Count int64

// UnmarshalJSONFrom reads any value.
func (c *Count) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(Text(v)), 64)
	switch {
	case f >= math.MaxInt64: // also where it is too large for a float
		*c = math.MaxInt64
	case err == nil && f > 0:
		*c = Count(f)
	default:
		*c = 0
	}
	return nil
}

// Read reads a value of others into v, as far as it has v's form.
func Read(value jsontext.Value, v any) error { return json.Unmarshal(value, v, lenient) }

// Member is one member of a JSON object.
type Member struct {
	Name  string
	Value jsontext.Value
}

// Object is a JSON object whose members keep their order.
type Object []Member

// Members reads an object, nil if v is none.
func Members(v jsontext.Value) Object {
	dec := jsontext.NewDecoder(strings.NewReader(string(v)), lenient)
	if t, err := dec.ReadToken(); err != nil || t.Kind() != jsontext.KindBeginObject {
		return nil
	}
	out := Object{}
	for dec.PeekKind() == jsontext.KindString {
		name, err := dec.ReadToken()
		if err != nil {
			return nil
		}
		m := Member{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil
		}
		m.Value = value.Clone()
		out = append(out, m)
	}
	return out
}

// Get is the value of a member, nothing where there is none.
func (o Object) Get(name string) jsontext.Value {
	for _, m := range o {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Put sets a member. A null does not take the place of a value.
func (o Object) Put(m Member) Object {
	for i := range o {
		if o[i].Name == m.Name {
			if m.Value.Kind() != jsontext.KindNull {
				o[i].Value = m.Value
			}
			return o
		}
	}
	return append(o, m)
}

// JSON is the object as JSON.
func (o Object) JSON() jsontext.Value {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, m.Name)
		out = append(append(out, ':'), m.Value...)
	}
	return append(out, '}')
}

// Array is a JSON array of the values.
func Array(values []jsontext.Value) jsontext.Value {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
