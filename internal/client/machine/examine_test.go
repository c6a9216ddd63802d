package machine

import (
	"strings"
	"testing"
	"time"

	"noused/internal/client/ssh"
)

// A clock counts as wrong only by more than the asking may have taken.
func TestClocksThatDiffer(t *testing.T) {
	before := time.Unix(1000, 0)
	for said, want := range map[string]string{
		"1000.5": "ok", "1007": "ok", "1009": "warn", "996": "ok", "994": "warn", "no time": "warn", "": "warn",
	} {
		if got := skewed(said, before, 3*time.Second); got.Status != want {
			t.Errorf("%q: got %+v, want %s", said, got, want)
		}
	}
}

// There names the command line that does something on the host.
func TestHowSomethingIsDoneThere(t *testing.T) {
	for want, h := range map[string]*Host{
		"run `ssh box nous logs`": {Name: "box"},
		"run `ssh -p 2222 me@box /opt/nous --socket /run/s logs`": {
			Name: "box", SSH: ssh.Options{SSH: []string{"-p", "2222", "me@box"}, Nous: "/opt/nous", Socket: "/run/s"},
		},
	} {
		if got := h.There("logs"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A far shell may say anything before what it was asked.
func TestTheLastLinesOfAShell(t *testing.T) {
	var l lastBytes
	for range 100 {
		_, _ = l.Write([]byte("welcome to this machine\n"))
	}
	_, _ = l.Write([]byte("1000.25\nyes\n"))
	if got := l.lines(2); got != "1000.25\nyes" || len(l) > 200 {
		t.Errorf("got %q, and %d bytes are kept", got, len(l))
	}
	if got := lingers("no"); got.Status != "warn" || !strings.Contains(got.Fix, "enable-linger") {
		t.Errorf("got %+v", got)
	}
}
