package narratoria

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestALineIsAnEventOrSaysWhyNot(t *testing.T) {
	const valid, invalid, broken = "valid", "invalid", "broken"
	for _, c := range []struct{ line, kind, reason string }{
		{`{"version":"0","type":"log","level":"info","message":"hi"}`, valid, ""},
		{`{"type":"log","version":"0","level":"warn","message":"hi","fields":{"a":1},"requestId":7,"zzz":[]}`, valid, ""},
		{`{"version":"0","type":"log","level":"info","message":"hi","fields":null}`, valid, ""},
		{`{"version":"0","type":"log","level":"loud","message":"hi"}`, invalid, "level is \"loud\""},
		{`{"version":"0","type":"log","message":"hi"}`, invalid, "level is absent"},
		{`{"version":"0","type":"log","level":"info","message":""}`, invalid, "message is \"\""},
		{`{"version":"0","type":"log","level":"info","message":7}`, invalid, "message is 7"},
		{`{"version":"0","type":"log","level":"info","message":"hi","fields":[]}`, invalid, "fields is []"},
		{`{"version":"0","type":"state_patch","patch":{}}`, valid, ""},
		{`{"version":"0","type":"state_patch","patch":null}`, invalid, "patch is null"},
		{`{"version":"0","type":"state_patch","patch":[1]}`, invalid, "patch is [1]"},
		{`{"version":"0","type":"state_patch"}`, invalid, "patch is absent"},
		{`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png; q=1","path":"x"}`, valid, ""},
		{`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"png","path":"x"}`, invalid, "mediaType"},
		{`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/","path":"x"}`, invalid, "mediaType"},
		{`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png;;","path":"x"}`, invalid, "mediaType"},
		{`{"version":"0","type":"asset","assetId":"","kind":"image","mediaType":"image/png","path":"x"}`, invalid, "assetId"},
		{`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png"}`, invalid, "path"},
		{`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png","path":"x","metadata":1}`, invalid, "metadata"},
		{`{"version":"0","type":"ui_event","event":"boom"}`, valid, ""},
		{`{"version":"0","type":"ui_event","event":"boom","payload":"x"}`, invalid, "payload"},
		{`{"version":"0","type":"ui_event"}`, invalid, "event"},
		{`{"version":"0","type":"error","errorCode":"E","errorMessage":"m"}`, valid, ""},
		{`{"version":"0","type":"error","errorCode":"E"}`, invalid, "errorMessage"},
		{`{"version":"0","type":"done","ok":false}`, valid, ""},
		{`{"version":"0","type":"done","ok":"yes"}`, invalid, "ok is \"yes\""},
		{`{"version":"0","type":"done","ok":true,"summary":1}`, invalid, "summary is 1"},
		{`{"version":0,"type":"done","ok":true}`, broken, "version is 0"},
		{`{"version":"1","type":"done","ok":true}`, broken, `version is "1"`},
		{`{"type":"done","ok":true}`, broken, "version is absent"},
		{`{"version":"0","type":"dance"}`, broken, `unknown event type "dance"`},
		{`{"version":"0","Type":"done","ok":true}`, broken, "unknown event type absent"},
		{`{"version":"0"}`, broken, "unknown event type absent"},
		{`{"version":"0","type":"done","ok":true} x`, broken, "not a JSON object"},
		{`{"version":"0","type":"done","ok":true,"ok":false}`, broken, "duplicate"},
		{`[{"version":"0"}]`, broken, "not a JSON object"},
		{`"done"`, broken, "not a JSON object"},
		{`Starting up...`, broken, "not a JSON object"},
		{`{"version":"0","type":"log","level":"info","message":"hi"`, broken, "not a JSON object"},
		{"{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"\xff\"}", broken, "UTF-8"},
		{"{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"m\",\"x\":\"\xff\"}", broken, "UTF-8"},
	} {
		_, err := decode([]byte(c.line))
		got := broken
		var bad *invalidEvent
		switch {
		case err == nil:
			got = valid
		case errors.As(err, &bad):
			got = invalid
		}
		if got != c.kind || err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: got %s (%v), want %s (%s)", c.line, got, err, c.kind, c.reason)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, line := range []string{
		`{"version":"0","type":"log","level":"info","message":"hi","fields":{}}`,
		`{"version":"0","type":"state_patch","patch":{"a":null}}`,
		`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png","path":"x","metadata":{"w":1}}`,
		`{"version":"0","type":"ui_event","event":"boom","payload":{}}`,
		`{"version":"0","type":"error","errorCode":"E","errorMessage":"m","details":{}}`,
		`{"version":"0","type":"done","ok":true,"summary":"s"}`,
		`{"version":"0","type":"done","ok":1}`, `{`, `[]`, ``,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := string(line)
		ev, err := decode(line)
		if string(line) != before {
			t.Fatal("the line was changed")
		}
		var bad *invalidEvent
		if err != nil && !errors.As(err, &bad) {
			if ev != nil {
				t.Fatalf("an event came with %v", err)
			}
			return
		}
		if !json.Valid(ev.Raw) || !utf8.Valid(ev.Raw) || string(ev.Raw) != before {
			t.Fatalf("got %q, want the line itself, valid", ev.Raw)
		}
		if err != nil {
			return
		}
		for i := range line {
			line[i] = 'x' // the reader takes its buffer back
		}
		required := map[string][]string{
			typeLog: {ev.Level, ev.Message}, typeStatePatch: {string(ev.Patch)}, typeUIEvent: {ev.Name},
			typeAsset: {ev.AssetID, ev.Kind, ev.MediaType, ev.Path}, typeError: {ev.ErrorCode, ev.ErrorDetail}, typeDone: nil,
		}
		values, known := required[ev.Type]
		if !known {
			t.Fatalf("got type %q", ev.Type)
		}
		for i, v := range values {
			if v == "" || !utf8.ValidString(v) {
				t.Fatalf("%s: required value %d is %q", ev.Type, i, v)
			}
		}
		if ev.Patch != nil && (!json.Valid(ev.Patch) || ev.Patch[0] != '{') {
			t.Fatalf("got patch %s, want an object", ev.Patch)
		}
	})
}
