package fleet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), string(seed))) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A server is believed only with a certificate for its address, in date, that the
// authority of ca has signed; and one without TLS is no tls:// or wss:// server.
func TestWhoTheServerIs(t *testing.T) {
	ours, others := fleettest.NewAuthority(t), fleettest.NewAuthority(t)
	start := func(tls, webTLS string) *fleettest.Server {
		return fleettest.StartWithout(t, tls+`websocket { listen: "127.0.0.1:-1"`+"\n"+webTLS+"}\n")
	}
	const local = "127.0.0.1"
	good := start(ours.TLS(local, time.Hour), ours.TLS(local, time.Hour))
	late := start(ours.TLS(local, -time.Hour), ours.TLS(local, -time.Hour))
	away := start(ours.TLS("192.0.2.1", time.Hour), ours.TLS("192.0.2.1", time.Hour))
	open := start("", "no_tls: true\n")
	at := func(scheme, url string) string { return scheme + url[strings.Index(url, "://"):] }
	for name, c := range map[string]struct{ url, ca, want string }{
		"tls":                           {at("tls", good.URL()), ours.File, ""},
		"wss":                           {at("wss", good.WebSocket()), ours.File, ""},
		"nats, and the server wants it": {at("nats", good.URL()), ours.File, ""},
		"tls, another's CA":             {at("tls", good.URL()), others.File, "unknown authority"},
		"wss, another's CA":             {at("wss", good.WebSocket()), others.File, "unknown authority"},
		"tls, the system's CAs":         {at("tls", good.URL()), "", "unknown authority"},
		"wss, the system's CAs":         {at("wss", good.WebSocket()), "", "unknown authority"},
		"tls, out of date":              {at("tls", late.URL()), ours.File, "has expired"},
		"wss, out of date":              {at("wss", late.WebSocket()), ours.File, "has expired"},
		"tls, for another address":      {at("tls", away.URL()), ours.File, "valid for 192.0.2.1, not 127.0.0.1"},
		"wss, for another address":      {at("wss", away.WebSocket()), ours.File, "valid for 192.0.2.1, not 127.0.0.1"},
		"tls, and the server has none":  {at("tls", open.URL()), ours.File, "secure connection not available"},
		"wss, and the server has none":  {at("wss", open.WebSocket()), ours.File, "does not look like a TLS handshake"},
		"ca, and the server has none":   {at("nats", open.URL()), ours.File, "secure connection not available"},
	} {
		nc, err := fleet.Connect{URLs: []string{c.url}, CA: c.ca}.Dial(t.Context(), "test")
		if err == nil {
			err = nc.Flush()
			nc.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	// Where one of several is to be believed by its certificate, all are.
	if nc, err := (fleet.Connect{URLs: []string{at("nats", open.URL()), at("tls", late.URL())}, CA: ours.File}).
		Dial(t.Context(), "test"); err == nil {
		nc.Close()
		t.Error("a server without TLS is taken, beside one with it")
	}
}

// A creds file lets its user in while it is good. It is read anew for each connection.
func TestACredsFile(t *testing.T) {
	operator := fleettest.NewOperator(t)
	server := fleettest.StartWithout(t, operator.Config)
	dir := t.TempDir()
	path := filepath.Join(dir, "creds")
	write := func(text []byte, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	link, open, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "open"), filepath.Join(dir, "fifo")
	good := operator.Creds(time.Hour)
	if err := errors.Join(os.Symlink(path, link), os.WriteFile(open, good, 0o600), os.Chmod(open, 0o644),
		syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	half, _, _ := strings.Cut(string(good), "-----BEGIN USER NKEY SEED")
	for _, c := range []struct {
		name, path string
		text       []byte
		want       string
	}{
		{"good", path, good, ""},
		{"a link of one's own", link, good, ""},
		{"others can read", open, good, open + ": has a key that others can read"},
		{"a FIFO", fifo, good, fifo + ": is not a regular file"},
		{"out of date", path, operator.Creds(-time.Hour), "Authorization Violation"},
		{"another operator's", path, fleettest.NewOperator(t).Creds(time.Hour), "Authorization Violation"},
		{"without its key", path, []byte(half), path + " has no key of a user"},
		{"of another's key", path, []byte(half + otherSeed(t)), "Authorization Violation"},
		{"no creds", path, []byte("-----BEGIN NATS USER JWT-----\n\x00\x1b[31m\n"), path + " has no"},
		{"empty", path, nil, path + " has no"},
		{"too long", path, make([]byte, 65<<10), path + ": is too long"},
		{"good again", path, good, ""},
	} {
		write(c.text, 0o600)
		nc, err := fleet.Connect{URLs: []string{server.URL()}, Creds: c.path}.Dial(t.Context(), "test")
		if err == nil {
			err = nc.Flush()
			nc.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "SU")) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// otherSeed is the second half of another user's creds.
func otherSeed(t *testing.T) string {
	_, seed, _ := strings.Cut(string(fleettest.NewOperator(t).Creds(time.Hour)), "-----BEGIN USER NKEY SEED")
	return "-----BEGIN USER NKEY SEED" + seed
}
