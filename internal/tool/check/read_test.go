package check

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/proc"
	"noused/internal/protocol"
)

func newNarration() *narration {
	return &narration{sheet: newSheet(narratoriaClauses), requestID: "r1", readable: func(path string) error {
		if path == "gone" {
			return errors.New("gone: no such file")
		}
		return nil
	}}
}

func TestEachEventOfANarratoriaToolIsReadStrictly(t *testing.T) {
	const log = `{"version":"0","type":"log","level":"info","message":"hm"}`
	for name, c := range map[string]struct {
		lines []string
		want  []*clause
	}{
		"everything": {[]string{
			log,
			`{"version":"0","type":"log","level":"warn","message":"m","fields":{},"requestId":"r1","timestamp":"2026-01-31T12:00:00.5Z","more":1}`,
			`{"version":"0","type":"state_patch","patch":{"a":null}}`,
			`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/svg+xml; charset=utf-8","path":"p","metadata":{}}`,
			`{"version":"0","type":"ui_event","event":"notify","payload":{}}`,
			`{"version":"0","type":"error","errorCode":"c","errorMessage":"m","details":{}}`,
			`{"version":"0","type":"done","ok":false,"summary":""}`,
		}, nil},
		"text":                 {[]string{"hello", done}, []*clause{nJSON}},
		"an array":             {[]string{"[1]", done}, []*clause{nJSON}},
		"the same field twice": {[]string{`{"version":"0","version":"0","type":"done","ok":true}`, done}, []*clause{nJSON}},
		"half a line":          {[]string{`{"version":"0",`, done}, []*clause{nJSON}},
		"latin-1": {[]string{
			"{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"gr\xfc\xdfe\"}", done,
		}, []*clause{nUTF8}},
		"version 0":            {[]string{`{"version":0,"type":"done","ok":true}`}, []*clause{nVersion}},
		"no version":           {[]string{`{"type":"done","ok":true}`}, []*clause{nVersion}},
		"version 1":            {[]string{`{"version":"1","type":"done","ok":true}`}, []*clause{nVersion}},
		"unknown type":         {[]string{`{"version":"0","type":"result"}`, done}, []*clause{nType}},
		"no type":              {[]string{`{"version":"0"}`, done}, []*clause{nType}},
		"another request's id": {[]string{`{"version":"0","type":"done","ok":true,"requestId":"r2"}`}, []*clause{nOptions}},
		"a time of its own": {
			[]string{`{"version":"0","type":"done","ok":true,"timestamp":1700000000}`},
			[]*clause{nOptions},
		},
		"log without a level": {[]string{`{"version":"0","type":"log","message":"hm"}`, done}, []*clause{nLog}},
		"log with level fatal": {
			[]string{`{"version":"0","type":"log","level":"fatal","message":"hm"}`, done},
			[]*clause{nLog},
		},
		"log of nothing": {[]string{`{"version":"0","type":"log","level":"info","message":""}`, done}, []*clause{nLog}},
		"log with text fields": {
			[]string{`{"version":"0","type":"log","level":"info","message":"m","fields":"x"}`, done},
			[]*clause{nLog},
		},
		"a patch of null": {[]string{`{"version":"0","type":"state_patch","patch":null}`, done}, []*clause{nPatch}},
		"no MIME type": {[]string{
			`{"version":"0","type":"asset","assetId":"a","kind":"k","mediaType":"png","path":"p"}`, done,
		}, []*clause{nAsset}},
		"no path": {[]string{
			`{"version":"0","type":"asset","assetId":"a","kind":"k","mediaType":"image/png"}`,
			done,
		}, []*clause{nAsset}},
		"a file that is not there": {
			[]string{`{"version":"0","type":"asset","assetId":"a","kind":"k","mediaType":"image/png","path":"gone"}`, done},
			[]*clause{nFile},
		},
		"an assetId twice": {[]string{
			`{"version":"0","type":"asset","assetId":"a","kind":"k","mediaType":"image/png","path":"p"}`,
			`{"version":"0","type":"asset","assetId":"a","kind":"k","mediaType":"image/png","path":"q"}`, done,
		}, []*clause{nUnique}},
		"a ui_event without event": {[]string{`{"version":"0","type":"ui_event"}`, done}, []*clause{nUI}},
		"an error without a code":  {[]string{`{"version":"0","type":"error","errorMessage":"m"}`, done}, []*clause{nError}},
		"done without ok":          {[]string{`{"version":"0","type":"done"}`}, []*clause{nDone}},
		"done with ok yes":         {[]string{`{"version":"0","type":"done","ok":"yes"}`}, []*clause{nDone}},
		"done with a summary of 1": {[]string{`{"version":"0","type":"done","ok":true,"summary":1}`}, []*clause{nDone}},
		"no done":                  {[]string{log}, []*clause{nOneDone}},
		"done twice":               {[]string{done, done}, []*clause{nOneDone, nLast}},
		"a log after done":         {[]string{done, log}, []*clause{nLast}},
		"text after done":          {[]string{done, "bye"}, []*clause{nLast}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNarration()
			for _, line := range c.lines {
				n.line([]byte(line))
			}
			n.end(callEnd{})
			if d := cmp.Diff(text(c.want...), failures(n.findings("", "not seen"))); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
		})
	}
}

func TestTheEndOfANarratoriaCallIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		end  callEnd
		want []*clause
	}{
		"well":     {callEnd{}, nil},
		"status 1": {callEnd{ending: ending{exit: proc.Exit{Code: 1}}}, []*clause{nExit}},
		"a signal": {callEnd{ending: ending{exit: proc.Exit{Code: -1, Signal: 11}}}, []*clause{nExit}},
		"too late": {
			callEnd{late: true, ending: ending{exit: proc.Exit{Stopped: true, Signal: 15}}},
			[]*clause{nPrompt},
		},
		"a child is left": {callEnd{ending: ending{left: []string{"process 1 (sleep)"}}}, []*clause{nLeft}},
		"a line too long": {callEnd{err: &protocol.LineTooLongError{Limit: 1}}, []*clause{nLong}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNarration()
			n.line([]byte(done))
			n.end(c.end)
			if d := cmp.Diff(text(c.want...), failures(n.findings("", "not seen"))); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
		})
	}
}

func newExchange() *exchange {
	return &exchange{
		sheet: newSheet(gevalsClauses), rules: gRPC, id: 7,
		notify: func(method string, _ jsontext.Value) string {
			return ifNot(method == "log", "unknown")
		},
	}
}

func TestEachLineOfAnExtensionIsReadStrictly(t *testing.T) {
	const ok = `{"jsonrpc":"2.0","id":7,"result":{}}`
	for name, c := range map[string]struct {
		lines []string
		want  []*clause
	}{
		"a result":           {[]string{ok}, nil},
		"an error":           {[]string{`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"m","data":1}}`}, nil},
		"a log and a result": {[]string{`{"jsonrpc":"2.0","method":"log","params":{}}`, ok}, nil},
		"text":               {[]string{"hello", ok}, []*clause{gRPC.json}},
		"latin-1":            {[]string{"\xfc", ok}, []*clause{gRPC.utf8}},
		"no version":         {[]string{`{"id":7,"result":{}}`}, []*clause{gRPC.version}},
		"version 2":          {[]string{`{"jsonrpc":2,"id":7,"result":{}}`}, []*clause{gRPC.version}},
		"an id of text":      {[]string{`{"jsonrpc":"2.0","id":"7","result":{}}`}, []*clause{gRPC.id}},
		"another's id":       {[]string{`{"jsonrpc":"2.0","id":8,"result":{}}`, ok}, []*clause{gRPC.id}},
		"two replies":        {[]string{ok, ok}, []*clause{gRPC.id}},
		"both": {
			[]string{`{"jsonrpc":"2.0","id":7,"result":null,"error":{"code":1,"message":"m"}}`},
			[]*clause{gRPC.either},
		},
		"neither":          {[]string{`{"jsonrpc":"2.0","id":7}`}, []*clause{gRPC.either}},
		"an error of text": {[]string{`{"jsonrpc":"2.0","id":7,"error":"no"}`}, []*clause{gRPC.fault}},
		"a code of text": {
			[]string{`{"jsonrpc":"2.0","id":7,"error":{"code":"1","message":"m"}}`},
			[]*clause{gRPC.fault},
		},
		"no message":            {[]string{`{"jsonrpc":"2.0","id":7,"error":{"code":1}}`}, []*clause{gRPC.fault}},
		"a request":             {[]string{`{"jsonrpc":"2.0","id":1,"method":"log","params":{}}`, ok}, []*clause{gRPC.json}},
		"an unknown method":     {[]string{`{"jsonrpc":"2.0","method":"progress","params":{}}`, ok}, []*clause{gRPC.json}},
		"a number for a method": {[]string{`{"jsonrpc":"2.0","method":1}`, ok}, []*clause{gRPC.json}},
		"a reply to nobody": {
			[]string{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, ok},
			[]*clause{gRPC.id},
		},
		"the id as 7.0 is a 7":   {[]string{`{"jsonrpc":"2.0","id":7.0,"result":{}}`}, nil},
		"a reply without its id": {[]string{`{"jsonrpc":"2.0","result":{}}`}, []*clause{gRPC.id}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newExchange()
			for _, line := range c.lines {
				x.line([]byte(line))
			}
			if !x.answered {
				t.Error("the request counts as not answered")
			}
			if d := cmp.Diff(text(c.want...), failures(x.findings("", "not seen"))); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
		})
	}
}

