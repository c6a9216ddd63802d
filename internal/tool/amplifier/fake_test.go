package amplifier

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool/tooltest"
)

// trace is where a fake notes what happened to it, in its working directory;
// sick is a file whose text it answers to health.
const (
	trace = "trace"
	sick  = "sick"
)

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		"rote":    rote,
		"fake":    func() int { return serve(func(body string) string { return body }) },
		"wrapped": func() int { return serve(func(body string) string { return `{"result":` + body + `,"v":1}` }) },
		"banner": func() int {
			fmt.Println("fake module 1.0\nready")
			return serve(func(body string) string { return body })
		},
		"slow": func() int {
			tooltest.Hold()
			return serve(func(body string) string { return body })
		},
		"mute": func() int {
			tooltest.Append(trace, "start")
			return tooltest.Block()
		},
		"stillborn": func() int {
			tooltest.Append(trace, "start")
			fmt.Fprintln(os.Stderr, "no licence")
			return 2
		},
		"clingy": func() int {
			signal.Ignore(syscall.SIGTERM)
			serve(func(body string) string { return body })
			tooltest.Append(trace, "clings")
			return tooltest.Block()
		},
	})
}

// asked is a request in any framing.
type asked struct {
	Version   string                    `json:"jsonrpc"`
	ID        int64                     `json:"id"`
	Method    string                    `json:"method"`
	Op        string                    `json:"op"`
	Args      map[string]jsontext.Value `json:"args"`
	SessionID string                    `json:"session_id"`
	Params    jsontext.Value            `json:"params"`
}

// serve answers requests until the input ends. A flat reply is dressed.
func serve(dress func(string) string) int {
	tooltest.Append(trace, "start")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a asked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return 90
		}
		rpc := a.Version != ""
		if rpc {
			if err := json.Unmarshal(a.Params, &a); err != nil {
				return 91
			}
		}
		if status := misbehave(a); status >= 0 {
			return status
		}
		body := answer(".", a, lines.Text())
		switch {
		case rpc && strings.HasPrefix(body, `{"error"`):
			fmt.Printf(`{"jsonrpc":"2.0","id":%d,%s`+"\n", a.ID, body[1:])
		case rpc:
			fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", a.ID, body)
		default:
			fmt.Println(dress(body))
		}
	}
	tooltest.Append(trace, "input ended")
	if os.Getenv(tooltest.FIFO) != "" {
		tooltest.Hold()
	}
	return 0
}

const described = `{"name":"fake","version":"1.0.0","kind":"tool",
	"capabilities":["text","object","null","echo","fail","count","health"],
	"inputs":{"count":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"by":{"default":1}}}},
	"outputs":{"count":{"type":"integer"}}}`

// answer is what an honest module says, without its framing. Its files are in
// dir.
func answer(dir string, a asked, raw string) string {
	switch a.Method {
	case "health":
		tooltest.Append(filepath.Join(dir, trace), "health")
		if text, err := os.ReadFile(filepath.Join(dir, sick)); err == nil {
			return string(text)
		}
		return `{"status":"ok"}`
	case "describe":
		tooltest.Append(filepath.Join(dir, trace), "describe")
		return strings.ReplaceAll(described, "\n", "")
	}
	if reply, ok := replies[a.Op]; ok {
		return reply
	}
	switch a.Op {
	case "echo", "generate", "transform", "before_turn", "on_event", "run":
		text, _ := json.Marshal(raw)
		return `{"ok":true,"result":{"op":"` + a.Op + `","request":` + string(text) + `}}`
	case "count":
		return `{"ok":true,"result":` + string(a.Args["n"]) + `}`
	case "pid":
		return fmt.Sprintf(`{"ok":true,"result":%d}`, os.Getpid())
	case "env":
		text, _ := json.Marshal(strings.Join(os.Environ(), "\n"))
		return `{"ok":true,"result":` + string(text) + `}`
	}
	return `{"ok":false,"error":{"code":"unsupported_op","message":"no ` + a.Op + `"}}`
}

var replies = map[string]string{
	"text":      `{"ok":true,"result":"hello\nworld","images":["a.png"]}`,
	"object":    `{"ok":true, "result":{"a" : [1, 2]}}`,
	"null":      `{"ok":true}`,
	"meet":      `{"ok":true,"result":"fine"}`,
	"noise":     `{"ok":true,"result":"fine"}`,
	"strange":   `{"ok":true,"result":"fine"}`,
	"stderr":    `{"ok":true,"result":"fine"}`,
	"health":    `{"ok":true,"result":"the operation, not the method"}`,
	"fail":      `{"ok":false,"error":{"code":"no_such_city","message":"never heard of it","details":{"city":"X"}}}`,
	"forbidden": `{"ok":false,"error":{"code":"forbidden","message":"not yours","details":[1]}}`,
	"unsaid":    `{"ok":false}`,
	"nook":      `{"hello":1}`,
	"okstring":  `{"ok":"yes","result":1}`,
	"surrogate": `{"ok":true,"result":"a\udc80b"}`,
	"deep":      `{"ok":true,"result":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
	"rpc-32601": `{"error":{"code":-32601,"message":"Method not found"}}`,
	"rpc-32602": `{"error":{"code":-32602,"message":"Invalid params","data":{"at":"n"}}}`,
	"rpc-32000": `{"error":{"code":-32000,"message":""}}`,
}

// misbehave returns the exit status of a fake that has had enough, or -1.
func misbehave(a asked) int {
	if a.Method != "invoke" {
		if text, err := os.ReadFile(sick); err == nil && a.Method == "health" && string(text) == "crash" {
			return 3
		}
		return -1
	}
	tooltest.Append(trace, "invoke:"+a.Op)
	switch a.Op {
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: oh no")
		return 7
	case "oom":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		tooltest.Block()
	case "hang":
		tooltest.Hold()
		tooltest.Block()
	case "late": // answers when it is told to end
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		tooltest.Hold()
		<-c
		fmt.Println(`{"ok":true,"result":"too late","jsonrpc":"2.0","id":2}`)
		return 0
	case "meet":
		tooltest.Hold()
	case "leave":
		fmt.Printf(`{"ok":true,"result":%d}`+"\n", os.Getpid())
		return 0
	case "garbage":
		fmt.Println("this is no JSON")
	case "twice":
		fmt.Println("{\"ok\":true,\"result\":\"first\"}\n{\"ok\":true,\"result\":\"second\"}")
	case "huge":
		fmt.Println(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		tooltest.Block()
	case "noise":
		fmt.Print("\n  \r\nstarting up\n[1,2]\n")
	case "more noise":
		fmt.Println("one")
		tooltest.Block()
	case "strange":
		fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":{"ok":true,"result":"not mine"}}`+"\n", a.ID+1000)
		fmt.Printf(`{"jsonrpc":"2.0","id":%d,"method":"sample","params":{}}`+"\n", a.ID)
		fmt.Println(`{"jsonrpc":"2.0","method":"progress","params":{}}`)
		fmt.Println(`{"hello":"there"}`)
	case "stderr":
		fmt.Fprintln(os.Stderr, strings.Repeat("noise\n", 100_000))
	}
	return -1
}
