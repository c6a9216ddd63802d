package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// present is what the bucket has under the name box.
func present(t testing.TB, url string) (p fleet.Presence, there bool) {
	t.Helper()
	nc := dial(t, url)
	defer nc.Close()
	kv, err := fleet.DefaultPrefix.OpenHosts(t.Context(), jetStream(t, nc))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "box")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return p, false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(entry.Value(), &p); err != nil {
		t.Fatal(err)
	}
	return p, true
}

func TestPresence(t *testing.T) {
	server := fleettest.Start(t, "")
	running := make(chan int, 1)
	running <- 0
	d := startDaemon(t, server.URL(), func(o *Options) {
		o.Labels = map[string]string{"gpu": "a100"}
		o.Load = func() (int, int, []string) {
			n := <-running
			running <- n
			return n, 0, []string{"/work", "/other"}
		}
	})
	d.isJoined()
	p, there := present(t, server.URL())
	if !there || p.Name != "box" || p.Labels["gpu"] != "a100" || p.Epoch != d.o.Epoch || p.Slots != 1 ||
		len(p.Workdirs) != 2 {
		t.Fatalf("got %+v, there %t", p, there)
	}
	<-running
	running <- 3
	d.events.Append(protocol.AgentStart{Ref: protocol.Ref{SessionID: "ses-1", RunID: "run-1"}})
	testenv.Until(t, "the presence shows the runs", func() bool {
		p, _ := present(t, server.URL())
		return p.Running == 3
	})
	d.end()
	if p, there := present(t, server.URL()); there {
		t.Errorf("after a clean stop it is still there: %+v", p)
	}
}

// A daemon that stops while it tells that it is there, and does not hear that this has
// arrived, is gone all the same.
func TestADaemonThatStopsWhileItTellsIsGone(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	d.isJoined()
	l := d.current.Load()
	entry, err := l.hosts.Get(t.Context(), "box")
	if err == nil {
		_, err = l.hosts.Update(t.Context(), "box", d.presence(), entry.Revision())
	}
	if err != nil {
		t.Fatal(err)
	}
	d.end()
	if p, there := present(t, server.URL()); there {
		t.Errorf("after a clean stop it is still there: %+v", p)
	}
}

// Of two daemons with one name the second does nothing, and says why. When the first is
// gone the name is its own.
func TestANameBelongsToOne(t *testing.T) {
	server := fleettest.Start(t, "")
	first := startDaemon(t, server.URL(), nil)
	first.isJoined()
	second := startDaemon(t, server.URL(), func(o *Options) { o.Epoch, o.Instance = "ep-other", "in-2" })
	testenv.Until(t, "the second says that the name is taken", func() bool {
		return strings.Contains(strings.Join(second.State().Problems, "\n"), `another daemon of the fleet is called "box"`)
	})
	if second.State().Connected {
		t.Error("the second says that it is in the fleet")
	}
	testenv.Until(t, "the first says that another wants the name", func() bool {
		return strings.Contains(strings.Join(first.State().Problems, "\n"),
			"another daemon wants this name too, and takes no commands (epoch ep-other")
	})
	second.say("ses-1", "never sent while the name is another's")
	first.hasPublished(first.say("ses-1", "hello"))
	if all := stored(t, server.URL()); len(all) != 1 {
		t.Errorf("the stream has %d events, want the one of the first", len(all))
	}
	first.end()
	second.isJoined()
	second.hasPublished(1)
}

// A daemon that was killed has its name back at once, with the same state folder.
func TestANameComesBack(t *testing.T) {
	server := fleettest.Start(t, "")
	first := startDaemon(t, server.URL(), nil)
	first.isJoined()
	second := startDaemon(t, server.URL(), func(o *Options) { o.Epoch = "ep-next" })
	second.isJoined()
	// The first lives, as if somebody had copied the folder: it says so, and the two do
	// not take the name from each other.
	first.nudge()
	testenv.Until(t, "the first says that the name is taken", func() bool {
		return strings.Contains(strings.Join(first.State().Problems, "\n"), `another daemon of the fleet is called "box"`)
	})
	if !second.State().Connected {
		t.Error("the second has lost the name")
	}
}
