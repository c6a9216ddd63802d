package protocol

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

//go:generate sh -c "go run ./gen > ../../docs/protocol-openapi-like.json"
//go:generate sh -c "go run ./gen python > ../../clients/python/noused/types.py"
//go:generate sh -c "go run ./gen typescript > ../../clients/typescript/types.d.ts"

// Document prints docs/protocol-openapi-like.json from the command table and
// the event set: the frozen facts under the keys that existing clients'
// contract tests read, and a JSON Schema (2020-12) of every payload. The
// schemas say what to send and what to rely on; the decoders forgive more
// (a null for an absent field, for one).
func Document() ([]byte, error) {
	required, optional, response := map[string][]string{}, map[string][]string{}, map[string][]string{}
	commands, events := map[string]any{}, map[string]any{}
	schemas := envelopeSchemas()
	for _, row := range table {
		params := reflect.TypeOf(row.Params)
		required[row.Name], optional[row.Name] = frozenFields(params)
		schemas[params.Name()] = schemaOf(params)
		var replies []any
		for _, r := range row.Replies {
			t, key := reflect.TypeOf(r), requirementKey(row, r)
			fields, _ := frozenFields(t)
			if prev, ok := response[key]; ok { // session: what all of them have
				fields = slices.DeleteFunc(slices.Clone(prev), func(f string) bool { return !slices.Contains(fields, f) })
			}
			response[key] = fields
			schemas[t.Name()] = schemaOf(t)
			replies = append(replies, map[string]any{"type": r.replyType(), "payload": ref(t.Name())})
		}
		commands[row.Name] = map[string]any{
			"summary": row.Summary, "since": string(row.Since),
			"payload": ref(params.Name()), "responses": replies, "long": row.Long,
		}
	}
	for _, ev := range EventTypes() {
		name := reflect.TypeOf(ev).Name()
		schemas[name] = eventSchema(ev)
		events[ev.Type()] = map[string]any{"payload": ref(name)}
	}
	for _, extra := range []any{Message{}, CompactionEntry{}, SubscribeParams{}, Subscribed{}} {
		t := reflect.TypeOf(extra)
		schemas[t.Name()] = schemaOf(t)
	}
	doc := map[string]any{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info":              map[string]any{"title": "nous protocol", "version": Version},
		"x-transport": map[string]any{
			"type": "uds", "framing": "ndjson", "commands": "PATH",
			"events": "PATH.events",
		},
		"x-command-payload-requirements":  required,
		"x-command-payload-optional":      optional,
		"x-response-payload-requirements": response,
		"x-commands":                      commands,
		"x-events":                        events,
		"x-event-socket": map[string]any{"subscribe": map[string]any{
			"payload":  ref("SubscribeParams"),
			"response": ref("Subscribed"),
		}},
		"components": map[string]any{"schemas": schemas},
	}
	return json.Marshal(doc, json.Deterministic(true), jsontext.WithIndent("  "))
}

// requirementKey is the key of a reply's frozen fields: commands that are
// merely accepted each promise something else.
func requirementKey(row Row, r Reply) string {
	if r.replyType() == "accepted" {
		return "accepted:" + row.Name
	}
	return r.replyType()
}

func ref(name string) map[string]any { return map[string]any{"$ref": "#/components/schemas/" + name} }

// frozenFields lists a payload's required and optional fields without what v1
// does not freeze.
func frozenFields(t reflect.Type) (required, optional []string) {
	required, optional = []string{}, []string{}
	for name, f := range wireFields(t) {
		switch {
		case isOptional(f) && (f.Tag.Get("wire") != "added" || name == "session_id"): // which is ours, and everywhere
			optional = append(optional, name)
		case f.Tag.Get("wire") == "added":
		default:
			required = append(required, name)
		}
	}
	return required, optional
}

// wireFields yields the fields in order, those of embedded structs inlined.
func wireFields(t reflect.Type) func(func(string, reflect.StructField) bool) {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if f.Anonymous {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			if !yield(name, f) {
				return
			}
		}
	}
}

func isOptional(f reflect.StructField) bool { return strings.Contains(f.Tag.Get("json"), "omitzero") }

