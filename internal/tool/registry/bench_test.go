package registry_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"noused/internal/tool"
	"noused/internal/tool/narratoria"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// BenchmarkCall is one op per Narratoria call: a shell that reads its line and
// says done. raw starts the same shell with the same environment, writes it the
// same line, reads its answer to the end and waits for it.
func BenchmarkCall(b *testing.B) {
	dir := b.TempDir()
	script := filepath.Join(dir, "say")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nread line\necho '{\"version\":\"0\",\"type\":\"done\",\"ok\":true}'\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	d, err := tool.ParseDescriptor(fmt.Appendf(nil, `{"name":"say","kind":"tool","protocol":"narratoria","capabilities":[],
		"transport":{"type":"stdio","command":[%q]},"operations":{"run":{}}}`, script), dir, dir, os.Environ())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			raw(b, script, d)
		}
	})
	r := registry.New(registry.Options{
		Descriptors: []*tool.Descriptor{d}, OutputDir: b.TempDir(), Helper: "/proc/self/exe",
		Dialects: map[string]tool.Dialect{tool.Narratoria: narratoria.Dialect}, Logger: zap.NewNop(),
	})
	defer r.Close(context.Background())
	b.Run("registry", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got := r.Call(b.Context(), tooltest.Invocation("say.run", `{}`), nil); !got.OK {
				b.Fatalf("got %+v", got)
			}
		}
	})
}

func raw(b *testing.B, script string, d *tool.Descriptor) {
	cmd := exec.Command(script)
	cmd.Dir, cmd.Env = d.Workdir, d.Environ()
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := io.WriteString(in, `{"input":{},"operation":"run","requestId":"call-1","tool":"say"}`+"\n"); err != nil {
		b.Fatal(err)
	}
	in.Close()
	if _, err := io.ReadAll(out); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}
