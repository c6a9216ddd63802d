package settings

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The files of [fleet] are named as in the daemon's configuration.
func TestConfigNamesTheFleetsFiles(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "nous")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "[fleet]\nurl = \"tls://box\"\ncreds = \"~/keys/fleet.creds\"\nnkey = \"fleet.nk\"\nca = \"/etc/ca.pem\"\n"
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ConfiguredFleet(func(name string) string {
		return map[string]string{"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, ".config")}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Fleet{
		URLs: []string{"tls://box"}, Creds: filepath.Join(home, "keys/fleet.creds"),
		NKey: filepath.Join(dir, "fleet.nk"), CA: "/etc/ca.pem",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