// reading is a function that reads a value, with what it finds in it.
type reading struct {
	value string
	want  []*clause
}

func testReadings(t *testing.T, clauses []*clause, read func(*sheet, jsontext.Value), cases map[string]reading) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSheet(clauses)
			read(s, jsontext.Value(c.value))
			if d := cmp.Diff(text(c.want...), failures(s.findings("", "not seen"))); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
		})
	}
}

func TestAManifestIsReadStrictly(t *testing.T) {
	lookPath := func(name string) (string, error) {
		if name == "kubectl" {
			return "", errors.New("kubectl: not found in PATH")
		}
		return "/bin/" + name, nil
	}
	testReadings(t, gevalsClauses, func(s *sheet, v jsontext.Value) { checkManifest(s, v, lookPath) }, map[string]reading{
		"whole": {
			`{"name":"n","version":"1.2.3-rc.1","protocolVersion":"0.0.1","description":"d","requires":[{"command":"sh"}],` +
				`"operations":{"run":{"description":"d","params":{"type":"object"}}}}`, nil,
		},
		"nothing":          {`null`, []*clause{gManifest}},
		"no name":          {`{"version":"1.0.0","protocolVersion":"0.0.1","operations":{}}`, []*clause{gManifest}},
		"version 1":        {`{"name":"n","version":"1","protocolVersion":"0.0.1","operations":{}}`, []*clause{gManifest}},
		"another protocol": {`{"name":"n","version":"1.0.0","protocolVersion":"1","operations":{}}`, []*clause{gManifest}},
		"operations in a row": {
			`{"name":"n","version":"1.0.0","protocolVersion":"0.0.1","operations":["run"]}`,
			[]*clause{gManifest},
		},
		"no params": {
			`{"name":"n","version":"1.0.0","protocolVersion":"0.0.1","operations":{"run":{}}}`,
			[]*clause{gParams},
		},
		"params of no schema": {
			`{"name":"n","version":"1.0.0","protocolVersion":"0.0.1","operations":{"run":{"params":{"type":"text"}}}}`,
			[]*clause{gParams},
		},
		"a missing command": {
			`{"name":"n","version":"1.0.0","protocolVersion":"0.0.1","requires":[{"command":"kubectl"}],"operations":{}}`,
			[]*clause{gRequires},
		},
		"requires of strings": {
			`{"name":"n","version":"1.0.0","protocolVersion":"0.0.1","requires":["sh"],"operations":{}}`,
			[]*clause{gRequires},
		},
	})
}

func TestResultsAndLogsAreReadStrictly(t *testing.T) {
	testReadings(t, gevalsCallClauses, checkResult, map[string]reading{
		"success":            {`{"success":true,"message":"m","outputs":{"a":"b"}}`, nil},
		"failure":            {`{"success":false,"error":"e"}`, nil},
		"nothing":            {`{}`, []*clause{gResult}},
		"text":               {`"done"`, []*clause{gResult}},
		"success of text":    {`{"success":"yes"}`, []*clause{gResult}},
		"an error of object": {`{"success":false,"error":{}}`, []*clause{gResult}},
		"an output of 1":     {`{"success":true,"outputs":{"a":1}}`, []*clause{gResult}},
	})
	testReadings(t, gevalsCallClauses, checkLog, map[string]reading{
		"log":        {`{"level":"debug","message":"m","data":{}}`, nil},
		"no level":   {`{"message":"m"}`, []*clause{gLogs}},
		"no message": {`{"level":"info"}`, []*clause{gLogs}},
		"text":       {`"m"`, []*clause{gLogs}},
	})
}

