package registry_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool"
	"noused/internal/tool/narratoria"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// BenchmarkCall is one op per Narratoria call: a shell that reads its line and
// says done. raw starts the same shell with the same environment, writes it the
// same line, reads its answer to the end and waits for it. judged and ruled are the
// same call as a run makes it, after the rules have said yes: without any, and with
// a hundred that have to be looked at.
func BenchmarkCall(b *testing.B) {
	dir := b.TempDir()
	script := filepath.Join(dir, "say")
	if err := os.WriteFile(script,
		[]byte("#!/bin/sh\nread line\necho '{\"version\":\"0\",\"type\":\"done\",\"ok\":true}'\n"), 0o755); err != nil {
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
	open := func(b *testing.B, rules *policy.Set) *registry.Registry {
		r := registry.New(registry.Options{
			Descriptors: []*tool.Descriptor{d}, OutputDir: b.TempDir(), Helper: "/proc/self/exe", Policy: func() *policy.Set {
				return rules
			},
			Dialects: map[string]tool.Dialect{tool.Narratoria: narratoria.Dialect}, Logger: zap.NewNop(),
		})
		b.Cleanup(func() { r.Close(context.Background()) })
		return r
	}
	run := func(name string, rules *policy.Set, judge bool) {
		b.Run(name, func(b *testing.B) {
			r := open(b, rules)
			b.ReportAllocs()
			for b.Loop() {
				inv := tooltest.Invocation("say.run", `{}`)
				if judge {
					if v := r.Judge(inv, "ask", nil); v.Decision != model.Allow {
						b.Fatalf("got %+v", v)
					}
				}
				if got := r.Call(b.Context(), inv, nil); !got.OK {
					b.Fatalf("got %+v", got)
				}
			}
		})
	}
	run("registry", nil, false)
	run("judged", nil, true)
	run("ruled", hundredRules(b), true)
}

// hundredRules are looked at for every call, and fit none but the last.
func hundredRules(b *testing.B) *policy.Set {
	var text strings.Builder
	for i := range 99 {
		fmt.Fprintf(&text, "[[policy.rule]]\ntool = \"sa[a-x]%d.*\"\ndecision = \"deny\"\n", i)
	}
	text.WriteString("[[policy.rule]]\ntool = \"say.*\"\ndecision = \"allow\"\n")
	rules, err := policy.ReadRules("rules.toml", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	s, err := policy.New(rules)
	if err != nil {
		b.Fatal(err)
	}
	return s
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
