package gevals

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// BenchmarkCall is one op per call of a living extension, one at a time: what
// the registry, the host and the supervisor add to two pipes. raw is the same
// program on the same two pipes, sent the same line, with the least that can
// read its answer.
func BenchmarkCall(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		cmd := exec.Command(tooltest.Self(b))
		cmd.Dir, cmd.Env = b.TempDir(), append(os.Environ(), tooltest.Mode+"=echo")
		in, out := pipes(b, cmd)
		lines := bufio.NewReader(out)
		request := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"run","args":{"n":1},"context":{"workdir":%q,`+
			`"phase":"setup","env":{"NOUSED_TEST_TOOL":"echo"},"timeout":"30s"}}}`+"\n", cmd.Dir)
		for b.Loop() {
			if _, err := in.Write(request); err != nil {
				b.Fatal(err)
			}
			if _, err := lines.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("registry", func(b *testing.B) {
		b.ReportAllocs()
		dir := b.TempDir()
		d := tooltest.New(b, "x", "gevals", "echo")
		delete(d, "operations")
		d.Write(b, dir)
		reg := tool.New(tool.Options{
			Dirs: []string{dir}, Workdir: b.TempDir(), OutputDir: b.TempDir(),
			Dialects: map[string]tool.Dialect{tool.Gevals: Dialect},
		})
		defer reg.Close(context.Background())
		inv := tooltest.Invocation("x.run", `{"n":1}`)
		reg.List(b.Context())
		for b.Loop() {
			if r := reg.Call(b.Context(), inv, nil); !r.OK {
				b.Fatalf("got %+v, want ok", r)
			}
		}
	})
}

func pipes(b *testing.B, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
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
	return in, out
}
