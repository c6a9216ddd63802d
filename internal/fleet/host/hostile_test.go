package host

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/testenv"
)

// A user who may send commands, or look for services, chooses where the replies go. What the
// daemon may publish, and that client may not, must not be reached that way.
func TestRepliesGoToNobodysSubjects(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	d.listens()
	nc := dial(t, server.URL())
	d.hasPublished(d.say("s", "hello"))
	id := d.service.identity.ID
	asks := []string{fleet.DefaultPrefix.Command("box")}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		asks = append(asks, "$SRV."+verb, "$SRV."+verb+".noused", "$SRV."+verb+".noused."+id)
	}
	heard, err := nc.SubscribeSync("others.>")
	if err != nil {
		t.Fatal(err)
	}
	events := fleet.DefaultPrefix.EventStream()
	for _, subject := range asks {
		for _, reply := range []string{
			"$JS.API.STREAM.PURGE." + events, "$KV.noused_HOSTS.other", "others.jobs.queue.j", fleet.DefaultPrefix.JobDone("j"),
			fleet.DefaultPrefix.JobQueue("j"),
			fleet.DefaultPrefix.Event("box", "s"),
		} {
			if err := nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(`{"id":"1","type":"ping"}`)}); err !=
				nil {
				t.Fatal(err)
			}
		}
		if _, err := nc.Request(subject, []byte(`{"id":"1","type":"ping"}`), patience); err != nil { // behind those
			t.Errorf("%s: %v", subject, err)
		}
	}
	if all := stored(t, server.URL()); len(all) != 1 {
		t.Errorf("the stream has %d messages, want the one event: %v", len(all), all)
	}
	if keys, err := jetStream(t, nc).KeyValue(t.Context(), fleet.DefaultPrefix.HostBucket()); err != nil {
		t.Error(err)
	} else if e, err := keys.Get(t.Context(), "other"); err == nil {
		t.Errorf("the bucket of hosts has %s", e.Value())
	}
	if n, _, err := heard.Pending(); err != nil || n != 0 {
		t.Errorf("%d replies went to another fleet's subject, %v", n, err)
	}
}

// Who looks for services finds the daemon.
func TestTheServiceIsFound(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	d.isJoined()
	nc := dial(t, server.URL())
	sendCommand(t, nc, `{"id":"1","type":"ping"}`)
	sendCommand(t, nc, `{"id":"1","type":"nonsense"}`)
	read := func(subject string, into any) {
		t.Helper()
		msg, err := nc.Request(subject, nil, patience)
		if err == nil {
			err = json.Unmarshal(msg.Data, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
	}
	var (
		ping micro.Ping
		info micro.Info
		all  stats
	)
	read("$SRV.PING", &ping)
	read("$SRV.INFO.noused", &info)
	read("$SRV.STATS.noused."+ping.ID, &all)
	if ping.Type != micro.PingResponseType || ping.Version != "1.2.3" || ping.Metadata["epoch"] != d.o.Epoch {
		t.Errorf("got %+v", ping)
	}
	if info.ID != ping.ID || len(info.Endpoints) != 1 || info.Endpoints[0].Subject != "noused.box.cmd" {
		t.Errorf("got %+v", info)
	}
	if len(all.Endpoints) != 1 || all.Endpoints[0].Requests != 2 || all.Endpoints[0].Errors != 1 {
		t.Errorf("got %+v", all)
	}
}

// What other daemons say of themselves is bounded and clean, whatever they say.
func TestARivalIsTold(t *testing.T) {
	server := fleettest.Start(t, "")
	d := startDaemon(t, server.URL(), nil)
	d.listens()
	nc := dial(t, server.URL())
	tell := func(p fleet.Presence) {
		t.Helper()
		text, err := json.Marshal(p)
		if err == nil {
			err = nc.Publish(fleet.DefaultPrefix.Rival("box"), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tell(fleet.Presence{Name: "other", Epoch: "ep-x"})
	tell(fleet.Presence{Name: "box", Epoch: d.o.Epoch})
	tell(fleet.Presence{Name: "box", Epoch: strings.Repeat("x", fleet.MaxPresence)})
	if err := nc.Publish(fleet.DefaultPrefix.Rival("box"), []byte("no JSON")); err != nil {
		t.Fatal(err)
	}
	hostile := fleet.Presence{
		Name: "box", Epoch: "ep-\x1b[31m", Version: strings.Repeat("9", 1000),
		Workdirs: []string{"/evil\n"},
	}
	tell(hostile)
	testenv.Until(t, "the rival is told", func() bool { return len(d.State().Problems) > 0 })
	problems := strings.Join(d.State().Problems, "\n")
	if want := "another daemon wants this name too, and takes no commands (epoch ep-[31m, version " +
		strings.Repeat("9", 128) + ", in /evil)"; !strings.Contains(problems, want) {
		t.Errorf("got %s, want %s", problems, want)
	}
	testenv.Until(t, "the presence shows it", func() bool {
		tell(hostile) // as one that lives does again and again
		p, _ := present(t, server.URL())
		return p.Rival != nil && p.Rival.Workdir == "/evil"
	})
	if !d.State().Connected {
		t.Error("it says that it is not in the fleet")
	}
	d.forgetRival(d.rival.Load().heard.Add(2 * rivalTime))
	if problems := d.State().Problems; len(problems) > 0 {
		t.Errorf("when it is gone: %q", problems)
	}
}
