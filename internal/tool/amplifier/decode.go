package amplifier

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/tool"
)

// object is a reply. Values are kept as they came, so that one of a wrong type
// does not make the reply unreadable.
type object map[string]jsontext.Value

// decode reads one reply, copying it.
func decode(text []byte) (object, error) {
	var o object
	if _, err := tool.DecodeObject(text, &o); err != nil {
		return nil, err
	}
	return o, nil
}

func (o object) String() string {
	text, err := jsonx.Marshal(o, jsonx.Deterministic(true))
	if err != nil {
		return err.Error()
	}
	return tool.Shorten(text)
}

func (o object) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return o[k] != nil })
}

// answers reports whether o is the reply to the JSON-RPC request of that
// number.
func (o object) answers(id int64) bool {
	if o.has("method") || o["id"].Kind() != '0' {
		return false
	}
	n, err := strconv.ParseFloat(string(o["id"]), 64)
	return err == nil && n == float64(id)
}

// payload returns the object that has one of the keys: the reply itself, or
// what is under its result, twice where a success is wrapped once more
// (tools.md §4). The error is the fault that the reply reports instead.
func (o object) payload(keys ...string) (object, error) {
	for depth := 0; ; depth++ {
		switch {
		case o["ok"].Kind() == 'f':
			return nil, moduleError(o["error"])
		case o.has(keys...):
			return o, nil
		}
		if k := o["error"].Kind(); k != 0 && k != 'n' {
			return nil, rpcError(o["error"])
		}
		inner, err := decode(o["result"])
		if err != nil || depth == 2 {
			return nil, tool.Faultf(tool.Internal, "the reply has no %s: %v", keys[0], o)
		}
		o = inner
	}
}

// own is the module's reply to invoke, which may be inside of another.
func (o object) own() object {
	if !o.has("ok") {
		if inner, err := decode(o["result"]); err == nil && inner.has("ok") {
			return inner
		}
	}
	return o
}

// shown is the result with the images that the reply names beside it, as paths.
func (o object) shown(r model.ToolResult) model.ToolResult {
	images := o.own()["images"]
	if k := images.Kind(); k == 0 || k == 'n' {
		return r
	}
	if jsonx.Unmarshal(images, &r.Images) != nil {
		r.Images, r.Text = nil, r.Text+"\n[images is not an array of paths: "+tool.Shorten(images)+"]"
	}
	return r
}

// outcome is the result of invoke (amplifier-protocols §2): any JSON value, or
// the fault. A success without a result has null.
func (o object) outcome() (jsontext.Value, error) {
	o = o.own()
	switch e := o["error"]; {
	case o["ok"].Kind() == 't' && o["result"] == nil:
		return jsontext.Value("null"), nil
	case o["ok"].Kind() == 't':
		return jsontext.Value(o["result"]), nil
	case o["ok"].Kind() == 'f':
		return nil, moduleError(e)
	case o.has("ok"):
		return nil, tool.Faultf(tool.Internal, "the reply's ok is %s, want true or false", tool.Shorten(o["ok"]))
	case e.Kind() != 0 && e.Kind() != 'n':
		return nil, rpcError(e)
	}
	return nil, tool.Faultf(tool.Internal, "the reply has no ok: %v", o)
}

// healthy returns why a reply to health is not {"status":"ok"}.
func (o object) healthy() error {
	p, err := o.payload("status")
	if err != nil {
		return err
	}
	if s, _ := tool.Text(p["status"]); s != "ok" {
		return tool.Faultf(tool.Unreachable, "status is %s", tool.Shorten(p["status"]))
	}
	return nil
}

// moduleError passes a failure of the module's own on (amplifier-protocols §4).
// What it left out is filled in.
func moduleError(v jsontext.Value) *tool.Fault {
	f := &tool.Fault{Code: tool.Internal, Message: "the module reported a failure and gave no message"}
	e, err := decode(v)
	if err != nil {
		if s, ok := tool.Text(v); ok && s != "" {
			f.Message = s
		}
		return f
	}
	if s, ok := tool.Text(e["code"]); ok && s != "" {
		f.Code = s
	} else if e["code"].Kind() == '0' {
		f.Code = string(e["code"])
	}
	if s, ok := tool.Text(e["message"]); ok && s != "" {
		f.Message = s
	}
	f.Details = detailsOf("details", e["details"])
	return f
}

