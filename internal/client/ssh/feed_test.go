package ssh_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"noused/internal/client"
	"noused/internal/client/ssh"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// Subscriptions that come and go share the far end's one. Each gets what it asked for:
// every event once, in order, from its own beginning on, and no other.
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
func everything(t *testing.T, d *tuitest.Daemon) (lines []string) {
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

// played plays the far end, line by line.
func played(t *testing.T, hello string) (*ssh.Link, *farEnd) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	fifo(t, in)
	fifo(t, out)
	scripted(t, `echo '`+hello+`'; exec 3<&0; cat <&3 >'`+in+`' & exec cat <'`+out+`'`)
	l := link(t, ssh.Options{Host: "box"})
	f := &farEnd{t: t}
	var opening sync.WaitGroup
	opening.Go(func() {
		var err error
		if f.out, err = os.OpenFile(out, os.O_WRONLY, 0); err != nil {
			t.Error(err)
		}
	})
	opening.Go(func() {
		var err error
		if f.in, err = os.Open(in); err != nil {
			t.Error(err)
		}
	})
	if _, err := l.Hello(patient(t)); err != nil {
		t.Fatal(err)
	}
	opening.Wait()
	t.Cleanup(func() { _, _ = f.in.Close(), f.out.Close() })
	f.lines = protocol.NewLineReader(f.in, 1<<30)
	return l, f
}

type farEnd struct {
	t       *testing.T
	in, out *os.File
	lines   *protocol.LineReader
}

// want reads a line, which must begin so, and returns its id.
func (f *farEnd) want(prefix string) (id string) {
	f.t.Helper()
	line, err := f.lines.Next()
	if err != nil || !strings.HasPrefix(string(line), prefix) {
		f.t.Fatalf("got %.300s, %v, want %s", line, err, prefix)
	}
	_, rest, _ := strings.Cut(string(line), `"id":"`)
	id, _, _ = strings.Cut(rest, `"`)
	return id
}

func (f *farEnd) say(format string, args ...any) {
	f.t.Helper()
	if _, err := fmt.Fprintf(f.out, format+"\n", args...); err != nil {
		f.t.Fatal(err)
	}
}

const plainHello = `{"proxy":1,"version":"v1","socket":"/s","epoch":""}`

