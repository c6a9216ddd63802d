package gevals

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// clause is one sentence of the contract, with an extension that puts it to
// the test. spec is the protocol's own text.
type clause struct {
	name string
	// scenes are the player's, each the steps of one process.
	scenes []string
	calls  []call
	// starts is how many processes there were; 0: as many as scenes; untold: some
	// may have been killed before they could say so.
	starts int
	// sent is all that the extension got, in order, if not nil; $W is the
	// workdir. The registry has been closed then.
	sent []string
	// problem is why the operations are unhealthy, "" where they are not.
	problem string
	logged  string // a message in the daemon's log

	set   map[string]any // fields of the descriptor
	env   map[string]string
	adapt func(*host)
}

const untold = -1

// call is a call of x.run, and what is to come of it.
type call struct {
	op, args      string // "run" and "{}" by default
	phase         string
	prompt, reply string
	said          []string // the deltas, in order, warnings marked
	// code is the result's, "" where it is ok; text is its text up to stderr,
	// or begins it, where it ends with "…".
	code, text string
	details    string
	outputs    map[string]string
}

func steps(s ...string) string { return strings.Join(s, "\n") }

// result is a reply to the latest request.
func result(members string) string { return `{"jsonrpc":"2.0","id":$ID,"result":{` + members + `}}` }

func rpcError(members string) string {
	return `{"jsonrpc":"2.0","id":$ID,"error":{` + members + `}}`
}

// replies is a clause about one reply, and what happens to it; the process
// goes on to answer the next call.
func replies(name, reply string, want call) clause {
	return clause{name: name, scenes: []string{steps("!get", reply)}, calls: []call{want, {text: "again"}}}
}

// ignores is a clause about lines that mean nothing.
func ignores(name string, lines ...string) clause {
	return clause{
		name: name, scenes: []string{steps("!get", steps(lines...), "!ok")},
		calls: []call{{text: "did it"}, {text: "again"}},
	}
}

// manifests is a clause about a manifest that is refused.
func manifests(name, text, problem string) clause {
	return clause{
		name: name, scenes: []string{steps("!cold", "!init "+text)}, problem: "initialize: " + problem,
		calls: []call{{code: tool.ProtocolError, text: "protocol_error: initialize: " + problem + "…"}}, starts: 2,
	}
}

// noisy is a clause about a line that cannot be read: two are tolerated, the
// third ends the process and the call.
func noisy(name, line string) clause {
	return clause{
		name: name, scenes: []string{steps("!get", line, line, "!ok", "!get", line, "!blocks"), "!get\n!ok"},
		calls: []call{
			{text: "did it"},
			{code: tool.ProtocolError, text: "protocol_error: the extension wrote 3 lines that are not JSON-RPC"},
			{text: "did it"},
		},
		logged: "extension wrote a line that is not JSON-RPC",
	}
}

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
}

