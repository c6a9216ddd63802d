package ssh

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// idOf finds the value of a line's id, which must be a string, with its quotes.
func idOf(line []byte) (start, end int, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(line))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return 0, 0, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return 0, 0, false
		}
		wanted := name.String() == "id"
		value, err := dec.ReadValue()
		if err != nil {
			return 0, 0, false
		}
		if wanted {
			end = int(dec.InputOffset())
			return end - len(value), end, value.Kind() == '"' && len(value) > 2
		}
	}
	return 0, 0, false
}
