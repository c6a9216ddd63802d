package gevals

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/tool"
)

// message is anything an extension may write: a reply has an id, a
// notification a method. Values are kept as they came, so that one of a wrong
// type does not make the line unreadable.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method jsontext.Value `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  jsontext.Value `json:"error"`
}

// maxDepth is how deep a line may nest.
const maxDepth = tool.MaxDepth

// decode reads one line, copying it. An error means that the line is no JSON
// object in UTF-8, or nests deeper than maxDepth.
func decode(line []byte) (*message, error) {
	m := new(message)
	if _, err := tool.DecodeObject(line, m); err != nil {
		return nil, err
	}
	return m, nil
}

// method is the name of a notification or request, "" for a reply.
func (m *message) method() string {
	s, _ := tool.Text(m.Method)
	return s
}

// absent takes null for what is not there: some writers put every field.
func absent(v jsontext.Value) bool { return v == nil || v.Kind() == 'n' }

// answers reports whether m is the reply to the request of that number. An id
// of another type, even the same number as a string, is another id.
func (m *message) answers(id int64) bool {
	if !absent(m.Method) || m.ID.Kind() != '0' {
		return false
	}
	n, err := strconv.ParseFloat(string(m.ID), 64)
	return err == nil && n == float64(id)
}

// outcome returns a reply's result, or its error as a fault. The error wins
// where both are present, and null counts as absent.
func (m *message) outcome() (jsontext.Value, error) {
	if !absent(m.Error) {
		return nil, remoteError(m.Error)
	}
	if absent(m.Result) {
		return nil, tool.Faultf(tool.ProtocolError, "the reply has neither a result nor an error")
	}
	return m.Result, nil
}

// remoteError keeps a JSON-RPC error's code as text (tools.md §3).
func remoteError(v jsontext.Value) *tool.Fault {
	var e struct {
		Code    jsontext.Value `json:"code"`
		Message jsontext.Value `json:"message"`
		Data    jsontext.Value `json:"data"`
	}
	if v.Kind() != '{' || jsonx.Unmarshal(v, &e) != nil || e.Code.Kind() != '0' {
		return tool.Faultf(tool.ProtocolError, "the reply's error is not a JSON-RPC error: %s", tool.Shorten(v))
	}
	f := &tool.Fault{Code: string(e.Code)}
	if n, err := strconv.ParseFloat(f.Code, 64); err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		f.Code = strconv.FormatInt(int64(n), 10) // -32000.0 is that number too
	}
	if f.Message, _ = tool.Text(e.Message); f.Message == "" {
		f.Message = "the extension gave no message"
	}
	if e.Data.Kind() == '{' {
		f.Details = jsontext.Value(e.Data)
	} else if !absent(e.Data) {
		f.Details = jsontext.Value(`{"data":` + string(e.Data) + `}`)
	}
	return f
}

// manifest is the reply to initialize.
type manifest struct {
	Name, Version   string
	ProtocolVersion string
	Requires        []string
	Operations      []tool.Operation
	Warnings        []string
}

type manifestDoc struct {
	Name            string                    `json:"name"`
	Version         string                    `json:"version"`
	ProtocolVersion jsontext.Value            `json:"protocolVersion"`
	Requires        []requirement             `json:"requires"`
	Operations      map[string]*manifestOpDoc `json:"operations"`
}

type requirement struct {
	Command string `json:"command"`
}

type manifestOpDoc struct {
	Description string         `json:"description"`
	Params      jsontext.Value `json:"params"`
}

// decodeManifest checks what initialize returned: name, version and operations
// must be there; another protocolVersion is a warning (tools.md §3).
func decodeManifest(v jsontext.Value) (*manifest, error) {
	var doc manifestDoc
	if err := jsonx.Unmarshal(v, &doc); err != nil {
		return nil, tool.Faultf(tool.ProtocolError, "the manifest is wrong: %v", err)
	}
	for name, missing := range map[string]bool{
		"name": doc.Name == "", "version": doc.Version == "", "operations": doc.Operations == nil,
	} {
		if missing {
			return nil, tool.Faultf(tool.ProtocolError, "the manifest has no %s", name)
		}
	}
	m := &manifest{Name: doc.Name, Version: doc.Version}
	if m.ProtocolVersion, _ = tool.Text(doc.ProtocolVersion); m.ProtocolVersion != protocolVersion {
		m.Warnings = append(m.Warnings, fmt.Sprintf("protocolVersion is %s, want %q", tool.Shorten(doc.ProtocolVersion),
			protocolVersion))
	}
	for _, r := range doc.Requires {
		if r.Command != "" {
			m.Requires = append(m.Requires, r.Command)
		}
	}
	for name, op := range doc.Operations {
		o := tool.Operation{Name: name}
		if op != nil {
			o.Description = op.Description
			if !absent(op.Params) {
				o.Params = jsontext.Value(op.Params)
			}
		}
		m.Operations = append(m.Operations, o)
	}
	slices.SortFunc(m.Operations, func(a, b tool.Operation) int { return strings.Compare(a.Name, b.Name) })
	return m, nil
}