func clauses() []clause {
	execute := func(id int, args, context string) string {
		return fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%d,"method":"execute","params":{"operation":"run","args":%s,"context":{"workdir":"$W",%s}}}`,
			id, args, context)
	}
	player := `"env":{"NOUSED_TEST_TOOL":"player","SCRIPT":""},"timeout":"30s"`
	const died = "crashed: the extension ended before it answered: "
	return []clause{
		// Lifecycle.
		{
			name:   "spec Lifecycle, tools.md §3 one process, initialize once, ids that rise, shutdown at the end",
			scenes: []string{""}, calls: []call{{text: "again"}, {args: `{"n":2,"x":[]}`, text: "again"}},
			sent: []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`,
				execute(2, `{"n":1}`, `"phase":"setup",`+player), execute(3, `{"n":2,"x":[]}`, `"phase":"setup",`+player),
				`{"jsonrpc":"2.0","id":4,"method":"shutdown","params":{}}`,
			},
		},
		{
			name: "spec Initialize config", scenes: []string{""},
			set:   map[string]any{"config": map[string]any{"namespace": "my-app"}},
			calls: []call{{text: "again"}},
			sent: []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"namespace":"my-app"}}}`,
				execute(2, `{"n":1}`, `"phase":"setup",`+player), `{"jsonrpc":"2.0","id":3,"method":"shutdown","params":{}}`,
			},
		},
		{
			name: "tools.md §3 initialize has a deadline", scenes: []string{"!cold\n!get\n!blocks"}, adapt: func(h *host) {
				h.waits.init = 50 * time.Millisecond
			},
			problem: "initialize: no result within 50ms",
			calls:   []call{{code: tool.Timeout, text: "timeout: initialize: no result within 50ms"}}, starts: untold,
		},
		{
			name:    "tools.md §3 an extension that does not start is left alone, and says why",
			scenes:  []string{"!cold\n!stderr \"no config\"\n!exit 2"},
			problem: "initialize: the extension ended before it answered: exit status 2",
			calls: []call{{
				code: tool.Crashed, text: "crashed: initialize: the extension ended before it answered: exit status 2…",
				details: `{"exit":"exit status 2","stderr":"no config"}`,
			}}, starts: 2, logged: "extension did not start",
		},
		{
			name:    "spec Error Handling an error in answer to initialize",
			scenes:  []string{steps("!cold", "!get", rpcError(`"code":-32602,"message":"no namespace"`))},
			problem: "initialize: no namespace", calls: []call{{code: "-32602", text: "-32602: initialize: no namespace"}},
			starts: 2,
		},
		{
			name: "tools.md §3 logs and noise before the manifest are no harm",
			scenes: []string{steps("!cold", "!get", "Starting up...", "", logLine("starting"),
				`{"level":"info","msg":"listening"}`, `{"jsonrpc":"2.0","id":$ID,"result":`+usual+`}`)},
			calls: []call{{text: "again"}},
		},
		{
			name: "spec Shutdown on EOF an extension that ends without an answer", scenes: []string{"!get\n!ok\n!get\n!waits"},
			calls: []call{{text: "did it"}}, adapt: func(h *host) { h.waits.ack = 20 * time.Millisecond }, sent: []string{},
		},
		{
			name:   "tools.md §3 after shutdown 2 s to exit, then the group is killed",
			scenes: []string{steps("!immortal", "!child", "!get", "!ok", "!get", result(""), "!blocks")},
			calls:  []call{{text: "did it"}}, sent: []string{},
		},

		// Manifest.
		manifests("spec Manifest name is required", `{"version":"1","operations":{}}`, "the manifest has no name"),
		manifests("spec Manifest version is required", `{"name":"n","operations":{}}`, "the manifest has no version"),
		manifests("spec Manifest operations is required", `{"name":"n","version":"1","operations":null}`,
			"the manifest has no operations"),
		manifests("spec Manifest operations is an object", `{"name":"n","version":"1","operations":["run"]}`,
			"the manifest is wrong: "),
		manifests("spec Manifest name is a string", `{"name":7,"version":"1","operations":{}}`, "the manifest is wrong: "),
		manifests("spec Manifest is an object", `"hello"`, "the manifest is wrong: "),
		manifests("spec Manifest is there", `null`, "the reply has neither a result nor an error"),
		{
			name:   "tools.md §3 another protocolVersion is a warning, not a refusal",
			scenes: []string{"!cold\n!init " + strings.Replace(usual, "0.0.1", "1.0", 1)},
			calls:  []call{{text: "again"}}, logged: `extension's manifest: protocolVersion is "1.0", want "0.0.1"`,
		},
		{
			name:   "tools.md §3 no protocolVersion is no more",
			scenes: []string{`!cold` + "\n" + `!init {"name":"n","version":"1","operations":{"run":{"params":{}}}}`},
			calls:  []call{{text: "again"}}, logged: `extension's manifest: protocolVersion is absent, want "0.0.1"`,
		},
		{
			name: "spec Manifest unknown and empty members are no harm",
			scenes: []string{`!cold` + "\n" +
				`!init {"name":"n","version":"1","protocolVersion":"0.0.1","description":null,"requires":[{},{"command":"sh","version":">1"}],"x":1,"operations":{"run":{"x":1}}}`},
			calls: []call{{text: "again"}},
		},
		{
			name: "tools.md §3 a requirement that is not met fails every call, and shows",
			scenes: []string{`!cold` + "\n" +
				`!init {"name":"n","version":"1","protocolVersion":"0.0.1","requires":[{"command":"sh"},{"command":"no-such-command"}],"operations":{"run":{}}}`},
			calls: []call{
				{code: "-32002", text: "-32002: requires the command no-such-command: no-such-command: not found in PATH"},
				{code: "-32002", text: "-32002: requires the command no-such-command: no-such-command: not found in PATH"},
			},
			problem: "requires the command no-such-command: no-such-command: not found in PATH",
		},
		{
			name:   "spec Operation params: arguments are checked before the extension sees them",
			scenes: []string{""}, calls: []call{{
				args: `{"n":"x"}`, code: tool.BadRequest,
				text: "bad_request: arguments: /n: got string, want integer",
			}},
			sent: []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`,
				`{"jsonrpc":"2.0","id":2,"method":"shutdown","params":{}}`,
			},
		},
		{
			name: "spec Operation params: one that is no JSON Schema spoils only its operation",
			scenes: []string{`!cold` + "\n" +
				`!init {"name":"n","version":"1","protocolVersion":"0.0.1","operations":{"run":{"params":{}},"bad":{"params":{"type":"strng"}}}}`},
			calls: []call{
				{op: "bad", code: tool.ProtocolError, text: "protocol_error: params of bad: not a JSON Schema…"},
				{text: "again"},
			},
		},
		{
			name: "spec Operation an unknown one is never sent", scenes: []string{""},
			calls: []call{{op: "appply", code: tool.UnsupportedOp, text: `unsupported_op: there is no tool "x.appply"`}},
			sent: []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`,
				`{"jsonrpc":"2.0","id":2,"method":"shutdown","params":{}}`,
			},
		},

		// Context.
		{
			name: "spec Context phase cleanup, timeout as a Go duration, the descriptor's env", scenes: []string{""},
			set: map[string]any{"timeout": "5m"}, env: map[string]string{"KUBECONFIG": "{env.HOME}/.kube"},
			calls: []call{{phase: "cleanup", prompt: "p", reply: "o", text: "again"}},
			sent: []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`,
				execute(2, `{"n":1}`,
					`"phase":"cleanup","env":{"KUBECONFIG":"/home/me/.kube","NOUSED_TEST_TOOL":"player","SCRIPT":""},"timeout":"5m0s"`),
				`{"jsonrpc":"2.0","id":3,"method":"shutdown","params":{}}`,
			},
		},
		{
			name: "spec Agent Context only in verify", scenes: []string{""},
			calls: []call{
				{phase: "verify", prompt: "make a pod", reply: "made it", text: "again"},
				{phase: "setup", prompt: "make a pod", reply: "made it", text: "again"},
			},
			sent: []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`,
				execute(2, `{"n":1}`, `"phase":"verify",`+player+`,"agent":{"prompt":"make a pod","output":"made it"}`),
				execute(3, `{"n":1}`, `"phase":"setup",`+player), `{"jsonrpc":"2.0","id":4,"method":"shutdown","params":{}}`,
			},
		},

		// Results.
		replies("spec Success message and outputs",
			result(`"success":true,"message":"Applied","outputs":{"uid":"abc","rv":"12345"}`),
			call{text: "Applied\nrv: 12345\nuid: abc", outputs: map[string]string{"uid": "abc", "rv": "12345"}}),
		replies("spec Result only success is required", result(`"success":true`), call{text: "done"}),
		replies("spec Failure message, error and outputs",
			result(`"success":false,"message":"Condition not met","error":"Timed out","outputs":{"last":"False"}`),
			call{
				code: tool.ToolFailed, text: "tool_failed: Condition not met: Timed out\nlast: False",
				outputs: map[string]string{"last": "False"},
			}),
		replies("spec Failure with an error only", result(`"success":false,"error":"Timed out"`),
			call{code: tool.ToolFailed, text: "tool_failed: Timed out"}),
		replies("spec Failure with a message only", result(`"success":false,"message":"Condition not met"`),
			call{code: tool.ToolFailed, text: "tool_failed: Condition not met"}),
		replies("spec Failure without a word", result(`"success":false`),
			call{code: tool.ToolFailed, text: "tool_failed: the extension reported a failure"}),
		replies("tools.md §3 an output that is no string is kept as its JSON text, with a warning",
			result(`"success":true,"outputs":{"a":"1","n":{"x":[1, 2]},"z":null}`), call{
				text: "a: 1\nn: {\"x\":[1, 2]}\nz: null", outputs: map[string]string{"a": "1", "n": `{"x":[1, 2]}`, "z": "null"},
				said: []string{
					`warning invalid_tool_event: output "n" is not a string: {"x":[1, 2]}`,
					`warning invalid_tool_event: output "z" is not a string: null`,
				},
			}),
		replies("spec Result outputs is an object, message a string", result(`"success":true,"message":7,"outputs":["a"]`),
			call{
				text: "7", said: []string{
					"warning invalid_tool_event: message is not a string: 7",
					`warning invalid_tool_event: outputs is not an object: ["a"]`,
				},
			}),
		replies("spec Result null is absent, and more is ignored",
			result(`"success":true,"message":null,"outputs":null,"error":null,"took":"3s"`), call{text: "done"}),
		replies("spec Result success is required", result(`"message":"m"`),
			call{code: tool.ProtocolError, text: "protocol_error: success is absent, want true or false"}),
		replies("spec Result success is a boolean", result(`"success":"true"`),
			call{code: tool.ProtocolError, text: `protocol_error: success is "true", want true or false`}),
		replies("spec Result is an object", `{"jsonrpc":"2.0","id":$ID,"result":"done"}`,
			call{code: tool.ProtocolError, text: `protocol_error: the result is not an object: "done"`}),
		replies("JSON-RPC a reply has a result or an error", `{"jsonrpc":"2.0","id":$ID}`,
			call{code: tool.ProtocolError, text: "protocol_error: the reply has neither a result nor an error"}),
		replies("spec Encoding half a surrogate pair, as Python and Node write it, is U+FFFD",
			result(`"success":true,"message":"a\udcffb"`), call{text: "a\ufffdb"}),

		// Errors.
		{
			name: "spec Standard and Extension Error Codes: the number as text, and the message",
			scenes: []string{steps("!get", rpcError(`"code":-32700,"message":"a"`), "!get",
				rpcError(`"code":-32600,"message":"b"`), "!get", rpcError(`"code":-32601,"message":"c"`),
				"!get", rpcError(`"code":-32602,"message":"d"`), "!get", rpcError(`"code":-32603,"message":"e"`), "!get",
				rpcError(`"code":-32000,"message":"f"`),
				"!get", rpcError(`"code":-32001,"message":"g"`), "!get", rpcError(`"code":-32002,"message":"h"`), "!get",
				rpcError(`"code":7.0,"message":"i"`))},
			calls: []call{
				{code: "-32700", text: "-32700: a"},
				{code: "-32600", text: "-32600: b"},
				{code: "-32601", text: "-32601: c"},
				{code: "-32602", text: "-32602: d"},
				{code: "-32603", text: "-32603: e"},
				{code: "-32000", text: "-32000: f"},
				{code: "-32001", text: "-32001: g"},
				{code: "-32002", text: "-32002: h"},
				{code: "7", text: "7: i"},
				{text: "again"},
			},
		},
		replies("tools.md §3 error wins over a result of null",
			`{"jsonrpc":"2.0","id":$ID,"result":null,"error":{"code":-32601,"message":"Unknown operation"}}`,
			call{code: "-32601", text: "-32601: Unknown operation"}),
		replies("tools.md §3 error wins over a result",
			`{"jsonrpc":"2.0","id":$ID,"result":{"success":true},"error":{"code":-32000,"message":"no"}}`,
			call{code: "-32000", text: "-32000: no"}),
		replies("JSON-RPC an error of null is none, nor is a method of null",
			`{"jsonrpc":"2.0","id":$ID,"method":null,"params":null,"result":{"success":true},"error":null}`, call{text: "done"}),
		replies("JSON-RPC error without a message", rpcError(`"code":-32603`),
			call{code: "-32603", text: "-32603: the extension gave no message"}),
		replies("JSON-RPC error data", rpcError(`"code":-32602,"message":"m","data":{"file":"missing"}`),
			call{code: "-32602", text: "-32602: m", details: `{"file":"missing"}`}),
		replies("JSON-RPC error data of any type", rpcError(`"code":-32602,"message":"m","data":["a"]`),
			call{code: "-32602", text: "-32602: m", details: `{"data":["a"]}`}),
		replies("JSON-RPC an error without a code", rpcError(`"message":"m"`), call{
			code: tool.ProtocolError,
			text: `protocol_error: the reply's error is not a JSON-RPC error: {"message":"m"}`,
		}),
		replies("JSON-RPC an error that is a string", `{"jsonrpc":"2.0","id":$ID,"result":null,"error":"boom"}`,
			call{code: tool.ProtocolError, text: `protocol_error: the reply's error is not a JSON-RPC error: "boom"`}),

		// What is ignored.
		ignores("tools.md §3 a reply with another id",
			`{"jsonrpc":"2.0","id":99,"result":{"success":true,"message":"not mine"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":"stale"}}`),
		ignores("tools.md §3 ids are numbers: a string is another id, as is null",
			`{"jsonrpc":"2.0","id":"$ID","result":{"success":true}}`,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, `{"jsonrpc":"2.0","result":{"success":true}}`),
		ignores("tools.md §3 a request from the child", `{"jsonrpc":"2.0","id":$ID,"method":"sampling","params":{}}`,
			`{"jsonrpc":"2.0","id":$ID,"method":"log","params":{"level":"info","message":"m"}}`),
		ignores("tools.md §3 a notification we do not know",
			`{"jsonrpc":"2.0","method":"progress","params":{"level":"info","message":"50%"}}`),
		ignores("tools.md §3 a log that has no params object", `{"jsonrpc":"2.0","method":"log"}`,
			`{"jsonrpc":"2.0","method":"log","params":["m"]}`, `{"jsonrpc":"2.0","method":"log","params":null}`),
		ignores("tools.md §3 blank lines", "", " \t\r", "", "\r", "", "\r"),
		ignores("tools.md §3 objects that are no messages are no noise", `{"level":"info","msg":"listening"}`, `{}`,
			`{"jsonrpc":"1.0"}`, `{"id":{}}`),
		ignores("spec Stderr is not parsed", fmt.Sprintf("!stderr %q", result(`"success":false`)+"\n\xff\x00"),
			"!noise 50000"),
		{
			name:   "JSON-RPC an answer given twice counts once",
			scenes: []string{steps("!get", result(`"success":true,"message":"first"`), result(`"success":false`))},
			calls:  []call{{text: "first"}, {text: "again"}},
		},
		{
			name: "JSON-RPC 2.0 and 2e0 are the id 2",
			scenes: []string{steps("!get", `{"jsonrpc":"2.0","id":2.0,"result":{"success":true}}`, "!get",
				`{"jsonrpc":"2.0","id":3e0,"result":{"success":true}}`)},
			calls: []call{{text: "done"}, {text: "done"}},
		},
		{
			name:   "spec Framing CR LF, members in any order, no jsonrpc, an answer in pieces",
			scenes: []string{steps("!get", `!print "{\"result\":{\"success\":"`, `!print "true}, \"id\": $ID }\r\n"`)},
			calls:  []call{{text: "done"}, {text: "again"}},
		},

		// What cannot be read.
		noisy("tools.md §3 a line that is no JSON", "Loading..."),
		noisy("tools.md §3 a line that is an array", `[{"jsonrpc":"2.0","id":$ID,"result":{"success":false}}]`),
		noisy("tools.md §3 a line that is not whole", `{"jsonrpc":"2.0","id":$ID,"result":{"success":false}`),
		noisy("spec Encoding a line that is not UTF-8",
			`!print "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"success\":true,\"message\":\"\xff\"}}\n"`),
		noisy("JSON a member given twice", result(`"success":false,"success":true`)),
		noisy("tools.md §5 bounded: an object of more than 1000 levels", result(`"success":true,"x":`+nested(1000))),
		{
			name: "tools.md §1 max_output: a longer line ends the process", scenes: []string{"!get\n!xs 200000\n!blocks", ""},
			set:   map[string]any{"max_output": 4096},
			calls: []call{{code: tool.ProtocolError, text: "protocol_error: line is longer than 4096 bytes…"}, {text: "again"}},
		},

		// Logs.
		{
			name: "spec Log every level, with data",
			scenes: []string{steps("!get",
				`{"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"d","data":{"pod":"nginx"}}}`,
				`{"jsonrpc":"2.0","method":"log","params":{"level":"warn","message":"w"}}`,
				`{"jsonrpc":"2.0","method":"log","params":{"level":"error","message":"e"}}`, "!ok")},
			calls: []call{{said: []string{"d", "w", "e"}, text: "did it"}, {text: "again"}},
		},
		{
			name: "tools.md §3 logs of strangers: no level, another one, no message, one of another type, an id of null",
			scenes: []string{steps("!get",
				`{"jsonrpc":"2.0","method":"log","params":{"message":"a"}}`,
				`{"jsonrpc":"2.0","method":"log","params":{"level":"TRACE","message":"b"}}`,
				`{"jsonrpc":"2.0","method":"log","params":{"level":"info"}}`,
				`{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":{"c":1}}}`,
				`{"jsonrpc":"2.0","id":null,"method":"log","params":{"level":"info","message":"d"}}`, "!ok")},
			calls: []call{{said: []string{"a", "b", "", `{"c":1}`, "d"}, text: "did it"}},
		},
		{
			name: "tools.md §3 logs after the result are told to nobody",
			scenes: []string{steps("!get", `!print `+fmt.Sprintf("%q", strings.Replace(result(`"success":true`), "$ID", "2", 1)+
				"\n"+logLine("late")+"\n"))},
			calls: []call{{text: "done"}},
		},

		// Ends.
		{
			name:   "tools.md §3 a crash fails the call at once, with the exit status; the next one respawns",
			scenes: []string{steps("!get", logLine("about to crash"), `!stderr "panic: oh no\n"`, "!exit 7"), ""},
			calls: []call{
				{
					said: []string{"about to crash"}, code: tool.Crashed, text: died + "exit status 7\nstderr:\npanic: oh no",
					details: `{"exit":"exit status 7","stderr":"panic: oh no"}`,
				},
				{text: "again"},
			},
		},
		{
			name: "tools.md §3 a crash by signal", scenes: []string{"!get\n!dies", ""},
			calls: []call{{code: tool.Crashed, text: died + "signal: killed"}, {text: "again"}},
		},
		{
			name: "tools.md §3 an exit with status 0 instead of an answer", scenes: []string{"!get\n!exit 0", ""},
			calls: []call{{code: tool.Crashed, text: died + "exit status 0"}, {text: "again"}},
		},
		{
			name:   "tools.md §3 a crash in the middle of the answer",
			scenes: []string{steps("!get", `!print "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"res"`, "!exit 1"), ""},
			calls:  []call{{code: tool.Crashed, text: died + "exit status 1"}, {text: "again"}},
		},
		{
			name: "tools.md §5 a crash with a grandchild that holds the pipe", scenes: []string{"!child\n!get\n!exit 1", ""},
			calls: []call{{code: tool.Crashed, text: died + "exit status 1"}, {text: "again"}},
		},
		{
			name: "tools.md §3 an answer, then the end", scenes: []string{"!get\n!ok\n!get\n!exit 0", ""},
			calls: []call{{text: "did it"}, {code: tool.Crashed, text: died + "exit status 0"}, {text: "again"}},
		},
		{
			name: "tools.md §3 output that is closed", scenes: []string{"!get\n!closes\n!blocks", ""},
			calls: []call{{code: tool.Crashed, text: died + "signal: terminated"}, {text: "again"}},
		},
		{
			name:   "tools.md §3 past its timeout the process is replaced, even one that ignores SIGTERM",
			scenes: []string{"!immortal\n!get\n!blocks", ""}, set: map[string]any{"timeout": "2s"},
			calls: []call{{code: tool.Timeout, text: "timeout: no result within 2s"}, {text: "again"}},
		},
		{
			name: "tools.md §3 after 3 crashes in a row it is left alone; an answer ends the row, an error is one",
			adapt: func(h *host) {
				h.crashes.Base, h.crashes.Max = time.Hour, time.Hour
			},
			scenes: []string{"!get\n!dies", "!get\n!dies", steps("!get", rpcError(`"code":-32000,"message":"m"`), "!get",
				"!dies"), "!get\n!dies"},
			calls: []call{
				{code: tool.Crashed, text: died + "signal: killed"},
				{code: tool.Crashed, text: died + "signal: killed"},
				{code: "-32000", text: "-32000: m"},
				{code: tool.Crashed, text: died + "signal: killed"},
				{code: tool.Crashed, text: died + "signal: killed"},
				{code: tool.Crashed, text: died + "signal: killed"},
				{code: tool.Unreachable, text: "unreachable: x crashed 3 times in a row; it can be started again in …"},
				{code: tool.Unreachable, text: "unreachable: x crashed 3 times in a row; it can be started again in …"},
			},
			starts: 5,
		},
		{
			name: "tools.md §3 a request over 65,535 bytes is sent all the same", scenes: []string{"!get\n!input"},
			env:   map[string]string{"WIDE": "1"},
			calls: []call{{args: `{"text":"` + strings.Repeat("x", 70_000) + `"}`, text: "70…"}, {text: "again"}},
		},
		{
			name: "tools.md §3 a crash right after such a request says so", scenes: []string{"!get\n!ok", ""},
			calls: []call{
				{args: `{"text":"` + strings.Repeat("x", 70_000) + `"}`, code: tool.Crashed, text: died +
					"exit status 1; the request was a line of 70…"},
				{text: "again"},
			},
		},
	}
}

