package builtin

import (
	"errors"
	"math"
	"strconv"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

// decode reads params or arguments into a struct. Absent ones are an empty
// object, null is as good as absent. The fault names the field, with the
// prefix before it; where there is a prefix, a field that is not known is a
// fault too.
func decode(v jsontext.Value, prefix string, into any) *fault {
	switch v.Kind() {
	case 0, 'n':
		return nil
	case '{':
	default:
		return faultf(invalidParams, "%s: want an object", strings.TrimSuffix("params."+prefix, "."))
	}
	err := jsonx.Unmarshal(v, into, jsonx.RejectUnknownMembers(prefix != ""))
	if err == nil {
		return nil
	}
	var s *jsonx.SemanticError
	if !errors.As(err, &s) || s.JSONPointer == "" {
		return faultf(invalidParams, "%v", err)
	}
	field := prefix + strings.ReplaceAll(strings.TrimPrefix(string(s.JSONPointer), "/"), "/", ".")
	switch {
	case errors.Is(err, jsonx.ErrUnknownName):
		return faultf(invalidParams, "%s: there is no such argument", field)
	case s.JSONKind == 0 && s.Err != nil, errors.Is(s.Err, errNotWhole):
		return faultf(invalidParams, "%s: %v", field, s.Err)
	}
	return faultf(invalidParams, "%s: cannot be a JSON %s", field, tool.KindName(s.JSONKind))
}

// outside are the arguments with which a call runs outside the sandbox. The daemon has
// seen to it, and started us there.
type outside struct {
	Outside bool    `json:"outside_sandbox"`
	Reason  *string `json:"reason"`
}

// arguments reads an operation's arguments.
func arguments(v jsontext.Value, into any) error {
	if f := decode(v, "args.", into); f != nil {
		return f
	}
	return nil
}

// wrong is the fault of one argument.
func wrong(name, format string, args ...any) error {
	return faultf(invalidParams, "args."+name+": "+format, args...)
}

// text is an argument that may be empty and must be there.
func text(name string, v *string) (string, error) {
	if v == nil {
		return "", wrong(name, "missing")
	}
	return *v, nil
}

// word is an argument that must be there and say something.
func word(name string, v *string) (string, error) {
	s, err := text(name, v)
	if err == nil && s == "" {
		err = wrong(name, "empty")
	}
	return s, err
}

var errNotWhole = errors.New("want a whole number, 1 or more")

// count is a whole number of at least 1, however it is written. What is too
// large is as large as can be.
type count int

// UnmarshalJSON reads a JSON number.
func (n *count) UnmarshalJSON(b []byte) error {
	x, err := strconv.ParseFloat(string(b), 64)
	if err != nil || x != math.Trunc(x) || x < 1 {
		return errNotWhole
	}
	*n = count(min(x, 1<<53))
	return nil
}
