package mcp

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool/tooltest"
)

// rogue is a server that is written by hand, and does what it is asked for: what a
// call has as "do", and before that what HANDSHAKE says:
//
//	refuse    initialize is no method; server/discover is
//	exit      it exits at initialize
//	silent    it does not answer initialize
//	deaf      it answers nothing
//	dies      it exits at once, and says why
//	loud      it prints noise before each answer
//	sorry     it refuses either with a text of 8 MB
//	chatty    its answer to either handshake is 8 MB
//	bulky     its list of tools is a line of 20 MB
//
// TOOLS is how many tools it has beside run, and SCHEMA a schema that one of them
// has.
type rogue struct {
	in    *bufio.Scanner
	start int
	out   sync.Mutex
	tools int
	shake string

	cancelled chan struct{} // holds one
}

// asked is a message that the fake gets.
type asked struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params struct {
		Meta      map[string]any `json:"_meta"`
		RequestID any            `json:"requestId"`
		Name      string         `json:"name"`
		Arguments struct {
			Do string `json:"do"`
			N  int    `json:"n"`
		} `json:"arguments"`
	} `json:"params"`
}

func newRogue() *rogue {
	tooltest.Append(trace, "start")
	f := &rogue{in: bufio.NewScanner(os.Stdin), shake: os.Getenv("HANDSHAKE"), cancelled: make(chan struct{}, 1)}
	f.in.Buffer(nil, 32<<20)
	text, _ := os.ReadFile(trace)
	f.start = strings.Count(string(text), "start\n")
	_, _ = fmt.Sscan(os.Getenv("TOOLS"), &f.tools)
	return f
}

func (f *rogue) say(format string, args ...any) {
	f.out.Lock()
	defer f.out.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (f *rogue) result(m *asked, text string) {
	f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, text)
}

func (f *rogue) text(m *asked, text string) {
	quoted, _ := jsonx.Marshal(text)
	f.result(m, fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, quoted))
}

func (f *rogue) fail(m *asked, code int, text string) {
	f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, m.ID, code, text)
}

func (f *rogue) serve() int {
	if f.shake == "dies" {
		fmt.Fprintln(os.Stderr, "first line\nno key for the service")
		return 3
	}
	for f.in.Scan() {
		m := new(asked)
		if err := jsonx.Unmarshal(f.in.Bytes(), m); err != nil {
			panic(err)
		}
		if m.Method == "notifications/cancelled" {
			tooltest.Append(trace, fmt.Sprint("cancelled-", m.Params.RequestID))
			select {
			case f.cancelled <- struct{}{}:
			default:
			}
		}
		tooltest.Append(trace, m.Method)
		if f.shake == "loud" {
			f.say("loading the model…")
			f.say(`[{"jsonrpc":"2.0"}]`)
			f.say(`{"half an object`)
			f.say(`{"jsonrpc":"2.0","id":99,"result":{}}`)
			f.say(`{"jsonrpc":"2.0","method":"notifications/nobody/knows","params":{}}`)
		}
		if m.ID != nil {
			f.answer(m)
		}
	}
	return 0
}

func (f *rogue) answer(m *asked) {
	switch {
	case f.shake == "deaf", m.Method == "initialize" && f.shake == "silent":
	case f.shake == "sorry":
		f.fail(m, -32000, strings.Repeat("sorry ", 8<<20/6))
	case f.shake == "chatty" && m.Method != "tools/list":
		f.result(m, `{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"x":[`+strings.Repeat("{},", 8<<20/3)+
			`{}]}},"serverInfo":{"name":"fake","version":"1"}}`)
	case m.Method == "initialize" && f.shake == "exit":
		os.Exit(0)
	case f.shake == "mute" && m.Method == "prompts/list":
	case f.shake == "mute" && m.Method == "initialize":
		f.result(m,
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"fake","version":"1"}}`)
	case m.Method == "initialize" && f.shake != "refuse":
		f.result(m,
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"fake","version":"1"},"instructions":"Be kind."}`)
	case m.Method == "server/discover" && f.shake != "":
		f.result(m, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case m.Method == "tools/list":
		f.list(m)
	case m.Method == "tools/call" && m.Params.Arguments.Do == "deaf":
		f.shake = "deaf"
	case m.Method == "tools/call" && m.Params.Arguments.Do == "change":
		f.tools = m.Params.Arguments.N
		f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		f.text(m, "changed")
	case m.Method == "tools/call":
		go f.call(m)
	case m.Method == "ping":
		f.result(m, `{}`)
	default:
		f.fail(m, -32601, "no such method")
	}
}

