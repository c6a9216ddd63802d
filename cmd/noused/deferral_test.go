package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/client"
	"noused/internal/protocol"
)

// manyCommand is an MCP server with 500 tools, which says something else of itself
// each time that it is started.
const manyCommand = "manytools"

func serveMany() {
	s := sdk.NewServer(&sdk.Implementation{Name: "many", Version: "1"},
		&sdk.ServerOptions{Instructions: fmt.Sprintf("Widgets are shy. This is process %d.", os.Getpid())})
	for i := range 500 {
		s.AddTool(&sdk.Tool{
			Name: fmt.Sprintf("op_%03d", i), Description: fmt.Sprintf("Polishes widget number %d until it shines. %s", i,
				strings.Repeat("The widget stays where it is. ", 6)),
			InputSchema: jsontext.Value(
				`{"type":"object","properties":{"times":{"type":"integer","description":"how often"}},"required":["times"]}`),
		}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Params.Name + " shines"}}}, nil
		})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// withMany gives a daemon that is not started yet the server, and its user's trust.
func (d *daemon) withMany() {
	d.t.Helper()
	if err := os.MkdirAll(d.Dir+"/noused", 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.write("noused/mcp.json", `{"mcpServers":{"many":{"command":"`+manyCommand+`","trust":"all"}}}`, 0o600)
}

// awaitMany returns once the server has said what it has.
func (d *daemon) awaitMany() {
	d.t.Helper()
	r, err := client.Call(context.Background(), d.dial(), protocol.ExtensionCommand,
		protocol.ExtensionCommandParams{Name: "many.op_001", Payload: jsontext.Value(`{"times":1}`)})
	if err != nil || !strings.Contains(string(r.Result), "op_001 shines") {
		d.t.Fatalf("got %s, %v", r.Result, err)
	}
}

// output is what the answer to a prompt says.
func (d *daemon) output(text string) string {
	d.t.Helper()
	r, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{Text: text})
	if err != nil {
		d.t.Fatal(err)
	}
	return r.Result.Output
}

// current is what get_state says.
func (d *daemon) current() protocol.State {
	d.t.Helper()
	s, err := client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// A model that knows nothing of 500 tools finds one and calls it, over a crash.
func TestTheOfflineModelFindsATool(t *testing.T) {
	d := unstarted(t, "noused")
	d.withMany()
	d.Start()
	d.awaitMany()
	before := d.current()
	if want := int64(128_000 / 10); before.Context.Tools == 0 || before.Context.Tools > want {
		t.Errorf("definitions take %d tokens, want %d at most", before.Context.Tools, want)
	}
	found := d.output(`!tools.search {"query":"polish number 317"}`)
	if !strings.Contains(found, "\nmany.op_317\nPolishes widget number 317") ||
		strings.Count(found, "\narguments: {") != 5 && strings.Count(found, "\narguments: {") != 1 {
		t.Errorf("found is\n%s", found)
	}
	after, system := d.current(), d.system().Text
	if after.Context.Tools <= before.Context.Tools || !strings.Contains(system, "# MCP servers") ||
		!strings.Contains(system, "\nmany:\n\n> Widgets are shy. This is process ") {
		t.Errorf("definitions take %d tokens after %d; the model is told\n%s", after.Context.Tools, before.Context.Tools,
			system)
	}
	d.Kill()
	d.Start()
	d.awaitMany()
	if now := d.current(); now.Context.Tools != after.Context.Tools {
		t.Errorf("after a crash definitions take %d tokens, before it %d", now.Context.Tools, after.Context.Tools)
	}
	if now := d.system().Text; now != system {
		t.Errorf("after a crash the model is told\n%s", now)
	}
	for text, want := range map[string]string{
		`!many.op_317 {"times":2}`:   "many.op_317: op_317 shines",
		`!many.op_042 {"times":2}`:   "many.op_042: op_042 shines", // which was never found
		`!many__op_043 {"times":2}`:  "op_043 shines",
		`!many.op_044 {"times":"x"}`: "bad_request: arguments: /times: got string",
		`!many.op_500 {"times":2}`:   "there is no tool",
		`!tools.search {"words":1}`:  `bad_request: want {"query":"a few words"}`,
	} {
		if got := d.output(text); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// find is what a model does that has to find a tool.
func (s *vendorServer) find(a say, turn string, step int) say {
	switch {
	case step == 0 && !strings.Contains(s.tools[len(s.tools)-1], `"many__op_`+turn[len("turn "):]):
		a.tool, a.calls, s.searched = "tools__search", []string{`{"query":"polish widget number ` + turn[len("turn "):] +
			`"}`}, true
	case step <= 1 && a.calls != nil:
		a.tool, a.calls = "many__op_"+turn[len("turn "):], []string{`{"times":1}`}
	}
	return a
}

// A model of each wire finds tools among 500: what is sent of them stays small, and
// is the same from one request to the next, over a crash too, but where a search
// has found something.
func TestAModelOfEachWireFindsATool(t *testing.T) {
	t.Setenv("TEST_KEY", "none")
	t.Setenv("OPENAI_API_KEY", "")
	for _, v := range strictVendors {
		if !slices.Contains([]string{"Anthropic", "DeepSeek", "OpenAI"}, v.name) {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := serveVendor(t, v)
			k := newTalkOf(t, s, (*daemon).withMany)
			k.awaitMany()
			k.runToEnd("turn 317: FIND")
			k.runToEnd("turn 042: FIND")
			k.Kill()
			k.Start()
			k.dial()
			k.runToEnd("turn 317: FIND")
			k.runToEnd("turn 099: FIND")
			k.Stop()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, why := range s.refused {
				t.Errorf("refused: %s", why)
			}
			if n := len(slices.Compact(slices.Clone(s.tools))); n != 4 {
				t.Errorf("requests had %d sets of tools, want 4: after each of three searches another", n)
			}
			last := s.tools[len(s.tools)-1]
			if n := len(last) / 4; n > 128_000/10 || strings.Count(last, "many__op_") > 15 {
				t.Errorf("definitions take about %d tokens: %s", n, last)
			}
			if i, j := strings.Index(last, "many__op_317"), strings.Index(last, "many__op_099"); i < 0 || i > j {
				t.Errorf("tools are not in the order in which they were found: %s", last)
			}
		})
	}
}
