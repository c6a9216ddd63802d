package toolserver

import (
	"bytes"
	"context"
	stdjson "encoding/json" // as the SDK has it
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/protocol"
)

// MaxLine is the longest line that is read, in bytes.
const MaxLine = 16 << 20

// transport stands in front of the SDK's, which ends with the first line that is no message:
// here such a line is answered, and the next one is read.
type transport struct {
	in   *protocol.LineReader
	gone context.CancelFunc // called once the client's input has ended

	lines chan message
	done  chan struct{}
	close sync.Once

	mu  sync.Mutex
	out io.Writer
}

type message struct {
	msg jsonrpc.Message
	err error
}

func newTransport(in io.Reader, out io.Writer, gone context.CancelFunc) *transport {
	return &transport{
		in: protocol.NewLineReader(in, MaxLine), out: out, gone: gone, lines: make(chan message), done: make(chan struct{}),
	}
}

// Connect is [sdk.Transport]. The goroutine that reads ends with the input, which nobody can
// close for it: it may outlive the connection by one read.
func (t *transport) Connect(context.Context) (sdk.Connection, error) {
	go func() {
		for {
			msg, err := t.next()
			select {
			case t.lines <- message{msg, err}:
			case <-t.done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return t, nil
}

// next returns the next message. What is none is answered with an error.
func (t *transport) next() (jsonrpc.Message, error) {
	for {
		line, err := t.in.Next()
		if long := new(protocol.LineTooLongError); errors.As(err, &long) {
			t.refuse(nil, jsonrpc.CodeInvalidRequest, long.Error())
			continue
		}
		if err != nil {
			t.gone()
			return nil, err
		}
		if msg, ok := t.decode(line); ok {
			return msg, nil
		}
	}
}

// decode reads a line as a message, or answers it.
func (t *transport) decode(line []byte) (jsonrpc.Message, bool) {
	line = bytes.TrimSpace(line)
	switch {
	case len(line) == 0:
		return nil, false
	case !jsontext.Value(line).IsValid(jsontext.AllowDuplicateNames(true)):
		t.refuse(nil, jsonrpc.CodeParseError, "the line is no JSON")
		return nil, false
	case line[0] == '[':
		t.refuse(nil, jsonrpc.CodeInvalidRequest, "a batch is not taken: send one message a line")
		return nil, false
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		t.refuse(idOf(line), jsonrpc.CodeInvalidRequest, "the line is no message of JSON-RPC 2.0: "+clip(err.Error(), 300))
		return nil, false
	}
	return msg, true
}

// idOf is the id of what is no whole message, nil where it has none.
func idOf(line []byte) jsontext.Value {
	var m struct {
		ID jsontext.Value `json:"id"`
	}
	if json.Unmarshal(line, &m, jsontext.AllowDuplicateNames(true)) != nil {
		return nil
	}
	if k := m.ID.Kind(); k != '"' && k != '0' {
		return nil
	}
	return m.ID
}

// refuse answers what did not become a message.
func (t *transport) refuse(id jsontext.Value, code int64, text string) {
	if id == nil {
		id = jsontext.Value("null")
	}
	type wrong struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	line, err := json.Marshal(struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Error   wrong          `json:"error"`
	}{"2.0", id, wrong{code, text}})
	if err == nil {
		_ = t.write(line) // where it fails, the next answer does
	}
}

func (t *transport) write(line []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.out.Write(append(line, '\n'))
	return err
}

// Read is [sdk.Connection].
func (t *transport) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-t.lines:
		return m.msg, m.err
	case <-t.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Write is [sdk.Connection].
func (t *transport) Write(_ context.Context, msg jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return t.write(line)
}

// Close is [sdk.Connection].
func (t *transport) Close() error {
	t.close.Do(func() { close(t.done) })
	return nil
}

// SessionID is [sdk.Connection].
func (*transport) SessionID() string { return "" }

// clip is a text of at most so many bytes, valid UTF-8.
func clip(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// objectSchema is a schema of a tool's arguments as MCP wants it: one of an object.
func objectSchema(params jsontext.Value) any {
	var schema map[string]jsontext.Value
	if json.Unmarshal(params, &schema) != nil || schema == nil {
		schema = map[string]jsontext.Value{}
	}
	if kind, ok := schema["type"]; !ok {
		schema["type"] = jsontext.Value(`"object"`)
	} else if string(kind) != `"object"` {
		schema = map[string]jsontext.Value{"type": jsontext.Value(`"object"`)}
	}
	text, err := json.Marshal(schema, json.Deterministic(true))
	if err != nil {
		text = []byte(`{"type":"object"}`)
	}
	return stdjson.RawMessage(text)
}
