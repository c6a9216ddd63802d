package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// shellServer is an MCP server with one tool that says a word and where it runs.
const shellServer = `#!/bin/sh
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
echo start >>started
while read -r line; do
	id=${line#*\"id\":}
	id=${id%%[,\}]*}
	case $line in
	*'"method":"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"say","version":"1"}}' ;;
	*'"method":"tools/list"'*) reply '{"tools":[{"name":"word","description":"says a word","inputSchema":{"type":"object"}}]}' ;;
	*'"method":"tools/call"'*) reply '{"content":[{"type":"text","text":"'"$WORD in $PWD"'"}]}' ;;
	*'"method":"ping"'*) reply '{}' ;;
	esac
done
`

// withServers writes an mcp.json with so many servers for a daemon that is not started.
func (d *daemon) withServers(n int) {
	d.t.Helper()
	d.write("server", shellServer, 0o700)
	var entries []string
	for i := range n {
		entries = append(entries, fmt.Sprintf(`"server-%d": {"command": %q, "args": ["--flag", "value"], "env": {"WORD": "${HOME}"}}`, i, filepath.Join(d.dir, "server")))
	}
	if err := os.MkdirAll(filepath.Join(d.dir, "noused"), 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.write("noused/mcp.json", "{\"mcpServers\": {\n"+strings.Join(entries, ",\n")+"\n}}\n", 0o600)
}

// BenchmarkStart is from the start of a daemon to its first pong, with so many MCP
// servers in mcp.json.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{0, 50} {
		b.Run(fmt.Sprint(n, "-servers"), func(b *testing.B) {
			d := unstarted(b, plainDaemon(b))
			d.withServers(n)
			for b.Loop() {
				d.start()
				c := d.dial()
				if _, err := client.Call(context.Background(), c, protocol.Ping, protocol.PingParams{}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_ = c.Close()
				d.stop()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkListTools is a list_tools with so many MCP servers: new ones, of a daemon
// that was just asked what its own tools are, and those that have said what they have.
func BenchmarkListTools(b *testing.B) {
	for _, n := range []int{0, 50} {
		d := unstarted(b, plainDaemon(b))
		d.withServers(n)
		var c *client.Client
		list := func() (known int) {
			r, err := client.Call(context.Background(), c, protocol.ListTools, protocol.ListToolsParams{})
			if err != nil || len(r.Servers) != n {
				b.Fatalf("got %d servers, %v", len(r.Servers), err)
			}
			for _, s := range r.Servers {
				known += s.Tools
			}
			return known
		}
		b.Run(fmt.Sprint(n, "-new-servers"), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				if d.cmd != nil {
					d.stop()
				}
				d.start()
				c = d.dial()
				if _, err := client.Call(context.Background(), c, protocol.ExtensionCommand, protocol.ExtensionCommandParams{Name: "ls"}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				list()
			}
		})
		b.Run(fmt.Sprint(n, "-servers"), func(b *testing.B) {
			for list() < n { // each is started for its first list
				time.Sleep(10 * time.Millisecond)
			}
			for b.Loop() {
				list()
			}
		})
	}
}
