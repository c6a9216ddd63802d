package via_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/via"
	"noused/internal/protocol"
)

// With the accounts of docs/fleet-accounts.conf a member of one team can command its
// own hosts and read their events, under the member's name, and nothing of the other's.
func TestAccountsKeepTeamsApart(t *testing.T) {
	config, keys := fleettest.Accounts(t, "../../../docs/fleet-accounts.conf")
	s := fleettest.Start(t, config)
	as := func(name string) fleet.Connect {
		return fleet.Connect{URLs: []string{s.URL()}, NKey: keys[name].Path}
	}
	boxA, boxB := startDaemon(t, as("A_BOX"), "box", "ep-a"), startDaemon(t, as("B_BOX"), "tower", "ep-b")
	alice, bob := open(t, as("ALICE")), open(t, as("BOB"))
	ctx := within(t)
	for f, want := range map[*via.Fleet]string{alice: "box", bob: "tower"} {
		d := map[string]*daemon{"box": boxA, "tower": boxB}[want]
		d.isThere(t, ctx, f, want)
		if all, err := f.Hosts(ctx); err != nil || len(all) != 1 || all[0].Name != want {
			t.Errorf("%s's: got hosts %+v, %v", want, all, err)
		}
		st := follow.NewStream(client.Current(f.Host(want)), follow.Options{})
		t.Cleanup(st.Close)
		if h, err := st.Next(ctx); err != nil || h.(follow.Connected).Epoch != d.log.Epoch() {
			t.Fatalf("got %+v, %v", h, err)
		}
		d.publish(1, 3)
		readTo(t, ctx, st, 0, 3)
	}
	c := commands(t, ctx, alice.Host("box"))
	if _, err := client.Call(ctx, c, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: "ses-x"}); err !=
		nil {
		t.Fatal(err)
	}
	if ev := <-boxA.audited; !strings.Contains(string(ev.Data), keys["ALICE"].Public) ||
		!strings.Contains(string(ev.Data), "@A") {
		t.Errorf("the audit has %s, want it to name Alice's key", ev.Data)
	}
	var none *via.NoHostError
	if _, err := alice.Host("tower").Commands(ctx); !errors.As(err, &none) || strings.Join(none.Known, " ") != "box" {
		t.Errorf("commands for the other team's host: got %v", err)
	}
	for name, host := range map[string]string{"ALICE": "tower", "BOB": "box"} {
		intrude(t, s, keys[name].Path, host)
	}
	for f, host := range map[*via.Fleet]string{alice: "box", bob: "tower"} {
		if all, err := f.Hosts(ctx); err != nil || len(all) != 1 || all[0].Name != host {
			t.Errorf("after the intrusion: got hosts %+v, %v", all, err)
		}
	}
}

// intrude tries what a member may not, with all rights that its key has.
func intrude(t *testing.T, s *fleettest.Server, key, other string) {
	t.Helper()
	ctx := within(t)
	option, err := nats.NkeyOptionFromSeed(key)
	if err != nil {
		t.Fatal(err)
	}
	nc := fleettest.Dial(t, s.URL(), option)
	p := fleet.DefaultPrefix
	if msg, err := nc.RequestWithContext(ctx, p.Command(other),
		[]byte(`{"v":"1","id":"1","type":"ping","payload":{}}`)); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a command for %s: got %v, %v", other, msg, err)
	}
	for _, subject := range []string{
		p.Event(other, "ses-1"), p.Event("box", "ses-1"), p.Event("tower", "ses-1"), "$SRV.PING", "$SRV.PING.noused",
		"$KV." + p.HostBucket() + "." + other, "$KV." + p.HostBucket() + ".mine",
		"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.DELETE." + p.EventStream(), "$JS.API.STREAM.PURGE." + p.EventStream(),
		"$JS.API.STREAM.MSG.DELETE." + p.EventStream(), "$JS.API.CONSUMER.CREATE." + p.JobStream() + ".mine",
		"$JS.API.STREAM.PURGE.KV_" + string(p) + "_CLAIMS", "$JS.API.STREAM.DELETE." + p.JobStream(),
	} {
		if err := errors.Join(nc.Publish(subject, []byte("{}")), nc.FlushWithContext(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) ||
			!strings.Contains(err.Error(), `"`+subject+`"`) {
			t.Errorf("%s: got %v, want that it is denied", subject, err)
		}
	}
	if _, err := nc.SubscribeSync(">"); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(ctx); err != nil || !strings.Contains(nc.LastError().Error(), `Subscription to ">"`) {
		t.Errorf("to hear all: got %v, %v, want that it is denied", err, nc.LastError())
	}
	stream, err := fleettest.JetStream(t, nc).Stream(ctx, p.EventStream())
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n > 3 {
		t.Errorf("the stream has %d messages, want those of its daemon alone", n)
	}
	if _, err := stream.GetLastMsgForSubject(ctx, p.Events(other)); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("events of the other team's: got %v", err)
	}
}
