package follow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// patience ends a wait that is in vain.
const patience = 2 * time.Minute

var noused string

func TestMain(m *testing.M) { daemontest.Main(m, &noused) }

func startDaemon(t *testing.T, config string) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, noused, config)
}

// screen is what a user would see, made of nothing but updates.
type screen struct {
	t *testing.T
	l *follow.Session

	online  bool
	refused []follow.Refused
	snaps   int
	changed int
	dropped int
	last    follow.Snapshot
	state   protocol.State
	said    []said
	ends    map[string]bool // runs
	seq     uint64
	output  string // of tools, since the last snapshot
	idless  bool   // the core's events name no messages
}

type said struct{ id, role, text string }

func open(t *testing.T, socket string) *screen {
	t.Helper()
	l := follow.Open(follow.Socket(socket), "", nil, nil)
	t.Cleanup(l.Close)
	return &screen{t: t, l: l, ends: map[string]bool{}}
}

// until takes updates until the screen is as wanted.
func (s *screen) until(what string, wanted func() bool) {
	s.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !wanted() {
		select {
		case u := <-s.l.Updates():
			s.apply(u)
		case <-timeout.C:
			s.t.Fatalf("after %s no %s: %.2000s", patience, what, fmt.Sprint(s.said))
		}
	}
}

func (s *screen) apply(u follow.Update) {
	s.t.Helper()
	_, off := u.(follow.Disconnected)
	_, no := u.(follow.Refused)
	s.online = !off && (s.online || !no)
	switch u := u.(type) {
	case follow.Refused:
		s.refused = append(s.refused, u)
	case follow.Changed:
		s.changed++
		s.state = u.State
	case follow.Snapshot:
		s.snaps++
		s.last, s.state, s.seq = u, u.State, 0
		s.said, s.output = nil, ""
		for _, raw := range u.Messages {
			var m protocol.Message
			if err := json.Unmarshal(raw, &m); err != nil {
				s.t.Fatal(err)
			}
			s.said = append(s.said, said{m.ID, m.Role, m.Text})
		}
		if p := u.State.Partial; p != nil {
			s.said = append(s.said, said{p.MessageID, "assistant", p.Text})
		}
	case follow.Gap:
		s.dropped++
	case follow.Events:
		for _, ev := range u.List {
			if ev.Seq > 0 && ev.Seq <= s.seq {
				s.t.Errorf("event %d comes after %d", ev.Seq, s.seq)
			}
			s.seq = ev.Seq
			s.event(ev)
		}
	}
}

func (s *screen) event(ev follow.Event) {
	s.t.Helper()
	if id := ev.Where().SessionID; id != "" && id != s.state.SessionID {
		s.t.Errorf("event %d is of %s, not of %s", ev.Seq, id, s.state.SessionID)
	}
	switch ev := ev.Event.(type) {
	case protocol.MessageStart:
		s.said = append(s.said, said{ev.MessageID, ev.Role, ev.Text})
	case protocol.MessageUpdate:
		if m := s.find(ev.MessageID); m != nil {
			m.text += ev.Delta
		} else {
			s.t.Errorf("an update of %s, which never started", ev.MessageID)
		}
	case protocol.MessageEnd:
		m := s.find(ev.MessageID)
		if m == nil && s.idless { // of the session before: events without ids do not tell
			return
		}
		if m == nil || m.text != ev.Text {
			s.t.Errorf("got %+v, ends as %q", m, ev.Text)
		}
	case protocol.ToolUpdate:
		s.output += ev.Delta
	case protocol.AgentEnd:
		s.ends[ev.RunID] = true
	}
}

func (s *screen) find(id string) *said {
	for i := range s.said {
		if s.said[i].id == id {
			return &s.said[i]
		}
	}
	return nil
}

func (s *screen) awaitSnapshot() {
	s.t.Helper()
	s.until("first snapshot", func() bool { return s.snaps > 0 })
}

// prompt starts a run and returns its id.
func (s *screen) prompt(text string) string {
	s.t.Helper()
	return prompt(s.t, s.l, s.state.SessionID, text)
}

