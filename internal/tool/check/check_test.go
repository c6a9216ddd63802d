package check

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"

	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// The fakes are tools that do one thing wrong, which FAULT names.
const fault = "FAULT"

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		"script": func() int {
			tooltest.Append("trace", "called")
			_, _ = io.Copy(io.Discard, os.Stdin)
			fmt.Print(os.Getenv("SCRIPT"))
			if os.Getenv(fault) != "" {
				return 3
			}
			return 0
		},
		"strict": func() int { // does not tolerate what it does not know
			input, _ := io.ReadAll(os.Stdin)
			if strings.Contains(string(input), "x_future") {
				fmt.Fprintln(os.Stderr, "strange field")
				return 1
			}
			fmt.Println(done)
			return 0
		},
		"mute":     tooltest.Block,
		"lingerer": func() int { fmt.Println(done); return tooltest.Block() },
		"deaf":     func() int { fmt.Println(done); return 0 },
		"gevals":   func() int { return serveLines(gevalsAnswer) },
		"module":   func() int { return serveLines(flatAnswer) },
		"jsonrpc":  func() int { return serveLines(rpcAnswer) },
		"mcp":      func() int { return serveLines(mcpAnswer) },
	})
}

const done = `{"version":"0","type":"done","ok":true}`

// serveLines answers each line until an answer is the last one.
func serveLines(answer func(line string) (reply string, last bool)) int {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		reply, last := answer(in.Text())
		if reply != "" {
			fmt.Println(reply)
		}
		if last {
			if os.Getenv(fault) == "stays" {
				tooltest.Block()
			}
			return 0
		}
	}
	return 0
}

// broken reports whether this is the fault of the fake.
func broken(name string) bool { return os.Getenv(fault) == name }

func gevalsAnswer(line string) (string, bool) {
	var r struct {
		ID     *int
		Method string
		Params struct {
			Operation string
			Args      map[string]any
		}
	}
	switch {
	case strings.TrimSpace(line) == "":
		return "", broken("blank")
	case json.Unmarshal([]byte(line), &r) != nil:
		if broken("garbage") {
			return "", true
		}
		return `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}`, false
	case r.ID == nil:
		if broken("notification") {
			return `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"unknown"}}`, false
		}
		return "", false
	}
	id := fmt.Sprint(*r.ID)
	if broken("id") {
		id = `"` + id + `"`
	}
	reply := func(what string) string { return `{"jsonrpc":"2.0","id":` + id + `,` + what + `}` }
	refuse := func(code int) string {
		if broken("code") {
			code = -32000
		}
		return reply(fmt.Sprintf(`"error":{"code":%d,"message":"no"}`, code))
	}
	switch r.Method {
	case "initialize":
		if broken("initialize") {
			return "", true
		}
		return reply(`"result":{"name":"fake","version":"1.0.0","protocolVersion":"0.0.1","operations":{"run":{"params":` +
			`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}}`), false
	case "shutdown":
		if broken("shutdown") {
			return "", true
		}
		return reply(`"result":{}`), true
	case "execute":
		if r.Params.Operation != "run" {
			return refuse(-32601), broken("once")
		}
		tooltest.Append("trace", "called")
		if r.Params.Args["n"] == nil {
			return refuse(-32602), false
		}
		const log = `{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"hm"}}`
		result := reply(`"result":{"success":true,"outputs":{"n":"1"}}`)
		switch os.Getenv(fault) {
		case "log":
			return result + "\n" + log, false
		case "outputs":
			return reply(`"result":{"success":true,"outputs":{"n":1}}`), false
		case "noise":
			return "starting\n" + result, false
		case "crash":
			return "", true
		}
		return log + "\n" + result, false
	}
	return refuse(-32601), false
}

type moduleRequest struct {
	Op     string
	Method string
	Params struct{ Op string }
	ID     int
}

func flatAnswer(line string) (string, bool) {
	var r moduleRequest
	if json.Unmarshal([]byte(line), &r) != nil {
		return "", true
	}
	return moduleAnswer(r.Method, r.Op)
}

func rpcAnswer(line string) (string, bool) {
	var r moduleRequest
	if json.Unmarshal([]byte(line), &r) != nil {
		return "", true
	}
	reply, last := moduleAnswer(r.Method, r.Params.Op)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, r.ID, reply), last
}

