package mcp

import (
	"context"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

type bench struct {
	*registry.Registry
	t       *testing.T
	workdir string
	logged  *observer.ObservedLogs
	host    *host
}

// server is the server x, the test binary in a mode.
func server(t testing.TB, mode string) tooltest.Descriptor {
	d := tooltest.New(t, "x", "mcp", mode).Set("trust", "all")
	delete(d, "operations")
	return d
}

// mount makes a registry of one server.
func mount(t *testing.T, d tooltest.Descriptor, adapt ...func(*host)) *bench {
	t.Helper()
	dir := t.TempDir()
	d.Write(t, dir)
	core, logged := observer.New(zapcore.DebugLevel)
	b := &bench{t: t, workdir: t.TempDir(), logged: logged}
	dialect := Dialect(Options{Version: "test", OutputDir: t.TempDir()})
	b.Registry = registry.New(registry.Options{
		Dirs: []string{dir}, Workdir: b.workdir, OutputDir: t.TempDir(), Logger: zap.New(core),
		Dialects: map[string]tool.Dialect{tool.MCP: func(d *tool.Descriptor, s *proc.Supervisor, log *zap.Logger) tool.Host {
			b.host = dialect(d, s, log).(*host)
			for _, f := range adapt {
				f(b.host)
			}
			return b.host
		}},
	})
	t.Cleanup(func() { b.Close(context.Background()) })
	if errs := b.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	return b
}

// gone sees that nothing is left of the server.
func (b *bench) gone() {
	b.t.Helper()
	b.Close(context.Background())
	tooltest.NoChildren(b.t)
}

// A descriptor is enough: the server's tools are listed with its name before
// theirs, and answer.
func TestAServersToolAnswers(t *testing.T) {
	for _, mode := range []string{"sdk", "echo"} {
		t.Run(mode, func(t *testing.T) {
			b := mount(t, server(t, mode))
			if missing := b.Ready(t.Context(), model.Scope{}); missing != nil {
				t.Fatalf("%q are missing", missing)
			}
			list := b.List(t.Context(), model.Scope{})
			if len(list) != 1 || list[0].Name != "x.run" || !list[0].Healthy || list[0].Protocol != "mcp" {
				t.Fatalf("got %+v, want x.run", list)
			}
			want := "did it"
			if mode == "sdk" {
				want = "42"
				if !list[0].ReadOnly {
					t.Error("x.run is not read-only")
				}
			}
			r := b.Call(t.Context(), tooltest.Invocation("x.run", `{"n":21}`), nil)
			if !r.OK || r.Text != want {
				t.Errorf("got %+v, want %s", r, want)
			}
			b.gone()
		})
	}
}
