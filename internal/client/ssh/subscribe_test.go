package ssh_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/client/ssh"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// Each subscription gets what it asked for: every event once, in order, from its own beginning
// on, and no other.
func TestEverySubscriptionGetsItsOwn(t *testing.T) {
	d, o := proxied(t, "")
	l := link(t, o)
	ctx := patient(t)
	c := commands(t, ctx, l)
	begin := func(p protocol.PromptParams) string {
		t.Helper()
		wait := true
		p.Wait = &wait
		r, err := client.Call(ctx, c, protocol.Prompt, p)
		if err != nil {
			t.Fatal(err)
		}
		return r.Result.RunID
	}
	var ids [2]string
	for i := range ids {
		r, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = r.SessionID
	}
	in := func(i int) protocol.PromptParams {
		return protocol.PromptParams{Scope: protocol.Scope{SessionID: ids[i]}, Text: "hello"}
	}

	first := subscribe(t, ctx, l, protocol.SubscribeParams{SessionID: ids[0]})
	begin(in(0))
	begin(in(1))
	all := subscribe(t, ctx, l, protocol.SubscribeParams{After: new(uint64)})
	now := subscribe(t, ctx, l, protocol.SubscribeParams{})
	ends := subscribe(t, ctx, l, protocol.SubscribeParams{Types: []string{"agent_end"}, After: new(uint64)})
	begin(in(1))
	last := begin(in(0))

	lines := map[string][]string{}
	for name, e := range map[string]*client.Events{"first": first, "all": all, "now": now, "ends": ends} {
		lines[name] = untilTheEnd(t, e, last)
	}
	whole := everything(t, d)
	want := map[string]func(at int, line string) bool{
		"first": func(_ int, line string) bool { return strings.Contains(line, ids[0]) },
		"all":   func(int, string) bool { return true },
		"now":   func(at int, _ string) bool { return uint64(at) > now.Last()-uint64(len(lines["now"])) },
		"ends":  func(_ int, line string) bool { return strings.Contains(line, `"type":"agent_end"`) },
	}
	for name, wants := range want {
		var own []string
		for i, line := range whole {
			if wants(i+1, line) {
				own = append(own, line)
			}
		}
		if got := lines[name]; strings.Join(got, "\n") != strings.Join(own, "\n") {
			t.Errorf("%s: got %d events, want %d:\n%s", name, len(got), len(own), strings.Join(got, "\n"))
		}
	}
	if n := len(lines["now"]); n == 0 || n >= len(whole) {
		t.Errorf("now: got %d of %d events", n, len(whole))
	}
	if all.Epoch() == "" || all.Gap() || first.Epoch() != all.Epoch() {
		t.Errorf("got epochs %q and %q, gap %t", first.Epoch(), all.Epoch(), all.Gap())
	}
}

// untilTheEnd reads the lines up to a run's end.
func untilTheEnd(t *testing.T, e *client.Events, run string) (lines []string) {
	t.Helper()
	for {
		env, raw, err := e.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(raw))
		if env.Type == "agent_end" && strings.Contains(string(raw), run) {
			return lines
		}
	}
}

// everything is all that the daemon has told so far, asked of itself.
func everything(t *testing.T, d *daemontest.Daemon) (lines []string) {
	t.Helper()
	ctx := patient(t)
	conn, err := client.Connect(ctx, protocol.EventSocket(d.Socket))
	if err != nil {
		t.Fatal(err)
	}
	e, err := client.SubscribeOver(ctx, conn, protocol.SubscribeParams{After: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c, err := client.Dial(ctx, d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	state, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Daemon: true})
	if err != nil {
		t.Fatal(err)
	}
	for e.Last() < state.LastSeq {
		_, raw, err := e.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(raw))
	}
	return lines
}

