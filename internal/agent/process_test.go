package agent

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
)

// greeted is a process that has answered initialize so.
func greeted(t *testing.T, result string) *process {
	t.Helper()
	in, out := io.Pipe()
	hears, asks := io.Pipe()
	p := newProcess(New(Options{}), Spec{Name: "a"})
	p.conn = acp.NewConn(in, asks)
	served := make(chan error, 1)
	go func() { served <- p.conn.Serve(handler{p}) }()
	go func() {
		var ask struct {
			ID int `json:"id"`
		}
		if json.UnmarshalDecode(jsontext.NewDecoder(hears), &ask) == nil {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", ask.ID, result)
		}
		out.Close()
	}()
	if err := p.greet("1"); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	p.conn.Close()
	return p
}

// What is kept of an answer to initialize is short, and says what the answer does. So is what was left of it
// by an older program, which kept the whole.
func TestWhatIsKeptOfAnAgentIsShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		said                         string
		loads, resumes, ends, queues bool
	}{
		{`{"protocolVersion":1}`, false, false, false, false},
		{`{"protocolVersion":1,"agentInfo":{"name":"a","version":"1"},"agentCapabilities":{"loadSession":true,
			"sessionCapabilities":{"resume":{}},"_meta":{"x":{"promptQueueing":true}}}}`, true, true, false, true},
		{`{"protocolVersion":1,"agentInfo":{"name":"LONG","title":"LONG","version":"LONG"},"authMethods":[{"id":"LONG"}],
			"agentCapabilities":{"sessionCapabilities":{"close":true,"resume":false,"LONG":{},"list":"LONG"},
			"_meta":{"x":{"promptQueueing":false,"y":"LONG"}}}}`, false, false, true, false},
	} {
		answer := strings.ReplaceAll(strings.Join(strings.Fields(c.said), ""), "LONG", long)
		state := &leftState{Name: "a"}
		if err := json.Unmarshal([]byte(answer), &state.Said); err != nil {
			t.Fatal(err)
		}
		for name, p := range map[string]*process{"greeted": greeted(t, answer), "left": New(Options{}).resumed(nil, state)} {
			text, err := json.Marshal(p.said, lenient)
			var kept acp.AgentSaid // as the next program reads it
			if err != nil || len(text) > 4<<10 || json.Unmarshal(text, &kept, lenient) != nil {
				t.Errorf("%s, %.60s: %d bytes are kept, error %v", name, c.said, len(text), err)
			}
			can := kept.Capabilities
			if can.LoadSession != c.loads || kept.Can("resume") != c.resumes || kept.Can("close") != c.ends ||
				kept.Queues() != c.queues || (kept.Agent == nil) != (state.Said.Agent == nil) {
				t.Errorf("%s, %.60s: kept is %.300s", name, c.said, text)
			}
			p.conn.Close()
		}
	}
}

// What is dropped of what an agent tells again is not kept in memory either.
func TestDroppedTextsOfAReplayAreGone(t *testing.T) {
	var r replay
	for range maxTexts {
		r.add(true, "short")
	}
	long := strings.Repeat("x", maxReplay-perText)
	var is [20]weak.Pointer[byte]
	for i := range is {
		r.add(true, long)
		is[i] = weak.Make(&r.texts[len(r.texts)-1][0])
	}
	runtime.GC()
	for i, p := range is[:len(is)-1] {
		if p.Value() != nil {
			t.Fatalf("text %d of %d, which was dropped, is still there; %d are kept", i, len(is), len(r.texts))
		}
	}
	runtime.KeepAlive(r)
}
