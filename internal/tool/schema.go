package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const (
	schemaURL   = "noused:params"
	maxProblems = 5
	maxProblem  = 200 // bytes of one, and of its place
	maxRefs     = 32
	// maxExpansion bounds the schemas that one value is checked against.
	maxExpansion = 100_000
)

// compileSchema compiles the JSON Schema of an operation's params. References
// to anything outside it are refused.
func compileSchema(text []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(compilePattern)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", brief(err))
	}
	if n := expansion(s, map[*jsonschema.Schema]int{}); n > maxExpansion {
		return nil, fmt.Errorf("not a JSON Schema that can be checked: its references and combinations come to more than %d schemas for one value", maxExpansion)
	}
	return s, nil
}

// expansion counts the schemas that are applied to one value, each as often as
// it is reached, up to a little more than the limit. A schema that reaches itself
// that way has no end.
func expansion(s *jsonschema.Schema, seen map[*jsonschema.Schema]int) int {
	if s == nil {
		return 0
	}
	if n, ok := seen[s]; ok {
		return n
	}
	seen[s] = maxExpansion + 1 // while it is being counted
	n := 1
	for _, list := range [][]*jsonschema.Schema{{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf} {
		for _, sub := range list {
			n = min(n+expansion(sub, seen), maxExpansion+1)
		}
	}
	seen[s] = n
	for _, sub := range s.Properties { // a value of its own
		if expansion(sub, seen) > maxExpansion {
			return maxExpansion + 1
		}
	}
	for _, sub := range []*jsonschema.Schema{itemSchema(s)} {
		if expansion(sub, seen) > maxExpansion {
			return maxExpansion + 1
		}
	}
	return n
}

// noLoader keeps a tool's schema from making the daemon read files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s lies outside the schema", url)
}

// compilePattern accepts every ECMA 262 pattern: one that uses what Go's
// engine has not (lookahead, some escapes, large counts) matches anything, and
// is left to the tool to check.
func compilePattern(pattern string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err == nil {
		return re, nil
	}
	var s *syntax.Error
	if errors.As(err, &s) {
		switch s.Code {
		case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatSize:
			return anything(pattern), nil
		}
	}
	return nil, err
}

type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }

// prepareArguments checks a call's arguments against the schema and fills in
// defaults. Without a default to fill in, the text comes back as it was. The
// error is a bad_request that names the place.
func prepareArguments(s *jsonschema.Schema, args json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
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
	object, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return nil, Faultf(BadRequest, "arguments are not a JSON object: %v", err)
	}
	filled := fillDefaults(s, object, 0)
	if err := s.Validate(object); err != nil {
		return nil, Faultf(BadRequest, "arguments: %v", brief(err))
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

// fillDefaults adds the defaults of absent properties to v, deeply, and
// reports whether it added one. Defaults themselves are not descended into.
func fillDefaults(s *jsonschema.Schema, v any, refs int) bool {
	if s == nil || refs > maxRefs {
		return false
	}
	filled := fillDefaults(s.Ref, v, refs+1)
	for _, all := range s.AllOf {
		filled = fillDefaults(all, v, refs+1) || filled
	}
	switch v := v.(type) {
	case map[string]any:
		for name, prop := range s.Properties {
			if value, ok := v[name]; ok {
				filled = fillDefaults(prop, value, 0) || filled
			} else if d := defaultOf(prop, 0); d != nil {
				v[name] = *d
				filled = true
			}
		}
	case []any:
		for i, value := range v {
			if i < len(s.PrefixItems) {
				filled = fillDefaults(s.PrefixItems[i], value, 0) || filled
			} else {
				filled = fillDefaults(itemSchema(s), value, 0) || filled
			}
		}
	}
	return filled
}

func defaultOf(s *jsonschema.Schema, refs int) *any {
	if s == nil || refs > maxRefs || s.Default != nil {
		if s == nil {
			return nil
		}
		return s.Default
	}
	return defaultOf(s.Ref, refs+1)
}

func itemSchema(s *jsonschema.Schema) *jsonschema.Schema {
	if s.Items2020 != nil {
		return s.Items2020
	}
	items, _ := s.Items.(*jsonschema.Schema)
	return items
}

// brief names the first few places that a schema refused.
func brief(err error) error {
	var compile *jsonschema.SchemaValidationError
	if errors.As(err, &compile) {
		err = compile.Err
	}
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return err
	}
	var places []string
	more := 0
	printer := message.NewPrinter(language.English)
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		switch {
		case len(e.Causes) > 0:
		case len(places) == maxProblems:
			more++
		default:
			text := shortened(e.ErrorKind.LocalizedString(printer)) // it may repeat the value
			if at := pointer(e.InstanceLocation); at != "" {
				text = shortened(at) + ": " + text
			}
			places = append(places, text)
		}
	}
	walk(v)
	if more > 0 {
		places = append(places, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(places, "; "))
}

// shortened is a text, or its beginning and its end.
func shortened(text string) string {
	if len(text) <= maxProblem {
		return text
	}
	return strings.ToValidUTF8(text[:maxProblem/2], "") + "…" + strings.ToValidUTF8(text[len(text)-maxProblem/2:], "")
}

func pointer(tokens []string) string {
	var p jsontext.Pointer
	for _, t := range tokens {
		p = p.AppendToken(t)
	}
	return string(p)
}

// offeredSchema is the schema as a model gets it: an object's, whatever the
// tool left out.
func offeredSchema(text json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil || object == nil {
		return defaultParams
	}
	if _, ok := object["type"]; !ok {
		object["type"] = json.RawMessage(`"object"`)
		if out, err := json.Marshal(object); err == nil {
			return out
		}
	}
	out := jsontext.Value(bytes.Clone(text))
	if out.Compact() != nil {
		return text
	}
	return json.RawMessage(out)
}
