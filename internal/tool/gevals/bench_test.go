package gevals

import (
	"fmt"
	"testing"

	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// BenchmarkCall is one op per call of a living extension, one at a time: what
// the registry, the host and the supervisor add to two pipes. raw is the same
// program on the same two pipes, sent the same line, with the least that can
// read its answer.
func BenchmarkCall(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		dir := b.TempDir()
		tooltest.BenchPipe(b, "echo", dir, fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"run","args":{"n":1},"context":{"workdir":%q,`+
				`"phase":"setup","env":{"NOUSED_TEST_TOOL":"echo"},"timeout":"30s"}}}`+"\n", dir))
	})
	b.Run("registry", func(b *testing.B) {
		dir := b.TempDir()
		d := tooltest.New(b, "x", "gevals", "echo")
		delete(d, "operations")
		d.Write(b, dir)
		tooltest.BenchCalls(b, registry.New(registry.Options{
			Dirs: []string{dir}, Workdir: b.TempDir(), OutputDir: b.TempDir(),
			Dialects: map[string]tool.Dialect{tool.Gevals: Dialect},
		}))
	})
}
