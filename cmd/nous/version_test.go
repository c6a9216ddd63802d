package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/client/machine"
	"noused/internal/daemontest"
	"noused/internal/tui/tuitest"
)

// released is a copy of a program that says it is that release; the version has the
// seven characters of what stands in a build of a checkout.
func released(t *testing.T, name, version string) string {
	t.Helper()
	text, err := os.ReadFile(program(t, name))
	if err != nil {
		t.Fatal(err)
	}
	said := []byte("mod\tnoused\t(devel)")
	if !bytes.Contains(text, said) {
		t.Fatalf("%s says nowhere that it was built from a checkout", name)
	}
	path := filepath.Join(t.TempDir(), name)
	text = bytes.ReplaceAll(text, said, []byte("mod\tnoused\t"+version))
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// The screen and nous status say that another version of the daemon runs than
// nous's own, and what to do; of the same version they say nothing.
func TestOtherVersionsAreSaid(t *testing.T) {
	daemon := func(path string) *daemontest.Daemon {
		d := daemontest.New(t, path, "")
		d.Start()
		return d
	}
	client := released(t, "nous", "v0.20.0")
	for _, c := range []struct{ version, want string }{
		{"v0.10.0", "an older version (v0.10.0) than this nous (v0.20.0); nous restart replaces it"},
		{"v0.30.0", "a newer version (v0.30.0) than this nous (v0.20.0); nous restart replaces it"},
		{"v0.20.0", ""},
	} {
		d := daemon(released(t, "noused", c.version))
		want := "the daemon is " + c.want
		run := func(args ...string) *exec.Cmd {
			cmd := exec.Command(client, args...)
			cmd.Dir, cmd.Env = d.Dir, d.Env()
			return cmd
		}
		if out, err := run("status").CombinedOutput(); err != nil || strings.Contains(string(out), want) != (c.want != "") ||
			!strings.Contains(string(out), c.version) {
			t.Errorf("nous status of %s: %v\n%s", c.version, err, out)
		}
		screen := tuitest.Start(t, run(), 120, 30, false)
		screen.Wait("connected", "idle")
		if c.want == "" {
			if strings.Contains(screen.Screen(), "than this nous") {
				t.Errorf("of the same version:\n%s", screen.Screen())
			}
		} else {
			screen.Wait(want)
		}
		plain := run("--plain")
		plain.Stdin = strings.NewReader("/quit\n")
		if out, err := plain.CombinedOutput(); err != nil || strings.Count(string(out), want) != 1 && c.want != "" ||
			c.want == "" && strings.Contains(string(out), "than this nous") {
			t.Errorf("nous --plain of %s: %v\n%s", c.version, err, out)
		}
	}
}

// What to do about the daemon of another machine is done there.
func TestOtherVersionsOfAnotherMachineAreReplacedThere(t *testing.T) {
	a := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{})
	a.far = &machine.Host{Name: "box"}
	if got := a.otherVersion("v99.0.0"); !strings.HasSuffix(got, "; to replace it run `ssh box nous restart`") {
		t.Errorf("got %q", got)
	}
}