// same reports whether two manifests offer the same operations.
func same(a, b []tool.Operation) bool {
	return slices.EqualFunc(a, b, func(x, y tool.Operation) bool {
		return x.Name == y.Name && x.Description == y.Description && string(x.Params) == string(y.Params)
	})
}

// decodeResult turns the result of execute into ours, with a warning for each
// thing in it that had to be bent.
func decodeResult(v jsontext.Value) (model.ToolResult, []string) {
	var doc struct {
		Success jsontext.Value `json:"success"`
		Message jsontext.Value `json:"message"`
		Error   jsontext.Value `json:"error"`
		Outputs jsontext.Value `json:"outputs"`
		Images  jsontext.Value `json:"images"`
	}
	if v.Kind() != '{' || jsonx.Unmarshal(v, &doc) != nil {
		return model.Failed(tool.ProtocolError, "the result is not an object: "+tool.Shorten(v)), nil
	}
	if k := doc.Success.Kind(); k != 't' && k != 'f' {
		return model.Failed(tool.ProtocolError, "success is "+tool.Shorten(doc.Success)+", want true or false"), nil
	}
	var warnings []string
	said := func(name string, v jsontext.Value) string {
		s, ok := tool.Text(v)
		if !ok && !absent(v) {
			warnings = append(warnings, name+" is not a string: "+tool.Shorten(v))
			s = string(v)
		}
		return s
	}
	summary, detail := said("message", doc.Message), said("error", doc.Error)
	outputs, bent := decodeOutputs(doc.Outputs)
	warnings = append(warnings, bent...)

	r := model.ToolResult{OK: doc.Success.Kind() == 't', Outputs: outputs, Value: []byte(v)}
	if !absent(doc.Images) && jsonx.Unmarshal(doc.Images, &r.Images) != nil {
		r.Images, warnings = nil, append(warnings, "images is not an array of paths: "+tool.Shorten(doc.Images))
	}
	r.Text = summary
	switch {
	case !r.OK:
		if detail == "" {
			detail, summary = summary, ""
		}
		if detail == "" {
			detail = "the extension reported a failure"
		}
		if summary != "" && summary != detail {
			detail = summary + ": " + detail
		}
		failed := model.Failed(tool.ToolFailed, detail)
		r.Text, r.Error = failed.Text, failed.Error
	case r.Text == "":
		r.Text = detail
	}
	r.Text = withOutputs(r.Text, outputs)
	return r, warnings
}

// decodeOutputs keeps a value that is no string as its JSON text.
func decodeOutputs(v jsontext.Value) (map[string]string, []string) {
	switch v.Kind() {
	case 0, 'n':
		return nil, nil
	case '{':
	default:
		return nil, []string{"outputs is not an object: " + tool.Shorten(v)}
	}
	var values map[string]jsontext.Value
	if err := jsonx.Unmarshal(v, &values); err != nil || len(values) == 0 {
		return nil, nil
	}
	var warnings []string
	outputs := make(map[string]string, len(values))
	for key, value := range values {
		s, ok := tool.Text(value)
		if !ok {
			s = string(value)
			warnings = append(warnings, fmt.Sprintf("output %q is not a string: %s", key, tool.Shorten(value)))
		}
		outputs[key] = s
	}
	slices.Sort(warnings)
	return outputs, warnings
}

// withOutputs is the text a model reads.
func withOutputs(head string, outputs map[string]string) string {
	var lines []string
	if head != "" {
		lines = append(lines, head)
	}
	keys := make([]string, 0, len(outputs))
	for key := range outputs {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		lines = append(lines, key+": "+outputs[key])
	}
	if len(lines) == 0 {
		return "done"
	}
	return strings.Join(lines, "\n")
}

// isLog reports whether m is a log notification; some say so with an id of
// null.
func (m *message) isLog() bool {
	return m.method() == "log" && absent(m.ID) && m.Params.Kind() == '{'
}

// isOutput reports whether m is a notification of what a command prints, which only the
// built-in tools send, and only when they were told in which file that will be.
func (m *message) isOutput() bool {
	return m.method() == "output" && absent(m.ID)
}

// kept is what such a notification has.
func (m *message) kept() ([]byte, bool) {
	var doc struct {
		Data []byte `json:"data"`
	}
	err := jsonx.Unmarshal(m.Params, &doc)
	return doc.Data, err == nil && len(doc.Data) > 0
}

// logUpdate is what people see of a log (gevals: Log). Its level is the
// client's business.
func logUpdate(params jsontext.Value) model.ToolUpdate {
	var doc struct {
		Message jsontext.Value `json:"message"`
	}
	u := model.ToolUpdate{Update: []byte(params)}
	if jsonx.Unmarshal(params, &doc) != nil || absent(doc.Message) {
		return u
	}
	var ok bool
	if u.Delta, ok = tool.Text(doc.Message); !ok {
		u.Delta = string(doc.Message)
	}
	return u
}
