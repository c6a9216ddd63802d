package ssh

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// envelope is a line of the far end's.
type envelope struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Payload jsontext.Value  `json:"payload"`
	OK      *bool           `json:"ok"`
	Error   *protocol.Error `json:"error"`
	Seq     uint64          `json:"seq"`
}

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

// hungUp reads the line that says that a connection was closed at the far end.
func hungUp(line []byte) (number uint64, ok bool) {
	digits, ok := bytes.CutPrefix(line, []byte(`{"connection":`))
	if !ok {
		return 0, false
	}
	digits, ok = bytes.CutSuffix(digits, []byte{'}'})
	number, err := strconv.ParseUint(string(digits), 10, 64)
	return number, ok && err == nil && number > 0
}