// What the daemon says to a subscription is what its owner hears: another epoch is a gap,
// a wrong type an error.
func TestAnswersToSubscribeAreTheDaemons(t *testing.T) {
	_, o := proxied(t, "")
	l := link(t, o)
	ctx := patient(t)
	subscribe(t, ctx, l, protocol.SubscribeParams{})
	if e := subscribe(t, ctx, l, protocol.SubscribeParams{Epoch: "ep-another", After: new(uint64)}); !e.Gap() {
		t.Error("another epoch: got no gap")
	}
	conn, err := l.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := protocol.NewLineReader(conn, 1<<20)
	for _, line := range []string{
		`{"v":"1","id":"one","type":"subscribe","payload":{"types":["nonsense"]}}`,
		`{"v":"1","id":"two","type":"ping"}`, `{"type":"subscribe"}`, `no JSON`,
	} {
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			t.Fatal(err)
		}
		said, err := lines.Next()
		id := ""
		if _, rest, ok := strings.Cut(line, `"id":"`); ok {
			id, _, _ = strings.Cut(rest, `"`)
		}
		if err != nil || !strings.Contains(string(said), `"ok":false`) || !strings.Contains(string(said), `"id":"`+id+`"`) {
			t.Errorf("%s: got %s, %v", line, said, err)
		}
	}
	if _, err := client.Call(ctx, commands(t, ctx, l), protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// older has a proxy say that it has no sessions, as those before them do.
func older(t testing.TB) (*daemontest.Daemon, ssh.Options) {
	d := daemontest.Start(t, noused, "")
	scripted(t, `far "$@" | sed -u 's/,"mux":1}/,"connections":true}/'`)
	return d, ssh.Options{Host: "box", Nous: nous, Socket: d.Socket}
}

// With an older proxy every connection has an ssh of its own, and all ends with the Link.
func TestAnOlderProxy(t *testing.T) {
	_, o := older(t)
	l := link(t, o)
	ctx := patient(t)
	if hello, err := l.Hello(ctx); err != nil || hello.Mux != 0 {
		t.Fatalf("got %+v, %v", hello, err)
	}
	events := subscribe(t, ctx, l, protocol.SubscribeParams{})
	one, two := commands(t, ctx, l), commands(t, ctx, l)
	if n := children(t); n != 3 {
		t.Errorf("got %d ssh processes for three connections", n)
	}
	run, err := prompt(ctx, one, "hello", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, seq := range untilEnd(t, ctx, events, run) {
		if seq != uint64(i)+1 {
			t.Errorf("got event %d behind %d others", seq, i)
		}
	}
	_ = one.Close()
	if _, err := client.Call(ctx, two, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Call(ctx, two, protocol.Ping, protocol.PingParams{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if n := children(t); n != 0 {
		t.Errorf("%d ssh processes are left", n)
	}
}

// A daemon behind an older proxy that goes away is told as that.
func TestADaemonBehindAnOlderProxyGoes(t *testing.T) {
	d, o := older(t)
	l := link(t, o)
	ctx := patient(t)
	events := subscribe(t, ctx, l, protocol.SubscribeParams{})
	d.Stop()
	_, _, err := events.Next(ctx)
	var e *ssh.Error
	if !errors.As(err, &e) || e.Code != "daemon_gone" || !errors.Is(err, client.ErrLost) {
		t.Errorf("got %v", err)
	}
}

// Who does not read its events holds up neither commands nor other readers, and reads on later.
func TestWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	_, o := proxied(t, "")
	l := link(t, o)
	ctx := patient(t)
	idle := subscribe(t, ctx, l, protocol.SubscribeParams{})
	reads := subscribe(t, ctx, l, protocol.SubscribeParams{})
	c := commands(t, ctx, l)
	text := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB, four windows
	var last string
	for range 3 {
		wait := true
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: text, Wait: &wait})
		if err != nil {
			t.Fatal(err)
		}
		last = r.Result.RunID
	}
	want := untilEnd(t, ctx, reads, last)
	if got := untilEnd(t, ctx, idle, last); len(got) != len(want) {
		t.Errorf("got %d events late, want %d", len(got), len(want))
	}
}
