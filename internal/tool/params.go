package tool

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
)

// defaultParams is the schema of an operation that did not say.
var defaultParams = jsontext.Value(`{"type":"object"}`)

// Schema is the compiled JSON Schema of an operation's params. A nil one is any
// object's.
type Schema struct{ compiled *jsonschema.Schema }

// CompileSchema compiles the params of an operation, and returns them as a model
// gets them: an object's, whatever the tool left out. Empty params are any
// object's. With an error, which says what is wrong, the latter is any object's,
// too.
func CompileSchema(params jsontext.Value) (s *Schema, offered jsontext.Value, err error) {
	if len(params) == 0 {
		return nil, defaultParams, nil
	}
	compiled, err := compileSchema(params)
	if err == nil && tooDeep(params) {
		err = fmt.Errorf("it has more than %d levels", maxLevels)
	}
	if err != nil {
		return nil, defaultParams, err
	}
	return &Schema{compiled}, offeredSchema(params), nil
}

// maxLevels is how deeply params may be nested: they are told inside other JSON, which
// has a limit of its own.
const maxLevels = 1000

// tooDeep reports whether a JSON text has more levels than that.
func tooDeep(text jsontext.Value) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > maxLevels {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

// Prepare checks a call's arguments and fills in defaults. Without a default to
// fill in, the text comes back as it was. The error is a [Fault], bad_request,
// that names the place.
func (s *Schema) Prepare(args jsontext.Value) (jsontext.Value, error) {
	if s == nil {
		return prepareArguments(nil, args)
	}
	return prepareArguments(s.compiled, args)
}
