package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's tour works as it stands: its lines are run in one shell, in a
// copy of the tree, by somebody who has nothing yet.
func TestReadmeTour(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for _, program := range []string{"bash", "make", "socat", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the README's tour needs %s, which is not installed", program)
		}
	}
	root := filepath.Join("..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(readme, -1) {
		lines = append(lines, string(block[1]))
	}
	if len(lines) < 5 {
		t.Fatalf("the README has %d blocks of shell lines; where is the tour?", len(lines))
	}
	dir := t.TempDir()
	for _, name := range []string{"cmd", "internal", "examples"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "Makefile"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+strings.Join(lines, "\n"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Join(dir, "run"), "XDG_STATE_HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir,
		"BUILDFLAGS=") // what was built for these tests is not built anew
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{
		`"type":"pong"`, `"output":"hello there"`, "say this back", "torch.light", "added dice", "rolled", "0 failed", "run: build",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the tour does not show %q:\n%s", want, text)
		}
	}
}
