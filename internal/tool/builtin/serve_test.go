package builtin

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/proc"
	"noused/internal/tool/tooltest"
)

// TestMain makes the test binary the extension when it is called as noused is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "extension" && os.Args[2] == Name {
		syscall.Exit(runExtension()) // os.Exit sleeps for a second under the race detector
	}
	tooltest.Main(m, map[string]func() int{tooltest.Daemon: func() int {
		status, _ := proc.Helper(os.Args)
		return status
	}})
}

// said is a line from the extension.
type said struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params logParams      `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  *fault         `json:"error"`
}

// serveLines gives the extension these lines and returns what it says to them.
func serveLines(t testing.TB, dir string, lines ...string) []said {
	t.Helper()
	var out strings.Builder
	in := strings.NewReader(strings.Join(lines, "\n"))
	if err := Serve(context.Background(), in, &out, dir, os.Environ()); err != nil {
		t.Fatal(err)
	}
	var all []said
	for line := range strings.Lines(out.String()) {
		if !utf8.ValidString(line) {
			t.Fatalf("got a line that is not UTF-8: %q", line)
		}
		var s said
		if err := jsonx.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("got %q: %v", line, err)
		}
		all = append(all, s)
	}
	return all
}

// outcome is the end of one call.
type outcome struct {
	result
	fault *fault
	logs  []string
}

// text is what a model would read.
func (o outcome) text() string {
	switch {
	case o.fault != nil:
		return fmt.Sprint(o.fault.Code, " ", o.fault.Message)
	case !o.Success:
		return "failed: " + o.Error
	}
	return o.Message
}

// execLine is a request in a working directory. args is a JSON object.
func execLine(dir, op, args string) string {
	quoted, _ := jsonx.Marshal(dir)
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":%q,"args":%s,"context":{"workdir":%s,"phase":"setup"}}}`, op, args, quoted)
}

