package mcp

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// BenchmarkCall is one op per call of a living server, one at a time. raw is the
// SDK's own client on two pipes to the same program.
func BenchmarkCall(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		cmd := exec.Command(tooltest.Self(b))
		cmd.Dir, cmd.Env = b.TempDir(), append(os.Environ(), tooltest.Mode+"=sdk")
		c, err := sdk.NewClient(&sdk.Implementation{Name: "raw", Version: "1"}, nil).
			Connect(b.Context(), &sdk.CommandTransport{Command: cmd}, &sdk.ClientSessionOptions{ProtocolVersion: initialize})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			r, err := c.CallTool(b.Context(), &sdk.CallToolParams{Name: "run", Arguments: map[string]any{"n": 1}})
			if err != nil || r.IsError {
				b.Fatal(r, err)
			}
		}
		_ = c.Close()
	})
	b.Run("registry", func(b *testing.B) {
		dir := b.TempDir()
		server(b, "sdk").Write(b, dir)
		tooltest.BenchCalls(b, registry.New(registry.Options{
			Dirs: []string{dir}, Workdir: b.TempDir(), OutputDir: b.TempDir(),
			Dialects: map[string]tool.Dialect{tool.MCP: Dialect(Options{Version: "bench"})},
		}))
	})
}

// BenchmarkList is one op per list of the tools of 50 servers with ten tools each,
// none of which runs: first, of a daemon that has just been started, and then.
func BenchmarkList(b *testing.B) {
	dir, cache := b.TempDir(), b.TempDir()
	open := func() *registry.Registry {
		return registry.New(registry.Options{
			Dirs: []string{dir}, Workdir: b.TempDir(), OutputDir: b.TempDir(),
			Dialects: map[string]tool.Dialect{tool.MCP: Dialect(Options{Version: "bench", CacheDir: cache})},
		})
	}
	for i := range 50 {
		server(b, "rogue").Set("name", fmt.Sprint("s", i)).Set("version", fmt.Sprint(i)).Env("TOOLS", "10").Write(b, dir)
	}
	known := open()
	if missing := known.Ready(b.Context(), model.Scope{}); missing != nil {
		b.Fatal(missing)
	}
	known.Close(context.Background())
	list := func(b *testing.B, r *registry.Registry) {
		if n := len(r.List(b.Context(), model.Scope{})); n != 50*11 {
			b.Fatalf("got %d tools", n)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			r := open()
			b.StartTimer()
			list(b, r)
			b.StopTimer()
			r.Close(context.Background())
			b.StartTimer()
		}
	})
	b.Run("then", func(b *testing.B) {
		r := open()
		defer r.Close(context.Background())
		list(b, r)
		for b.Loop() {
			list(b, r)
		}
	})
}
