package tui

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/slash"
	"noused/internal/tui/tuitest"
)

// talker uses the plain mode over two pipes.
type talker struct {
	t      *testing.T
	socket string
	in     *io.PipeWriter
	done   chan error

	mu      sync.Mutex
	said    strings.Builder
	changed chan struct{}
}

func (k *talker) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said.Write(p)
	select {
	case k.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

func talk(t *testing.T, socket string) *talker {
	t.Helper()
	return talkTo(t, socket, "")
}

// talkTo is talk to a daemon on another machine.
func talkTo(t *testing.T, socket, host string) *talker {
	t.Helper()
	in, out := io.Pipe()
	k := &talker{t: t, socket: socket, in: out, done: make(chan error, 1), changed: make(chan struct{}, 1)}
	o := Options{
		Site: slash.Site{Daemon: follow.Socket(socket), Place: socket, Host: host}, Plain: true, Person: true, In: in, Out: k,
		Getenv: func(string) string { return t.TempDir() },
		Event: func(ev protocol.Event) {
			if e, ok := ev.(protocol.MessageEnd); ok && e.Role == "assistant" {
				io.WriteString(k, "assistant: "+e.Text+"\n")
			}
		},
		Entry: func(entry jsontext.Value) error {
			var m protocol.Message
			err := json.Unmarshal(entry, &m)
			io.WriteString(k, m.Role+" before: "+m.Text+"\n")
			return err
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.done <- Run(ctx, o)
	}()
	t.Cleanup(func() {
		cancel()
		out.Close()
		<-ended
	})
	return k
}

func (k *talker) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.said.String()
}

func (k *talker) hears(texts ...string) {
	k.t.Helper()
	late := time.After(patience)
	for _, text := range texts {
		for !strings.Contains(k.text(), text) {
			select {
			case <-k.changed:
			case <-late:
				k.t.Fatalf("%q was not said, but\n%s", text, k.text())
			}
		}
	}
}

func (k *talker) hearsOneOf(texts ...string) {
	k.t.Helper()
	late := time.After(patience)
	for !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(k.text(), text) }) {
		select {
		case <-k.changed:
		case <-late:
			k.t.Fatalf("none of %q was said, but\n%s", texts, k.text())
		}
	}
}

// hearsAgain waits until a text was said so many times.
func (k *talker) hearsAgain(text string, times int) {
	k.t.Helper()
	late := time.After(patience)
	for strings.Count(k.text(), text) < times {
		select {
		case <-k.changed:
		case <-late:
			k.t.Fatalf("%q was not said %d times, but\n%s", text, times, k.text())
		}
	}
}

func (k *talker) types(lines ...string) {
	k.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(k.in, line+"\n"); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *talker) ends() {
	k.t.Helper()
	select {
	case err := <-k.done:
		if err != nil {
			k.t.Error(err)
		}
	case <-time.After(patience):
		k.t.Fatalf("it did not end:\n%s", k.text())
	}
}

