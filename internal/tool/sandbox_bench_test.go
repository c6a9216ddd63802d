package tool

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

// BenchmarkSandboxedStart is one op per program that is started and waited for:
// without a sandbox, in one, with the daemon's folders hidden in a home folder of
// 2,000 entries beside the workdir, and covered in it.
func BenchmarkSandboxedStart(b *testing.B) {
	home := b.TempDir()
	work, state := filepath.Join(home, "work"), filepath.Join(home, ".local", "state", "noused")
	for _, dir := range []string{work, state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(home, fmt.Sprint("file", i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, sandbox, workdir string
		hidden                 Hidden
	}{
		{"none", SandboxNone, work, Hidden{}},
		{"workdir", SandboxWorkdir, work, Hidden{}},
		{"hidden", SandboxWorkdir, work, Hidden{Paths: []string{state}}},
		{"covered", SandboxWorkdir, home, Hidden{Paths: []string{state}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := NewSupervisor("/proc/self/exe", zap.NewNop())
			defer s.Close()
			s.hidden = c.hidden
			view := s
			if c.sandbox != SandboxNone {
				var err error
				if view, err = s.Sandboxed(&Descriptor{Sandbox: c.sandbox, SandboxRequired: true, Workdir: c.workdir}); err != nil {
					b.Skip(err)
				}
			}
			for b.Loop() {
				p, err := view.Start(b.Context(), Command{Name: "true", Path: "/bin/true", Args: []string{"true"}, Dir: c.workdir, MaxLine: 1 << 10})
				if err != nil {
					b.Fatal(err)
				}
				p.Wait()
			}
		})
	}
}
