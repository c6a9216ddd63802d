package approval

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Argument is one of a call's; Value is as it stands there.
type Argument struct {
	Name  string
	Value jsontext.Value
}

// List are the arguments of a call, in their order.
type List []Argument

// Arguments are the arguments of a call; false where they are no object.
func Arguments(raw jsontext.Value) (all List, ok bool) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '{' {
		return nil, false
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		all = append(all, Argument{key, value.Clone()})
	}
	return all, true
}

// Text is the argument of that name, where it is a text.
func (l List) Text(name string) (string, bool) {
	for _, m := range l {
		if m.Name == name && m.Value.Kind() == '"' {
			s, err := jsontext.AppendUnquote(nil, m.Value)
			return string(s), err == nil
		}
	}
	return "", false
}