func moduleAnswer(method, op string) (string, bool) {
	switch method {
	case "health":
		if broken("health") {
			return `{"status":"tired"}`, false
		}
		return `{"status":"ok"}`, false
	case "describe":
		if broken("describe") {
			return `{"name":"fake"}`, false
		}
		return `{"name":"fake","version":"1","kind":"tool","capabilities":["run"],"inputs":{},"outputs":{}}`, false
	}
	switch {
	case op != "run" && broken("unknown"):
		return `{"ok":true,"result":null}`, false
	case op != "run":
		return `{"ok":false,"error":{"code":"unsupported_op","message":"no"}}`, false
	case broken("crash"):
		return "", true
	case broken("surplus"):
		return `{"ok":true,"result":1}` + "\n" + `{"one":"more"}`, false
	case broken("error"):
		return `{"ok":false,"error":"no"}`, false
	}
	tooltest.Append("trace", "called")
	return `{"ok":true,"result":1}`, false
}

// examine checks a fake and sees that nothing is left of it. The folder that it
// worked in comes back.
func examine(t *testing.T, d tooltest.Descriptor, o Options) (findings []Finding, workdir string, err error) {
	t.Helper()
	return examineContext(t, t.Context(), d, o)
}

func examineContext(t *testing.T, ctx context.Context, d tooltest.Descriptor, o Options) (findings []Finding,
	workdir string, err error,
) {
	t.Helper()
	dir, workdir := t.TempDir(), t.TempDir()
	d.Write(t, dir)
	desc, err := tool.LoadDescriptor(filepath.Join(dir, d["name"].(string)+".json"), workdir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	s := proc.NewSupervisor("", zaptest.NewLogger(t))
	findings, err = Run(ctx, desc, s, o)
	s.Close()
	tooltest.NoChildren(t)
	return findings, workdir, err
}

// failures are the clauses that are broken, without repetition.
func failures(findings []Finding) []string {
	var all []string
	for _, f := range findings {
		if text := f.Clause + " " + f.What; f.Status == Fail && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// text is how failures names clauses.
func text(clauses ...*clause) []string {
	var all []string
	for _, c := range clauses {
		all = append(all, c.spec+" "+c.what)
	}
	return all
}

func TestAToolIsToldExactlyWhatItDoesWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	script := func(lines ...string) tooltest.Descriptor {
		return tooltest.New(t, "t", "narratoria", "script").Env("SCRIPT", strings.Join(append(lines, ""), "\n"))
	}
	fake := func(protocol, mode, broken string) tooltest.Descriptor {
		return tooltest.New(t, "t", protocol, mode).Env(fault, broken)
	}
	for name, c := range map[string]struct {
		tool tooltest.Descriptor
		want []*clause
	}{
		"narratoria: nothing":            {script(`{"version":"0","type":"log","level":"info","message":"hm"}`, done), nil},
		"narratoria: does not read":      {tooltest.New(t, "t", "narratoria", "deaf"), nil},
		"narratoria: ends with status 3": {script(done).Env(fault, "yes"), []*clause{nExit}},
		"narratoria: no done": {
			script(`{"version":"0","type":"log","level":"info","message":"hm"}`),
			[]*clause{nOneDone},
		},
		"narratoria: never ends": {
			tooltest.New(t, "t", "narratoria", "mute").Set("timeout", "100ms"),
			[]*clause{nTime},
		},
		"narratoria: stays after done": {tooltest.New(t, "t", "narratoria", "lingerer"), []*clause{nPrompt}},
		"narratoria: strict":           {tooltest.New(t, "t", "narratoria", "strict"), []*clause{nFuture}},
		"narratoria: long line": {script(`{"version":"0","x":"`+strings.Repeat("x", 5000)+`"}`, done).
			Set("max_output", 1000), []*clause{nLong}},

		"gevals: nothing":                    {fake("gevals", "gevals", ""), nil},
		"gevals: dies of initialize":         {fake("gevals", "gevals", "initialize"), []*clause{gInit}},
		"gevals: dies of blank lines":        {fake("gevals", "gevals", "blank"), []*clause{gBlank}},
		"gevals: dies of garbage":            {fake("gevals", "gevals", "garbage"), []*clause{gInvalid}},
		"gevals: answers notifications":      {fake("gevals", "gevals", "notification"), []*clause{gRPC.id}},
		"gevals: makes ids strings":          {fake("gevals", "gevals", "id"), []*clause{gRPC.id}},
		"gevals: has codes of its own":       {fake("gevals", "gevals", "code"), []*clause{gMethod, gUnknown, gMissing}},
		"gevals: logs after the result":      {fake("gevals", "gevals", "log"), []*clause{gLogs}},
		"gevals: has a number for an output": {fake("gevals", "gevals", "outputs"), []*clause{gResult}},
		"gevals: prints text":                {fake("gevals", "gevals", "noise"), []*clause{gRPC.json}},
		"gevals: crashes":                    {fake("gevals", "gevals", "crash"), []*clause{gTwice}},
		"gevals: does not acknowledge":       {fake("gevals", "gevals", "shutdown"), []*clause{gShutdown}},
		"gevals: does not exit":              {fake("gevals", "gevals", "stays"), []*clause{gExit}},
		"mcp: nothing":                       {fake("mcp", "mcp", ""), nil},
		"mcp: prints text":                   {fake("mcp", "mcp", "noise"), []*clause{sRPC.json}},
		"mcp: has no serverInfo":             {fake("mcp", "mcp", "info"), []*clause{sInit}},
		"mcp: has a tool twice":              {fake("mcp", "mcp", "twice"), []*clause{sTools}},
		"mcp: has pages without end":         {fake("mcp", "mcp", "pages"), []*clause{sTools}},
		"mcp: has a schema that is none":     {fake("mcp", "mcp", "schema"), []*clause{sSchema}},
		"mcp: knows every method":            {fake("mcp", "mcp", "unknown"), []*clause{sMethod}},
		"mcp: returns a text":                {fake("mcp", "mcp", "content"), []*clause{sResult}},
		"mcp: dies of ping":                  {fake("mcp", "mcp", "ping"), []*clause{sPing, sResult}},
		"module: nothing":                    {fake("module", "module", ""), nil},
		"module: is not well":                {fake("module", "module", "health"), []*clause{mHealth}},
		"module: does not describe itself":   {fake("module", "module", "describe"), []*clause{mDescribe}},
		"module: knows every operation":      {fake("module", "module", "unknown"), []*clause{mUnknown}},
		"module: says more than it is asked": {fake("module", "module", "surplus"), []*clause{mSurplus, mInvoke}},
		"module: has an error of one string": {fake("module", "module", "error"), []*clause{mInvoke}},
		"module: crashes":                    {fake("module", "module", "crash"), []*clause{mTwice}},
		"module over jsonrpc: nothing":       {fake("module", "jsonrpc", "").Set("framing", "jsonrpc"), nil},
		"module over jsonrpc: is not well": {
			fake("module", "jsonrpc", "health").Set("framing", "jsonrpc"),
			[]*clause{mHealth},
		},
		"module over jsonrpc: another framing": {
			fake("module", "module", "").Set("framing", "jsonrpc"), []*clause{mReply},
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings, _, err := examine(t, c.tool, Options{All: true})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(text(c.want...), failures(findings)); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
			for _, f := range findings {
				if f.Status == Fail && (f.Seen == "" || f.Fix == "") || f.Status == Skip && f.Seen == "" ||
					strings.Contains(f.Seen, "\n") {
					t.Errorf("says too little: %+v", f)
				}
			}
		})
	}
}

func TestNoOperationIsCalledUnlessAskedFor(t *testing.T) {
	for protocol, mode := range map[string]string{"narratoria": "script", "gevals": "gevals", "module": "module"} {
		t.Run(protocol, func(t *testing.T) {
			d := tooltest.New(t, "t", protocol, mode).Env("SCRIPT", done+"\n")
			findings, workdir, err := examine(t, d, Options{})
			if err != nil || len(failures(findings)) > 0 {
				t.Errorf("got %v, %v, want no failure", failures(findings), err)
			}
			if calls := tooltest.Lines(t, filepath.Join(workdir, "trace")); len(calls) > 0 {
				t.Errorf("got %d calls, want none", len(calls))
			}
			if !slices.ContainsFunc(findings, func(f Finding) bool {
				return f.Status == Skip && strings.Contains(f.Seen, "--operation")
			}) {
				t.Error("nobody is told how to have an operation called")
			}
		})
	}
}

func TestOneOperationIsCalledTwice(t *testing.T) {
	for protocol, want := range map[string]int{"narratoria": 2, "gevals": 3, "module": 2} { // gevals: one to be refused
		t.Run(protocol, func(t *testing.T) {
			mode := strings.Replace(protocol, "narratoria", "script", 1)
			d := tooltest.New(t, "t", protocol, mode).Env("SCRIPT", done+"\n")
			_, workdir, err := examine(t, d, Options{Operation: "run", Args: jsontext.Value(`{"n":7}`)})
			if err != nil {
				t.Fatal(err)
			}
			if calls := tooltest.Lines(t, filepath.Join(workdir, "trace")); len(calls) != want {
				t.Errorf("got %d calls, want %d", len(calls), want)
			}
		})
	}
}

func TestWhatCannotBeCheckedSaysWhy(t *testing.T) {
	missing := map[string]any{"type": "stdio", "command": []string{"./no-such-program"}}
	closed := map[string]any{"type": "http", "url": "unix://" + filepath.Join(t.TempDir(), "nobody")}
	for name, c := range map[string]struct {
		tool    tooltest.Descriptor
		options Options
		want    string
	}{
		"narratoria without a program": {
			tooltest.New(t, "t", "narratoria", "").Set("transport", missing),
			Options{},
			"no such file",
		},
		"gevals without a program": {
			tooltest.New(t, "t", "gevals", "").Set("transport", missing),
			Options{},
			"no such file",
		},
		"module without a program": {
			tooltest.New(t, "t", "module", "").Set("transport", missing),
			Options{},
			"no such file",
		},
		"module that does not listen": {
			tooltest.New(t, "t", "module", "").Set("transport", closed),
			Options{},
			"cannot reach",
		},
		"no such operation": {
			tooltest.New(t, "t", "gevals", "gevals"),
			Options{Operation: "fly"},
			`no operation "fly"; there are: run`,
		},
		"wrong arguments": {
			tooltest.New(t, "t", "gevals", "gevals"),
			Options{Operation: "run", Args: jsontext.Value(`{"n":"x"}`)},
			"want integer",
		},
		"a sandbox we do not have": {
			tooltest.New(t, "t", "gevals", "gevals").Set("sandbox", "workdir"),
			Options{},
			"sandbox",
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings, _, err := examine(t, c.tool, c.options)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v and %d findings, want an error with %q", err, len(findings), c.want)
			}
		})
	}
}

