package tool

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
)

// compileSchema compiles the JSON Schema of an operation's params.
func compileSchema(text []byte) (*jsonschema.Schema, error) {
	s, err := jsonschema.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	return s, nil
}

// prepareArguments checks a call's arguments against the schema and fills in
// defaults. Without a default to fill in, the text comes back as it was. The
// error is a bad_request that names the place.
func prepareArguments(s *jsonschema.Schema, args jsontext.Value) (jsontext.Value, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = jsontext.Value("{}")
	}
	v := jsontext.Value(args)
	if !v.IsValid() {
		return nil, Faultf(BadRequest, "arguments are not a JSON object: not valid JSON")
	}
	if v.Kind() != '{' {
		return nil, Faultf(BadRequest, "arguments are not a JSON object but a JSON %s", KindName(v.Kind()))
	}
	if s == nil {
		return args, nil
	}
	object, err := jsonschema.Decode(args)
	if err != nil {
		return nil, Faultf(BadRequest, "arguments are not a JSON object: %v", err)
	}
	filled, err := s.Fill(object)
	if err == nil {
		err = s.Check(object)
	}
	if err != nil {
		return nil, Faultf(BadRequest, "arguments: %v", err)
	}
	if !filled {
		return args, nil
	}
	// encoding/json, as only it writes a json.Number back the way it came.
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return nil, Faultf(BadRequest, "arguments: %v", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// offeredSchema is the schema as a model gets it: an object's, whatever the
// tool left out.
func offeredSchema(text jsontext.Value) jsontext.Value {
	var object map[string]jsontext.Value
	if json.Unmarshal(text, &object) != nil || object == nil {
		return defaultParams
	}
	if _, ok := object["type"]; !ok {
		object["type"] = jsontext.Value(`"object"`)
		if out, err := json.Marshal(object); err == nil {
			return out
		}
	}
	out := jsontext.Value(bytes.Clone(text))
	if out.Compact() != nil || len(out) == len(text) {
		return text // as there need not be two of them
	}
	return jsontext.Value(out)
}
