package module

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"noused/internal/tool"
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
		b.ReportAllocs()
		cmd := exec.Command(tooltest.Self(b))
		cmd.Env = append(os.Environ(), tooltest.Mode+"=rote")
		in, out := pipes(b, cmd)
		lines := bufio.NewReader(out)
		request := []byte(`{"method":"invoke","op":"run","args":{"n":1}}` + "\n")
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
		d := tooltest.New(b, "x", "module", "rote")
		delete(d, "operations")
		d.Write(b, dir)
		reg := tool.New(tool.Options{
			Dirs: []string{dir}, Workdir: b.TempDir(), OutputDir: b.TempDir(),
			Dialects: map[string]tool.Dialect{tool.Module: Dialect},
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
