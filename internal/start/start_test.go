package start

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// One that has waited for too long lets the next ones in, though it lives on, as a
// screen does.
func TestWhoGivesUpAtTheGateLetsOthersIn(t *testing.T) {
	dir := t.TempDir()
	gate, err := enter(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := enter(late, dir); !errors.Is(err, errBusy) {
		t.Fatalf("got %v", err)
	}
	_ = gate.Close()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // hangs where it stays shut
		t.Fatal(err)
	}
}

func TestUnitOfADaemon(t *testing.T) {
	const slice = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/"
	for cgroups, want := range map[string]string{
		slice + "noused.service\n":                           "noused.service",
		slice + "app-noused.slice/noused@work.service\n":     "noused@work.service",
		"1:name=systemd:/noused.service\n0::/else.service\n": "noused.service",
		slice + "noused.service/inner\n":                     "",
		slice + "nousedling.service\n":                       "",
		slice + "run-u1.scope\n":                             "",
		"":                                                   "",
	} {
		if got := unitIn(cgroups); got != want {
			t.Errorf("%q: got %q, want %q", cgroups, got, want)
		}
	}
}