func schemaOf(t reflect.Type) map[string]any {
	if t.Kind() == reflect.Pointer {
		return schemaOf(t.Elem())
	}
	if s := leafSchema(t); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	}
	props, required := map[string]any{}, []string{}
	s := map[string]any{"type": "object", "properties": props}
	for name, f := range wireFields(t) {
		props[name] = fieldSchema(f)
		if alias := f.Tag.Get("alias"); alias != "" {
			s["anyOf"] = []any{needs(name), needs(alias)}
		} else if !isOptional(f) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func needs(names ...string) map[string]any { return map[string]any{"required": names} }

// eventSchema adds to an event's fields where they must be there: run events
// say which run, session and turn they belong to.
func eventSchema(ev Event) map[string]any {
	s := schemaOf(reflect.TypeOf(ev))
	where := []string{"run_id", "session_id", "turn_id"}
	switch ev.(type) {
	case Status, Warning, ErrorEvent: // may be the daemon's own
		return s
	case AgentStart, AgentEnd: // outside any turn
		where = where[:2]
	case MessageStart:
		s["if"], s["then"] = hasRole("user"), needs("text")
	case MessageUpdate:
		s["oneOf"] = []any{needs("delta"), needs("thinking_delta")}
	case MessageEnd:
		s["if"], s["then"] = hasRole("assistant"), needs("stop_reason", "usage")
	}
	required, _ := s["required"].([]string)
	s["required"] = append(where, required...)
	return s
}

func hasRole(role string) map[string]any {
	return map[string]any{"properties": map[string]any{"role": map[string]any{"const": role}}}
}

func fieldSchema(f reflect.StructField) map[string]any {
	s := schemaOf(f.Type)
	if t := f.Tag.Get("type"); t != "" {
		s = map[string]any{"type": t}
	}
	if names := f.Tag.Get("items"); names != "" {
		var choices []any
		for n := range strings.SplitSeq(names, ",") {
			choices = append(choices, ref(n))
		}
		s["items"] = map[string]any{"oneOf": choices}
	}
	if list := f.Tag.Get("enum"); list != "" {
		s["enum"] = strings.Split(list, ",")
	}
	if n, err := strconv.Atoi(f.Tag.Get("min")); err == nil {
		s[limitKeyword(s, "minLength", "minimum")] = n
	}
	if n, err := strconv.Atoi(f.Tag.Get("max")); err == nil {
		s[limitKeyword(s, "maxLength", "maximum")] = n
	}
	if doc := f.Tag.Get("doc"); doc != "" {
		s["description"] = doc
	}
	if f.Tag.Get("wire") == "added" {
		s["x-since"] = string(Added)
	}
	return s
}

func limitKeyword(s map[string]any, ofString, ofNumber string) string {
	if s["type"] == "string" {
		return ofString
	}
	return ofNumber
}

func leafSchema(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[jsontext.Value]():
		return map[string]any{}
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return map[string]any{"type": "integer"}
	}
	return nil
}

// wireType names a Go type as a client would.
func wireType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch s, _ := schemaOf(t)["type"].(string); s {
	case "array", "integer", "object":
		return "an " + s
	case "":
		return "any value"
	default:
		return "a " + s
	}
}

func envelopeSchemas() map[string]any {
	text, object := map[string]any{"type": "string"}, map[string]any{"type": "object"}
	base := map[string]any{
		"type": "object", "required": []string{"v", "id", "type", "payload"},
		"properties": map[string]any{"v": map[string]any{"const": Version}, "id": text, "type": text, "payload": object},
	}
	// Contract tests of clients look for the second schema of each allOf.
	extend := func(required []string, props map[string]any) map[string]any {
		return map[string]any{"allOf": []any{
			ref("EnvelopeBase"),
			map[string]any{"type": "object", "required": required, "properties": props},
		}}
	}
	names, types := []string{}, []string{}
	for _, row := range table {
		names = append(names, row.Name)
	}
	for _, ev := range EventTypes() {
		types = append(types, ev.Type())
	}
	failure := map[string]any{
		"type": "object", "required": []string{"code", "message"},
		"properties": map[string]any{"code": text, "message": text, "cause": text},
	}
	response := extend([]string{"ok"}, map[string]any{"ok": map[string]any{"type": "boolean"}, "error": failure})
	response["if"] = map[string]any{"properties": map[string]any{"ok": map[string]any{"const": false}}}
	response["then"] = map[string]any{
		"required":   []string{"error"},
		"properties": map[string]any{"type": map[string]any{"const": "error"}},
	}
	return map[string]any{
		"EnvelopeBase": base,
		"CommandEnvelope": extend([]string{}, map[string]any{
			"id":   map[string]any{"type": "string", "minLength": 1},
			"type": map[string]any{"enum": names},
		}),
		"ResponseEnvelope": response,
		"EventEnvelope": extend([]string{"ts"}, map[string]any{
			"type": map[string]any{"enum": types},
			"ts":   map[string]any{"type": "string", "format": "date-time"},
			"seq":  map[string]any{"type": "integer", "x-since": string(Added)},
		}),
	}
}
