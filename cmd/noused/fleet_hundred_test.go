package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
)

// hundred is a fleet of many daemons, each a process with as many sessions.
type hundred struct {
	*jobFleet
	daemons []*daemon
	told    []<-chan [][]byte
	each    int
}

// NOUSED_TEST_DAEMONS=100/100 is that many daemons, processes all of them, with that many
// sessions each: what nous fleet watch takes with them (docs/performance.md), and that all
// come back where the server is away for a while, with no event missing and none twice.
func TestAHundredDaemons(t *testing.T) {
	hosts, each := 0, 0
	if _, err := fmt.Sscanf(os.Getenv("NOUSED_TEST_DAEMONS"), "%d/%d", &hosts, &each); err != nil {
		t.Skip("NOUSED_TEST_DAEMONS is not set: DAEMONS/SESSIONS")
	}
	f := &hundred{jobFleet: newJobFleet(t, time.Minute), each: each}
	f.start(hosts)
	f.memory()
	f.bare()
	f.inAPipe()
	f.onATerminal()
	f.restart()
	f.compare()
}

// name is a daemon's in the fleet.
func (f *hundred) name(i int) string { return fmt.Sprintf("host-%03d", i) }

// start starts the daemons, whose sessions are made once.
func (f *hundred) start(hosts int) {
	f.t.Helper()
	program := plainDaemon(f.t)
	seed := unstarted(f.t, program, "--model", "offline")
	seed.Start()
	w := seed.commands()
	for i := range f.each {
		id := into[protocol.Session](f.t,
			w.request(fmt.Sprintf(`{"id":"n","type":"new_session","payload":{"title":"what is done here, number %d"}}`, i))).
			SessionID
		if r := w.request(fmt.Sprintf(`{"id":"p","type":"prompt","payload":{"session_id":%q,"text":"say something about it"}}`,
			id)); !r.OK {
			f.t.Fatal(r.Error)
		}
	}
	seed.Stop()
	begun := time.Now()
	for i := range hosts {
		d := unstarted(f.t, program, "--model", "offline")
		if err := os.CopyFS(filepath.Join(d.Dir, "state", "sessions"),
			os.DirFS(filepath.Join(seed.Dir, "state", "sessions"))); err != nil {
			f.t.Fatal(err)
		}
		f.private(d)
		f.configure(d, f.name(i), "")
		d.Start()
		f.daemons, f.told = append(f.daemons, d), append(f.told, d.told())
	}
	f.back(0)
	f.t.Logf("%d daemons with %d sessions each: all have joined after %s", hosts, f.each,
		time.Since(begun).Round(time.Millisecond))
}

