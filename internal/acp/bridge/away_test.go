package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// numbered is a text of so many different words.
func numbered(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "w%d ", i)
	}
	return strings.TrimSpace(out.String())
}

// A session that is loaded while it says something is shown all of it, once.
func TestLoadDuringAStream(t *testing.T) {
	d := startDaemon(t, "[model]\ndelay = \"300us\"\n")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	text := numbered(1500)
	id := e.prompt(s, text)
	e.awaitUpdate(s, 0, "the beginning", func(u update) bool { return u.Kind == acp.AgentChunk })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			late := newEditor(t, d.Socket)
			late.must(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
			late.awaitUpdate(s, 0, "the last word", func(u update) bool {
				return strings.HasSuffix(u.text(), "w1499") && u.Kind == acp.AgentChunk
			})
			if diff := cmp.Diff([]string{"user: " + text, "agent: " + text}, conversation(late.updates(s, 0, -1))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for range 3 { // in the window that is open
		from := e.mark()
		load := e.send(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
		e.reply(load)
		e.awaitUpdate(s, from, "the user's text", func(u update) bool { return u.Kind == acp.UserChunk })
	}
	if got := e.stop(id); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	last := 0 // where the last replay begins
	for i, m := range e.all() {
		if u, ok := updateOf(s, m); ok && u.Kind == acp.UserChunk {
			last = i
		}
	}
	if diff := cmp.Diff([]string{"user: " + text, "agent: " + text}, conversation(e.updates(s, last, -1))); diff != "" {
		t.Errorf("in the open window (-want +got):\n%s", diff)
	}
	all.Wait()
}

// The daemon is killed while prompts are open: each is answered once, when the run
// that was resumed ends, and the editor is shown everything.
func TestTheDaemonGoesAway(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	first := e.prompt(s, "one\n!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	second := e.prompt(s, "two")
	for len(stateOf(t, d.Socket, s).Queued.Inputs) < 1 {
	}
	d.Kill()
	e.log.await(t, "trying again")
	third := e.prompt(s, "three") // waits for a daemon
	taken := e.prompt(s, "never mind")
	e.notify(acp.CancelRequest, `{"requestId":`+taken+`}`)
	d.Start()
	for id, want := range map[string]acp.StopReason{
		first: acp.EndTurn, second: acp.EndTurn, third: acp.EndTurn,
		taken: acp.StopCancelled,
	} {
		if got := e.stop(id); got != want {
			t.Errorf("prompt %s: got %s, want %s", id, got, want)
		}
	}
	from := e.mark()
	load := e.send(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	e.reply(load)
	shown := strings.Join(conversation(e.updates(s, from, -1)), "\n")
	for _, text := range []string{"user: one", "user: two", "agent: two"} {
		if strings.Count(shown, text) != 1 {
			t.Errorf("%q is shown %d times:\n%s", text, strings.Count(shown, text), shown)
		}
	}
	answers := map[string]int{}
	for _, m := range e.all() {
		if m.Method == "" {
			answers[string(m.ID)]++
		}
	}
	for id, n := range answers {
		if n != 1 {
			t.Errorf("request %s has %d answers", id, n)
		}
	}
}

// Without a daemon the editor is told so, and finds one that is started later.
func TestNoDaemon(t *testing.T) {
	d := daemontest.New(t, noused, "")
	e := newEditor(t, d.Socket)
	m := e.reply(e.send(acp.SessionNew, `{"cwd":"/","mcpServers":[]}`))
	if m.Error == nil || m.Error.Code != acp.InternalError ||
		!strings.Contains(m.Error.Message, "no daemon at "+d.Socket) || !e.log.has("no daemon") {
		t.Errorf("got %+v", m)
	}
	d.Start()
	e.open(d.Dir)
}

// The end of the input ends the bridge and nothing else: the run goes on.
func TestTheEditorIsClosed(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	e.prompt(s, "one\n!slow.run")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	e.in.Close()
	<-e.ended
	if e.err != nil {
		t.Errorf("got %v, want no error", e.err)
	}
	again := newEditor(t, d.Socket)
	again.must(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	again.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	d.Write("go", "x\n")
	again.awaitUpdate(s, 0, "its end", func(u update) bool { return u.Status == acp.Completed })
}

// stuck is a client that stops reading behind the answer to its second request.
type stuck struct {
	read   bytes.Buffer
	loaded chan struct{}
	stop   chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	if bytes.Contains(s.read.Bytes(), []byte(`"id":2`)) {
		<-s.stop
		return 0, io.ErrClosedPipe
	}
	s.read.Write(p)
	if bytes.Contains(s.read.Bytes(), []byte(`"id":2`)) {
		close(s.loaded)
	}
	return len(p), nil
}

// A client that stops reading ends the bridge, at the bound; the runs do not notice.
func TestAnEditorThatStopsReading(t *testing.T) {
	d := startDaemon(t, "")
	s := command(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	in, out := io.Pipe()
	to := &stuck{loaded: make(chan struct{}), stop: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(context.Background(), Options{
			Daemon: follow.Socket(d.Socket), In: in, Out: to,
			Log: func(string, ...any) {},
		})
	}()
	fmt.Fprintf(out, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`+"\n")
	fmt.Fprintf(out,
		`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"%s","cwd":"/","mcpServers":[]}}`+"\n", s)
	<-to.loaded
	var unread *acp.UnreadError
	for range 100 {
		said := command(t, d.Socket, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: s},
			Text:  numbered(2000),
		})
		if said.Result == nil || !strings.HasSuffix(said.Result.Output, "w1999") {
			t.Fatal("a run did not say everything")
		}
		select {
		case err := <-ended:
			if !errors.As(err, &unread) {
				t.Errorf("got %v, want an UnreadError", err)
			}
		default:
			continue
		}
		break
	}
	if unread == nil {
		t.Fatal("the bridge has not ended")
	}
	close(to.stop)
	in.Close()
}

// An editor, another one, the screen and anyone who reads the event socket are told the
// same.
func TestAllSeeTheSame(t *testing.T) {
	d := startDaemon(t, "")
	one, two := newEditor(t, d.Socket), newEditor(t, d.Socket)
	s := one.open(d.Dir)
	two.must(acp.SessionResume, `{"sessionId":"`+s+`","cwd":"/"}`)
	events, err := client.Subscribe(t.Context(), d.Socket, protocol.SubscribeParams{SessionID: s})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	cmd := exec.Command(nousProgram(t), "--session", s)
	cmd.Dir, cmd.Env = d.Dir, d.Env()
	screen := tuitest.Start(t, cmd, 132, 50, false)
	text := numbered(300)
	one.say(s, text)
	said := ""
	for over := false; !over; {
		env, _, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch ev, _ := client.Decode(env); ev := ev.(type) {
		case protocol.MessageUpdate:
			said += ev.Delta
		case protocol.AgentEnd:
			over = true
		}
	}
	two.awaitUpdate(s, 0, "the last word", func(u update) bool {
		return strings.HasSuffix(u.text(), "w299") && u.Kind == acp.AgentChunk
	})
	if said != text {
		t.Errorf("the socket says %q", said)
	}
	if diff := cmp.Diff([]string{"agent: " + said}, conversation(one.updates(s, 0, -1))); diff != "" {
		t.Errorf("who prompted (-want +got):\n%s", diff)
	}
	words := regexp.MustCompile(`w[0-9]+`)
	screen.WaitFor("what the user said and what the agent says", func(shown string) bool {
		return strings.HasPrefix(strings.Join(words.FindAllString(shown, -1), " "), text+" "+said+" ") // and a title
	})
	if diff := cmp.Diff([]string{"user: " + text, "agent: " + said}, conversation(two.updates(s, 0, -1))); diff != "" {
		t.Errorf("the other one (-want +got):\n%s", diff)
	}
}
