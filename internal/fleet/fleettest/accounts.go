package fleettest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nats-io/nkeys"
)

// Key is a user's of a server: the file with its seed, and its public half.
type Key struct{ Path, Public string }

// Accounts reads docs/fleet-accounts.conf from there, with keys made for this test in
// place of its own, by their names.
func Accounts(t testing.TB, path string) (config string, keys map[string]Key) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config, keys = string(text), map[string]Key{}
	for _, name := range []string{"A_BOX", "ALICE", "B_BOX", "BOB"} {
		keys[name] = newKey(t, name)
		line := regexp.MustCompile(`(?m)^` + name + `: U.*$`)
		if !line.MatchString(config) {
			t.Fatalf("%s has no key %s", path, name)
		}
		config = line.ReplaceAllString(config, name+": "+keys[name].Public)
	}
	return config, keys
}

func newKey(t testing.TB, name string) (k Key) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	k.Path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(k.Path, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	if k.Public, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	return k
}