func TestConformance(t *testing.T) {
	t.Cleanup(func() { tooltest.NoChildren(t) }) // when all have run
	for _, c := range clauses() {
		t.Run(strings.ReplaceAll(c.name, "/", "∕"), func(t *testing.T) {
			t.Parallel()
			c.test(t)
		})
	}
}

func (c clause) test(t *testing.T) {
	d := script(t, c.scenes...)
	for field, value := range c.set {
		d.Set(field, value)
	}
	for name, value := range c.env {
		d.Env(name, value)
	}
	var adapt []func(*host)
	if c.adapt != nil {
		adapt = append(adapt, c.adapt)
	}
	b := mount(t, d, adapt...)
	list := b.List(t.Context(), model.Scope{})
	for _, info := range list {
		if bad := !info.Healthy; (info.Name == "x.run" || info.Name == "x") &&
			(bad != (c.problem != "") || !strings.HasPrefix(info.Problem, c.problem)) {
			t.Errorf("got %+v, want problem %q", info, c.problem)
		}
	}
	for i, want := range c.calls {
		want.test(t, b, i)
		if want.code == tool.Timeout { // the next one is to have its answer, on a busy machine, too
			b.host.desc.Timeout = time.Minute
		}
	}
	if c.sent != nil {
		b.Close(t.Context())
	}
	var sent []string
	starts := 0
	text, _ := os.ReadFile(filepath.Join(b.workdir, trace))
	for line := range strings.Lines(string(text)) {
		if line == "start\n" {
			starts++
		} else {
			sent = append(sent, strings.ReplaceAll(strings.TrimSpace(line), b.workdir, "$W"))
		}
	}
	if c.starts == 0 {
		c.starts = len(c.scenes)
	}
	if starts != c.starts && c.starts != untold {
		t.Errorf("got %d processes, want %d", starts, c.starts)
	}
	if diff := cmp.Diff(c.sent, sent); len(c.sent) > 0 && diff != "" {
		t.Errorf("sent: %s", diff)
	}
	if c.sent != nil && (len(sent) == 0 || !strings.Contains(sent[len(sent)-1], `"method":"shutdown"`)) {
		t.Errorf("got %q, want a shutdown at the end", sent)
	}
	if c.logged != "" && b.logged.FilterMessage(c.logged).Len() == 0 {
		t.Errorf("got log %v, want %q in it", b.logged.All(), c.logged)
	}
}

