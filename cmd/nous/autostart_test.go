package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"noused/internal/client/clienttest"
	"noused/internal/protocol"
)

// A daemon that was started where XDG_RUNTIME_DIR was another, by ssh say, is found. Where
// there are two, the one at the usual place is meant.
func TestTheDaemonAtTheOtherPlaceIsFound(t *testing.T) {
	getenv := func(dir string) func(string) string { return func(string) string { return dir } }
	usual := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	for has, want := range map[string]string{
		usual: protocol.DefaultSocket(getenv("")), "": protocol.DefaultSocket(getenv(usual)), "/elsewhere": "",
	} {
		if got := protocol.OtherSocket(getenv(has)); got != want {
			t.Errorf("with the runtime folder %q it is %q, want %q", has, got, want)
		}
	}
	for name, c := range map[string]struct{ usual, other bool }{
		"both": {true, true}, "the usual one": {true, false}, "the other": {false, true}, "none": {},
	} {
		usual, other := clienttest.Listen(t), clienttest.Listen(t)
		for d, runs := range map[*clienttest.Daemon]bool{usual: c.usual, other: c.other} {
			if !runs {
				d.Stop()
			}
		}
		var said bytes.Buffer
		a := newApp(strings.NewReader(""), &said, &said)
		a.ErrStyle.Terminal, a.socket = true, usual.Socket
		a.chooseSocket(t.Context(), other.Socket)
		want, also := usual.Socket, ""
		switch {
		case c.usual && c.other:
			also = other.Socket
		case c.other:
			want = other.Socket
		}
		if told := strings.Contains(said.String(), other.Socket); a.socket != want || a.also != also ||
			told != (want == other.Socket) {
			t.Errorf("%s: means %s, and also %q, and said %q", name, filepath.Base(filepath.Dir(a.socket)), a.also,
				said.String())
		}
	}
}
