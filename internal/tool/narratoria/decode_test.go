package narratoria

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// members says with another JSON reader what a line has to say: nil for one
// that breaks the protocol (narratoria §2.3, §3, §5.2; tools.md §2).
func members(line []byte) map[string]any {
	var m map[string]any
	numbers := json.NewDecoder(bytes.NewReader(line))
	numbers.UseNumber()                                                    // they may be larger than any float
	whole := jsontext.Value(line).IsValid(jsontext.AllowInvalidUTF8(true)) // no name twice
	if !utf8.Valid(line) || !whole || numbers.Decode(&m) != nil || m == nil || depth(m) > maxDepth ||
		m["version"] != "0" || !slices.Contains(eventTypes, text(m["type"])) {
		return nil
	}
	return m
}

func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, w := range v {
			deepest = max(deepest, depth(w))
		}
	case []any:
		for _, w := range v {
			deepest = max(deepest, depth(w))
		}
	default:
		return 0
	}
	return deepest + 1
}

func text(v any) string { s, _ := v.(string); return s }

var plainMIME = regexp.MustCompile(`^[a-z]+/[a-z0-9.+-]+$`)

// keepsItsRules is the data model's validation rules.
func keepsItsRules(m map[string]any) bool {
	var required, objects []string
	switch m["type"] {
	case "log":
		if !slices.Contains([]any{"debug", "info", "warn", "error"}, m["level"]) {
			return false
		}
		required, objects = []string{"message"}, []string{"fields"}
	case "state_patch":
		_, ok := m["patch"].(map[string]any)
		return ok
	case "asset":
		required, objects = []string{"assetId", "kind", "mediaType", "path"}, []string{"metadata"}
	case "ui_event":
		required, objects = []string{"event"}, []string{"payload"}
	case "error":
		required, objects = []string{"errorCode", "errorMessage"}, []string{"details"}
	case "done":
		_, ok := m["ok"].(bool)
		_, words := m["summary"].(string)
		return ok && (words || m["summary"] == nil)
	}
	for _, name := range required {
		if text(m[name]) == "" {
			return false
		}
	}
	for _, name := range objects {
		if _, ok := m[name].(map[string]any); !ok && m[name] != nil {
			return false
		}
	}
	return true
}

func FuzzDecode(f *testing.F) {
	for _, line := range []string{
		`{"version":"0","type":"log","level":"info","message":"hi","fields":{}}`,
		`{"version":"0","type":"log","level":"info","message":"a\ud800b","x\udfff":1e999}`,
		`{"version":"0","type":"state_patch","patch":{"a":null}}`,
		`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png","path":"x","metadata":{"w":1}}`,
		`{"version":"0","type":"ui_event","event":"boom","payload":{}}`,
		`{"version":"0","type":"error","errorCode":"E","errorMessage":"m","details":{}}`,
		`{"version":"0","type":"done","ok":true,"summary":"s"}`,
		`{"version":"0","type":"state_patch","patch":` + nested(maxDepth) + `}`,
		` {"version":"\u0030","type":"done","ok":1,"ok":1}`, `{`, `[]`, ``, "\ufeff{}", "{\"\xff\":1}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		want := members(line)
		ev, err := decode(line)
		if string(line) != before {
			t.Fatal("the line was changed")
		}
		var bad *invalidEvent
		refused := errors.As(err, &bad)
		switch {
		case (err == nil || refused) != (want != nil):
			t.Fatalf("got %v, want it to break the protocol: %v", err, want == nil)
		case want == nil:
			if ev != nil || len(err.Error()) > 1000 {
				t.Fatalf("got %+v with %v", ev, err)
			}
			return
		case !jsontext.Value(ev.Raw).IsValid() || len(ev.Raw) > len(before):
			t.Fatalf("got %q, want it fit for the wire", ev.Raw)
		case jsontext.Value(before).IsValid() && string(ev.Raw) != before:
			t.Fatalf("got %q, want the line itself", ev.Raw)
		}
		if rules := keepsItsRules(want); refused && rules {
			if ev.Type != typeAsset || plainMIME.MatchString(ev.MediaType) {
				t.Fatalf("got %v, want it valid", err)
			}
		} else if !refused && !rules {
			t.Fatalf("got %+v, want it refused", ev)
		}
		if refused {
			if len(err.Error()) > 1000 && len(ev.MediaType) < 100 {
				t.Fatalf("got a reason of %d bytes", len(err.Error()))
			}
			return
		}
		if m := ev.MediaType; ev.Type == typeAsset && !strings.Contains(m, "/") {
			t.Fatalf("got media type %q", m)
		}
		for i := range line {
			line[i] = 'x' // the reader takes its buffer back
		}
		again, err := decode(ev.Raw)
		if diff := cmp.Diff(ev, again); err != nil || diff != "" {
			t.Fatalf("got %v, want the same from what is passed on: %s", err, diff)
		}
	})
}
