package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/hookfile"
	"noused/internal/tui/tuitest"
)

// On a terminal a person trusts what sets a worktree up, and may type another message when
// it is landed.
func TestLandingOnATerminal(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	repo := filepath.Join(d.Dir, "shop")
	git := func(dir string, args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	file := filepath.Join(repo, hookfile.FileName)
	text := "[worktree]\nsetup = [\"echo made > made\"]\n"
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	git(repo, "init", "-q", "-b", "main")
	git(repo, "config", "user.name", "A")
	git(repo, "config", "user.email", "a@example.com")
	git(repo, "add", "-A")
	git(repo, "commit", "-q", "-m", "first")
	data := filepath.Join(d.Dir, "data")
	nous := func(dir string, args ...string) *screen {
		cmd := exec.Command(program(t, "nous"), args...)
		cmd.Dir, cmd.Env = dir, append(d.Env(), "XDG_DATA_HOME="+data)
		return &screen{tuitest.Start(t, cmd, 132, 40, false), t, d}
	}
	ends := func(s *screen, want int) {
		t.Helper()
		if status := s.Exit(); status != want {
			t.Errorf("got exit status %d, want %d", status, want)
		}
	}
	s := nous(repo, "trust")
	s.Wait("has a setup of worktrees.", "setup of a new worktree, once, there", "runs         sh -c 'echo made > made'",
		"[y/N]")
	s.Type("y")
	s.Press("enter")
	ends(s, exitOK)
	s = nous(repo, "new", "--worktree=topic", "fix", "it")
	s.Wait("branch topic", "setup: echo made > made")
	ends(s, exitOK)
	tree := filepath.Join(data, "noused/worktrees/shop/topic")
	s = nous(tree, "land")
	s.Wait("message [fix it]:")
	s.Press("ctrl+c")
	if status := s.Exit(); status == exitOK {
		t.Error("Ctrl-C has landed it")
	}
	if got := git(repo, "log", "--format=%s", "main"); got != "first" {
		t.Errorf("after Ctrl-C main has %q", got)
	}
	s = nous(tree, "land")
	s.Wait("message [fix it]:")
	s.Type("another")
	s.Press("enter")
	s.Wait("A  made  +1", "landed topic on main")
	ends(s, exitOK)
	if got := git(repo, "log", "--format=%s", "main"); got != "another\nfirst" {
		t.Errorf("main has %q", got)
	}
}
