package protocol

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// decodeCanonical reads an envelope of the form that nearly every client
// writes: the known keys, each once, strings without escapes, the payload last.
// It takes a small part of the time of the general decoder and refuses what it
// is not sure of; FuzzDecodeCommand holds the two against each other.
func decodeCanonical(line []byte) (cmd Command, ok bool) {
	var seen [4]bool
	rest, ok := cut(line, '{')
	for ok {
		var key, value []byte
		if key, rest, ok = plainString(rest); !ok {
			return cmd, false
		}
		if rest, ok = cut(rest, ':'); !ok {
			return cmd, false
		}
		rest = bytes.TrimLeft(rest, " ")
		field := bytes.IndexByte([]byte("vitp"), key[0])
		if field < 0 || seen[field] {
			return cmd, false
		}
		seen[field] = true
		switch string(key) {
		case "v":
			if value, rest, ok = plainString(rest); !ok || string(value) != Version {
				return cmd, false
			}
		case "id":
			if value, rest, ok = plainString(rest); !ok {
				return cmd, false
			}
			cmd.ID = string(value)
		case "type":
			if value, rest, ok = plainString(rest); !ok {
				return cmd, false
			}
			cmd.Type = commandName(value)
		case "payload":
			cmd.Payload, rest = lastObject(rest)
			if cmd.Payload == nil {
				return cmd, false
			}
		default:
			return cmd, false
		}
		if next, more := cut(rest, ','); more {
			rest = bytes.TrimLeft(next, " ")
			continue
		}
		break
	}
	if !ok || len(rest) != 1 || rest[0] != '}' || cmd.ID == "" || cmd.Type == "" {
		return cmd, false
	}
	if cmd.Payload == nil {
		cmd.Payload = emptyObject
	}
	return cmd, true
}

var emptyObject = jsontext.Value("{}")

// commandName avoids a copy of a name that the table has.
func commandName(name []byte) string {
	if i, ok := rowOf[string(name)]; ok {
		return table[i].Name
	}
	return string(name)
}

func cut(b []byte, c byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != c {
		return b, false
	}
	return b[1:], true
}

// plainString reads a non-empty string of printable ASCII without escapes.
func plainString(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 3 || b[0] != '"' {
		return nil, b, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return b[1:i], b[i+1:], i > 1
		case c < ' ' || c == '\\' || c > '~':
			return nil, b, false
		}
	}
	return nil, b, false
}

// maxCanonical is the longest payload worth a look here, in bytes. It is too
// short to be nested deeper than the general decoder allows.
const maxCanonical = 4 << 10

// lastObject takes an object that reaches up to the envelope's end.
func lastObject(b []byte) (object jsontext.Value, rest []byte) {
	if len(b) < 3 || len(b) > maxCanonical || b[0] != '{' {
		return nil, b
	}
	object, rest = jsontext.Value(b[:len(b)-1]), b[len(b)-1:]
	switch {
	case string(object) == string(emptyObject):
		return emptyObject, rest
	case !object.IsValid():
		return nil, b
	}
	return object.Clone(), rest // the line is its reader's
}
