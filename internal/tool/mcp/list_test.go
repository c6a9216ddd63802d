package mcp

import (
	"context"
	"fmt"
	"testing"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// BenchmarkListOf50Servers lists the tools of 50 servers with ten each, none of which
// runs: what they can do is on the disk. first is with a registry that has just
// been made, its making apart; then is every later list.
func BenchmarkListOf50Servers(b *testing.B) {
	dir, cache, workdir := b.TempDir(), b.TempDir(), b.TempDir()
	for i := range 50 {
		d := tooltest.New(b, fmt.Sprintf("s%02d", i), "mcp", "rogue").Set("trust", "all").Env("TOOLS", "9")
		delete(d, "operations")
		d.Write(b, dir)
	}
	open := func() *registry.Registry {
		return registry.New(registry.Options{
			Dirs: []string{dir}, Workdir: workdir, OutputDir: b.TempDir(), Helper: tooltest.Self(b),
			Dialects: map[string]tool.Dialect{tool.MCP: Dialect(Options{
				Version: "test", OutputDir: b.TempDir(),
				CacheDir: cache,
			})},
		})
	}
	r := open()
	missing := r.Ready(b.Context(), model.Scope{})
	r.Close(context.Background())
	if len(missing) > 0 {
		b.Fatalf("%q are missing", missing)
	}
	list := func(r *registry.Registry) {
		if n := len(r.List(b.Context(), model.Scope{})); n != 500 {
			b.Fatalf("got %d tools, want 500", n)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			r := open()
			b.StartTimer()
			list(r)
			b.StopTimer()
			r.Close(context.Background())
			b.StartTimer()
		}
	})
	b.Run("then", func(b *testing.B) {
		r := open()
		defer r.Close(context.Background())
		list(r)
		for b.Loop() {
			list(r)
		}
	})
}