// private has a copied state folder be for its owner alone, as the daemon makes it.
func (f *hundred) private(d *daemon) {
	f.t.Helper()
	err := filepath.WalkDir(filepath.Join(d.Dir, "state"), func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// back waits until all daemons have published all but so many of their events.
func (f *hundred) back(but uint64) {
	f.t.Helper()
	for _, d := range f.daemons {
		last := into[protocol.State](f.t, d.commands().request(`{"id":"s","type":"get_state","payload":{"daemon":true}}`)).LastSeq
		d.inFleet(func(s protocol.FleetState) bool { return s.Connected && s.PublishedSeq+but >= last })
	}
}

// memory tells what the daemons take.
func (f *hundred) memory() {
	var all []int
	for _, d := range f.daemons {
		now, _ := memoryOf(d.Cmd.Process.Pid)
		all = append(all, now)
	}
	slices.Sort(all)
	f.t.Logf("resident, a daemon: %d KiB at least, %d median, %d at most", all[0], all[len(all)/2], all[len(all)-1])
}

// memoryOf is what a process has resident now and had at most, in KiB. The kernel's usage
// of a process that has ended counts what its parent had, too, when it was started.
func memoryOf(pid int) (now, most int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d", &now)
		_, _ = fmt.Sscanf(line, "VmHWM: %d", &most)
	}
	return now, most
}

// bare measures what NATS takes for one message to a stream's consumer, in the same way.
func (f *hundred) bare() {
	f.t.Helper()
	ctx := f.t.Context()
	js := fleettest.JetStream(f.t, fleettest.Dial(f.t, f.server.URL()))
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "BARE", Subjects: []string{"bare"},
		Storage: jetstream.FileStorage,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		AckPolicy:     jetstream.AckNonePolicy,
		MemoryStorage: true,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		f.t.Fatal(err)
	}
	defer messages.Stop()
	there := fleettest.JetStream(f.t, fleettest.Dial(f.t, f.server.URL()))
	var took []time.Duration
	for range 2 * len(f.daemons) {
		begun := time.Now()
		if _, err := there.PublishAsync("bare", make([]byte, 300)); err != nil {
			f.t.Fatal(err)
		}
		if _, err := messages.Next(); err != nil {
			f.t.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	f.figures("a bare message to a stream's consumer", took)
}

func (f *hundred) figures(what string, took []time.Duration) {
	slices.Sort(took)
	sum := time.Duration(0)
	for _, d := range took {
		sum += d
	}
	n := len(took)
	f.t.Logf("%s, of %d: mean %s, median %s, 95 %% %s, at worst %s", what, n,
		(sum / time.Duration(n)).Round(time.Microsecond),
		took[n/2].Round(time.Microsecond), took[n*95/100].Round(time.Microsecond), took[n-1].Round(time.Microsecond))
}

func (f *hundred) watch(nous string) *exec.Cmd {
	cmd := exec.Command(nous, "--via", f.server.URL(), "fleet", "watch")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+f.t.TempDir(), "TERM=xterm-256color")
	return cmd
}

// plainNous builds nous.
func (f *hundred) plainNous() string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "nous")
	if out, err := exec.Command("go", "build", "-o", path, "../nous").CombinedOutput(); err != nil {
		f.t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// inAPipe measures nous fleet watch from its start: until there is a line of each session,
// and then one event of each daemon.
func (f *hundred) inAPipe() {
	f.t.Helper()
	cmd := f.watch(f.plainNous())
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := range len(f.daemons) * f.each {
		if !lines.Scan() {
			f.t.Fatalf("it ended after %d lines", n)
		}
	}
	f.t.Logf("nous fleet watch in a pipe: all %d sessions after %s", len(f.daemons)*f.each,
		time.Since(begun).Round(time.Millisecond))
	f.eachTells("an event to its line", func(title string) time.Time {
		for lines.Scan() && !strings.Contains(lines.Text(), title) {
		}
		return time.Now()
	})
	f.ends(cmd, func() {
		for lines.Scan() {
		}
	})
}

// The fleet is quiet for rest before the first event, and for apart before each: anyone who
// has been asked is left alone for a moment.
const (
	rest  = 300 * time.Millisecond
	apart = 50 * time.Millisecond
)

// eachTells has an event come from each daemon, one after the other. seen is when it was
// seen; it counts from when the daemon has published it.
func (f *hundred) eachTells(what string, seen func(title string) time.Time) {
	f.t.Helper()
	time.Sleep(rest) // what is measured begins at rest
	var took []time.Duration
	for i, d := range f.daemons {
		events := d.events(protocol.SubscribeParams{})
		w := d.commands()
		id := into[protocol.Sessions](f.t, w.request(`{"id":"l","type":"list_sessions","payload":{"limit":1}}`)).
			Sessions[0].SessionID
		title := fmt.Sprintf("%s of %s", strings.Fields(what)[len(strings.Fields(what))-1], f.name(i))
		time.Sleep(apart) // so that each is measured alone
		w.request(fmt.Sprintf(`{"id":"t","type":"set_title","payload":{"session_id":%q,"title":%q}}`, id, title))
		at := seen(title)
		env, _, err := events.Next(context.Background())
		if err != nil {
			f.t.Fatal(err)
		}
		_ = events.Close()
		took = append(took, at.Sub(env.TS))
	}
	f.figures(what, took)
}

// ends ends a watch.
func (f *hundred) ends(cmd *exec.Cmd, rest func()) {
	f.t.Helper()
	now, most := memoryOf(cmd.Process.Pid)
	_ = cmd.Process.Signal(syscall.SIGINT)
	rest()
	if err := cmd.Wait(); err != nil {
		f.t.Error(err)
	}
	f.t.Logf("resident: %d KiB at the end, %d at most; %s of processor time", now, most, cmd.ProcessState.UserTime()+
		cmd.ProcessState.SystemTime())
}

// onATerminal is inAPipe on a terminal, of which only the bytes are looked at.
func (f *hundred) onATerminal() {
	f.t.Helper()
	cmd := f.watch(f.plainNous())
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 200, Rows: uint16(len(f.daemons) + 10)})
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = master.Close() }()
	begun := time.Now()
	type drawn struct {
		text string
		at   time.Time
	}
	frames := make(chan drawn, 1<<16) // a terminal that does not read would hold it up
	go func() {                       // ends with nous
		defer close(frames)
		for buf := make([]byte, 64<<10); ; {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			frames <- drawn{string(buf[:n]), time.Now()}
		}
	}()
	tail := ""
	until := func(word string) time.Time {
		for d := range frames {
			text := tail + d.text
			tail = text[max(0, len(text)-len(word)):]
			if strings.Contains(text, word) {
				return d.at
			}
		}
		f.t.Fatalf("it ended without %q", word)
		return begun
	}
	until(fmt.Sprintf("%d hosts, %d sessions", len(f.daemons), len(f.daemons)*f.each))
	f.t.Logf("nous fleet watch on a terminal: all sessions after %s", time.Since(begun).Round(time.Millisecond))
	f.eachTells("an event to the terminal", until)
	f.ends(cmd, func() {
		for range frames {
		}
	})
}