// rpcError maps an error of JSON-RPC itself to a reserved code; its number is
// in the details.
func rpcError(v jsontext.Value) *tool.Fault {
	e, err := decode(v)
	if err != nil || e["code"].Kind() != '0' {
		return tool.Faultf(tool.Internal, "the reply has no ok, and its error is not a JSON-RPC error: %s", tool.Shorten(v))
	}
	f := &tool.Fault{Code: tool.Internal}
	switch string(e["code"]) {
	case "-32601":
		f.Code = tool.UnsupportedOp
	case "-32602":
		f.Code = tool.BadRequest
	}
	if f.Message, _ = tool.Text(e["message"]); f.Message == "" {
		f.Message = "JSON-RPC error " + string(e["code"])
	}
	details := object{"code": e["code"]}
	if k := e["data"].Kind(); k != 0 && k != 'n' {
		details["data"] = e["data"]
	}
	if text, err := jsonx.Marshal(details, jsonx.Deterministic(true)); err == nil {
		f.Details = jsontext.Value(text)
	}
	return f
}

// detailsOf keeps a value that is no object under a name.
func detailsOf(name string, v jsontext.Value) jsontext.Value {
	switch v.Kind() {
	case 0, 'n':
		return nil
	case '{':
		return jsontext.Value(v)
	}
	return jsontext.Value(fmt.Sprintf("{%q:%s}", name, v))
}

// resultOf is what a model gets: a string as it is, anything else as compact
// JSON.
func resultOf(v jsontext.Value) model.ToolResult {
	value := jsontext.Value(v).Clone()
	if err := value.Compact(); err != nil {
		return model.Failed(tool.Internal, "the result is not JSON: "+err.Error())
	}
	text, ok := tool.Text(value)
	if !ok {
		text = string(value)
	}
	return model.ToolResult{OK: true, Text: text, Value: []byte(value)}
}

// planSchema describes the one operation of an agent (amplifier-protocols §5).
const planSchema = `{"type":"object","required":["goal"],"properties":{"goal":{"type":"string"},"inputs":{"type":"object"}}}`

// operations are those of the describe reply's capabilities, else the
// descriptor's, each with the schema that the reply has for it, else the
// descriptor's (tools.md §4). The warnings name what could not be used.
func operations(d *tool.Descriptor, described object) (ops []tool.Operation, warnings []string) {
	names, warnings := capabilities(described["capabilities"])
	if len(names) == 0 {
		names = slices.Clone(d.Capabilities)
	}
	known := make(map[string]tool.Operation)
	for _, op := range d.Operations {
		known[op.Name] = op
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(known))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	params, bent := schemas(described["inputs"], names)
	for _, name := range names {
		op := tool.Operation{Name: name, Description: known[name].Description, Params: known[name].Params}
		if op.Description == "" {
			op.Description = d.Description
		}
		if s := params[name]; s != nil {
			op.Params = jsontext.Value(s)
		}
		ops = append(ops, op)
	}
	return ops, append(warnings, bent...)
}

func capabilities(v jsontext.Value) (names, warnings []string) {
	if k := v.Kind(); k == 0 || k == 'n' {
		return nil, nil
	}
	var values []jsontext.Value
	if v.Kind() != '[' || jsonx.Unmarshal(v, &values) != nil {
		return nil, []string{"capabilities is not an array: " + tool.Shorten(v)}
	}
	for _, value := range values {
		if s, ok := tool.Text(value); ok && s != "" {
			names = append(names, s)
		} else {
			warnings = append(warnings, "a capability is not a name: "+tool.Shorten(value))
		}
	}
	return names, warnings
}

// schemas reads inputs: operation → JSON Schema, or the schema itself where
// there is one operation.
func schemas(v jsontext.Value, names []string) (map[string]jsontext.Value, []string) {
	if k := v.Kind(); k == 0 || k == 'n' {
		return nil, nil
	}
	inputs, err := decode(v)
	if err != nil {
		return nil, []string{"inputs is not an object: " + tool.Shorten(v)}
	}
	if len(names) == 1 && isSchema(inputs, names[0]) {
		return object{names[0]: v}, nil
	}
	var warnings []string
	for name, s := range inputs {
		switch {
		case !slices.Contains(names, name):
			warnings = append(warnings, fmt.Sprintf("inputs has %q, which is not an operation", name))
			delete(inputs, name)
		case s.Kind() == 'n':
			delete(inputs, name)
		case s.Kind() != '{' && s.Kind() != 't' && s.Kind() != 'f':
			warnings = append(warnings, fmt.Sprintf("inputs of %q is not a JSON Schema: %s", name, tool.Shorten(s)))
			delete(inputs, name)
		}
	}
	slices.Sort(warnings)
	return inputs, warnings
}

// isSchema tells the schema of the one operation from a map with that one
// operation in it: by what only a schema has.
func isSchema(inputs object, op string) bool {
	if len(inputs) == 0 {
		return true
	}
	if k := inputs["type"].Kind(); k == '"' || k == '[' {
		return true
	}
	for _, word := range []string{
		"$schema", "$ref", "properties", "required", "allOf", "anyOf", "oneOf",
		"additionalProperties",
	} {
		if word != op && inputs.has(word) {
			return true
		}
	}
	return false
}