// A plain proxy, without connections, in front of an older core: ids are each
// connection's own, errors without one find their command, events go to all.
func TestAPlainProxyAndAnOlderCore(t *testing.T) {
	l, f := played(t, plainHello)
	ctx := patient(t)
	one, two := commands(t, ctx, l), commands(t, ctx, l)
	conn, err := l.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	events := client.LiveOver(conn)
	defer events.Close()
	answers := make(chan error, 2)
	for _, c := range []*client.Client{one, two} {
		go func() {
			r, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
			if err == nil && r.Message != "pong" {
				err = errors.New(r.Message)
			}
			answers <- err
		}()
	}
	for range 2 {
		id := f.want(`{"v":"1","id":"`)
		f.say(`{"ok":true,"payload":{"message":"pong"},"type":"pong","id":%q,"v":"1"}`, id)
	}
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	go func() {
		_, err := client.Call(ctx, two, protocol.GetTree, protocol.GetTreeParams{})
		answers <- err
	}()
	f.want(`{"v":"1","id":"`)
	f.say(`{"v":"1","id":"","type":"error","payload":{},"ok":false,"error":{"code":"invalid_command","message":"unknown_command: get_tree"}}`)
	id := f.want(`{"v":"1","id":"`) // its client asks for a sign of life
	f.say(`{"v":"1","id":%q,"type":"pong","payload":{"message":"pong"},"ok":true}`, id)
	if err := <-answers; !errors.Is(err, client.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	f.say(`{"v":"1","id":"evt-1","type":"agent_start","payload":{"run_id":"r"}}`)
	if env, _, err := events.Next(ctx); err != nil || env.Type != "agent_start" {
		t.Errorf("got %+v, %v", env, err)
	}
}

const subscribing = `{"v":"1","id":"n`

// Who does not read its events loses its connection, after a bounded number of bytes; the
// others, and replies, go on.
func TestWhoDoesNotReadLosesOnlyItsOwn(t *testing.T) {
	l, f := played(t, `{"proxy":1,"version":"v1","socket":"/s","epoch":"e","connections":true}`)
	ctx := patient(t)
	f.say(`{"v":"1","id":%q,"type":"subscribed","payload":{"epoch":"e","next_seq":1,"gap":false},"ok":true}`, f.want(subscribing))
	open := func() net.Conn {
		conn, err := l.Events(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, `{"id":"mine","type":"subscribe"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		f.say(`{"v":"1","id":%q,"type":"subscribed","payload":{"epoch":"e","next_seq":1,"gap":false},"ok":true}`, f.want(subscribing))
		return conn
	}
	idle := open()
	reads := open()
	f.say(`{"v":"1","id":%q,"type":"subscribed","payload":{"epoch":"e","next_seq":1,"gap":false},"ok":true}`, f.want(subscribing)) // what both want
	lines := protocol.NewLineReader(reads, 1<<20)
	if line, err := lines.Next(); err != nil || !strings.Contains(string(line), `"id":"mine"`) {
		t.Fatalf("got %s, %v", line, err)
	}
	text := strings.Repeat("x", 100<<10)
	const many = 200 // 20 MB
	for i := range many {
		f.say(`{"v":"1","id":"evt-%d","type":"message_update","payload":{"delta":"%s"},"ts":"2026-02-12T10:00:00Z","seq":%d}`, i+1, text, i+1)
		if line, err := lines.Next(); err != nil || !bytes.Contains(line, fmt.Appendf(nil, `"seq":%d}`, i+1)) {
			t.Fatalf("event %d: got %.100s, %v", i+1, line, err)
		}
	}
	said, err := io.ReadAll(idle)
	var e *ssh.Error
	if len(said) < 1<<20 || len(said) > 9<<20 || !errors.As(err, &e) || !errors.Is(err, client.ErrLost) {
		t.Errorf("got %d bytes and %v", len(said), err)
	}
	c := commands(t, ctx, l)
	go func() {
		f.say(`{"v":"1","id":%q,"type":"pong","payload":{"message":"pong"},"ok":true}`, f.want(`{"connection":`))
	}()
	if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// Where the far end has lost events meanwhile, each reader is told which.
func TestAHoleIsToldToEach(t *testing.T) {
	l, f := played(t, `{"proxy":1,"version":"v1","socket":"/s","epoch":"e","connections":true}`)
	ctx := patient(t)
	answer := func(next int, gap bool) {
		f.say(`{"v":"1","id":%q,"type":"subscribed","payload":{"epoch":"e","next_seq":%d,"gap":%t},"ok":true}`, f.want(subscribing), next, gap)
	}
	answer(5, false)
	var all [2]*client.Events
	got := make(chan error, 2)
	begin := func(i int) {
		conn, err := l.Events(ctx)
		if err == nil {
			all[i], err = client.SubscribeOver(ctx, conn, protocol.SubscribeParams{})
		}
		got <- err
	}
	go begin(0)
	answer(5, false) // behind 4
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	go begin(1)
	answer(20, false) // behind 19
	answer(11, true)  // of what both want, 5 to 10 are gone
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	f.say(`{"v":"1","id":"evt-11","type":"status","payload":{"code":"a"},"ts":"2026-02-12T10:00:00Z","seq":11}`)
	f.say(`{"v":"1","id":"evt-25","type":"warning","payload":{"code":"events_dropped","message":"m","from_seq":12,"to_seq":25},"ts":"2026-02-12T10:00:00Z","seq":25}`)
	f.say(`{"v":"1","id":"evt-26","type":"status","payload":{"code":"b"},"ts":"2026-02-12T10:00:00Z","seq":26}`)
	for i, want := range [][]string{
		{`"from_seq":5,"to_seq":10`, `"code":"a"`, `"from_seq":12,"to_seq":25`, `"code":"b"`},
		{`"from_seq":20,"to_seq":25`, `"code":"b"`},
	} {
		for _, w := range want {
			if _, raw, err := all[i].Next(ctx); err != nil || !strings.Contains(string(raw), w) {
				t.Errorf("reader %d: got %s, %v, want %s", i, raw, err, w)
			}
		}
		_ = all[i].Close()
	}
}

// An answer that is longer than nous takes is an error of its command's, and the others go on.
// A line that the daemon, killed, has not finished is passed over: what is told is the end.
func TestLongAnswersAndCutLines(t *testing.T) {
	l, f := played(t, plainHello)
	ctx := patient(t)
	c := commands(t, ctx, l)
	answers := make(chan error, 1)
	ping := func() {
		_, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
		answers <- err
	}
	go ping()
	f.say(`{"v":"1","id":%q,"type":"pong","payload":{"message":"%s"},"ok":true}`, f.want(`{"v":"1","id":"`), strings.Repeat("x", 64<<20))
	var refused *protocol.Error
	if err := <-answers; !errors.As(err, &refused) || errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("got %.300v", err)
	}
	go ping()
	f.say(`{"v":"1","id":%q,"type":"pong","payload":{"message":"pong"},"ok":true}`, f.want(`{"v":"1","id":"`))
	if err := <-answers; err != nil {
		t.Error(err)
	}
	go ping()
	f.say(`{"v":"1","id":%q,"type":"pong","payload":{"message":"%s`+"\x00", f.want(`{"v":"1","id":"`), strings.Repeat("x", 100<<10))
	f.say(`{"ok":false,"error":{"code":"daemon_gone","message":"the daemon is gone"},"socket":"/s"}`)
	var e *ssh.Error
	if err := <-answers; !errors.As(err, &e) || e.Code != "daemon_gone" || !errors.Is(err, client.ErrLost) {
		t.Errorf("got %.300v", err)
	}
}