func TestAnAbortedCheckLeavesNothingBehind(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // ends when the tool does
		released := held()
		cancel(errors.New("enough"))
		released()
	}()
	d := tooltest.New(t, "t", "narratoria", "mute").Env(tooltest.FIFO, fifo)
	d.Set("transport", map[string]any{"type": "stdio", "command": []string{"sh", "-c", `exec 9>"$` + tooltest.FIFO +
		`"; sleep 3600`}})
	if _, _, err := examineContext(t, ctx, d, Options{All: true}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("got %v, want the reason for the abort", err)
	}
}

func TestAModuleOverHTTP(t *testing.T) {
	t.Chdir(t.TempDir()) // its server is this process, and notes its calls
	serve := func(t *testing.T, l net.Listener, status int) {
		s := &httptest.Server{
			Listener: l,
			Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body struct{ Op string }
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Method != http.MethodPost {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				reply, _ := moduleAnswer(strings.TrimPrefix(r.URL.Path, "/"), body.Op)
				if body.Op == "run" {
					reply = `{"ok":true,"result":{}}`
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, reply)
			})},
		}
		s.Start()
		t.Cleanup(s.Close)
	}
	for name, c := range map[string]struct {
		network string
		status  int
		want    []*clause
	}{
		"tcp":                     {"tcp", http.StatusOK, nil},
		"a unix socket":           {"unix", http.StatusOK, nil},
		"status 500 of a success": {"tcp", http.StatusInternalServerError, []*clause{mReply}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "c") // short, to be bound
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			address, url := "127.0.0.1:0", ""
			if c.network == "unix" {
				address = filepath.Join(dir, "s")
				url = "unix://" + address
			}
			l, err := net.Listen(c.network, address)
			if err != nil {
				t.Fatal(err)
			}
			if url == "" {
				url = "http://" + l.Addr().String()
			}
			serve(t, l, c.status)
			d := tooltest.New(t, "t", "module", "").Set("transport", map[string]any{"type": "http", "url": url})
			findings, _, err := examine(t, d, Options{All: true})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(text(c.want...), failures(findings)); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
		})
	}
}

func TestWhatAProcessLeavesRunningIsFound(t *testing.T) {
	s := proc.NewSupervisor("", zaptest.NewLogger(t))
	defer s.Close()
	const mark = marker + "=found"
	p, err := s.Start(t.Context(), proc.Command{
		Name: "t", Path: tooltest.Self(t), Args: []string{"some", "name"}, Dir: t.TempDir(),
		Env: []string{mark, tooltest.Mode + "=lingerer"}, MaxLine: 1 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(); err != nil { // it runs
		t.Error(err)
	}
	if got := marked(mark); len(got) != 1 || !strings.Contains(got[0], "some name") {
		t.Errorf("got %v, want the one process", got)
	}
	p.Stop()
	p.Wait()
	if got := marked(mark); len(got) != 0 {
		t.Errorf("got %v after its end, want none", got)
	}
}
