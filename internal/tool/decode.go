package tool

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"noused/internal/format"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep a line may nest: far deeper than any use, and far from
// what the readers and writers of the session can do (tools.md §5).
const MaxDepth = 1000

// ErrTooDeep is that of an object which nests deeper than [MaxDepth].
var ErrTooDeep = fmt.Errorf("nested deeper than %d levels", MaxDepth)

// DecodeObject reads a JSON object that a tool wrote into a struct or a map,
// copying it, and returns what it has read: text itself, or a copy in which half
// a surrogate pair as an escape, which the JSON writers of Python and Node make
// of file names that are no text, has become U+FFFD. It never changes text. An
// error means that text is no object, is not UTF-8, or is [ErrTooDeep].
func DecodeObject(text jsontext.Value, into any) (jsontext.Value, error) {
	switch {
	case !utf8.Valid(text):
		return nil, errors.New("not UTF-8")
	case text.Kind() != '{':
		return nil, errors.New("not a JSON object")
	case nestsDeeper(text, MaxDepth):
		return nil, ErrTooDeep
	}
	err := jsonx.Unmarshal(text, into)
	if err == nil {
		return text, nil
	}
	mended := text.Clone()
	if mended.Format(jsontext.AllowInvalidUTF8(true)) == nil {
		err = jsonx.Unmarshal(mended, into) // every member once more
	}
	if err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return mended, nil
}

func nestsDeeper(v jsontext.Value, limit int) bool {
	if bytes.Count(v, []byte("{"))+bytes.Count(v, []byte("[")) <= limit {
		return false
	}
	d := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowInvalidUTF8(true))
	for d.StackDepth() <= limit {
		if _, err := d.ReadToken(); err != nil {
			return false
		}
	}
	return true
}

// Text reads a JSON string. False: v is something else.
func Text(v jsontext.Value) (s string, ok bool) {
	if v.Kind() != '"' {
		return "", false
	}
	return s, jsonx.Unmarshal(v, &s) == nil
}

// Shorten is a value from a tool as an error message quotes it.
func Shorten(v jsontext.Value) string {
	const most = 120
	if v == nil {
		return "absent"
	}
	return format.Clip(string(v[:min(len(v), most+1)]), most)
}

// Readable says in the file's words what the decoder says in Go's.
func Readable(err error) error {
	var s *jsonx.SemanticError
	if errors.As(err, &s) && s.JSONPointer != "" && s.GoType != nil {
		where := strings.ReplaceAll(strings.TrimPrefix(string(s.JSONPointer), "/"), "/", ".")
		if s.Err != nil {
			return field(where, "%v", s.Err)
		}
		return field(where, "cannot be a JSON %s", KindName(s.JSONKind))
	}
	var x *jsontext.SyntacticError
	if errors.As(err, &x) {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	return err
}

// KindName is a kind of JSON value in words.
func KindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	}
	return k.String()
}
