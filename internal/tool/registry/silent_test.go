package registry

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
)

// An extension that says nothing when it is started is waited for once by those who list
// tools. It is started again for a call, when its program has changed, and at a reload.
func TestASilentExtensionIsWaitedForOnce(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ext.py")
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	change("#")
	synctest.Test(t, func(t *testing.T) {
		heard := false
		said := offers("run")
		host := &fakeHost{call: said.call}
		host.describe = func(ctx context.Context) (*tool.Manifest, error) {
			if heard {
				return said.describe(ctx)
			}
			time.Sleep(10 * time.Second) // of the test's own time
			return nil, tool.Faultf(tool.Timeout, "initialize: no result within 10s")
		}
		r := New(Options{
			Descriptors: []*tool.Descriptor{{
				Name: "x", Kind: "tool", Protocol: tool.Gevals, Sandbox: tool.SandboxNone, Workdir: t.TempDir(),
				Transport: tool.Transport{Type: "stdio", Command: []string{"python3", program}},
			}},
			Dialects: map[string]tool.Dialect{tool.Gevals: func(*tool.Descriptor, *proc.Supervisor, *zap.Logger) tool.Host {
				return host
			}},
			OutputDir: t.TempDir(),
		})
		defer r.Close(context.Background())
		list := func(asked int64, silent bool) {
			t.Helper()
			infos := r.List(context.Background(), model.Scope{})
			if len(infos) != 1 || infos[0].Silent != silent || silent &&
				!strings.Contains(infos[0].Problem, "no result within 10s") || host.asked.Load() != asked {
				t.Fatalf("got %+v, asked %d times, want %d", infos, host.asked.Load(), asked)
			}
		}
		list(1, true)
		for range 3 {
			time.Sleep(time.Hour)
			list(1, true)
		}
		if !r.Has(context.Background(), model.Scope{}, "x.run") {
			t.Error("it may have the operation")
		}
		call := model.Invocation{ToolCall: model.ToolCall{Name: "x.run", Arguments: []byte("{}")}}
		if res := r.Call(context.Background(), call, nil); res.OK || res.Error.Code != tool.Timeout ||
			host.asked.Load() != 2 {
			t.Errorf("got %+v, asked %d times", res, host.asked.Load())
		}
		time.Sleep(time.Hour)
		list(2, true)
		change("# another")
		list(3, true)
		time.Sleep(time.Hour)
		list(3, true)
		heard = true
		r.Reload()
		time.Sleep(time.Hour)
		list(4, false)
	})
}
