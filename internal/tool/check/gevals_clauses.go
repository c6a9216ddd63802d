package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
	"noused/internal/tool"
)

// The clauses of the gevals extension protocol 0.0.1.
var (
	gRPC = rpcClauses{
		json: &clause{
			"gevals: Transport", "every line of stdout is one JSON-RPC message",
			"print nothing else to stdout; text for people goes to stderr or into log notifications",
		},
		utf8: &clause{"gevals: Transport", "stdout is UTF-8", "encode as UTF-8, whatever the locale says"},
		long: &clause{
			"tools.md Limits", "no line is longer than max_output",
			"write large data to a file and return its path, or raise max_output",
		},
		version: &clause{
			"gevals: Messages", `every message has "jsonrpc":"2.0"`,
			`put "jsonrpc":"2.0" into every message, notifications too`,
		},
		id: &clause{
			"gevals: Messages", "every request has one reply, with its id as the number it was",
			"echo id as it came, do not make it a string, and do not answer notifications",
		},
		either: &clause{
			"gevals: Error Handling", "a reply has a result or an error, not both",
			"leave the other one out; null counts as being there",
		},
		fault: &clause{
			"gevals: Error Handling", "an error has a code and a message",
			"code is a whole number, message a string",
		},
	}
	gInit = &clause{
		"gevals: Initialize", "initialize is answered with a manifest within 10s",
		"answer first and prepare later; do not fail without config",
	}
	gManifest = &clause{
		"gevals: Manifest Fields", "the manifest has name, version, protocolVersion and operations",
		`version is like "1.0.0", protocolVersion is "0.0.1", operations an object of objects`,
	}
	gParams = &clause{
		"gevals: Operation Object", "the params of every operation are a JSON Schema",
		`write params as a JSON Schema; {"type":"object"} for an operation without arguments`,
	}
	gRequires = &clause{
		"gevals: Requirement Object", "the commands of requires are found in PATH",
		"install them; requires is an array of {\"command\":\"name\"}",
	}
	gMethod = &clause{
		"gevals: Standard Error Codes", "an unknown method is error -32601",
		"answer it with the error and go on reading",
	}
	gUnknown = &clause{
		"gevals: Error Categories", "an unknown operation is error -32601",
		"look the operation up before anything else; success:false is for operations that ran",
	}
	gInvalid = &clause{
		"gevals: Error Categories", "a line that is not JSON is error -32700",
		"catch the parse error, answer with id null, and go on reading",
	}
	gBlank = &clause{
		"gevals: Transport", "blank lines and unknown notifications are ignored",
		"skip lines without a message, and messages without an id whose method you do not know",
	}
	gResult = &clause{
		"gevals: Result Fields",
		"the result of execute has success; message and error are strings, outputs are strings by name",
		"success is true or false; turn every output into a string",
	}
	gLogs = &clause{
		"gevals: Log", "log comes before its result and has a level and a message",
		"level is debug, info, warn or error; message a string; data, if any, an object; flush before the reply",
	}
	gTwice = &clause{
		"gevals: Lifecycle", "a process answers one execute after another, each within timeout",
		"loop over stdin until shutdown or its end; do not exit after a call",
	}
	gMissing = &clause{
		"gevals: Error Categories", "a missing required argument is error -32602",
		"check the arguments before the operation begins",
	}
	gShutdown = &clause{"gevals: Shutdown", "shutdown is acknowledged within 5s", `answer {"result":{}} before you exit`}
	gExit     = &clause{
		"gevals: Shutdown", "the process exits with status 0 within 2s after shutdown",
		"exit right after the answer",
	}
	gOneShot = &clause{
		"gevals: One-Shot Mode",
		"one execute without initialize is answered, and the end of stdin ends the process",
		"execute does not need initialize before it; end when stdin does",
	}
	gLeft = &clause{
		"tools.md Limits", "nothing is left running",
		"wait for your children before you exit, and start no daemons",
	}
)

