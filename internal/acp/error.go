package acp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Code is what a JSON-RPC error is about.
type Code int

// The codes that ACP uses.
const (
	ParseError       Code = -32700
	InvalidRequest   Code = -32600
	MethodNotFound   Code = -32601
	InvalidParams    Code = -32602
	InternalError    Code = -32603
	AuthRequired     Code = -32000
	ResourceNotFound Code = -32002
	Cancelled        Code = -32800
)

// Error is a JSON-RPC error. Message is for people and begins with the field that
// is wrong, where one is.
type Error struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")}
}

// Checked are parameters that say what is wrong with them.
type Checked interface{ check() *Error }

// Decode reads the parameters of a method. Unknown fields are ignored; what is
// missing or wrong is an InvalidParams that names the field.
func Decode[P Checked](params jsontext.Value) (p P, err *Error) {
	if params == nil || params.Kind() == 'n' {
		params = jsontext.Value("{}")
	}
	if params.Kind() != '{' {
		return p, Errorf(InvalidParams, "params: want an object")
	}
	if err := json.Unmarshal(params, &p); err != nil {
		var semantic *json.SemanticError
		if name := ""; errors.As(err, &semantic) {
			name = pointer(semantic)
			return p, Errorf(InvalidParams, "%s: has the wrong type", name)
		}
		return p, Errorf(InvalidParams, "params: %v", err)
	}
	return p, p.check()
}

// pointer is the place of an error: the names and indexes on the way, with dots.
func pointer(err *json.SemanticError) string {
	var parts []string
	for part := range err.JSONPointer.Tokens() {
		parts = append(parts, part)
	}
	return strings.Join(parts, ".")
}

// need is what is wrong with a string that must be there.
func need(name string, value *string) *Error {
	switch {
	case value == nil:
		return Errorf(InvalidParams, "%s: missing", name)
	case *value == "":
		return Errorf(InvalidParams, "%s: want a non-empty string", name)
	default:
		return nil
	}
}

func first(errs ...*Error) *Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
