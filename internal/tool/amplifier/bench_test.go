package amplifier

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// rote is the least that a module can be, for measuring: it leaves no trace,
// and answers by rote.
func rote() int {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		reply := `{"ok":true,"result":{"n":1}}`
		switch line := lines.Text(); {
		case strings.Contains(line, `"method":"health"`):
			reply = `{"status":"ok"}`
		case strings.Contains(line, `"method":"describe"`):
			reply = `{"capabilities":["run"],"inputs":{"run":{"type":"object","properties":{"n":{"type":"integer"}}}}}`
		}
		os.Stdout.WriteString(reply + "\n")
	}
	return 0
}

// BenchmarkCall is one op per call of a living module, one at a time: what the
// registry, the host and the supervisor add to two pipes. raw is the same
// program on the same two pipes, sent the same line, with the least that can
// read its answer.
func BenchmarkCall(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		tooltest.BenchPipe(b, "rote", b.TempDir(), []byte(`{"method":"invoke","op":"run","args":{"n":1}}`+"\n"))
	})
	b.Run("registry", func(b *testing.B) {
		dir := b.TempDir()
		d := tooltest.New(b, "x", "module", "rote")
		delete(d, "operations")
		d.Write(b, dir)
		tooltest.BenchCalls(b, registry.New(registry.Options{
			Dirs: []string{dir}, Workdir: b.TempDir(), OutputDir: b.TempDir(),
			Dialects: map[string]tool.Dialect{tool.Amplifier: Dialect},
		}))
	})
}
