package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/testenv"
)

// place is where a program of an example runs: with nous and noused in PATH, and a home of
// its own.
func place(t *testing.T) (dir string, env []string) {
	t.Helper()
	testenv.Long(t)
	dir = t.TempDir()
	path := filepath.Dir(program(t, "noused")) + ":" + filepath.Dir(program(t, "nous")) + ":" + os.Getenv("PATH")
	for _, name := range []string{"home", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, append(os.Environ(), "PATH="+path, "HOME="+filepath.Join(dir, "home"), "NOUSED_MODEL=offline",
		"XDG_RUNTIME_DIR="+filepath.Join(dir, "run"), "TMPDIR=/tmp", "RUNNER_TEMP="+dir,
		"GITHUB_OUTPUT="+filepath.Join(dir, "github"))
}

func example(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../examples", path))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ranIn is a program's output and exit status.
func ranIn(t *testing.T, dir string, env []string, args ...string) (out string, status int) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// The action runs its script with each input in a variable that the script reads, and hands
// answer and status on.
func TestTheGitHubAction(t *testing.T) {
	dir, env := place(t)
	action, err := os.ReadFile(example(t, "github-action/action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(action), `run: sh "${{ github.action_path }}/run.sh"`) ||
		strings.Count(string(action), "${{ inputs.") != 6 {
		t.Errorf("the action does not run its script with six inputs:\n%s", action)
	}
	env = append(env, "MODEL=offline", "MAX_COST=1", "TIMEOUT=1m", "APPROVALS=deny", "SCHEMA=")
	out, status := ranIn(t, dir, append(env, "PROMPT=say $(this) back\nEOF"), "sh", example(t, "github-action/run.sh"))
	said, err := os.ReadFile(filepath.Join(dir, "github"))
	if status != 0 || err != nil || !strings.Contains(string(said), "say $(this) back\nEOF\nend-") ||
		!strings.HasPrefix(string(said), "status=0\nresult="+dir) {
		t.Errorf("got status %d, %v, %s, outputs:\n%s", status, err, out, said)
	}
	schema := filepath.Join(dir, "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, status := ranIn(t, dir, append(env, "PROMPT=no JSON", "SCHEMA="+schema), "sh",
		example(t, "github-action/run.sh")); status != exitUnfit {
		t.Errorf("an answer that does not fit: got status %d, want %d: %s", status, exitUnfit, out)
	}
}

// The hook lets pass what the model does not object to, and says what it objects to.
func TestThePreCommitHook(t *testing.T) {
	dir, env := place(t)
	for _, args := range [][]string{
		{"git", "init", "-q"}, {"sh", "-c", "echo one >a"}, {"git", "add", "a"},
	} {
		if out, status := ranIn(t, dir, env, args...); status != 0 {
			t.Fatalf("%q: %s", args, out)
		}
	}
	// What the offline model says is the text before the diff, where that is a call of none.
	hook := example(t, "pre-commit/review.py")
	fake := filepath.Join(dir, "fake")
	if err := os.Mkdir(fake, 0o700); err != nil {
		t.Fatal(err)
	}
	for verdict, want := range map[string]int{
		`{"ok":true,"findings":[]}`:                 0,
		`{"ok":false,"findings":["a:1: a secret"]}`: 1,
	} {
		// The offline model repeats the diff, too: nous gets none.
		stand := "#!/bin/sh\ncat >/dev/null\nexec " + program(t, "nous") + ` "$@" </dev/null` + "\n"
		if err := os.WriteFile(filepath.Join(fake, "nous"), []byte(stand), 0o700); err != nil {
			t.Fatal(err)
		}
		out, status := ranIn(t, dir, append(env, "PATH="+fake+":"+filepath.Dir(program(t, "noused"))+":"+os.Getenv("PATH"),
			"NOUS_REVIEW_ASK="+verdict), hook)
		if status != want || strings.Contains(out, "a:1: a secret") != (want == 1) {
			t.Errorf("%s: got status %d, %s", verdict, status, out)
		}
	}
	if out, status := ranIn(t, dir, env, hook); status != exitUnfit {
		t.Errorf("a model that says no JSON: got status %d, want %d: %s", status, exitUnfit, out)
	}
}

// The adapter for Harbor installs, runs, and leaves result and trajectory.
func TestTheHarborAdapter(t *testing.T) {
	dir, env := place(t)
	bin := filepath.Join(dir, "programs")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nous", "noused"} {
		if err := os.Symlink(program(t, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { noneLeft(filepath.Join(dir, "run", "noused", "noused.sock")) })
	out, status := ranIn(t, dir, env, "python3", example(t, "harbor/stub_test.py"), bin, dir)
	if status != 0 || out != "ok\n" {
		t.Errorf("got status %d: %s", status, out)
	}
}
