package tooltest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"testing"

	"noused/internal/model"
)

// BenchPipe measures the least that a call to a living tool can be: one line to
// the fake of that mode, which works in dir, and one line back.
func BenchPipe(b *testing.B, mode, dir string, request []byte) {
	b.ReportAllocs()
	cmd := exec.Command(Self(b))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), Mode+"="+mode)
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
	lines := bufio.NewReader(out)
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
}

// Registry is what BenchCalls needs of the registry.
type Registry interface {
	List(ctx context.Context, from model.Scope) []model.ToolInfo
	Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult
	Close(ctx context.Context)
}

// BenchCalls measures calls of the operation x.run, one at a time, once the tool
// has been started. It closes the registry.
func BenchCalls(b *testing.B, r Registry) {
	b.ReportAllocs()
	defer r.Close(context.Background())
	inv := Invocation("x.run", `{"n":1}`)
	r.List(b.Context(), model.Scope{})
	for b.Loop() {
		if r := r.Call(b.Context(), inv, nil); !r.OK {
			b.Fatalf("got %+v, want ok", r)
		}
	}
}
