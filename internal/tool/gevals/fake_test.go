package gevals

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"noused/internal/tool/tooltest"
)

// trace is where a fake notes what happened to it, in its working directory.
const trace = "trace"

type request struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type executeParams struct {
	Operation string                     `json:"operation"`
	Args      map[string]json.RawMessage `json:"args"`
	Context   json.RawMessage            `json:"context"`
}

func TestMain(m *testing.M) {
	manifest := func(extra string) string {
		var ops []string
		for _, op := range operations {
			ops = append(ops, fmt.Sprintf(`%q:{"description":"does %s","params":{"type":"object","properties":{"n":{"type":"integer","default":1}}}}`, op, op))
		}
		return `{"name":"fake","version":"1.0.0","protocolVersion":"0.0.1",` + extra + `"operations":{` + strings.Join(ops, ",") + `}}`
	}
	tooltest.Main(m, map[string]func() int{
		"fake": func() int { return serve(func() string { return manifest("") }) },
		"needy": func() int {
			return serve(func() string { return manifest(`"requires":[{"command":"no-such-command"}],`) })
		},
		"nameless": func() int {
			return serve(func() string { return `{"version":"1","operations":{}}` })
		},
		"stillborn": func() int {
			tooltest.Append(trace, "start")
			fmt.Fprintln(os.Stderr, "no config")
			return 2
		},
		"sleepy": func() int {
			tooltest.Append(trace, "start")
			tooltest.Hold()
			return tooltest.Block()
		},
		"clingy": func() int {
			signal.Ignore(syscall.SIGTERM)
			serve(func() string { return manifest("") })
			tooltest.Append(trace, "clings")
			return tooltest.Block()
		},
	})
}

var operations = []string{
	"ok", "fail", "rpcerror", "both", "crash", "hang", "logs", "noise", "garbage", "huge", "strange", "env", "echo", "late", "leave", "meet", "flood", "stderr",
}

func reply(id int64, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", id, result)
}

func logLine(message string) {
	fmt.Printf(`{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":%q}}`+"\n", message)
}

func serve(manifest func() string) int {
	tooltest.Append(trace, "start")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() { // like the common SDK, it dies of a long line
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return 90
		}
		switch r.Method {
		case "initialize":
			tooltest.Append(trace, "initialize:"+string(r.Params))
			reply(r.ID, manifest())
		case "shutdown":
			tooltest.Append(trace, "shutdown")
			if fifo := os.Getenv(tooltest.FIFO); fifo != "" {
				tooltest.Hold()
			}
			reply(r.ID, "{}")
			return 0
		case "execute":
			var p executeParams
			if err := json.Unmarshal(r.Params, &p); err != nil {
				return 91
			}
			if code := perform(r.ID, p); code >= 0 {
				return code
			}
		}
	}
	if lines.Err() != nil {
		fmt.Fprintln(os.Stderr, "reading standard input:", lines.Err())
		return 1
	}
	return 0
}

// perform returns the exit status of a fake that has had enough, or -1.
func perform(id int64, p executeParams) int {
	ok := func() {
		reply(id, `{"success":true,"message":"did `+p.Operation+`","outputs":{"n":"`+string(p.Args["n"])+`"}}`)
	}
	switch p.Operation {
	case "ok":
		ok()
	case "fail":
		reply(id, `{"success":false,"message":"not ready","error":"timed out","outputs":{"last":"no"}}`)
	case "rpcerror":
		fmt.Printf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"broken","data":{"x":1}}}`+"\n", id)
	case "both":
		fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":null,"error":{"code":-32601,"message":"Unknown operation"}}`+"\n", id)
	case "crash":
		logLine("about to crash")
		fmt.Fprintln(os.Stderr, "panic: oh no")
		return 7
	case "hang":
		logLine("hanging")
		tooltest.Block()
	case "logs":
		for i := range 500 {
			logLine(fmt.Sprint("line ", i))
		}
		ok()
	case "noise":
		fmt.Print("\n  \r\nstarting up\n[1,2]\n")
		ok()
	case "garbage":
		fmt.Println("one\ntwo\nthree")
		tooltest.Block()
	case "huge":
		fmt.Println(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		tooltest.Block()
	case "strange":
		reply(id+1000, `{"success":true,"message":"not mine"}`)
		fmt.Printf(`{"jsonrpc":"2.0","id":%d,"method":"sample","params":{}}`+"\n", id)
		fmt.Println(`{"jsonrpc":"2.0","method":"progress","params":{}}`)
		fmt.Println(`{"hello":"there"}`)
		ok()
	case "env":
		text, _ := json.Marshal(strings.Join(os.Environ(), "\n"))
		reply(id, `{"success":true,"message":`+string(text)+`}`)
	case "echo":
		text, _ := json.Marshal(string(p.Context))
		reply(id, `{"success":true,"message":`+string(text)+`,"outputs":{"odd":[1, 2]}}`)
	case "late":
		logLine("late")
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
		reply(id, `{"success":true,"message":"too late"}`)
		reply(id+1, `{"success":true,"message":"too late"}`)
	case "leave":
		ok()
		return 0
	case "meet":
		tooltest.Hold()
		ok()
	case "flood":
		for {
			logLine("flood")
		}
	case "stderr":
		fmt.Fprintln(os.Stderr, strings.Repeat("noise\n", 100_000))
		ok()
	}
	return -1
}
