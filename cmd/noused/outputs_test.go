package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// withoutNamespaces is a program that runs noused where it can have none for its tools.
func withoutNamespaces(t *testing.T) string {
	t.Helper()
	without := []string{"unshare", "--user", "--map-root-user", "setpriv", "--bounding-set=-all", "--"}
	if out, err := exec.Command(without[0], append(without[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("needs unshare and setpriv, and a system that allows namespaces: %v: %s", err, out)
	}
	file := filepath.Join(t.TempDir(), "noused")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nexec "+strings.Join(without, " ")+" noused \"$@\"\n"), 0o700); err !=
		nil {
		t.Fatal(err)
	}
	return file
}

// inBothSandboxes calls do with a daemon, and a folder for sessions, whose tools have
// namespaces, and with one whose tools have none; and then with a folder that has the
// daemon's state in it, as a home has.
func inBothSandboxes(t *testing.T, do func(t *testing.T, d *daemon, folder string)) {
	t.Helper()
	for name, program := range map[string]func(*testing.T) string{
		"namespaces": func(*testing.T) string { return "noused" }, "none": withoutNamespaces,
	} {
		t.Run(name, func(t *testing.T) {
			d, folder := newDaemonOf(t, program(t)), t.TempDir()
			if ok, _ := d.run(d.session(folder), "touch "+d.Dir+"/x"); ok {
				t.Skip("no sandbox here")
			}
			do(t, d, folder)
			do(t, d, d.Dir)
		})
	}
}

// keep has a session keep an output, and returns its file.
func (d *daemon) keep(session string) string {
	d.t.Helper()
	_, said := d.run(session, "seq 1 100000")
	_, file, ok := strings.Cut(said, "all of it is in ")
	if file, _, _ = strings.Cut(file, "]"); !ok {
		d.t.Fatalf("got %.300q", said)
	}
	return file
}

// background has a session start a job, and returns the file of what it prints.
func (d *daemon) background(session string) string {
	d.t.Helper()
	got := d.extension(session, "bash", `{"command":"echo printed","background":true}`)
	_, file, ok := strings.Cut(got.Result, "What it prints is in ")
	if file, _, _ = strings.Cut(file, ". The tool"); !ok {
		d.t.Fatalf("got %.300q", got.Result)
	}
	_ = d.extension(session, "job", `{"id":"job-1","action":"wait"}`)
	return file
}

// What was too long for a result, and what jobs print, its own session reads and nobody
// changes: no tool of another session, of the same folder or another, reads it.
func TestAKeptOutputIsItsSessionsAlone(t *testing.T) {
	testenv.Long(t)
	inBothSandboxes(t, func(t *testing.T, d *daemon, folder string) {
		other := t.TempDir()
		mine, theirs := d.session(folder), []string{d.session(folder), d.session(other)}
		for _, file := range []string{d.keep(mine), d.background(mine)} {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.extension(mine, "read", `{"path":"`+file+`","limit":2}`); !got.OK {
				t.Fatalf("the session itself cannot read %q: %s", file, got.Result)
			}
			if ok, said := d.run(mine, "head -n 1 "+file); !ok {
				t.Errorf("the session's commands cannot read it: %s", said)
			}
			changes := []string{
				"echo changed >" + file, "echo changed >>" + file, ": >" + file, "rm " + file, "mv " + file + " x",
				"ln -sf /tmp/x " + file,
				"ln " + file + " x && echo changed >x", "mv " + filepath.Dir(file) + " x", "touch " + filepath.Dir(file) +
					"/planted", "mkdir -p " + filepath.Dir(filepath.Dir(file)) + "/planted",
			}
			for _, command := range changes {
				if ok, said := d.run(mine, "cd "+folder+" && "+command); ok {
					t.Errorf("of the session itself: %s: %.200s", command, said)
				}
			}
			for _, session := range theirs {
				_ = d.keep(session) // it has a folder of its own
				for _, command := range append(changes, "cat "+file, "ln -sfn "+filepath.Dir(file)+" l && cat l/*",
					"cat /proc/self/root"+file, "cat "+filepath.Dir(filepath.Dir(file))+"/*/* | grep -F printed",
					"cp "+file+" x && cat x") {
					if ok, said := d.run(session, command); ok {
						t.Errorf("%s: %.200s", command, said)
					}
				}
				for _, call := range [][2]string{
					{"read", `{"path":"` + file + `"}`},
					{"grep", `{"pattern":"1","path":"` + file + `"}`},
					{"write", `{"path":"` + file + `","content":"changed"}`},
					{"bash", `{"command":"cat ` + file + `","background":true}`},
				} {
					if got := d.extension(session, call[0], call[1]); got.OK && call[0] != "bash" {
						t.Errorf("%v: %.200s", call, got.Result)
					}
				}
				if got := d.extension(session, "job", `{"id":"job-1","action":"wait"}`); strings.Contains(got.Result,
					"exit status 0") {
					t.Errorf("a job read it: %.200s", got.Result)
				}
			}
			if after, err := os.ReadFile(file); string(after) != string(before) || err != nil {
				t.Errorf("%s was changed: %.40q, %v", file, after, err)
			}
		}
	})
}

// Where an output is kept, no link of a tool's counts, nor anything that it puts into
// its own folders.
func TestNoToolSaysWhereAnOutputIsKept(t *testing.T) {
	inBothSandboxes(t, func(t *testing.T, d *daemon, folder string) {
		elsewhere := t.TempDir()
		session := d.session(folder)
		for _, dir := range []string{"$XDG_CACHE_HOME", "$TMPDIR", "$PWD"} {
			_, _ = d.run(session, fmt.Sprintf("for name in noused tool-output %s; do rm -rf %s/$name; ln -sfn %s %s/$name; "+
				"done", session, dir, elsewhere, dir))
		}
		if file := d.keep(session); filepath.Dir(file) != filepath.Join(d.Dir, "state", "tool-output", session) {
			t.Errorf("it is in %q", file)
		}
		if entries, err := os.ReadDir(elsewhere); len(entries) > 0 || err != nil {
			t.Errorf("got %v, %v", entries, err)
		}
	})
}

// What was kept for a session goes with it.
func TestKeptOutputsGoWithTheirSession(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	session, other := d.session(t.TempDir()), d.session(t.TempDir())
	kept := []string{d.keep(session), d.background(session)}
	left := d.keep(other)
	if _, err := client.Call(context.Background(), c, protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: session}); err != nil {
		t.Fatal(err)
	}
	for _, file := range append(kept, filepath.Dir(kept[0])) {
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", file, err)
		}
	}
	if _, err := os.Lstat(left); err != nil {
		t.Error(err)
	}
}
