package host

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"noused/internal/budget"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// Commands of one sender run in their order, one at a time; of all senders a bounded
// number do, and none is left behind.
func TestTurns(t *testing.T) {
	const senders, each = maxWaiting / 40, 40
	var (
		turns   turns
		all     sync.WaitGroup
		running [senders]atomic.Int32
		seen    [senders]int
		total   atomic.Int32
		most    atomic.Int32
	)
	for i := range each {
		for s := range senders {
			run := func() {
				defer all.Done()
				if running[s].Add(1) != 1 {
					t.Error("two of one sender run at once")
				}
				if now := total.Add(1); now > most.Load() {
					most.Store(now)
				}
				if seen[s] != i {
					t.Errorf("sender %d: command %d runs when %d have", s, i, seen[s])
				}
				seen[s]++
				total.Add(-1)
				running[s].Add(-1)
			}
			all.Add(1)
			if !turns.add(fmt.Sprint(s), run) {
				t.Fatal("there is no room")
			}
		}
	}
	all.Wait()
	if most.Load() > atOnce {
		t.Errorf("%d ran at once, want at most %d", most.Load(), atOnce)
	}
}

// What waits is bounded, for one sender and for all.
func TestTurnsAreBounded(t *testing.T) {
	var (
		turns turns
		all   sync.WaitGroup
	)
	hold := make(chan struct{})
	run := func() { <-hold; all.Done() }
	count := 0
	for s := range maxWaiting/maxOfOne + 1 {
		for range maxOfOne + 1 {
			all.Add(1)
			if !turns.add(fmt.Sprint(s), run) {
				all.Done()
				continue
			}
			count++
		}
		if want := min((s+1)*maxOfOne, maxWaiting); count != want {
			t.Errorf("after sender %d: %d wait, want %d", s, count, want)
		}
	}
	close(hold)
	all.Wait()
}

// A command that takes its time holds up its own sender's, and nobody else's: neither
// another connection's nor one that the same user has open beside it.
func TestASlowCommandHoldsUpItsOwnSender(t *testing.T) {
	server := fleettest.Start(t, "")
	d := newDaemon(t, server.URL(), nil)
	begun, hold := make(chan struct{}), make(chan struct{})
	protocol.HandleFunc(d.mux, protocol.SetTitle, func(context.Context, protocol.SetTitleParams) (protocol.TitleAccepted,
		error,
	) {
		begun <- struct{}{}
		<-hold
		return protocol.TitleAccepted{}, nil
	})
	d.Start()
	t.Cleanup(d.end)
	d.listens()
	nc := dial(t, server.URL())
	got := make(chan *nats.Msg, 16)
	inbox := nats.NewInbox()
	if _, err := nc.ChanSubscribe(inbox+".*", got); err != nil {
		t.Fatal(err)
	}
	send := func(order, id, line string) {
		t.Helper()
		msg := &nats.Msg{
			Subject: fleet.DefaultPrefix.Command("box"), Reply: inbox + "." + id, Header: nats.Header{},
			Data: []byte(line),
		}
		if order != "" {
			msg.Header.Set(fleet.ConnectionHeader, order)
		}
		if err := nc.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	slow := func(id string) string { return `{"id":"` + id + `","type":"set_title","payload":{"title":"x"}}` }
	ping := func(id string) string { return `{"id":"` + id + `","type":"ping"}` }
	next := func() (r reply) {
		t.Helper()
		if err := json.Unmarshal((<-got).Data, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	send("a", "slow", slow("slow"))
	<-begun
	send("a", "behind", ping("behind"))
	send("a", "broken", `{"id":"broken","type":`)
	send("b", "beside", ping("beside"))
	if r := next(); r.ID != "beside" {
		t.Errorf("got the answer to %s first", r.ID)
	}
	send("", "plain", slow("plain")) // by its reply subject
	<-begun
	if r := sendCommand(t, nc, ping("other")); !r.OK { // which has another
		t.Errorf("got %+v", r)
	}
	close(hold)
	var order []string
	for range 4 {
		if r := next(); r.ID != "plain" {
			order = append(order, r.ID)
		}
	}
	if got := fmt.Sprint(order); got != "[slow behind ]" && got != "[slow behind broken]" {
		t.Errorf("the replies of one sender come in the order %s", got)
	}
}

// Between accounts the server changes the reply subjects: what a client says of its
// connections keeps them apart there, too.
func TestSendersOfAnotherAccount(t *testing.T) {
	server := fleettest.Start(t, teamAccounts)
	d := newDaemon(t, server.URL(), nil)
	begun, hold := make(chan struct{}), make(chan struct{})
	protocol.HandleFunc(d.mux, protocol.SetTitle, func(context.Context, protocol.SetTitleParams) (protocol.TitleAccepted,
		error,
	) {
		close(begun)
		<-hold
		return protocol.TitleAccepted{}, nil
	})
	d.Start()
	t.Cleanup(d.end)
	d.isJoined()
	nc := dial(t, server.Direct(), nats.UserInfo("alice", "alice"))
	request := func(order, line string) error {
		msg := &nats.Msg{Subject: fleet.DefaultPrefix.Command("box"), Header: nats.Header{}, Data: []byte(line)}
		msg.Header.Set(fleet.ConnectionHeader, order)
		_, err := nc.RequestMsg(msg, patience)
		return err
	}
	slow := make(chan error, 1)
	go func() { slow <- request("a", `{"id":"1","type":"set_title","payload":{"title":"x"}}`) }()
	<-begun
	if err := request("b", `{"id":"2","type":"ping"}`); err != nil {
		t.Errorf("beside a slow one: %v", err)
	}
	close(hold)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// What waits is counted in the daemon's budget: where there is no room a command is
// refused, and nothing stays counted.
func TestCommandsThatWaitAreCounted(t *testing.T) {
	server := fleettest.Start(t, "")
	d := newDaemon(t, server.URL(), func(o *Options) { o.Held = budget.New(64 << 10) })
	begun, hold := make(chan struct{}), make(chan struct{})
	protocol.HandleFunc(d.mux, protocol.SetTitle, func(context.Context, protocol.SetTitleParams) (protocol.TitleAccepted,
		error,
	) {
		begun <- struct{}{}
		<-hold
		return protocol.TitleAccepted{}, nil
	})
	d.Start()
	t.Cleanup(d.end)
	d.listens()
	nc := dial(t, server.URL())
	got := make(chan *nats.Msg, 256)
	inbox := nats.NewInbox()
	if _, err := nc.ChanSubscribe(inbox+".*", got); err != nil {
		t.Fatal(err)
	}
	line := []byte(`{"id":"1","type":"set_title","payload":{"title":"x","more":"` + strings.Repeat("x", 8<<10) + `"}}`)
	const sent = 20
	for i := range sent {
		if err := nc.PublishRequest(fleet.DefaultPrefix.Command("box"), fmt.Sprint(inbox, ".", i), line); err != nil {
			t.Fatal(err)
		}
	}
	<-begun
	refused := 0
	for ; refused < sent-7; refused++ { // 64 KiB hold seven of them
		var r reply
		if err := json.Unmarshal((<-got).Data, &r); err != nil || r.Error == nil ||
			r.Error.Reason() != protocol.TooManyPending {
			t.Fatalf("got %+v, %v", r, err)
		}
	}
	close(hold)
	go func() {
		for range sent - refused - 1 {
			<-begun
		}
	}()
	for range sent - refused {
		<-got
	}
	testenv.Until(t, "all is given back", func() bool { return d.o.Held.Used() == 0 })
}