func prompt(t *testing.T, l *follow.Session, session, text string) string {
	t.Helper()
	wait := false
	r, err := follow.Do(t.Context(), l, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: text, Wait: &wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Accepted.RunID
}

func (s *screen) ended(run string) {
	s.t.Helper()
	s.until("end of "+run, func() bool { return s.ends[run] })
}

// same fails unless the screen says what the session does.
func (s *screen) same() {
	s.t.Helper()
	all, err := follow.Do(s.t.Context(), s.l, protocol.GetMessages,
		protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: s.state.SessionID}})
	if err != nil {
		s.t.Fatal(err)
	}
	var want []said
	for _, raw := range all.Messages {
		var m protocol.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			s.t.Fatal(err)
		}
		want = append(want, said{m.ID, m.Role, m.Text})
	}
	shown := s.said
	if s.idless {
		want, shown = withoutIDs(want), withoutIDs(shown)
	}
	if diff := cmp.Diff(want, shown, cmp.AllowUnexported(said{})); diff != "" {
		s.t.Errorf("the screen (-want +got):\n%s", diff)
	}
}

func withoutIDs(list []said) []said {
	list = slices.Clone(list)
	for i := range list {
		list[i].id = ""
	}
	return list
}

func TestSnapshotThenEvents(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := open(t, d.Socket)
	s.awaitSnapshot()
	if s.last.New || s.last.Lacks != nil || s.state.SessionID == "" {
		t.Errorf("got %+v", s.last)
	}
	s.ended(s.prompt("one two three"))
	s.ended(s.prompt("four"))
	s.same()
	if len(s.said) != 4 || s.snaps != 1 {
		t.Errorf("got %d messages and %d snapshots, want 4 and 1", len(s.said), s.snaps)
	}
	again := open(t, d.Socket)
	again.awaitSnapshot()
	again.same()
}

