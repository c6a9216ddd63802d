package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's commands work as they stand: they are run in one shell, in a
// copy of the tree, by somebody who has nothing yet. The run whose daemon was
// killed is finished by the next one, with the text that was queued behind it.
func TestReadme(t *testing.T) {
	testPage(t, "README.md", nil, []string{"  still here", "assistant"},
		"for try in {1..300}; do nous messages >said; if grep -q '^  still here' said; then break; fi; sleep 0.1; done; "+
			"cat said")
}

// So do those of the page about scripts.
func TestScriptsPage(t *testing.T) {
	testPage(t, filepath.Join("docs", "scripts.md"), []string{"python3"}, []string{
		"say this back", "run: build", "added dice", "rolled a", "0 failed", "### user",
	}, "")
}

// So do those of the tour.
func TestTour(t *testing.T) {
	testPage(t, filepath.Join("docs", "tour.md"), []string{"python3", "socat"}, []string{
		`"type":"pong"`, `"output":"hello there"`, `"gap":false`, `"seq":4`, "say this back", "torch.light",
	}, "")
}

// The README's line for a real model in a script works for somebody who has no folder for
// the configuration yet.
func TestReadmeSetup(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^pass show anthropic \| (nous setup anthropic) `).FindSubmatch(text)
	if line == nil {
		t.Fatal("README.md has no line for a key in a pipe")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "sk-ant" {
			http.Error(w, "no such key", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"claude-opus-5-5"}]}`)
	}))
	defer server.Close()
	programs, err := builtPrograms()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c",
		"umask 022\ntrap 'nous stop >/dev/null' EXIT\necho sk-ant | "+string(line[1])+
			"\ncd ~/.config/noused; stat -c '%a %n' *.toml; nous model")
	cmd.Env = append(freshHome(t), "ANTHROPIC_BASE_URL="+server.URL, "PATH="+programs+":"+os.Getenv("PATH"))
	got, err := cmd.CombinedOutput()
	for _, want := range []string{
		"the key works\n", "anthropic/claude-opus-5-5 answers now",
		"600 config.toml\n600 credentials.toml\n", "\nanthropic/claude-opus-5-5\n",
	} {
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%v: no %q in\n%s", err, want, got)
		}
	}
}

// What the page on security claims is shown by tests: all that it names are there.
func TestSecurityPageNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	there := allTests(t)
	named := regexp.MustCompile(`\bTest\w+`).FindAllString(string(page), -1)
	for _, name := range named {
		if !there[name] {
			t.Errorf("docs/security.md names %s, which is no test", name)
		}
	}
	if len(named) < 30 {
		t.Errorf("docs/security.md names %d tests", len(named))
	}
}

// Every command of docs/found.md runs a test: the package has it.
func TestFoundPageNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "found.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| .* \| .* \| (\S+) \| ((?:Test|Fuzz)\w+) \|$`).FindAllSubmatch(page, -1)
	for _, row := range rows {
		dir, name, found := string(row[1]), string(row[2]), false
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+name+"(")
		}
		if !found {
			t.Errorf("docs/found.md: %s has no %s", dir, name)
		}
	}
	if lines := strings.Count(string(page), "\n| "); len(rows) != lines-1 || len(rows) < 24 { // but for the head
		t.Errorf("docs/found.md has %d rows, of which %d name a package and a test", lines-1, len(rows))
	}
}

// allTests are the names of this tree's tests.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	for _, dir := range []string{"cmd", "internal"} {
		if err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				there[string(m[1])] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return there
}

// testPage runs the lines of a page's sh blocks, and then those of after, and
// looks for texts in their output.
func testPage(t *testing.T, page string, programs, want []string, after string) {
	if testing.Short() {
		t.Skip("long")
	}
	for _, program := range append(programs, "bash", "make") {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s needs %s, which is not installed", page, program)
		}
	}
	cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c",
		"trap 'nous stop >/dev/null 2>&1 || true; kill $(jobs -p) 2>/dev/null || true' EXIT\n"+shellLines(t, page)+after)
	cmd.Dir = copyTree(t)
	cmd.Env = freshHome(t)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, w := range want {
		if !strings.Contains(string(text), w) {
			t.Errorf("the commands of %s do not show %q:\n%s", page, w, text)
		}
	}
}

// shellLines are the lines of a page's sh blocks. A line that starts a daemon
// waits until that daemon answers. A line that opens the screen starts the daemon
// as the screen does, and opens nothing.
func shellLines(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1) {
		lines = append(lines, string(block[1]))
	}
	if len(lines) < 2 {
		t.Fatalf("%s has %d blocks of shell lines", page, len(lines))
	}
	all := regexp.MustCompile(`(?m)^(noused .*&.*)$`).ReplaceAllString(strings.Join(lines, "\n"),
		"$1\nuntil nous --no-start ping >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done")
	return regexp.MustCompile(`(?m)^nous +#.*$`).ReplaceAllString(all, "nous ping >/dev/null")
}

// copyTree is a folder with what building takes.
func copyTree(t *testing.T) string {
	t.Helper()
	root, dir := filepath.Join("..", ".."), t.TempDir()
	for _, name := range []string{"cmd", "internal", "docs", "examples", "deploy", "scripts"} {
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
	return dir
}

// freshHome is the environment of somebody whose home is empty.
func freshHome(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	runtime := filepath.Join(home, "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+runtime, "XDG_CONFIG_HOME="+
		filepath.Join(home, ".config"),
		"XDG_STATE_HOME="+filepath.Join(home, ".local", "state"), "XDG_CACHE_HOME="+filepath.Join(home, ".cache"))
}
