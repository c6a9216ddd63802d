package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// BenchmarkServers is one op per start of a daemon to its first pong, with no MCP
// server and with 50, and per list_tools of 50 that never ran.
func BenchmarkServers(b *testing.B) {
	with := func(b *testing.B, n int) *daemon {
		d := unstarted(b, "noused")
		var entries []string
		for i := range n {
			entries = append(entries, fmt.Sprintf(`"s%d":{"command":"cat","args":["%[1]d"]}`, i))
		}
		d.write("noused/mcp.json", `{"mcpServers":{`+strings.Join(entries, ",")+`}}`, 0o600)
		return d
	}
	for name, n := range map[string]int{"none": 0, "fifty": 50} {
		b.Run("pong/"+name, func(b *testing.B) {
			d := with(b, n)
			for b.Loop() {
				d.Start()
				if _, err := client.Call(context.Background(), d.dial(), protocol.Ping, protocol.PingParams{}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				d.Kill()
				b.StartTimer()
			}
		})
	}
	b.Run("list", func(b *testing.B) {
		d := with(b, 50)
		d.Start()
		c := d.dial()
		for b.Loop() {
			r, err := client.Call(context.Background(), c, protocol.ListTools, protocol.ListToolsParams{})
			if err != nil || len(r.Servers) != 50 {
				b.Fatalf("got %d servers, %v", len(r.Servers), err)
			}
		}
	})
}