// do runs one operation the way one-shot mode does.
func do(t testing.TB, dir, op string, args any) outcome {
	t.Helper()
	text, ok := args.(string)
	if !ok {
		b, err := jsonx.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	return finish(t, serveLines(t, "/", execLine(dir, op, text)))
}

func finish(t testing.TB, all []said) (o outcome) {
	t.Helper()
	for i, s := range all {
		if s.Method == "log" && i < len(all)-1 {
			if s.Params.Level != "info" {
				t.Errorf("got level %q, want info", s.Params.Level)
			}
			o.logs = append(o.logs, s.Params.Message)
			continue
		}
		if i != len(all)-1 || string(s.ID) != "7" {
			t.Fatalf("got %+v as line %d of %d, want the reply last", s, i+1, len(all))
		}
		if o.fault = s.Error; s.Error == nil {
			if err := jsonx.Unmarshal(s.Result, &o.result); err != nil {
				t.Fatal(err)
			}
		}
		return o
	}
	t.Fatal("no reply")
	return o
}

// files makes files in a new folder. A name ending with a slash is a folder.
func files(t testing.TB, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(path, 0o700))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func TestSession(t *testing.T) {
	dir := files(t, map[string]string{"a.txt": "hello\n"})
	all := serveLines(t, dir,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{}}}`,
		`{"jsonrpc":"2.0","id":"two","method":"execute","params":{"operation":"read","args":{"path":"a.txt"},"context":{"workdir":"","phase":"verify","agent":{"prompt":"p","output":"o"}}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"shutdown","params":{}}`,
		`{"jsonrpc":"2.0","id":4,"method":"shutdown","params":{}}`,
	)
	if len(all) != 3 {
		t.Fatalf("got %d replies, want 3: none after shutdown", len(all))
	}
	var m struct {
		Name, Version   string
		ProtocolVersion string `json:"protocolVersion"`
		Operations      map[string]struct {
			Description string
			Params      struct {
				Type       string
				Properties map[string]jsontext.Value
				Required   []string
			}
		}
	}
	must(t, jsonx.Unmarshal(all[0].Result, &m, jsonx.MatchCaseInsensitiveNames(true)))
	if m.Name != "files" || m.Version == "" || m.ProtocolVersion != "0.0.1" {
		t.Errorf("got manifest %s %s %s", m.Name, m.Version, m.ProtocolVersion)
	}
	want := map[string]string{
		"read": "path offset? limit?", "write": "path content outside_sandbox? reason?",
		"edit": "path old_text? new_text? replace_all? edits? outside_sandbox? reason?",
		"ls":   "path?", "find": "pattern path?", "grep": "pattern path? glob?",
		"bash": "command timeout? background? outside_sandbox? reason?", "job": "id action timeout?", "todo": "items",
		"agent": "prompt description? agent? model? worktree? background? session_id?",
	}
	for name, arguments := range want {
		op := m.Operations[name]
		if op.Description == "" || op.Params.Type != "object" || len(op.Params.Properties) != len(strings.Fields(arguments)) {
			t.Errorf("%s: got %+v, want arguments %s", name, op, arguments)
		}
		required := 0
		for _, arg := range strings.Fields(arguments) {
			arg, optional := strings.CutSuffix(arg, "?")
			if op.Params.Properties[arg] == nil {
				t.Errorf("%s has no argument %s", name, arg)
			}
			if !optional {
				required++
			}
		}
		if len(op.Params.Required) != required {
			t.Errorf("%s requires %v, want %s", name, op.Params.Required, arguments)
		}
	}
	if len(m.Operations) != len(want) {
		t.Errorf("got %d operations, want %d", len(m.Operations), len(want))
	}
	if string(all[1].ID) != `"two"` || !strings.Contains(string(all[1].Result), `hello`) {
		t.Errorf("got %s to execute", all[1].Result)
	}
	if string(all[2].Result) != "{}" {
		t.Errorf("got %s to shutdown, want {}", all[2].Result)
	}
}

func TestWrongRequests(t *testing.T) {
	dir := files(t, map[string]string{"a.txt": "hello\n"})
	exec := func(params string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"execute","params":` + params + `}`
	}
	call := func(op, args string) string { return execLine(dir, op, args) }
	for _, c := range []struct{ line, id, want string }{
		{`{"jsonrpc":`, "null", "-32700 "},
		{`hello`, "null", "-32700 "},
		{"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}", "null", "-32700 "},
		{`[1]`, "null", "-32600 "},
		{`{"jsonrpc":"2.0","id":7}`, "7", "-32600 method"},
		{`{"jsonrpc":"2.0","id":7,"method":5}`, "7", "-32600 method"},
		{`{"id":7,"method":"shutdown"}`, "7", "-32600 jsonrpc"},
		{`{"jsonrpc":"2.0","id":[1],"method":"shutdown"}`, "null", "-32600 id"},
		{`{"jsonrpc":"2.0","id":7,"method":"dance"}`, "7", "-32601 unknown method: dance"},
		{`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}`, "7", "-32602 protocolVersion: missing"},
		{
			`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}`, "7",
			"-32602 protocolVersion: cannot be a JSON number",
		},
		{`{"jsonrpc":"2.0","id":7,"method":"initialize","params":[]}`, "7", "-32602 params: want an object"},
		{exec(`{}`), "7", "-32602 operation: missing"},
		{exec(`{"operation":"appply"}`), "7", "-32601 unknown operation: appply"},
		{exec(`{"operation":"ls","args":[]}`), "7", "-32602 params.args: want an object"},
		{exec(`{"operation":"ls","args":{},"context":{"phase":"lunch"}}`), "7", "-32602 context.phase"},
		{exec(`{"operation":"ls","args":{},"context":{"timeout":"soon"}}`), "7", "-32602 context.timeout"},
		{exec(`{"operation":"ls","args":{},"context":{"workdir":"/no/such/folder"}}`), "7", "-32602 context.workdir"},
		{
			exec(`{"operation":"ls","args":{},"context":{"workdir":1}}`), "7",
			"-32602 context.workdir: cannot be a JSON number",
		},
		{exec(`{"operation":"ls","args":{},"context":{"env":{"a=b":""}}}`), "7", "-32602 context.env"},
		{call("read", `{}`), "7", "-32602 args.path: missing"},
		{call("read", `null`), "7", "-32602 args.path: missing"},
		{call("read", `{"path":null}`), "7", "-32602 args.path: missing"},
		{call("read", `{"path":""}`), "7", "-32602 args.path: empty"},
		{call("read", `{"path":7}`), "7", "-32602 args.path: cannot be a JSON number"},
		{call("read", `{"path":"a.txt","lines":3}`), "7", "-32602 args.lines: there is no such argument"},
		{call("read", `{"path":"a.txt","offset":0}`), "7", "-32602 args.offset: want a whole number"},
		{call("read", `{"path":"a.txt","limit":1.5}`), "7", "-32602 args.limit: want a whole number"},
		{call("read", `{"path":"a.txt","limit":"all"}`), "7", "-32602 args.limit: want a whole number"},
		{call("write", `{"path":"a.txt"}`), "7", "-32602 args.content: missing"},
		{call("edit", `{"path":"a.txt","old_text":"","new_text":"x"}`), "7", "-32602 args.old_text: empty"},
		{call("edit", `{"path":"a.txt","old_text":"x"}`), "7", "-32602 args.new_text: missing"},
		{
			call("edit", `{"path":"a.txt","old_text":"x","new_text":"y","replace_all":"yes"}`), "7",
			"-32602 args.replace_all: cannot be a JSON string",
		},
		{call("find", `{}`), "7", "-32602 args.pattern: missing"},
		{call("find", `{"pattern":"[a"}`), "7", "-32602 args.pattern: "},
		{call("find", `{"pattern":"/etc/*"}`), "7", "-32602 args.pattern: "},
		{call("grep", `{"pattern":"hello(world"}`), "7", "-32602 args.pattern: missing closing )"},
		{call("grep", `{"pattern":"hello [z-a]"}`), "7", "-32602 args.pattern: invalid character class range at character 8"},
		{call("grep", `{"pattern":"x","glob":"{a"}`), "7", "-32602 args.glob: "},
		{call("bash", `{}`), "7", "-32602 args.command: missing"},
		{call("bash", `{"command":"true\u0000"}`), "7", "-32602 args.command: "},
		{call("bash", `{"command":"true","timeout":601}`), "7", "-32602 args.timeout: "},
		{call("bash", `{"command":"true","timeout":0}`), "7", "-32602 args.timeout: "},
		{call("bash", `{"command":"true","timeout":"1s"}`), "7", "-32602 args.timeout: cannot be a JSON string"},
	} {
		all := serveLines(t, dir, c.line)
		if len(all) != 1 || all[0].Error == nil {
			t.Errorf("%s\ngot %+v, want an error", c.line, all)
			continue
		}
		got := fmt.Sprint(all[0].Error.Code, " ", all[0].Error.Message)
		if !strings.HasPrefix(got, c.want) || string(all[0].ID) != c.id {
			t.Errorf("%s\ngot id %s, %s\nwant id %s, %s", c.line, all[0].ID, got, c.id, c.want)
		}
	}
}

