package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
)

// A key lets a daemon in from a file that only its owner can read. What is wrong with
// the file is said with its name, and no part of a key.
func TestAKeyFromAFile(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	server := fleettest.Start(t, fmt.Sprintf("authorization { users = [{nkey: %s}] }", public))
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", string(seed), 0o600)
	open := write("open", string(seed), 0o644)
	none := write("none", "no key\n", 0o600)
	for name, c := range map[string]struct {
		connect fleet.Connect
		want    string
	}{
		"its key":         {fleet.Connect{NKey: good}, ""},
		"no key":          {fleet.Connect{}, "Authorization Violation"},
		"others can read": {fleet.Connect{NKey: open}, open + ": has a key that others can read"},
		"no seed":         {fleet.Connect{NKey: none}, none + " has no seed of an nkey"},
		"no file":         {fleet.Connect{NKey: filepath.Join(dir, "missing")}, "missing: no such file"},
		"no creds":        {fleet.Connect{Creds: none}, none + " has no key of a user"},
		"both":            {fleet.Connect{Creds: good, NKey: good}, "want one of the two"},
		"no certificate":  {fleet.Connect{NKey: good, CA: none}, none + " has no certificate in PEM"},
	} {
		c.connect.URLs = []string{server.Direct()}
		nc, err := c.connect.Dial(t.Context(), "test")
		if err == nil {
			nc.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), string(seed))) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
