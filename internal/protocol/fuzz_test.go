package protocol

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// frozenLines are the lines of the transcripts, to start from.
func frozenLines(f *testing.F) (lines []string) {
	f.Helper()
	paths, err := filepath.Glob("testdata/v1/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

var invalidReasons = []Reason{InvalidJSON, InvalidVersion, MissingID, MissingType, UnknownCommand, LineTooLong}

// checkWireError sees that an error about a client's line is one that v1 knows.
func checkWireError(t *testing.T, err *Error) {
	t.Helper()
	reason, rest, ok := strings.Cut(err.Message, ": ")
	switch err.Code {
	case InvalidCommand:
		if !ok || !slices.Contains(invalidReasons, Reason(reason)) {
			t.Errorf("message %q starts with no known reason", err.Message)
		}
	case InvalidPayload:
		if !ok || reason == "" || strings.Contains(reason, " ") {
			t.Errorf("message %q names no field", err.Message)
		}
	default:
		t.Errorf("code %s for a line that does not decode", err.Code)
	}
	if rest == "" || len(err.Message) > 1<<10 {
		t.Errorf("message %q is empty or long", err.Message)
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, line := range frozenLines(f) {
		f.Add([]byte(line))
	}
	for _, line := range []string{
		"null", "{}", `{"v":1e0,"id":"c","type":"t"}`,
		`{"id":"c","type":"t","payload":{"a":{"a":1,"a":2}}}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := slices.Clone(line)
		cmd, err := DecodeCommand(line)
		if !slices.Equal(before, line) {
			t.Fatal("the line was written to")
		}
		// The reference: what a lenient reader finds in the line.
		var seen map[string]jsontext.Value
		valid := json.Unmarshal(line, &seen) == nil && seen != nil
		var id string
		hasID := valid && seen["id"].Kind() == jsontext.KindString && json.Unmarshal(seen["id"], &id) == nil
		if valid && hasID && cmd.ID != id {
			t.Errorf("got id %q, want the line's %q", cmd.ID, id)
		}
		if valid && !hasID && cmd.ID != "" {
			t.Errorf("got id %q from a line without one", cmd.ID)
		}
		if !utf8.ValidString(cmd.ID) {
			t.Errorf("id %q is not UTF-8", cmd.ID)
		}
		if err != nil {
			checkWireError(t, err)
			if valid == strings.HasPrefix(err.Message, string(InvalidJSON)) {
				t.Errorf("valid JSON object: %t, error: %v", valid, err)
			}
			if reply := AppendError(nil, cmd.ID, err); !jsontext.Value(reply).IsValid() ||
				strings.Count(string(reply), "\n") != 1 {
				t.Errorf("the reply is not one line of JSON: %q", reply)
			}
			return
		}
		if !valid || cmd.ID == "" || cmd.Type == "" || cmd.Payload.Kind() != jsontext.KindBeginObject ||
			!cmd.Payload.IsValid() {
			t.Errorf("accepted as %+v", cmd)
		}
		clear(line)
		if !cmd.Payload.IsValid() {
			t.Error("the payload changes with the line's buffer")
		}
	})
}

// FuzzParams feeds every command's payload. What is accepted satisfies the
// published schema and comes back the same when it is encoded and decoded
// again; what is refused names a field.
func FuzzParams(f *testing.F) {
	names := map[string]uint8{}
	for i, row := range Table() {
		names[row.Name] = uint8(i)
	}
	for _, line := range frozenLines(f) {
		if cmd, err := DecodeCommand([]byte(line)); err == nil {
			f.Add(names[cmd.Type], []byte(cmd.Payload))
		}
	}
	for _, p := range sampleParams() {
		payload, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		for i, row := range Table() {
			if reflect.TypeOf(row.Params) == reflect.TypeOf(p) {
				f.Add(uint8(i), payload)
			}
		}
	}
	schema := schemas(f)
	r := newRecorder()
	f.Fuzz(func(t *testing.T, row uint8, payload []byte) {
		// A payload is what DecodeCommand lets through.
		if v := jsontext.Value(payload); v.Kind() != jsontext.KindBeginObject || !v.IsValid() {
			t.Skip()
		}
		def := Table()[int(row)%len(Table())]
		params, err := r.run(def.Name, string(payload))
		if err != nil {
			var wire *Error
			if !errors.As(err, &wire) || wire.Code != InvalidPayload {
				t.Fatalf("%s: got %v, want invalid_payload", def.Name, err)
			}
			checkWireError(t, wire)
			return
		}
		text, err := json.Marshal(params)
		if err != nil {
			t.Fatalf("%s: %v", def.Name, err)
		}
		name := reflect.TypeOf(def.Params).Name()
		if err := schema(name).Validate(withoutNulls(parse(t, payload))); err != nil {
			t.Errorf("%s: accepted, but not by the schema %s: %v", payload, name, err)
		}
		again, err := r.run(def.Name, string(text))
		if diff := cmp.Diff(params, again); diff != "" || err != nil {
			t.Errorf("%s %s: comes back with error %v (-first +second):\n%s", def.Name, payload, err, diff)
		}
	})
}

// withoutNulls drops the top-level nulls, which stand for absent fields.
func withoutNulls(v any) any {
	fields := v.(map[string]any)
	for name, value := range fields {
		if value == nil {
			delete(fields, name)
		}
	}
	return fields
}