func (f *rogue) list(m *asked) {
	var b strings.Builder
	b.WriteString(
		`{"tools":[{"name":"run","description":"runs","inputSchema":{"type":"object","properties":{"do":{"type":"string"}}}}`)
	for i := range f.tools {
		fmt.Fprintf(&b, `,{"name":"t%d","description":"one of many","inputSchema":{"type":"object"}}`, i)
	}
	if s := os.Getenv("SCHEMA"); s == "huge" {
		fmt.Fprintf(&b, `,{"name":"bad","inputSchema":{"type":"object","description":%q}}`, strings.Repeat("x", 5<<20))
	} else if s != "" {
		fmt.Fprintf(&b, `,{"name":"bad","inputSchema":%s}`, s)
	}
	b.WriteString("]}")
	if f.shake == "bulky" {
		b.WriteString(strings.Repeat(" ", 20<<20))
	}
	f.result(m, b.String())
}

// call does what a call wants.
func (f *rogue) call(m *asked) {
	n := m.Params.Arguments.N
	token, _ := jsonx.Marshal(m.Params.Meta["progressToken"])
	progress := func(i int) {
		f.say(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d,"message":"step"}}`, token, i, n)
	}
	switch m.Params.Arguments.Do {
	case "":
		f.text(m, "did it")
	case "never":
	case "late": // when the call is taken back
		<-f.cancelled
		f.text(m, "late")
	case "die":
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(7)
	case "steps":
		for i := range n {
			progress(i + 1)
		}
		f.text(m, "done")
	case "slowly":
		for i := 0; ; i++ {
			progress(i)
			time.Sleep(time.Duration(n) * time.Millisecond) // so slow is this server
		}
	case "log":
		f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"thinking"}}`)
		f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"a":1}}}`)
		f.text(m, "done")
	case "flood":
		f.flood(m)
	case "huge":
		f.huge(m, n)
	case "wrong":
		f.result(m, `{"content":[{"type":"text","text":"no such file"}],"isError":true}`)
	case "refuse":
		f.fail(m, -32602, "no such thing")
	case "sorry":
		f.fail(m, -32000, strings.Repeat("sorry ", n<<20/6))
	case "values":
		f.result(m, `{"content":[],"structuredContent":{"x":[`+strings.Repeat(`{"":0},`, n<<20/7)+`0]}}`)
	case "id":
		f.say(`{"jsonrpc":"2.0","id":"%s","method":"ping"}`, strings.Repeat("x", n<<20))
	case "notice":
		f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":[%s0]}}`,
			strings.Repeat("{},", n<<20/3))
		f.text(m, "did it")
	case "garbage":
		f.result(m, `{"content":[{"type":"riddle"}]}`)
	case "nothing":
		f.result(m, `{"content":[]}`)
	case "ask":
		for i := range n {
			f.say(
				`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"$ref":"#"}}}`, i)
		}
	case "rich":
		f.result(m, rich())
	case "value":
		f.result(m,
			`{"content":[{"type":"text","text":"{\"id\": 9007199254740993}"}],"structuredContent":{"id":9007199254740993}}`)
	case "leave":
		f.leave(m)
	}
}

// flood prints noise, progress and logs without end.
func (f *rogue) flood(m *asked) {
	for {
		f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":%q}}`,
			strings.Repeat("flood ", 1000))
		f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		f.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
		f.say("noise")
	}
}

// huge is a result of n MB in one line.
func (f *rogue) huge(m *asked, n int) {
	f.out.Lock()
	defer f.out.Unlock()
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID)
	piece := strings.Repeat("x", 1<<20)
	for range n {
		if _, err := os.Stdout.WriteString(piece); err != nil {
			os.Exit(1)
		}
	}
	fmt.Println(`"}]}}`)
}

var pixel, _ = base64.StdEncoding.DecodeString(
	"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

// rich is a result of all kinds of parts.
func rich() string {
	data := base64.StdEncoding.EncodeToString(pixel)
	return `{"content":[{"type":"text","text":"look"},{"type":"image","mimeType":"image/png","data":"` + data + `"},` +
		`{"type":"audio","mimeType":"audio/wav","data":"UklGRg=="},` +
		`{"type":"resource_link","uri":"file:///etc/shadow","name":"shadow"},` +
		`{"type":"resource","resource":{"uri":"note://1","mimeType":"text/markdown","text":"# Note"}},` +
		`{"type":"resource","resource":{"uri":"blob://1","mimeType":"application/pdf","blob":"JVBERg=="}}],` +
		`"structuredContent":{"answer":42}}`
}

// leave starts processes that want to outlive the server: one in a session of its
// own, and one whose parent is gone.
func (f *rogue) leave(m *asked) {
	for _, way := range []string{"setsid", "double"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), tooltest.Mode+"=orphan", "WAY="+way)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		if way == "double" {
			_ = cmd.Wait()
		}
	}
	f.text(m, "left")
}

// orphan holds the FIFO of the test for as long as it lives.
func orphan() int {
	if os.Getenv("WAY") == "double" {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "WAY=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		return 0
	}
	tooltest.Hold()
	return tooltest.Block()
}