func TestModulesAreReadStrictly(t *testing.T) {
	testReadings(t, moduleClauses, checkHealth, map[string]reading{
		"well": {`{"status":"ok"}`, nil}, "under result": {`{"result":{"status":"ok"}}`, nil},
		"ill": {`{"status":"degraded"}`, []*clause{mHealth}}, "something else": {`{"ok":true}`, []*clause{mHealth}},
	})
	describe := func(s *sheet, v jsontext.Value) { checkDescribe(s, v, "tool") }
	testReadings(t, moduleClauses, describe, map[string]reading{
		"whole": {
			`{"name":"n","version":"1","kind":"tool","capabilities":["a","b"],"inputs":{"a":{"type":"object"}},"outputs":{}}`,
			nil,
		},
		"one schema": {
			`{"name":"n","version":"1","kind":"tool","capabilities":["a"],"inputs":{"type":"object"},"outputs":{}}`, nil,
		},
		"under result": {
			`{"result":{"name":"n","version":"1","kind":"tool","capabilities":[],"inputs":{},"outputs":{}}}`,
			nil,
		},
		"another kind": {
			`{"name":"n","version":"1","kind":"hook","capabilities":[],"inputs":{},"outputs":{}}`,
			[]*clause{mKind},
		},
		"no outputs": {`{"name":"n","version":"1","kind":"tool","capabilities":[],"inputs":{}}`, []*clause{mDescribe}},
		"one capability": {
			`{"name":"n","version":"1","kind":"tool","capabilities":"a","inputs":{},"outputs":{}}`,
			[]*clause{mDescribe},
		},
		"inputs of others": {
			`{"name":"n","version":"1","kind":"tool","capabilities":["a","b"],"inputs":{"c":{}},"outputs":{}}`,
			[]*clause{mSchemas},
		},
		"no schema": {
			`{"name":"n","version":"1","kind":"tool","capabilities":["a"],"inputs":{"a":{"type":1}},"outputs":{}}`,
			[]*clause{mSchemas},
		},
	})
	invoke := func(s *sheet, v jsontext.Value) { checkInvoke(s, v) }
	testReadings(t, moduleCallClauses("hook"), invoke, map[string]reading{
		"null is a result":   {`{"ok":true,"result":null}`, nil},
		"a failure":          {`{"ok":false,"error":{"code":"timeout","message":"m","details":{}}}`, nil},
		"under result":       {`{"result":{"ok":true,"result":1}}`, nil},
		"no ok":              {`{"result":1}`, []*clause{mInvoke}},
		"no result":          {`{"ok":true}`, []*clause{mInvoke}},
		"both":               {`{"ok":false,"result":1,"error":{"code":"c","message":"m"}}`, []*clause{mInvoke}},
		"an error of text":   {`{"ok":false,"error":"m"}`, []*clause{mInvoke}},
		"no message":         {`{"ok":false,"error":{"code":"c"}}`, []*clause{mError}},
		"details of a list":  {`{"ok":false,"error":{"code":"c","message":"m","details":[]}}`, []*clause{mError}},
		"a code of a number": {`{"ok":false,"error":{"code":1,"message":"m"}}`, []*clause{mError}},
	})
	for kind, cases := range map[string]map[string]reading{
		"provider": {
			"text":    {`{"text":"t","stop_reason":"end","usage":{}}`, nil},
			"calls":   {`{"tool_calls":[{"id":"1","name":"n","arguments":{}}]}`, nil},
			"nothing": {`{}`, []*clause{mShape}}, "a string": {`"t"`, []*clause{mShape}},
			"a nameless call": {`{"tool_calls":[{}]}`, []*clause{mShape}}, "tired": {
				`{"text":"t","stop_reason":"tired"}`,
				[]*clause{mShape},
			},
		},
		"context": {
			"messages": {`{"messages":[{"role":"user"}]}`, nil}, "nothing": {`{}`, []*clause{mShape}},
			"no role": {`{"messages":[{}]}`, []*clause{mShape}}, "none left": {`{"messages":[]}`, []*clause{mShape}},
		},
		"orchestrator": {
			"input": {`{"input":"i"}`, nil}, "reject": {`{"reject":"why"}`, nil}, "both": {
				`{"input":"i","reject":"why"}`,
				[]*clause{mShape},
			},
			"neither": {`{}`, []*clause{mShape}}, "no text": {`{"input":""}`, []*clause{mShape}},
			"reject true": {`{"reject":true}`, []*clause{mShape}},
		},
		"hook": {"anything": {`7`, nil}},
	} {
		testReadings(t, moduleCallClauses("provider"), func(s *sheet, v jsontext.Value) { checkShape(s, kind, v) }, cases)
	}
}