func TestPlainConversation(t *testing.T) {
	d := startNoused(t, "")
	k := talk(t, d.Socket)
	k.hears("session ses-", "idle")
	k.types(`one \`, "and two")
	k.hears("assistant: one \nand two", "the run is completed")
	k.types("/switch")
	k.hears("(this one)", "/switch ID shows one")
	k.types("/tree")
	k.hears("level 2 (the leaf), assistant")
	k.types("/nonsense")
	k.hears("there is no command /nonsense")
	k.types("/mode steering all")
	k.hears("steering: all")
	if strings.Contains(k.text(), "\x1b") {
		t.Errorf("got escape sequences:\n%q", k.text())
	}
	d.Kill()
	k.hears("no daemon runs at")
	k.types("lost")
	k.hears("nothing was sent")
	d.Start()
	k.hears("connected again", "the daemon was restarted")
	if got := strings.Count(k.text(), " before: "); got != 0 {
		t.Errorf("%d entries were said twice:\n%s", got, k.text())
	}
	k.types("/quit")
	k.ends()
}

// A run whose end a person has heard is read, also where the daemon was killed in the middle of it.
func TestWhatIsHeardIsMarkedAsRead(t *testing.T) {
	d := startNoused(t, "")
	k := talk(t, d.Socket)
	k.hears("session ses-", "idle")
	h := useDaemon(t, d.Socket)
	h.send(tea.BlurMsg{})
	id := h.state.SessionID
	k.types("one")
	k.hears("the run is completed")
	h.until("read session", func() bool { return !h.unread(id) })
	h.held(d.Dir)
	d.Kill()
	k.hears("no daemon runs at")
	d.Start()
	k.hears("connected again")
	h.until("end of the run", func() bool { return !h.running() })
	h.until("read session", func() bool { return !h.unread(id) })
}

func TestPlainReadsOutTheEndOfASession(t *testing.T) {
	d := startNoused(t, "")
	k := talk(t, d.Socket)
	k.hears("session ses-")
	for _, text := range []string{"a", "b", "c", "d", "e", "f"} {
		k.types("say " + text)
		k.hears("assistant: say " + text)
	}
	again := talk(t, d.Socket)
	again.hears("2 earlier ones are left out", "user before: say b", "assistant before: say f")
	again.in.Close()
	again.ends()
}

func TestPlainOldCore(t *testing.T) { tuitest.EachHabit(t, testPlainOldCore) }

func testPlainOldCore(t *testing.T, habits tuitest.Habits) {
	k := talk(t, tuitest.StartOldCore(t, habits).Socket)
	k.hears("an older one")
	k.types("hold it")
	k.types("/search x")
	k.hears("does not know how to search")
	k.types("/abort")
	// Such a core may not have had the event connection yet when the run began;
	// then the link's second look at the session reports it.
	k.hearsOneOf("the run is aborted", "assistant before: hold it")
}

func TestPlainWithoutADaemon(t *testing.T) {
	k := talk(t, filepath.Join(t.TempDir(), "s"))
	k.hears("no daemon runs at", "/start starts one")
}

func TestPlainLinesWaitForThoseBefore(t *testing.T) {
	k := talk(t, startNoused(t, "").Socket)
	k.types("/new other", "meant for the other", "/quit") // before there is a connection
	k.ends()
	k.hears("session other, idle")
	again := talk(t, k.socket)
	again.types("/switch other") // the active one is as it was
	again.hears("session other", "meant for the other")
}

// While another machine is away, what is typed waits for it, what asks nobody is done at once, and
// what still waits at the end is told.
func TestPlainLinesWaitForAMachineThatIsAway(t *testing.T) {
	d := startNoused(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	k := talkTo(t, p.Socket, "box")
	k.hears("session ses-")
	p.Cut(true)
	k.hears("no connection")
	k.types("said on the way", "/mode steering all", "/nonsense", "/help")
	k.hears("box is away; this is done when it is back", "/quit: leave")
	if strings.Contains(k.text(), "steering: all") {
		t.Errorf("it was done at once:\n%s", k.text())
	}
	p.Cut(false)
	k.hears("connected again", "assistant: said on the way", "steering: all", "there is no command /nonsense")
	p.Cut(true)
	k.hearsAgain("no connection", 2) // what is typed before is not held
	k.types("never")
	k.hearsAgain("box is away", 3)
	k.types("/quit")
	k.ends()
	k.hears("not sent: never")

	k = talkTo(t, p.Socket, "box") // its input ends while it is away
	k.hears("no connection")
	k.types("said at the end")
	k.hears("box is away")
	if err := k.in.Close(); err != nil {
		t.Fatal(err)
	}
	p.Cut(false)
	k.ends()
	k.hears("connected again")
	talk(t, d.Socket).hears("said at the end")
}

// A command that only the screen has says what to do instead; it said nothing at all.
func TestPlainModeNamesWhatTheScreenHas(t *testing.T) {
	k := talk(t, startNoused(t, "").Socket)
	k.hears("session ses-")
	for _, c := range slash.Commands {
		if c.Screen {
			k.types("/" + c.Name)
			k.hears("the plain mode has no /" + c.Name + ": ")
			if strings.Contains(k.text(), "/"+c.Name+": \n") {
				t.Errorf("/%s: nothing to do instead", c.Name)
			}
		}
	}
	k.types("/diff")
	k.hears("nous diff prints the changes")
}