// restart has the server be away while each daemon goes on.
func (f *hundred) restart() {
	f.t.Helper()
	var before int
	for _, d := range f.daemons {
		before += d.Log.Len()
	}
	f.server.Down()
	for i, d := range f.daemons {
		w := d.commands()
		for n := range 3 {
			id := into[protocol.Session](f.t, w.request(`{"id":"n","type":"new_session","payload":{}}`)).SessionID
			if r := w.request(
				fmt.Sprintf(`{"id":"p","type":"prompt","payload":{"session_id":%q,"text":"prompt %d of %d while it is away"}}`, id,
					n, i)); !r.OK {
				f.t.Fatal(r.Error)
			}
		}
	}
	const away = 10 * time.Second
	time.Sleep(away) // so long nobody hears anything, as in a failure of the network
	begun := time.Now()
	f.server.Up()
	f.back(0)
	took := time.Since(begun)
	f.connect(time.Minute)
	nc, answered := f.js.Conn(), 0
	for i := range f.daemons {
		if _, err := nc.Request(fleet.DefaultPrefix.Command(f.name(i)), []byte(`{"id":"1","type":"ping"}`),
			jobPatience); err == nil {
			answered++
		}
	}
	after := 0
	for _, d := range f.daemons {
		after += d.Log.Len()
	}
	f.t.Logf("the server was away for %s: all have told all after %s, %d answer, %d bytes of log a daemon", away,
		took.Round(time.Millisecond), answered, (after-before)/len(f.daemons))
	if answered != len(f.daemons) {
		f.t.Errorf("%d of %d daemons take commands", answered, len(f.daemons))
	}
}

// compare stops the daemons and compares the stream with what each has told here.
func (f *hundred) compare() {
	f.t.Helper()
	for _, d := range f.daemons {
		_ = d.Cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, d := range f.daemons {
		<-d.Gone
	}
	stored := f.stored()
	events := 0
	for i := range f.daemons {
		lines := <-f.told[i]
		events += len(lines)
		sameEvents(f.t, stored[f.name(i)], lines)
	}
	f.t.Logf("the stream has the %d events of all, each once", events)
}

// stored are the messages of the stream, by host.
func (f *hundred) stored() map[string][][]byte {
	f.t.Helper()
	ctx := f.t.Context()
	stream, err := fleet.DefaultPrefix.OpenEvents(ctx, f.js)
	if err != nil {
		f.t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		f.t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		f.t.Fatal(err)
	}
	defer messages.Stop()
	all := map[string][][]byte{}
	for range stream.CachedInfo().State.Msgs {
		msg, err := messages.Next()
		if err != nil {
			f.t.Fatal(err)
		}
		host, _, _ := fleet.DefaultPrefix.OfEvent(msg.Subject())
		all[host] = append(all[host], msg.Data())
	}
	return all
}