func TestWhatIsNotAnswered(t *testing.T) {
	all := serveLines(t, t.TempDir(),
		"", "  \t ", "\r",
		`{"jsonrpc":"2.0","method":"execute","params":{"operation":"write","args":{"path":"x","content":""}}}`,
		`{"jsonrpc":"2.0","method":"unheard"}`)
	if len(all) != 0 {
		t.Errorf("got %+v to blank lines and notifications, want nothing", all)
	}
}

// A whole command of the daemon fits into one write, and what does not is
// refused without an end to the session.
func TestLongLines(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 17<<20)
	all := serveLines(t, dir,
		execLine(dir, "write", `{"path":"long","content":"`+long+`"}`),
		strings.Repeat(" ", maxLine+1),
		execLine(dir, "ls", `{}`))
	if len(all) != 3 || all[0].Error != nil || all[2].Error != nil {
		t.Fatalf("got %+v, want three replies and one error", all)
	}
	if info, err := os.Stat(filepath.Join(dir, "long")); err != nil || info.Size() != int64(len(long)) {
		t.Errorf("got %v, %v, want %d bytes", info, err, len(long))
	}
	if f := all[1].Error; f == nil || f.Code != invalidRequest || string(all[1].ID) != "null" {
		t.Errorf("got %+v to a line too long", all[1])
	}
}

func TestClosedOutput(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	in := strings.NewReader(execLine("/", "ls", `{}`))
	if err := Serve(context.Background(), in, w, "/", nil); err == nil {
		t.Error("got no error from an output that is closed")
	}
}

func FuzzServe(f *testing.F) {
	for _, op := range operations {
		if op.name != "bash" && op.name != "write" && op.name != "edit" {
			f.Add(execLine("", op.name, `{"path":"a","pattern":"a*","glob":"**","offset":1,"limit":2.0}`))
		}
	}
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`)
	f.Add(`{"jsonrpc":"2.0","id":null,"method":"shutdown"}`)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, line string) {
		for _, word := range []string{"bash", "write", "edit", "\\", "workdir", "..", ":\"/", "~", "timeout"} {
			if strings.Contains(line, word) {
				t.Skip() // it must not do what a fuzzer says
			}
		}
		all := serveLines(t, dir, line)
		if n := strings.Count(line, "\n") + 1; len(all) > n {
			t.Fatalf("got %d replies to %d lines", len(all), n)
		}
		for _, s := range all {
			if s.ID == nil || (s.Error == nil) == (s.Result == nil) || s.Error != nil &&
				(s.Error.Message == "" || s.Error.Code > -32000 || s.Error.Code < -32700) {
				t.Fatalf("got %+v", s)
			}
		}
	})
}
