package mcp

import (
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
)

// A tool that can only be called as a task is not offered, and people are told which, of
// which server, and why; also by a daemon that has it from its cache.
func TestAToolThatNeedsATaskIsLeftOutAloud(t *testing.T) {
	b := mount(t, server(t, "odd").Env("ODD",
		`tools/list={"tools":[{"name":"run","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},`+
			`{"name":"may","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},`+
			`{"name":"odd","inputSchema":{"type":"object"},"execution":{"taskSupport":7}},{"name":"odder","inputSchema":{"type":"object"},"execution":"required"},`+
			`{"name":"bad","inputSchema":{"type":7}},{"name":"plain","inputSchema":{"type":"object"}}]}`))
	for round := range 2 {
		if missing := b.Ready(t.Context(), model.Scope{}); missing != nil {
			t.Fatalf("%q are missing", missing)
		}
		if names, want := b.names(), []string{"x.may", "x.odd", "x.odder", "x.plain"}; !slices.Equal(names, want) {
			t.Errorf("got %q, want %q", names, want)
		}
		servers := b.Servers(model.Scope{})
		if len(servers) != 1 || len(servers[0].LeftOut) != 2 || servers[0].LeftOut[0] != "run: "+errTask.Error() ||
			!strings.HasPrefix(servers[0].LeftOut[1], "bad: its schema: ") {
			t.Fatalf("got %+v", servers)
		}
		if got, want := servers[0].Message, "left out: run, bad; nous mcp get x says why"; got != want {
			t.Errorf("got the message %q, want %q", got, want)
		}
		if round == 0 && b.logged.FilterMessage("a tool of the server is left out").Len() != 2 {
			t.Errorf("logged %+v", b.logged.All())
		}
		b.gone()
		b.open()
	}
}

// There is a bound to what is said of tools that are left out.
func TestManyToolsThatAreLeftOut(t *testing.T) {
	var list []string
	for range 500 {
		list = append(list, `{"name":"`+strings.Repeat("n", 200)+`","inputSchema":{"type":"object"}}`)
	}
	b := mount(t, server(t, "odd").Env("ODD", `tools/list={"tools":[`+strings.Join(list, ",")+`]}`))
	_ = b.Ready(t.Context(), model.Scope{})
	if s := b.Servers(model.Scope{}); len(s) != 1 || len(s[0].LeftOut) != maxLeftOut+1 ||
		len(strings.Join(s[0].LeftOut, "")) > (maxLeftOut+1)*(maxWhy+3) {
		t.Errorf("got %+v", s)
	}
	b.gone()
}
