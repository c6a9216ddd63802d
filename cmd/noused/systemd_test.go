package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const unitDir = "../../deploy/systemd"

// readUnit returns a unit's settings, the last of each.
func readUnit(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(unitDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	settings := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && key[0] != '#' {
			settings[key] = value
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return settings
}

// unitNames are the files of all units.
func unitNames(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(unitDir, "*"))
	if err != nil || len(paths) != 6 {
		t.Fatalf("units are %v, %v, want six", paths, err)
	}
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths
}

// verify has systemd read the units, with this test in the daemon's place, and
// a line changed.
func verify(t *testing.T, from, to string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--user", "--man=no", "--recursive-errors=no"}
	for _, name := range unitNames(t) {
		text, err := os.ReadFile(filepath.Join(unitDir, name))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.ReplaceAll(string(text), "%h/.local/bin/noused", self)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(changed, from, to)), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, strings.Replace(path, "@", "@work", 1))
	}
	cmd := exec.Command("systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		out = append(out, err.Error()...)
	}
	return string(out)
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	if out := verify(t, "", ""); out != "" {
		t.Errorf("systemd-analyze verify says:\n%s", out)
	}
	// That it complains at all is worth knowing, too.
	for from, to := range map[string]string{
		"WatchdogSec=": "WatchdogSecs=", "KillMode=mixed": "KillMode=all", "SocketMode=0600": "SocketMode=rw",
		"Type=notify": "Type=notified",
	} {
		if out := verify(t, from, to); out == "" {
			t.Errorf("systemd-analyze verify says nothing about %s", to)
		}
	}
}

// Clients that are told nothing look where the socket units listen, and the
// daemon takes the sockets by the names that the units give them. An instance has
// all of it in a place of its own, and else the same settings.
func TestUnitsAgreeWithTheDaemon(t *testing.T) {
	cfg, _, err := resolve(t, nil, map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for instance, socket := range map[string]string{"": cfg.Socket, "@": "/run/user/7/noused/instances/%i.sock"} {
		service := "noused" + strings.Replace(instance, "@", "@%i", 1) + ".service"
		for name, want := range map[string]string{"noused": socket + " commands", "noused-events": socket +
			".events events"} {
			u := readUnit(t, name+instance+".socket")
			if got := strings.ReplaceAll(u["ListenStream"], "%t", "/run/user/7") + " " + u["FileDescriptorName"]; got != want {
				t.Errorf("%s%s.socket has %s, want %s", name, instance, got, want)
			}
			if u["SocketMode"] != "0600" || u["DirectoryMode"] != "0700" || u["Service"] != service {
				t.Errorf("%s%s.socket: got modes %s and %s for %s, want 0600 and 0700 for %s", name, instance, u["SocketMode"],
					u["DirectoryMode"], u["Service"], service)
			}
		}
		u := readUnit(t, "noused"+instance+".service")
		stop, err := time.ParseDuration(u["TimeoutStopSec"] + "s")
		if err != nil || stop <= cfg.DrainTimeout {
			t.Errorf("systemd waits %s for the daemon to stop, want more than the %s that its runs get", stop, cfg.DrainTimeout)
		}
	}
	one, another := readUnit(t, "noused.service"), readUnit(t, "noused@.service")
	for _, own := range []string{"Description", "Requires", "ExecStart", "Also"} {
		delete(one, own)
		delete(another, own)
	}
	if diff := cmp.Diff(one, another); diff != "" {
		t.Errorf("an instance has other settings (-noused.service +noused@.service):\n%s", diff)
	}
}