func (c call) test(t *testing.T, b *bench, i int) {
	t.Helper()
	if c.op == "" {
		c.op = "run"
	}
	if c.args == "" {
		c.args = "{}"
	}
	inv := tooltest.Invocation("x."+c.op, c.args)
	inv.Phase, inv.Prompt, inv.Output = c.phase, c.prompt, c.reply
	var log tooltest.Log
	r := b.Call(t.Context(), inv, log.Add)
	code, details := "", ""
	if r.Error != nil {
		code, details = r.Error.Code, string(r.Error.Details)
	}
	text := r.Text
	if begin, ok := strings.CutSuffix(c.text, "…"); ok {
		text, c.text = text[:min(len(text), len(begin))], begin
	}
	if r.OK != (code == "") || code != c.code || text != c.text {
		t.Errorf("call %d: got %+v, code %q, want code %q and %q", i, r, code, c.code, c.text)
	}
	if c.details != "" && details != c.details {
		t.Errorf("call %d: got details %s, want %s", i, details, c.details)
	}
	if diff := cmp.Diff(c.said, log.Deltas()); diff != "" {
		t.Errorf("call %d: updates: %s", i, diff)
	}
	if diff := cmp.Diff(c.outputs, r.Outputs); diff != "" {
		t.Errorf("call %d: outputs: %s", i, diff)
	}
	for _, u := range log.Updates() {
		if u.Warning != "" {
			if u.Warning != tool.InvalidEvent {
				t.Errorf("got %+v", u)
			}
			continue
		}
		if line := `"params":` + string(u.Update) + "}"; !json.Valid(u.Update) ||
			!strings.Contains(strings.Join(b.scenes, "\n"), line) {
			t.Errorf("call %d: got update %s, want a log's params, verbatim", i, u.Update)
		}
		if u.Patch != nil || u.Asset != nil {
			t.Errorf("got %+v", u)
		}
	}
	if c.code == tool.ToolFailed != (r.Error != nil && r.Value != nil) || r.OK && r.Value == nil {
		t.Errorf("call %d: got value %s, want what the extension returned", i, r.Value)
	}
}
