package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

// BenchmarkSandboxedStart is one op per program that is started and waited for:
// without a sandbox, in one, with the daemon's folders hidden in a home folder of
// 2,000 entries beside the workdir, the same with 25 more paths of which none
// needs another folder listed, and covered in it.
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
	keys := []string{state}
	for i := range 25 {
		keys = append(keys, filepath.Join(home, fmt.Sprint("file", i)))
	}
	for _, c := range []struct {
		name, workdir string // without a workdir: no sandbox
		hidden        Hidden
	}{
		{"none", "", Hidden{}},
		{"workdir", work, Hidden{}},
		{"hidden", work, Hidden{Paths: []string{state}}},
		{"hidden26", work, Hidden{Paths: keys}},
		{"covered26", home, Hidden{Paths: keys}},
		{"covered", home, Hidden{Paths: []string{state}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := NewSupervisor("/proc/self/exe", zap.NewNop())
			defer s.Close()
			s.hidden = c.hidden
			view := s
			if c.workdir != "" {
				var err error
				if view, err = s.Sandboxed(Sandbox{Workdir: c.workdir}); err != nil {
					b.Skip(err)
				}
			}
			for b.Loop() {
				p, err := view.Start(b.Context(), Command{
					Name: "true", Path: "/bin/true", Args: []string{"true"}, Dir: work,
					MaxLine: 1 << 10,
				})
				if err != nil {
					b.Fatal(err)
				}
				p.Wait()
			}
		})
	}
}
