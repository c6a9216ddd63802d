package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// serveMCP is an MCP server over stdio with one tool, which says back what it gets.
func serveMCP(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var call struct {
			ID     jsontext.Value `json:"id"`
			Method string         `json:"method"`
			Params struct {
				Version   string         `json:"protocolVersion"`
				Arguments jsontext.Value `json:"arguments"`
			} `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &call) != nil || call.ID == nil {
			continue
		}
		result := "{}"
		switch call.Method {
		case "initialize":
			result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"soak","version":"1"}}`,
				call.Params.Version)
		case "tools/list":
			result = `{"tools":[{"name":"echo","description":"Says it back.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`
		case "tools/call":
			text, _ := jsontext.AppendQuote(nil, string(call.Params.Arguments))
			result = fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, text)
		}
		if _, err := fmt.Fprintf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", call.ID, result); err != nil {
			return
		}
	}
}