var gevalsClauses = []*clause{
	gInit, gManifest, gParams, gRequires, gRPC.json, gRPC.utf8, gRPC.long, gRPC.version, gRPC.id, gRPC.either, gRPC.fault,
	gMethod, gUnknown, gInvalid, gBlank, gShutdown, gExit, gOneShot, gLeft,
}

// gevalsCallClauses are those of one operation.
var gevalsCallClauses = []*clause{gTwice, gResult, gLogs, gMissing}

var semver = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)
})

// checkManifest reads the result of initialize and returns its operations.
func checkManifest(s *sheet, v jsontext.Value, lookPath func(string) (string, error)) []tool.Operation {
	m, ok := object(v)
	if !s.test(gManifest, ifNot(ok, "the result is "+quote(tool.Shorten(v)))) {
		return nil
	}
	version, _ := tool.Text(m["version"])
	spoken, _ := tool.Text(m["protocolVersion"])
	s.test(gManifest, first(needText(m, "name"),
		ifNot(semver().MatchString(version), "version is "+quote(tool.Shorten(m["version"]))),
		ifNot(spoken == "0.0.1", "protocolVersion is "+quote(tool.Shorten(m["protocolVersion"]))),
		mayText(m, "description"), needObject(m, "operations")))
	checkRequires(s, m, lookPath)

	var ops []tool.Operation
	definitions, _ := object(m["operations"])
	for name, v := range definitions {
		o := tool.Operation{Name: name}
		op, ok := object(v)
		reason := first(ifNot(ok, "it is "+quote(tool.Shorten(v))), mayText(op, "description"), needObject(op, "params"))
		if reason == "" {
			o.Params = jsontext.Value(op["params"])
			if _, err := jsonschema.Compile(o.Params); err != nil {
				reason = err.Error()
			}
		}
		s.test(gParams, ifNot(reason == "", quote(name)+": "+reason))
		ops = append(ops, o)
	}
	slices.SortFunc(ops, func(a, b tool.Operation) int { return strings.Compare(a.Name, b.Name) })
	return ops
}

func checkRequires(s *sheet, m map[string]jsontext.Value, lookPath func(string) (string, error)) {
	v, ok := m["requires"]
	if !ok {
		s.skip(gRequires, "the manifest has no requires")
		return
	}
	var list []jsontext.Value
	if v.Kind() != '[' || jsonx.Unmarshal(v, &list) != nil {
		s.fail(gRequires, "requires is %s, want an array", quote(tool.Shorten(v)))
		return
	}
	for _, v := range list {
		r, _ := object(v)
		if reason := needText(r, "command"); reason != "" {
			s.fail(gRequires, "%s", reason)
			continue
		}
		command, _ := tool.Text(r["command"])
		_, err := lookPath(command)
		if err != nil {
			s.fail(gRequires, "%s", quote(err.Error()))
			continue
		}
		s.hold(gRequires)
	}
}

// checkResult reads the result of execute.
func checkResult(s *sheet, v jsontext.Value) {
	m, ok := object(v)
	reason := first(ifNot(ok, "the result is "+quote(tool.Shorten(v))), needBool(m, "success"),
		mayText(m, "message"), mayText(m, "error"), mayObject(m, "outputs"))
	if outputs, ok := object(m["outputs"]); ok && reason == "" {
		for name, v := range outputs {
			if v.Kind() != '"' {
				reason = fmt.Sprintf("output %s is %s, want a string", quote(name), quote(tool.Shorten(v)))
			}
		}
	}
	s.test(gResult, reason)
}

// checkLog reads the params of log.
func checkLog(s *sheet, v jsontext.Value) {
	m, ok := object(v)
	s.test(gLogs, first(ifNot(ok, "params is "+quote(tool.Shorten(v))), needLevel(m), needText(m, "message"),
		mayObject(m, "data")))
}
