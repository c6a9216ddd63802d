package mcp

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// serveOdd is a server that answers what the environment says, method=result, and
// everything else as it should. With the result "deaf" it closes its stdin and lives
// on; with "grow" it has one more prompt, and says so; with "asks" it asks for things
// with nothing in them.
func serveOdd() int {
	f := newFake()
	method, result, _ := strings.Cut(os.Getenv("ODD"), "=")
	prompts := `{"name":"review"}`
	for f.get() {
		switch {
		case f.id != nil && f.method == method && result == "grow":
			prompts += `,{"name":"sum"}`
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
			f.result(`{"content":[]}`)
		case f.id != nil && f.method == method && result == "deaf":
			_ = os.Stdin.Close()
			f.result(`{"content":[]}`)
			return tooltest.Block()
		case f.id != nil && f.method == method && result == "asks":
			for i, asks := range []string{
				"elicitation/create", "sampling/createMessage", "roots/list", "ping",
				"completion/complete", "",
			} {
				fmt.Printf(`{"jsonrpc":"2.0","id":"a%d","method":%q}`+"\n", i, asks)
				fmt.Printf(`{"jsonrpc":"2.0","id":"b%d","method":%q,"params":null}`+"\n", i, asks)
				fmt.Printf(`{"jsonrpc":"2.0","id":"c%d","method":%q,"params":{"requestedSchema":null,"messages":[null]}}`+"\n", i,
					asks)
			}
			f.result(`{"content":[]}`)
		case f.id != nil && f.method == method:
			f.result(result)
		case f.method == "initialize":
			f.result(
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"fake","version":"1"}}`)
		case f.method == "prompts/list":
			f.result(`{"prompts":[` + prompts + `]}`)
		default:
			f.answer()
		}
	}
	return 0
}

// A result that is null, or has null where something should be, costs the caller who asked
// for it an error at most.
func TestNullsOfAServer(t *testing.T) {
	const other, none = "no such method", "has no prompts"
	for _, c := range []struct{ odd, call, prompt, resource string }{
		{"initialize=null", "cannot start x", "cannot start x", "cannot start x"},
		{
			`initialize={"protocolVersion":"1999-01-01"}`, `unsupported protocol version: "1999-01-01"`, "cannot start x",
			"cannot start x",
		},
		{`initialize={"protocolVersion":"2025-11-25"}`, "there is no tool", none, other},
		{
			`initialize={"protocolVersion":"2025-11-25","capabilities":null,"serverInfo":null}`, "there is no tool", none,
			other,
		},
		{"tools/list=null", "there is no tool", other, other},
		{`tools/list={"tools":[null]}`, "there is no tool", other, other},
		{`tools/list={"tools":[{"name":"run","inputSchema":null,"annotations":null}]}`, "", other, other},
		{"prompts/list=null", "", none, other},
		{`prompts/list={"prompts":[null,{"name":"review"}]}`, "", other, other},
		{`prompts/list={"prompts":[{"name":"review","arguments":[null]},{"name":"b"}]}`, "", "only b", other},
		{"prompts/get=null", "", "", other},
		{`prompts/get={"messages":[null]}`, "", "null where content should be", other},
		{`prompts/get={"messages":[{"role":"user","content":null}]}`, "", "nil content", other},
		{"resources/read=null", "", other, "there is nothing"},
		{`resources/read={"contents":[null]}`, "", other, "null where content should be"},
		{"tools/call=null", "", other, other},
		{`tools/call={"content":[null]}`, "nil content", other, other},
		{`tools/call={"inputRequests":{"a":null}}`, "failed inside the daemon", other, other},
		{
			`tools/call={"inputRequests":{"a":{"method":"elicitation/create","params":null}}}`, "came back 10 times", other,
			other,
		},
		{"tools/call=asks", "", other, other},
		{`tools/call={"content":[{"type":"resource","resource":null}]}`, "", other, other},
	} {
		t.Run(c.odd, func(t *testing.T) {
			b := beside(t, server(t, "odd").Env("ODD", c.odd), func(h *host) { h.crashes.Free = 100 })
			b.Ready(t.Context(), model.Scope{})
			var failure error
			if r := b.call("", 0); !r.OK {
				failure = errors.New(r.Text)
			}
			says(t, "a call", failure, c.call)
			_, err := b.Expand(t.Context(), model.Scope{}, "/x.review")
			says(t, "a prompt", err, c.prompt)
			_, err = b.Expand(t.Context(), model.Scope{}, "see @x:memo://a")
			says(t, "a resource", err, c.resource)
			b.well()
			b.gone()
		})
	}
}

// says sees that an error has a text in it, "": that there is none.
func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want != "", err != nil && want == "":
		t.Errorf("%s: got error %v, want %q", what, err, want)
	case err != nil && !strings.Contains(err.Error(), want):
		t.Errorf("%s: got %q, want %q in it", what, err, want)
	}
}

// A server that reads nothing any more, and lives on, costs one call, and is started
// again for the next.
func TestAServerThatClosesItsStdin(t *testing.T) {
	var x *host
	b := beside(t, server(t, "odd").Env("ODD", "tools/call=deaf"), func(h *host) {
		if h.desc.Name == "x" {
			x = h
		}
	})
	b.succeeds("", "done")
	x.desc.Timeout, x.waits.ping = 300*time.Millisecond, 100*time.Millisecond
	b.ends(b.call("", 0), tool.Timeout)
	for b.traced("start") < 3 { // one is y's; what is asked before it is ended fails, too
		b.call("", 0)
	}
	b.well()
	b.gone()
}

// Prompts that a server has got since are there, though its tools are the same.
func TestPromptsThatChange(t *testing.T) {
	b := mount(t, server(t, "odd").Env("ODD", "tools/call=grow"))
	b.Ready(t.Context(), model.Scope{})
	b.succeeds("", "done")
	if name := <-b.changed; name != "x" {
		t.Errorf("%q has changed", name)
	}
	b.List(t.Context(), model.Scope{})
	if got := b.Servers(model.Scope{})[0].Prompts; len(got) != 2 || got[1].Name != "sum" {
		t.Errorf("got %+v, want sum, too", got)
	}
	b.gone()
}
