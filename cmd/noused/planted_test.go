package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A daemon may have been started where a virtualenv is activated: programs in it are run
// in the sandbox, which can have made them, and not outside of it.
func TestAPlantedProgramRunsInTheSandboxAlone(t *testing.T) {
	d := unstarted(t, "noused")
	folder, bin := filepath.Join(d.Dir, "project"), filepath.Join(d.Dir, "project", ".venv", "bin")
	for _, name := range []string{"bash", "git", "id", "mine"} {
		writeIn(t, bin, name, "#!/bin/sh\necho planted "+name+" >>"+folder+"/ran\n")
	}
	environ := d.Environ
	d.Environ = func() []string { return append(environ(), "PATH="+bin+":node_modules/.bin:"+os.Getenv("PATH")) }
	hook := "\n[[hook]]\non = \"after_tool\"\ncommand = [\"id\"]\n"
	d.write("noused/config.toml", hook, 0o600)
	d.Start()
	c := d.dial()
	session := d.session(folder)
	ran := func() string {
		text, _ := os.ReadFile(filepath.Join(folder, "ran"))
		_ = os.Remove(filepath.Join(folder, "ran"))
		return string(text)
	}
	// whichever bash runs, it writes to the folder of another session
	if got := d.extension(d.session(t.TempDir()), "bash", `{"command":"touch `+folder+`/x"}`); got.OK {
		t.Skip("no sandbox here")
	}
	if got := d.extension(session, "bash", `{"command":"mine"}`); !got.OK || ran() != "planted bash\n" {
		t.Fatalf("in the sandbox PATH is not as ever: %+v", got)
	}
	for _, command := range []string{
		outside("id; echo PATH=$PATH"),
		strings.Replace(outside("id; echo PATH=$PATH"), "{", `{"background":true,`, 1),
	} {
		end := d.answers(c, d.asks(c, session, command), "once")
		if job := d.extension(session, "job", `{"id":"job-1","action":"wait"}`); job.OK {
			end.Result += job.Result
		}
		if got := ran(); got != "" || !end.OK {
			t.Errorf("%s: ran %q, said %s", command, got, end.Result)
		}
		if strings.Contains(end.Result, bin) || strings.Contains(end.Result, "node_modules") ||
			!strings.Contains(end.Result, "PATH=/") {
			t.Errorf("%s: has %s", command, end.Result)
		}
	}
}