func TestArgumentsAreMadeUpFromTheSchema(t *testing.T) {
	for name, c := range map[string]struct{ schema, given, want, err string }{
		"no schema":       {``, ``, `{}`, ""},
		"an optional one": {`{"properties":{"a":{"type":"string"}}}`, ``, `{}`, ""},
		"a default":       {`{"properties":{"a":{"default":[1]}}}`, ``, `{"a":[1]}`, ""},
		"required ones": {
			`{"required":["a","b","c","d"],"properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":5},"c":{"type":"boolean"},"d":{"type":"array","items":{"type":"number"},"minItems":1}}}`, ``, `{"a":"example","b":5,"c":false,"d":[1]}`, "",
		},
		"examples": {
			`{"required":["a","b","c"],"properties":{"a":{"examples":["x"]},"b":{"enum":["y","z"]},"c":{"const":3}}}`, ``,
			`{"a":"x","b":"y","c":3}`, "",
		},
		"deep": {
			`{"required":["a"],"properties":{"a":{"type":"object","required":["b"],"properties":{"b":{"type":"null"}}}}}`, ``,
			`{"a":{"b":null}}`, "",
		},
		"a reference": {
			`{"required":["a"],"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string","minLength":9}}}`, ``,
			`{"a":"exampleee"}`, "",
		},
		"given, with default": {
			`{"required":["a"],"properties":{"a":{"type":"string"},"b":{"default":1}}}`, `{"a":"x"}`,
			`{"a":"x","b":1}`, "",
		},
		"a large number": {
			`{"properties":{"a":{"type":"integer"}}}`, `{"a":12345678901234567890}`,
			`{"a":12345678901234567890}`, "",
		},
		"given, and wrong": {`{"required":["a"],"properties":{"a":{"type":"string"}}}`, `{}`, ``, "missing property 'a'"},
		"given, no object": {``, `[]`, ``, "want a JSON object"},
		"a pattern": {
			`{"required":["a"],"properties":{"a":{"type":"string","pattern":"^[0-9]+$"}}}`, ``, ``,
			"pattern",
		},
		"endless": {`{"$ref":"#"}`, ``, ``, "cycle"},
	} {
		t.Run(name, func(t *testing.T) {
			var given jsontext.Value
			if c.given != "" {
				given = jsontext.Value(c.given)
			}
			got, err := arguments(jsontext.Value(c.schema), given)
			if c.err == "" && (err != nil || string(got) != c.want) || c.err != "" &&
				(err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %s, %v, want %s, %q", got, err, c.want, c.err)
			}
		})
	}
}

func FuzzReading(f *testing.F) {
	for _, seed := range []string{
		done, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"m"}}`,
		`{"jsonrpc":"2.0","method":"log","params":{"level":"info"}}`,
		`{"name":"n","capabilities":["a"],"inputs":{"a":{"type":"object"}},"operations":{"run":{"params":{}}},"requires":[{"command":"c"}]}`,
		`{"ok":true,"result":{"tool_calls":[{}],"messages":[{}]}}`, "\xff", `{"success":true,"outputs":{"a":1}}`,
	} {
		f.Add(seed)
	}
	kinds := []string{"tool", "agent", "provider", "context", "orchestrator", "hook"}
	f.Fuzz(func(t *testing.T, said string) {
		n, x := newNarration(), newExchange()
		all := newSheet(slices.Concat(gevalsClauses, gevalsCallClauses, moduleClauses, moduleCallClauses("provider"),
			moduleCallClauses("hook")))
		for line := range strings.Lines(said) {
			n.line([]byte(line))
			x.line([]byte(line))
			v := jsontext.Value(line)
			checkManifest(all, v, func(string) (string, error) { return "", nil })
			checkResult(all, v)
			checkLog(all, v)
			checkHealth(all, v)
			checkDescribe(all, v, "tool")
			for _, kind := range kinds {
				checkShape(all, kind, checkInvoke(all, v).result)
			}
		}
		n.end(callEnd{})
		for _, f := range slices.Concat(n.findings("", "not seen"), x.findings("", "not seen"),
			all.findings("", "not seen")) {
			if !utf8.ValidString(f.Seen) || strings.ContainsFunc(f.Seen, unicode.IsControl) {
				t.Errorf("%s: cannot be printed on one line: %q", f.What, f.Seen)
			}
		}
	})
}

// What is made up satisfies the schema, or there is an error.
func FuzzArguments(f *testing.F) {
	f.Add(`{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`)
	f.Add(
		`{"required":["a"],"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"array","items":{"$ref":"#"},"minItems":2}}}`)
	const itself = `{"$ref":"#/$defs/a"}`
	f.Add(`{"properties":{"a":` + itself + `},"required":["a"],"$defs":{"a":{"type":"array","minItems":60,"items":` +
		itself + `}}}`)
	f.Fuzz(func(t *testing.T, schema string) {
		args, err := arguments(jsontext.Value(schema), nil)
		if err != nil {
			return
		}
		if _, err := arguments(jsontext.Value(schema), args); err != nil {
			t.Errorf("made %s of %s, which it refuses: %v", args, schema, err)
		}
		lacking(jsontext.Value(schema), args)
	})
}
