package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
	"noused/internal/tool"
)

// The clauses of the Model Context Protocol 2025-11-25 over stdio.
var (
	sRPC = rpcClauses{
		json: &clause{
			"MCP Transports: stdio", "every line of stdout is one JSON-RPC message",
			"print nothing else to stdout; text for people goes to stderr",
		},
		utf8: &clause{"MCP Transports: stdio", "stdout is UTF-8", "encode as UTF-8, whatever the locale says"},
		long: &clause{
			"tools.md Limits", "no line is longer than max_output",
			"return a link to large data, or raise max_output",
		},
		version: &clause{
			"MCP Messages", `every message has "jsonrpc":"2.0"`,
			`put "jsonrpc":"2.0" into every message, notifications too`,
		},
		id: &clause{
			"MCP Messages", "every request has one response, with its id as the number it was",
			"echo id as it came, and do not answer notifications",
		},
		either: &clause{
			"MCP Messages", "a response has a result or an error, not both",
			"leave the other one out; null counts as being there",
		},
		fault: &clause{"MCP Messages", "an error has a code and a message", "code is a whole number, message a string"},
	}
	sInit = &clause{
		"MCP Lifecycle",
		"initialize is answered within 10s with protocolVersion, capabilities and serverInfo",
		"answer first and prepare later; do not fail without a key",
	}
	sTools = &clause{
		"MCP Tools", "tools/list names tools, each once, in an array",
		"offer the capability tools, and answer tools/list with tools and, if there is more, nextCursor",
	}
	sSchema = &clause{
		"MCP Tools", "the inputSchema of every tool is a JSON Schema of an object",
		`write {"type":"object"} for a tool without arguments`,
	}
	sMethod = &clause{
		"MCP Messages", "an unknown method is error -32601",
		"answer it with the error and go on reading; a newer client asks for server/discover first",
	}
	sPing = &clause{"MCP Ping", "ping is answered", "answer it with an empty result at any time, while tools run, too"}
	sExit = &clause{"MCP Lifecycle: Shutdown", "the end of stdin ends the process within 2s", "exit when stdin does"}
	sLeft = &clause{
		"tools.md Limits", "nothing is left running",
		"wait for your children before you exit, and start no daemons",
	}

	sResult = &clause{
		"MCP Tools", "the result of a tool has content, an array of objects with a type",
		`{"content":[{"type":"text","text":"…"}]}; a failure has "isError":true beside it`,
	}
)

var mcpClauses = []*clause{
	sInit, sTools, sSchema, sRPC.json, sRPC.utf8, sRPC.long, sRPC.version, sRPC.id, sRPC.either, sRPC.fault, sMethod,
	sPing, sExit, sLeft,
}

// maxPages is how many pages of tools the daemon reads.
const maxPages = 500

// mcpRun checks one MCP server over stdio, in one process.
type mcpRun struct {
	*runner
	*child
	sheet *sheet
	id    int
}

func (r *runner) mcp(ctx context.Context) ([]Finding, error) {
	if r.desc.Transport.Type == "http" {
		return nil, fmt.Errorf("an MCP server over http is checked with noused extension check --mcp-conformance URL")
	}
	c, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	m := &mcpRun{runner: r, child: c, sheet: newSheet(mcpClauses)}
	called, err := m.lifecycle(ctx)
	end := c.finish(exitTime)
	if err != nil {
		return nil, err
	}
	m.sheet.test(sExit, ifNot(!end.exit.Stopped, "it was stopped: "+end.String()))
	m.sheet.test(sLeft, strings.Join(end.left, ", "))
	return slices.Concat(m.sheet.findings("", "the server did not get that far"), called), nil
}

// request sends a request and reads until its response; why says what went wrong.
func (m *mcpRun) request(ctx context.Context, method string, params any) (x *exchange, why string) {
	m.id++
	x = &exchange{sheet: m.sheet, rules: sRPC, id: m.id, mayAsk: true, notify: func(string, jsontext.Value) string {
		return ""
	}}
	err := m.send(wire{"2.0", x.id, method, params})
	if err == nil {
		limit := startTime
		if method == "tools/call" {
			limit = m.desc.Timeout
		}
		err = m.await(ctx, x, limit)
	}
	if err != nil {
		return x, method + ": " + err.Error()
	}
	return x, ""
}

