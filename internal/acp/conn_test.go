package acp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every request with its parameters.
type echo struct{ odd []string }

func (e *echo) Request(r *Request) {
	if _, err := Decode[PromptParams](r.Params); err != nil {
		r.Fail(err)
	}
	r.Reply(r.Params) // no second answer
}
func (e *echo) Notice(method string, _ jsontext.Value) { e.odd = append(e.odd, method) }
func (e *echo) Odd(what string)                        { e.odd = append(e.odd, what) }

// serve has a connection read lines, and returns what it writes.
func serve(t testing.TB, in string) string {
	t.Helper()
	var out bytes.Buffer
	c := NewConn(strings.NewReader(in), &out)
	if err := c.Serve(&echo{}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	return out.String()
}

// Whatever comes, each line but a notification and an answer has exactly one reply,
// and that is a JSON-RPC message.
func FuzzLines(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"x"}]}}`,
		`{"jsonrpc":"2.0","id":"a","method":"x","params":{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"u","text":"t"}}]}}`,
		`{"jsonrpc":"2.0","id":null,"method":"x"}`, `{"jsonrpc":"2.0","method":"x"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, `[1]`, `{`, "\xff",
		`{"jsonrpc":"2.0","id":1e3,"method":"x"}`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		out := serve(t, line+"\n")
		var e envelope
		silent := strings.TrimSuffix(line, "\r") == ""
		if tooMuch([]byte(line)) == nil && json.Unmarshal([]byte(line), &e) == nil && e.JSONRPC == "2.0" {
			silent = silent || e.Method != nil && e.ID == nil || e.Method == nil && e.ID != nil &&
				(e.Result != nil) != (e.Error != nil)
		}
		if silent {
			if out != "" {
				t.Errorf("%q is answered with %q", line, out)
			}
			return
		}
		var m envelope
		if n := strings.Count(out, "\n"); n != 1 || json.Unmarshal([]byte(out), &m) != nil || m.JSONRPC != "2.0" ||
			(m.Result != nil) == (m.Error != nil) {
			t.Errorf("%q is answered with %q", line, out)
		}
	})
}

func TestARequestIsAnsweredOnce(t *testing.T) {
	out := serve(t, `{"jsonrpc":"2.0","id":1,"method":"x","params":{}}`+"\n")
	if n := strings.Count(out, "\n"); n != 1 || !strings.Contains(out, `"code":-32602`) {
		t.Errorf("got %q, want one error", out)
	}
}

// A line that would take many times its length in memory is refused before anything is made of it,
// and the next one is read.
func TestALineOfTooMuchIsRefused(t *testing.T) {
	const line = `{"jsonrpc":"2.0","method":"x","params":{"l":%s}}` + "\n"
	nested := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for what, c := range map[string]struct{ list, want string }{
		"many values": {"[" + strings.Repeat("0,", 90_000) + "0]", ""},
		"too many":    {"[" + strings.Repeat("{},", 50_000) + "0]", "the line has more than 100000 values in it"},
		"deep":        {nested(98), ""},
		"too deep":    {nested(99), "the line is nested more than 100 deep"},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			var told echo
			conn := NewConn(strings.NewReader(fmt.Sprintf(line, c.list)+fmt.Sprintf(line, "[]")), &out)
			if err := conn.Serve(&told); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			lines := 2
			if c.want != "" {
				lines = 1
			}
			if got := out.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || len(told.odd) != lines {
				t.Errorf("got %d notices and %q, want %d and %q", len(told.odd), got, lines, c.want)
			}
		})
	}
}

// Nothing is made of a line that is refused.
func TestARefusedLineTakesNoMemory(t *testing.T) {
	line := []byte(`{"jsonrpc":"2.0","method":"x","params":[` + strings.Repeat(`{},`, 5<<20) + `0]}`)
	c := NewConn(strings.NewReader(""), io.Discard)
	defer c.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.handleLine(&echo{}, line)
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > 1<<20 {
		t.Errorf("a line of %d bytes took %d bytes", len(line), made)
	}
}

