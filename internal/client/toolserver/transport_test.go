package toolserver

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.uber.org/goleak"

	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// read has a transport read lines to their end. It returns the methods of what reached the
// SDK, and what was answered in its place.
func read(t *testing.T, text string) (methods []string, answers string) {
	t.Helper()
	var out bytes.Buffer
	ended := false
	tr := newTransport(strings.NewReader(text), &out, func() { ended = true })
	for {
		msg, err := tr.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		method := ""
		if request, ok := msg.(*jsonrpc.Request); ok {
			method = request.Method
		}
		methods = append(methods, method)
	}
	if !ended {
		t.Error("nobody heard of the end of the input")
	}
	return methods, out.String()
}

// A line that is no message is answered, and the next one is read.
func TestLinesThatAreNoMessages(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	for _, c := range []struct{ line, want string }{
		{"{", `"id":null,"error":{"code":-32700`},
		{"hello", `"id":null,"error":{"code":-32700`},
		{"\xff\xfe", `"id":null,"error":{"code":-32700`},
		{`[` + strings.TrimSpace(ping) + `]`, `"id":null,"error":{"code":-32600,"message":"a batch`},
		{"[]", `"id":null,"error":{"code":-32600`},
		{`{"id":3,"method":"ping"}`, `"id":3,"error":{"code":-32600`},
		{`{"jsonrpc":"1.0","id":"x","method":"ping"}`, `"id":"x","error":{"code":-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"id":null,"error":{"code":-32600`},
		{strings.Repeat("x", MaxLine+1), `"id":null,"error":{"code":-32600,"message":"line is longer than`},
		{"", ""},
		{"   ", ""},
	} {
		methods, answers := read(t, c.line+"\n"+ping)
		if len(methods) != 1 || methods[0] != "ping" {
			t.Errorf("%.60q: got %q behind it, want the ping", c.line, methods)
		}
		if c.want == "" && answers != "" || !strings.Contains(answers, c.want) {
			t.Errorf("%.60q: got %q, want %q", c.line, answers, c.want)
		}
	}
}

// Whatever is sent, each answer is a line of JSON, and what reaches the SDK is a message.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		"{", "[]", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, "\x00\n{}",
		`{"jsonrpc":"2.0","id":1e400,"method":"x"}`, `{"id":1,"id":2}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, answers := read(t, text)
		for line := range strings.Lines(answers) {
			if !jsontext.Value(line).IsValid() || !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":`) {
				t.Errorf("the answer %q is no message", line)
			}
		}
	})
}

// A schema of arguments is one of an object, whatever a tool says.
func TestSchemasAreOfObjects(t *testing.T) {
	for given, want := range map[string]string{
		``:                        `{"type":"object"}`,
		`[]`:                      `{"type":"object"}`,
		`{"type":"string"}`:       `{"type":"object"}`,
		`{"properties":{"a":{}}}`: `{"properties":{"a":{}},"type":"object"}`,
		`{"type":"object","x":1}`: `{"type":"object","x":1}`,
		`{"type":["object"]}`:     `{"type":"object"}`,
	} {
		got, err := json.Marshal(objectSchema(jsontext.Value(given)))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", given, got, err, want)
		}
	}
}
