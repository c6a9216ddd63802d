package server

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

// A reader is as far behind as what it has got, whatever it wants and however much
// of it waits in the daemon.
func TestReadersSayHowFarBehindTheyAre(t *testing.T) {
	b := serve(t, &protocol.Mux{}, 64<<20)
	lag := func() *protocol.Readers {
		_, _, _, last := b.log.Kept()
		return b.readers.Lag(last)
	}
	if diff := cmp.Diff(&protocol.Readers{Slowest: []protocol.Reader{}}, lag()); diff != "" {
		t.Errorf("nobody reads (-want +got):\n%s", diff)
	}
	quick, picky, slow := dial(t, protocol.EventSocket(b.path)), dial(t, protocol.EventSocket(b.path)),
		dial(t, protocol.EventSocket(b.path))
	for _, w := range []*wire{quick, picky, slow} {
		w.send(cmd("s", "subscribe", `{}`))
		w.want("s", "subscribed")
	}
	picky.send(cmd("p", "subscribe", `{"session_id":"ses-2"}`))
	picky.want("p", "subscribed")
	const events = 600 // more than a socket holds
	for range events {
		b.log.Append(delta("ses-1", strings.Repeat("x", 1<<10)))
	}
	b.log.Append(delta("ses-2", "the last"))
	for quick.recv().Seq != events+1 {
	}
	if got := picky.recv().Seq; got != events+1 {
		t.Fatalf("got event %d, want %d", got, events+1)
	}
	got := lag()
	for got.Behind != 1 { // what the others have got they are about to note
		runtime.Gosched()
		got = lag()
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Slowest[0]; got.Count != 3 || r.PID != os.Getpid() || r.Program+"\n" != string(comm) || r.Lag == 0 ||
		r.Lag > events+1 {
		t.Errorf("got %+v of %s, want the slow one behind", got, filepath.Base(os.Args[0]))
	}
	for slow.recv().Seq != events+1 {
	}
	for lag().Behind != 0 {
		runtime.Gosched()
	}
	_ = slow.Close()
	for lag().Count != 2 {
		runtime.Gosched()
	}
}
