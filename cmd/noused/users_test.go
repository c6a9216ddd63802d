package main

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// Another user of the machine cannot connect, answer, read what was said or what the
// rules are, nor plant rules; where the folders were opened to him by mistake, the
// daemon itself still refuses him and his files.
func TestAnotherUserGainsNothingAsRoot(t *testing.T) {
	stranger := testenv.SecondUser(t)
	d := newDaemon(t)
	c := d.dial()
	d.write("noused/rules.toml", "[[policy.rule]]\ntool = \"job\"\ndecision = \"deny\"\n", 0o600)
	asked := d.asks(c, d.session(d.Dir), outside("true"))
	as := func(program, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Args[0], cmd.Dir, cmd.Env = name, "/", []string{"PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: stranger}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	say := func() string {
		return as("/proc/self/exe", sayCommand, d.Socket, `{"id":"1","type":"approve","payload":{"approval_id":"`+
			asked.ApprovalID+`","option":"once"}}`, `{"id":"2","type":"ping"}`)
	}
	shell := func(command string) string { return as("/bin/sh", "sh", "-c", command+" && echo wor''ked") }
	rules, journals := filepath.Join(d.Dir, "noused", "rules.toml"), filepath.Join(d.Dir, "state")
	attempts := func(when string) {
		t.Helper()
		if said := say(); strings.Contains(said, `"id"`) {
			t.Errorf("%s: the daemon answers %s", when, said)
		}
		for _, command := range []string{
			"cat " + rules, "cat " + journals + "/sessions/*.jsonl", "cat " + journals + "/audit.jsonl", "echo >>" + rules,
			"echo >>" + journals + "/active.jsonl", "ls " + journals,
		} {
			if said := shell(command); strings.Contains(said, "worked") {
				t.Errorf("%s: %s: %s", when, command, said)
			}
		}
		state, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{})
		if err != nil || len(state.PendingApprovals) != 1 {
			t.Fatalf("%s: open are %+v, %v", when, state.PendingApprovals, err)
		}
	}
	attempts("as it is")

	// Somebody opens every folder, and the sockets.
	for dir := d.Dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		chmod(t, dir, 0o755)
	}
	chmod(t, d.Socket, 0o666)
	attempts("with open folders")
	chmod(t, filepath.Dir(rules), 0o777)
	if said := shell("rm -f " + rules + " && printf '[[policy.rule]]\\ntool = \"*\"\\ndecision = \"allow\"\\n' >" +
		rules); !strings.Contains(said, "worked") {
		t.Fatalf("rules cannot be planted: %s", said)
	}
	r, err := client.Call(context.Background(), c, protocol.ReloadTools, protocol.ReloadToolsParams{})
	if err != nil || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], rules) {
		t.Errorf("planted rules are read: %+v, %v", r, err)
	}
	d.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), hangTime)
	defer cancel()
	again := exec.CommandContext(ctx, d.Program, "--socket", d.Socket, "--state-dir", journals, "--workdir", d.Dir)
	again.Env = d.Cmd.Env
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), rules) {
		t.Errorf("a start with planted rules: %v %s", err, out)
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
