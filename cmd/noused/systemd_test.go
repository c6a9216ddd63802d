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
	for _, name := range []string{"noused.service", "noused.socket", "noused-events.socket"} {
		text, err := os.ReadFile(filepath.Join(unitDir, name))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.ReplaceAll(string(text), "%h/.local/bin/noused", self)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(changed, from, to)), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
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
		"WatchdogSec=": "WatchdogSecs=", "KillMode=control-group": "KillMode=all", "SocketMode=0600": "SocketMode=rw", "Type=notify": "Type=notified",
	} {
		if out := verify(t, from, to); out == "" {
			t.Errorf("systemd-analyze verify says nothing about %s", to)
		}
	}
}

// Clients that are told nothing look where the socket units listen, and the
// daemon takes the sockets by the names that the units give them.
func TestUnitsAgreeWithTheDaemon(t *testing.T) {
	cfg, _, err := resolve(t, nil, map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"noused.socket": cfg.Socket + " commands", "noused-events.socket": cfg.Socket + ".events events"}
	got := map[string]string{}
	for name := range want {
		u := readUnit(t, name)
		got[name] = strings.ReplaceAll(u["ListenStream"], "%t", "/run/user/7") + " " + u["FileDescriptorName"]
		if u["SocketMode"] != "0600" || u["DirectoryMode"] != "0700" || u["Service"] != "noused.service" {
			t.Errorf("%s: got modes %s and %s for %s, want 0600 and 0700 for noused.service", name, u["SocketMode"], u["DirectoryMode"], u["Service"])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	service := readUnit(t, "noused.service")
	stop, err := time.ParseDuration(service["TimeoutStopSec"] + "s")
	if err != nil || stop <= cfg.DrainTimeout {
		t.Errorf("systemd waits %s for the daemon to stop, want more than the %s that its runs get", stop, cfg.DrainTimeout)
	}
}
