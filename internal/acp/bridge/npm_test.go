package bridge

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"noused/internal/daemontest"
)

// nousProgram builds nous.
func nousProgram(t testing.TB) string {
	t.Helper()
	program, err := daemontest.Build(t.TempDir(), "nous")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// The official TypeScript client drives each row of the contract.
func TestOfficialClient(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("NOT DRIVEN by the official client: there is no node")
	}
	installed, err := sdk()
	if err != nil {
		t.Skipf("NOT DRIVEN by the official client: %v", err)
	}
	d := slowDaemon(t, "[policy]\nask = [\"edit\"]\n"+scripted(t, "options"))
	script, err := os.ReadFile(filepath.Join("testdata", "sdk", "drive.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "drive.mjs")
	if err := os.WriteFile(at, script, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(installed, "node_modules"), filepath.Join(filepath.Dir(at), "node_modules")); err !=
		nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", at, nousProgram(t), d.Socket, d.Dir)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "driven") {
		t.Errorf("%v\n%s", err, out)
	}
}

// acpx, a client for the command line, prompts, answers approvals, cancels and
// resumes, with three sessions at once. It and its Node are 230 MB: make editors.
func TestAcpx(t *testing.T) {
	if os.Getenv("NOUSED_TEST_EDITORS") == "" {
		t.Skip("NOT DRIVEN by acpx: make editors does that")
	}
	installed, err := npmPackage("editors")
	if err != nil {
		t.Skipf("NOT DRIVEN by acpx: %v", err)
	}
	bin := filepath.Join(installed, "node_modules", ".bin")
	d := slowDaemon(t, "[policy]\nask = [\"edit\"]\n")
	nous := nousProgram(t)
	var acpx func(args ...string) string
	acpx = func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "acpx"),
			append([]string{"--agent", nous + " --socket " + d.Socket + " acp", "--cwd", d.Dir, "--ttl", "1"}, args...)...)
		cmd.Env, cmd.WaitDelay = d.Env("PATH="+bin+":"+os.Getenv("PATH")), time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("acpx %q: %v", args, err)
		}
		if strings.Contains(string(out), "Queue owner is shutting down") { // a process of acpx's own, which is going
			return acpx(args...)
		}
		return string(out)
	}
	says := func(what, want string, args ...string) {
		t.Helper()
		if out := acpx(args...); !strings.Contains(out, want) {
			t.Errorf("%s: got\n%s\nwant %q in it", what, out, want)
		}
	}
	says("one prompt", "hello from acpx", "exec", "hello from acpx")
	d.Write("a.txt", "one\n")
	edit := `!edit {"path":"a.txt","old_text":"one","new_text":"two"}`
	acpx("--deny-all", "exec", edit)
	if text, _ := os.ReadFile(filepath.Join(d.Dir, "a.txt")); string(text) != "one\n" {
		t.Errorf("denied, and the file has %q", text)
	}
	acpx("--approve-all", "exec", edit)
	if text, _ := os.ReadFile(filepath.Join(d.Dir, "a.txt")); string(text) != "two\n" {
		t.Errorf("allowed, and the file has %q", text)
	}
	names := []string{"x", "y", "z"}
	for _, name := range names {
		acpx("sessions", "new", "--name", name)
	}
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { says("three at once", "words of "+name, "prompt", "-s", name, "words of "+name) })
	}
	all.Wait()
	says("resumed", "once more", "prompt", "-s", "x", "once more")
	all.Go(func() { acpx("prompt", "-s", "y", "!slow.run") })
	for {
		if runs := stateOf(t, d.Socket, "").Runs; len(runs) == 1 {
			break
		}
	}
	says("cancel", "ancel", "cancel", "-s", "y")
	all.Wait()
	if runs := stateOf(t, d.Socket, "").Runs; len(runs) != 0 {
		t.Errorf("still running after the cancel: %+v", runs)
	}
}
