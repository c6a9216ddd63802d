package server

import (
	"os"
	"os/exec"
	"testing"
)

// A tool in the sandbox of this process, and what it starts, is told from one
// that is not, and from everybody else.
func TestConfinedPeers(t *testing.T) {
	if own, ok := statusOf(os.Getpid()); !ok || own.locked {
		t.Skip("this test itself can gain no privileges")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("setpriv is not installed")
	}
	start := func(args ...string) int {
		cmd := exec.Command(args[0], args[1:]...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		if _, err := out.Read(make([]byte, 1)); err != nil { // it runs
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	if pid := start("sh", "-c", "echo; read x"); confined(pid) {
		t.Error("a tool without a sandbox is taken for confined")
	}
	if pid := start(setpriv, "--no-new-privs", "sh", "-c", "echo; read x"); !confined(pid) {
		t.Error("a tool in a sandbox is not recognised")
	}
	for name, pid := range map[string]int{"this process": os.Getpid(), "its parent": os.Getppid(), "init": 1, "nobody": 1 << 22} {
		if confined(pid) {
			t.Errorf("%s is taken for confined", name)
		}
	}
}
