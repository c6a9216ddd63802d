package mcp

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/proc"
	"noused/internal/tool/tooltest"
)

// trace is where a fake notes, in its working directory, that it started and each
// method that it is asked for.
const trace = "trace"

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		"sdk": serveSDK,
		"odd": serveOdd, "form": serveForm, "asking": serveAsking, "rounds": serveRounds, "texts": serveTexts,
		"echo": func() int { return newFake().serve() }, "rogue": func() int { return newRogue().serve() }, "orphan": orphan,
		tooltest.Daemon: func() int {
			status, _ := proc.Helper(os.Args)
			return status
		},
	})
}

// serveSDK is a server that the SDK makes.
func serveSDK() int {
	s := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, &sdk.ServerOptions{Instructions: "Be kind."})
	type args struct {
		N int `json:"n"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "run", Description: "doubles", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *sdk.CallToolRequest, a args) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(2 * a.N)}}}, nil, nil
		})
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// fake is a server that is written by hand.
type fake struct {
	in     *bufio.Scanner
	start  int
	id     jsontext.Value
	method string
	params jsontext.Value
}

func newFake() *fake {
	tooltest.Append(trace, "start")
	f := &fake{in: bufio.NewScanner(os.Stdin)}
	f.in.Buffer(nil, 32<<20)
	text, _ := os.ReadFile(trace)
	f.start = strings.Count(string(text), "start\n")
	return f
}

// get reads a message; false is the end of stdin.
func (f *fake) get() bool {
	if !f.in.Scan() {
		return false
	}
	var m struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
		Params jsontext.Value `json:"params"`
	}
	if err := jsonx.Unmarshal(f.in.Bytes(), &m); err != nil {
		panic(err)
	}
	f.id, f.method, f.params = m.ID.Clone(), m.Method, m.Params.Clone()
	return true
}

func (f *fake) result(text string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", f.id, text)
}

const oneTool = `{"tools":[{"name":"run","description":"runs","inputSchema":{"type":"object"}}]}`

// serve answers everything as it should.
func (f *fake) serve() int {
	for f.get() {
		f.answer()
	}
	return 0
}

func (f *fake) answer() {
	switch f.method {
	case "initialize":
		f.result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
	case "tools/list":
		f.result(oneTool)
	case "tools/call":
		f.result(`{"content":[{"type":"text","text":"did it"}]}`)
	case "ping":
		f.result(`{}`)
	default:
		if f.id != nil {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", f.id)
		}
	}
}
