package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/hookfile"
	"noused/internal/mcpfile"
	"noused/internal/tui/tuitest"
)

// Only a person at a terminal lets a project's servers run, who has seen what they
// are; and no longer than the file is that one.
func TestTrustAsksAPerson(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	folder := filepath.Join(d.Dir, "project")
	file := mcpfile.Project(folder)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(answer string, see ...string) int {
		cmd := exec.Command(program(t, "nous"), "mcp", "trust")
		cmd.Dir, cmd.Env = folder, d.Env()
		s := &screen{tuitest.Start(t, cmd, 132, 40, false), t, d}
		s.Wait(see...)
		if answer != "" {
			s.Type(answer)
			s.Press("enter")
		}
		return s.Exit()
	}
	write(
		`{"mcpServers": {"theirs": {"command": "sh", "args": ["-c", "echo a\u001b[2K b\n  runs         git"], "env": {"LD_PRELOAD": "./x.so"}}, "far": {"url": "https://h/mcp?k=${KEY}"}}}`)
	shown := []string{
		"names 2 servers.", "theirs", "runs         sh -c 'echo a⟨U+001B⟩[2K b⟨U+000A⟩  runs         git'",
		"sets         LD_PRELOAD=./x.so   (decides which code runs)",
		"connects to  https://h/mcp?k=${KEY}", "characters that a terminal does not show", "Trust this file, as it is? [y/N]",
	}
	for _, no := range []string{"n", "yep"} {
		if status := run(no, shown...); status != exitFailed {
			t.Errorf("%s: exit status %d", no, status)
		}
	}
	if status := run("yes", shown...); status != exitOK {
		t.Errorf("yes: exit status %d", status)
	}
	if status := run("", "trusted already"); status != exitOK {
		t.Errorf("trusted already: exit status %d", status)
	}
	write(`{"mcpServers": {"theirs": {"command": "sh"}}}`)
	if status := run("n", "runs         sh", "Trust this file, as it is? [y/N]"); status != exitFailed {
		t.Errorf("changed: exit status %d", status)
	}
}

// So do its hooks, which are shown in full.
func TestTrustOfHooksAsksAPerson(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	folder := filepath.Join(d.Dir, "project")
	file := filepath.Join(folder, hookfile.FileName)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(answer string, see ...string) int {
		cmd := exec.Command(program(t, "nous"), "trust")
		cmd.Dir, cmd.Env = folder, d.Env()
		s := &screen{tuitest.Start(t, cmd, 132, 40, false), t, d}
		s.Wait(see...)
		if answer != "" {
			s.Type(answer)
			s.Press("enter")
		}
		return s.Exit()
	}
	if status := run("", "this folder has no .noused/config.toml"); status != exitFailed {
		t.Errorf("no file: exit status %d", status)
	}
	text := "[[hook]]\non = \"after_tool\"\ntools = [\"edit\"]\ncommand = [\"sh\", \"-c\", \"a\\u001B[2K\"]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := []string{
		"has 1 hook.", "after_tool of edit", "runs         sh -c 'a⟨U+001B⟩[2K'", "for at most  30s",
		"Trust this file, as it is? [y/N]",
	}
	if status := run("n", shown...); status != exitFailed {
		t.Errorf("n: exit status %d", status)
	}
	if status := run("y", shown...); status != exitOK {
		t.Errorf("y: exit status %d", status)
	}
	if status := run("", "trusted already"); status != exitOK {
		t.Errorf("trusted already: exit status %d", status)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if status := run("y", "is gone", "Forget that you trusted it? [y/N]"); status != exitOK {
		t.Errorf("gone: exit status %d", status)
	}
	cmd := exec.Command(program(t, "nous"), "trust")
	cmd.Dir, cmd.Env = folder, d.Env()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "nobody can be asked here: run nous trust on a terminal") {
		t.Errorf("without a terminal: %s, %v", out, err)
	}
}
