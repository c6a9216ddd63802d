package check

import (
	"encoding/json"
	"fmt"
	"os"
)

// mcpAnswer is an MCP server's.
func mcpAnswer(line string) (string, bool) {
	var m struct {
		ID     *int   `json:"id"`
		Method string `json:"method"`
	}
	_ = json.Unmarshal([]byte(line), &m)
	broken := func(what string) bool { return os.Getenv(fault) == what }
	if m.ID == nil {
		return "", false
	}
	reply := func(result string) (string, bool) {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, *m.ID, result), false
	}
	switch {
	case broken("noise") && m.Method == "tools/list":
		fmt.Println("looking for tools")
	case broken("info") && m.Method == "initialize":
		return reply(`{"protocolVersion":"2025-11-25","capabilities":{}}`)
	case broken("twice") && m.Method == "tools/list":
		return reply(
			`{"tools":[{"name":"run","inputSchema":{"type":"object"}},{"name":"run","inputSchema":{"type":"object"}}]}`)
	case broken("pages") && m.Method == "tools/list":
		return reply(fmt.Sprintf(`{"tools":[],"nextCursor":"after %d"}`, *m.ID))
	case broken("schema") && m.Method == "tools/list":
		return reply(`{"tools":[{"name":"run","inputSchema":{"type":"no"}}]}`)
	case broken("content") && m.Method == "tools/call":
		return reply(`{"content":"done"}`)
	case broken("ping") && m.Method == "ping":
		return "", true
	}
	switch m.Method {
	case "initialize":
		return reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}`)
	case "tools/list":
		return reply(`{"tools":[{"name":"run","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		return reply(`{"content":[{"type":"text","text":"done"}]}`)
	case "ping":
		return reply(`{}`)
	}
	if broken("unknown") {
		return reply(`{}`)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"no"}}`, *m.ID), false
}