// Whenever a client comes in the middle of an answer, the snapshot and the
// events behind it make the answer up exactly: nothing twice, nothing missing.
// The answer has no end before all have come, and heard more of it.
func TestComingInTheMiddleOfAnAnswer(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "[model]\ndelay = \"20ms\"\n")
	s := open(t, d.Socket)
	s.awaitSnapshot()
	run := s.prompt(strings.Repeat("a word and ", 20_000))
	answering := func(s *screen, from int) func() bool {
		return func() bool { return len(s.said) == 2 && len(s.said[1].text) > from }
	}
	s.until("the answer's beginning", answering(s, 0))
	late := make([]*screen, 8)
	for i := range late {
		late[i] = open(t, d.Socket)
		late[i].awaitSnapshot()
		if late[i].state.RunID != run {
			t.Errorf("client %d came when the run was over", i)
		}
	}
	for _, s := range late {
		s.until("more of the answer", answering(s, len(s.said[1].text)))
	}
	if _, err := follow.Do(t.Context(), s.l, protocol.Abort, protocol.AbortParams{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, s := range append(late, s) {
		all.Go(func() {
			s.ended(run)
			s.same()
		})
	}
	all.Wait()
}

func TestComingWhileAToolRuns(t *testing.T) {
	t.Parallel()
	d := daemontest.New(t, noused, "")
	d.Tool("hold", `read -r request
echo '{"version":"0","type":"log","level":"info","message":"so far"}'
read -r line < go
echo '{"version":"0","type":"log","level":"info","message":"and on"}'
echo '{"version":"0","type":"done","ok":true,"summary":"held"}'
`)
	d.Fifo("go")
	d.Start()
	s := open(t, d.Socket)
	s.awaitSnapshot()
	first := s.state.SessionID
	run := s.prompt("!hold.run")
	soFar := func(s *screen) func() bool {
		return func() bool { return strings.Contains(s.output, "so far") }
	}
	s.until("the tool's output", soFar(s))
	late := open(t, d.Socket)
	late.until("what the tool said before", soFar(late))

	// The same for one that turns away and comes back.
	other, err := follow.Do(t.Context(), s.l, protocol.NewSession, protocol.NewSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	s.l.Follow(other.SessionID)
	s.until("the other session", func() bool { return s.state.SessionID == other.SessionID })
	s.l.Follow(first)
	s.until("the tool's output again", soFar(s))

	d.Write("go", "\n")
	for _, s := range []*screen{s, late} {
		s.ended(run)
		if got := strings.Count(s.output, "so far"); got != 1 || !strings.Contains(s.output, "and on") {
			t.Errorf("got output %q", s.output)
		}
	}
}

func TestAnotherSession(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := open(t, d.Socket)
	s.awaitSnapshot()
	first := s.state.SessionID
	s.ended(s.prompt("of the first"))
	second, err := follow.Do(t.Context(), s.l, protocol.NewSession, protocol.NewSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	// The other session is the active one now, and talks; this one stays.
	prompt(t, s.l, second.SessionID, "of the second")
	s.ended(s.prompt("still here"))
	s.same()

	s.l.Follow(second.SessionID)
	s.until("the other session", func() bool { return s.state.SessionID == second.SessionID })
	s.same()
	s.l.Follow("ses-none")
	s.until("refusal and snapshot", func() bool { return len(s.refused) == 1 && s.snaps == 3 })
	var wire *protocol.Error
	if r := s.refused[0]; r.SessionID != "ses-none" || !errors.As(r.Err, &wire) || wire.Code != protocol.SessionNotFound {
		t.Errorf("got %+v", r)
	}
	if s.state.SessionID != second.SessionID {
		t.Errorf("got %s after the refusal, want %s", s.state.SessionID, second.SessionID)
	}
	s.ended(s.prompt("goes on"))
	s.same()

	s.l.Follow(first)
	s.until("the first session", func() bool { return s.state.SessionID == first })
	if _, err := follow.Do(t.Context(), s.l, protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: first}); err != nil {
		t.Fatal(err)
	}
	s.until("the active session", func() bool { return s.state.SessionID == second.SessionID })
}

func TestSettingsThatAnotherClientChanges(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s, other := open(t, d.Socket), open(t, d.Socket)
	s.awaitSnapshot()
	other.awaitSnapshot()
	if _, err := follow.Do(t.Context(), other.l, protocol.SetSteeringMode, protocol.SetModeParams{Mode: "all"}); err !=
		nil {
		t.Fatal(err)
	}
	s.until("the mode", func() bool { return s.state.SteeringMode == "all" })
	if _, err := follow.Do(t.Context(), other.l, protocol.SetActiveTools,
		protocol.SetActiveToolsParams{Tools: []string{"read"}}); err != nil {
		t.Fatal(err)
	}
	s.until("the tools", func() bool { return slices.Equal(s.state.ActiveTools, []string{"read"}) })
	if s.snaps != 1 {
		t.Errorf("got %d snapshots, want 1", s.snaps)
	}
}

// A session that somebody else deletes is left for the active one.
func TestSessionThatAnotherClientDeletes(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s, other := open(t, d.Socket), open(t, d.Socket)
	s.awaitSnapshot()
	other.awaitSnapshot()
	gone := s.state.SessionID
	next, err := follow.Do(t.Context(), other.l, protocol.NewSession, protocol.NewSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := follow.Do(t.Context(), other.l, protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: gone}); err != nil {
		t.Fatal(err)
	}
	s.until("the active session", func() bool { return s.state.SessionID == next.SessionID })
	var lost *protocol.Error
	if len(s.refused) != 0 || !errors.As(s.last.Lost, &lost) || lost.Code != protocol.SessionNotFound {
		t.Errorf("got %v, and %+v is refused; want that the session is lost", s.last.Lost, s.refused)
	}
}

func TestKilledDaemonComesBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "[model]\ndelay = \"10ms\"\n")
	s := open(t, d.Socket)
	s.awaitSnapshot()
	session := s.state.SessionID
	run := s.prompt(strings.Repeat("word ", 40))
	s.until("a word", func() bool { return len(s.said) == 2 && s.said[1].text != "" })
	d.Kill()
	var off follow.Disconnected
	for off.Err == nil || !off.NoDaemon {
		u := <-s.l.Updates()
		s.apply(u)
		off, _ = u.(follow.Disconnected)
	}
	if _, err := follow.Do(t.Context(), s.l, protocol.Ping, protocol.PingParams{}); !errors.Is(err, follow.ErrOffline) {
		t.Errorf("while offline: got %v, want ErrOffline", err)
	}
	d.Start()
	s.until("the screen again", func() bool { return s.online })
	if !s.last.New || s.snaps != 2 || s.state.SessionID != session {
		t.Errorf("got new %t, %d snapshots, session %s", s.last.New, s.snaps, s.state.SessionID)
	}
	s.until("end of the run", func() bool { return s.ends[run] || s.state.RunState == "idle" })
	s.same()
	s.ended(s.prompt("and on"))
	s.same()
}

func TestCutConnectionGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	s, direct := open(t, p.Socket), open(t, d.Socket)
	s.awaitSnapshot()
	direct.awaitSnapshot()
	s.ended(s.prompt("before"))
	p.Cut(true)
	s.until("the loss", func() bool { return !s.online })
	run := prompt(t, direct.l, s.state.SessionID, "meanwhile")
	direct.ended(run)
	p.Cut(false)
	s.ended(run)
	s.until("the state", func() bool { return s.changed > 0 })
	s.same()
	if s.snaps != 1 {
		t.Errorf("got %d snapshots, want the first one only", s.snaps)
	}
}

func TestSlowReaderIsMadeGood(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s, other := open(t, d.Socket), open(t, d.Socket)
	s.awaitSnapshot()
	other.awaitSnapshot()
	// More events than the link keeps, and nobody takes them.
	run := other.prompt(strings.Repeat("w ", 3*4096))
	other.until("end of the run", func() bool { // it may have been too slow as well
		return other.ends[run] || other.snaps > 1 && other.state.RunState == "idle"
	})
	s.until("word of the loss", func() bool { return s.dropped > 0 })
	s.until("the whole again", func() bool { return s.snaps > 1 && s.state.RunState == "idle" })
	s.same()
	s.ended(s.prompt("and on"))
	s.same()
}

func TestNoDaemonThenOne(t *testing.T) {
	t.Parallel()
	d := daemontest.New(t, noused, "")
	s := open(t, d.Socket)
	u := <-s.l.Updates()
	off, ok := u.(follow.Disconnected)
	var gone *client.NoDaemonError
	if !ok || !off.NoDaemon || !errors.As(off.Err, &gone) || off.Since.IsZero() {
		t.Errorf("got %#v, want an Offline that says there is no daemon", u)
	}
	d.Start()
	s.awaitSnapshot()
	if s.last.New {
		t.Error("the first daemon is called a new one")
	}
	s.ended(s.prompt("hello"))
	s.same()
}

func TestOldCore(t *testing.T) { tuitest.EachHabit(t, testOldCore) }

func testOldCore(t *testing.T, habits tuitest.Habits) {
	c := tuitest.StartOldCore(t, habits)
	s := open(t, c.Socket)
	s.idless = habits.NoIDs
	s.awaitSnapshot()
	// An event that comes before the core has the event connection is missed, and one
	// that comes with the second snapshot may be.
	c.Listened()
	s.until("the second snapshot", func() bool { return s.snaps > 1 })
	answered := func(text string) {
		t.Helper()
		s.prompt(text)
		s.until("answer "+text, func() bool {
			n := len(s.said)
			if n == 0 || s.said[n-1].role != "assistant" || s.said[n-1].text != text {
				return false
			}
			state, err := follow.Do(t.Context(), s.l, protocol.GetState, protocol.GetStateParams{})
			return err == nil && state.RunState == "idle"
		})
	}
	if !errors.Is(s.last.Lacks, client.ErrUnsupported) {
		t.Errorf("got %v, want what the core lacks", s.last.Lacks)
	}
	answered("as in old days")
	s.same()
	_, err := follow.Do(t.Context(), s.l, protocol.ListSessions, protocol.ListSessionsParams{})
	var wire *protocol.Error
	if !errors.Is(err, client.ErrUnsupported) || !errors.As(err, &wire) {
		t.Errorf("got %v, want ErrUnsupported with the daemon's words", err)
	}
	first := s.state.SessionID
	if _, err := follow.Do(t.Context(), s.l, protocol.NewSession, protocol.NewSessionParams{}); err != nil {
		t.Fatal(err)
	}
	s.l.Follow("")
	s.until("the new session", func() bool { return s.state.SessionID != first })
	answered("new")
	s.l.Follow(first)
	s.until("the first session", func() bool { return s.state.SessionID == first })
	s.same()
	answered("of the first again")
	s.same()
}

func TestCloseWithUntakenUpdates(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	s := open(t, d.Socket)
	s.awaitSnapshot()
	s.prompt("nobody reads this")
	s.l.Close()
	s.l.Close()
	for range s.l.Updates() {
	}
	if _, err := follow.Do(context.Background(), s.l, protocol.Ping, protocol.PingParams{}); !errors.Is(err,
		follow.ErrOffline) {
		t.Errorf("got %v, want ErrOffline", err)
	}
}