// lifecycle makes the handshake, lists the tools, and calls those to be
// called. An error means that the options do not fit the server.
func (m *mcpRun) lifecycle(ctx context.Context) (called []Finding, err error) {
	type none = struct{}
	x, why := m.request(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": none{}, "clientInfo": map[string]string{
			"name":    "noused",
			"version": "check",
		},
	})
	result, ok := object(x.result)
	if !m.sheet.test(sInit, first(why, ifNot(ok, "the answer is "+quote(tool.Shorten(x.result))+" "+x.code),
		needText(result, "protocolVersion"), needObject(result, "capabilities"), needObject(result, "serverInfo"))) {
		return nil, nil
	}
	if err := m.send(wire{Version: "2.0", Method: "notifications/initialized", Params: none{}}); err != nil {
		return nil, err
	}
	ops := m.tools(ctx)
	x, why = m.request(ctx, unknownName, none{})
	m.sheet.test(sMethod, first(why, ifNot(x.code == "-32601", "the answer is "+quote(tool.Shorten(x.result))+" "+x.code)))
	x, why = m.request(ctx, "ping", none{})
	m.sheet.test(sPing, first(why, ifNot(x.code == "", "the answer is error "+x.code)))
	targets, err := m.targets(ops, nil)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		called = append(called, m.call(ctx, t)...)
	}
	return called, nil
}

// tools reads all pages of tools.
func (m *mcpRun) tools(ctx context.Context) (ops []tool.Operation) {
	params := map[string]string{}
	for page, names := 0, map[string]bool{}; ; page++ {
		x, why := m.request(ctx, "tools/list", params)
		result, _ := object(x.result)
		var list []map[string]jsontext.Value
		if why == "" && (result["tools"].Kind() != '[' || json.Unmarshal(result["tools"], &list) != nil) {
			why = "tools is " + quote(tool.Shorten(result["tools"]))
		}
		if !m.sheet.test(sTools, first(why, mayText(result, "nextCursor"))) {
			return ops
		}
		for _, t := range list {
			name, _ := tool.Text(t["name"])
			m.sheet.test(sTools, first(needText(t, "name"), ifNot(!names[name], quote(name)+" is there twice")))
			names[name] = true
			o := tool.Operation{Name: name, Params: t["inputSchema"]}
			reason := needObject(t, "inputSchema")
			if _, err := jsonschema.Compile(o.Params); reason == "" && err != nil {
				reason = err.Error()
			}
			m.sheet.test(sSchema, ifNot(reason == "", quote(name)+": "+reason))
			ops = append(ops, o)
		}
		next, _ := tool.Text(result["nextCursor"])
		if next == "" || next == params["cursor"] {
			return ops
		}
		if !m.sheet.test(sTools, ifNot(page+1 < maxPages, fmt.Sprintf("there are more than %d pages", maxPages))) {
			return ops
		}
		params["cursor"] = next
	}
}

// call calls a tool once.
func (m *mcpRun) call(ctx context.Context, t target) []Finding {
	sheet := newSheet([]*clause{sResult})
	if t.args == nil {
		return sheet.findings(t.name, t.reason)
	}
	x, why := m.request(ctx, "tools/call", map[string]any{"name": t.name, "arguments": t.args})
	result, _ := object(x.result)
	var parts []map[string]jsontext.Value
	if why == "" && (result["content"].Kind() != '[' || json.Unmarshal(result["content"], &parts) != nil) {
		why = "content is " + quote(tool.Shorten(result["content"])) + " " + x.code
	}
	for _, p := range parts {
		why = first(why, needText(p, "type"))
	}
	sheet.test(sResult, why)
	return sheet.findings(t.name, "")
}
