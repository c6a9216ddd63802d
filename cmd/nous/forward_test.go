package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client/ssh/sshtest"
)

// A host of the user's file, reached by a real ssh and a real sshd.
func TestHostBySSH(t *testing.T) {
	t.Parallel()
	server := sshtest.Start(t)
	d := startDaemon(t, "")
	program, err := exec.LookPath("nous")
	if err != nil {
		t.Fatal(err)
	}
	config := t.TempDir()
	last := len(server.SSH) - 1
	words, err := json.Marshal(append([]string{server.SSH[last]}, server.SSH[:last]...))
	if err != nil {
		t.Fatal(err)
	}
	there := server.Nous(program, "NOUSED_SOCKET="+d.Socket)
	text := "autostart = false\n[hosts.box]\nssh = " + string(words) + "\nnous = \"" + there + "\"\n"
	if err := os.MkdirAll(filepath.Join(config, "nous"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "nous", "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"prompt from afar": "from afar\n",
		"doctor":           "ok    ssh       box answers, and has nous ",
		"board":            "",
	} {
		cmd := exec.Command("nous", append([]string{"--host", "box"}, strings.Fields(args)...)...)
		cmd.Dir, cmd.Env = d.Dir, d.Env("XDG_CONFIG_HOME="+config, "NOUSED_SOCKET="+filepath.Join(config, "none"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: got %v: %s, want %q", args, err, out, want)
		}
	}
}

// The lines of docs/remote.md for ssh alone: both sockets are forwarded by a real sshd, and
// a nous that trusts no socket of others uses them. A second ssh takes the place of what the
// first has left.
func TestForwardedSockets(t *testing.T) {
	t.Parallel()
	server := sshtest.Start(t)
	d := startDaemon(t, "")
	dir, err := os.MkdirTemp("", "fwd") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "box.sock")
	nous := func(args ...string) (string, error) {
		cmd := exec.Command("nous", append([]string{"--no-start", "--socket", socket}, args...)...)
		cmd.Dir, cmd.Env = d.Dir, d.Env()
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, text := range []string{"the first way", "the second way"} {
		args := slices.Concat([]string{
			"-N", "-o", "StreamLocalBindUnlink=yes", "-L", socket + ":" + d.Socket, "-L",
			socket + ".events:" + d.Socket + ".events",
		}, server.SSH)
		ssh := exec.Command("ssh", args...)
		if err := ssh.Start(); err != nil {
			t.Fatal(err)
		}
		said, err := nous("ping")
		for began := time.Now(); err != nil && time.Since(began) < 2*time.Minute; {
			said, err = nous("ping") // until ssh listens
		}
		if err != nil {
			t.Errorf("ping: %v: %s", err, said)
		}
		if said, err := nous("prompt", text); err != nil || !strings.Contains(said, text) {
			t.Errorf("got %v: %s, want the answer", err, said)
		}
		if err := ssh.Process.Kill(); err != nil { // it leaves its sockets behind
			t.Error(err)
		}
		_ = ssh.Wait()
		if said, err := nous("ping"); err == nil {
			t.Errorf("without ssh: got %s", said)
		}
	}
}
