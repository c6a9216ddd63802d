package hook

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/hookfile"
	"noused/internal/mcpfile"
	"noused/internal/model"
)

// project is a folder with a file of hooks, and Hooks that know the user's configuration.
func project(t *testing.T, text string) (h *Hooks, config, folder string) {
	t.Helper()
	config, folder = t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, ".noused"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, hookfile.FileName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return New(Options{ConfigDir: config}, nil), config, folder
}

// While nobody can say which projects are trusted, nothing passes what a project's hooks may
// guard; a folder without hooks has none to wait for.
func TestNothingPassesGuardsWhileTrustCannotBeRead(t *testing.T) {
	const guard = "[[hook]]\non = \"before_tool\"\ncommand = [\"false\"]\n"
	h, config, folder := project(t, guard)
	if err := hookfile.Trust(config, folder, []byte(guard), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, string(mcpfile.Hooks)), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !h.Anywhere(hookfile.OnPrompt) || !h.Has(hookfile.BeforeTool, folder, "bash") {
		t.Error("no hook is asked")
	}
	call := model.Invocation{ToolCall: model.ToolCall{Name: "bash"}, Scope: model.Scope{Workdir: folder}}
	if v := h.Guard(context.Background(), call); v.Decision != model.Deny {
		t.Errorf("a call passes: %+v", v)
	}
	if _, err := h.OnPrompt(context.Background(), "", folder, "text"); err == nil {
		t.Error("a text passes")
	}
	if text, err := h.OnPrompt(context.Background(), "", t.TempDir(), "text"); text != "text" || err != nil {
		t.Errorf("in a folder without hooks: %q, %v", text, err)
	}
}

// What a stranger's file says wrongly is not worked out for as long as nobody trusts it: it is
// looked at whenever a model is asked.
func TestAStrangersFileIsLookedAtInNoTime(t *testing.T) {
	h, _, folder := project(t, strings.Repeat("[[hook]]\nnone = 1\n", 3<<10))
	var why string
	cost := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			why = h.Problem(folder)
		}
	})
	if !strings.Contains(why, "you have not trusted them") {
		t.Errorf("got %q", why)
	}
	if made := cost.AllocedBytesPerOp(); made > 16<<20 {
		t.Errorf("a look takes %d MiB", made>>20)
	}
}