// An answer that is refused ends its request with the reason. What is no answer leaves it waiting.
func TestARefusedAnswerEndsItsRequest(t *testing.T) {
	many, long := "["+strings.Repeat("{},", 60_000)+"0]", `"`+strings.Repeat("x", maxLine)+`"`
	const wantMany, wantLong = "its answer cannot be taken in: the line has more than 100000 values in it",
		"its answer cannot be taken in: the line is longer than 16777216 bytes"
	for what, c := range map[string]struct{ line, want string }{
		"many values":              {`{"jsonrpc":"2.0","id":1,"result":` + many + `}`, wantMany},
		"many values, the id last": {`{"jsonrpc":"2.0","result":` + many + `,"id":1}`, wantMany},
		"many values, an error":    {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"data":` + many + `}}`, wantMany},
		"long":                     {`{"jsonrpc":"2.0","id":1,"result":` + long + `}`, wantLong},
		"no JSON":                  {`{"jsonrpc":"2.0","id":1,"result":{"a":tru}}`, "its answer cannot be taken in: not JSON: "},
		"another id":               {`{"jsonrpc":"2.0","id":2,"result":` + many + `}`, ""},
		"a request":                {`{"jsonrpc":"2.0","id":1,"params":` + many + `,"method":"x"}`, ""},
		"a long notification":      {`{"jsonrpc":"2.0","method":"x","params":` + long + `}`, ""},
		"in a parameter":           {`{"jsonrpc":"2.0","params":{"id":1,"result":` + many + `}}`, ""},
		"no object":                {many, ""},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			conn := NewConn(strings.NewReader(c.line+"\n"), &out)
			var told *Error
			asked := conn.Ask("x", nil, func(_ jsontext.Value, err *Error) { told = err })
			if err := conn.Serve(&echo{}); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			refused := strings.Contains(out.String(), `"id":null,"error":`)
			if c.want == "" {
				if !asked.Waits() || told != nil || !refused {
					t.Errorf("it does not wait any more: %v, and written was %q", told, &out)
				}
				return
			}
			if asked.Waits() {
				t.Fatal("it still waits")
			}
			var got *Error
			_, err := asked.Wait(t.Context())
			if !errors.As(err, &got) || !strings.HasPrefix(got.Message, c.want) || told != got || refused {
				t.Errorf("got %v, told %v, and written was %q", err, told, &out)
			}
		})
	}
}

// full is a client that reads nothing.
type full struct{ stop chan struct{} }

func (f full) Write([]byte) (int, error) {
	<-f.stop
	return 0, io.ErrClosedPipe
}

// Who reads nothing is given up at the bound, and nobody who sends waits for it.
func TestAClientThatReadsNothing(t *testing.T) {
	f := full{make(chan struct{})}
	c := NewConn(strings.NewReader(""), f)
	chunk := Chunk{Kind: AgentChunk, Content: TextBlock(strings.Repeat("x", 64<<10))}
	sent := 0
	for c.Err() == nil {
		c.Update("s", chunk)
		if sent += 64 << 10; sent > 2*maxUnread {
			t.Fatal("twice as much as may be unread was taken")
		}
	}
	var unread *UnreadError
	if !errors.As(c.Err(), &unread) || unread.Bytes < maxUnread {
		t.Errorf("got %v after %d bytes, want an UnreadError at %d", c.Err(), sent, maxUnread)
	}
	<-c.Lost()
	if err := c.Calm(t.Context()); !errors.As(err, &unread) {
		t.Errorf("Calm: got %v, want an UnreadError", err)
	}
	close(f.stop)
	c.Close()
}

// A call that nobody waits for any more is taken back, and its late answer is odd.
func TestACallThatIsTakenBack(t *testing.T) {
	in, client := io.Pipe()
	reading, out := io.Pipe()
	c := NewConn(in, out)
	h := &echo{}
	var serving sync.WaitGroup
	serving.Go(func() { _ = c.Serve(h) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calling sync.WaitGroup
	calling.Go(func() {
		if _, err := c.Call(ctx, RequestPermission, struct{}{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
	dec := jsontext.NewDecoder(reading)
	for _, want := range []string{RequestPermission, CancelRequest} {
		var m envelope
		if err := json.UnmarshalDecode(dec, &m); err != nil || m.Method == nil || *m.Method != want {
			t.Fatalf("got %+v and %v, want %s", m, err, want)
		}
		cancel()
	}
	calling.Wait()
	if _, err := io.WriteString(client, `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	client.Close()
	serving.Wait()
	if len(h.odd) != 1 {
		t.Errorf("got %q, want the late answer", h.odd)
	}
	reading.Close()
	c.Close()
}
