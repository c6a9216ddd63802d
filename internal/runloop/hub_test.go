package runloop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/session"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// recorder is an event log that checks the invariants as it goes.
type recorder struct {
	mu      sync.Mutex
	checker *protocoltest.Checker
	lines   map[string][][]byte
	seq     uint64
	err     error
	ended   map[string]chan struct{}
	onEvent func(protocol.Event)
	forgot  bool // the log has no longer the start of any run
}

func newRecorder() *recorder {
	return &recorder{checker: protocoltest.NewChecker(), lines: map[string][][]byte{}, ended: map[string]chan struct{}{}}
}

func (r *recorder) Append(events ...protocol.Event) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out [][]byte
	for _, ev := range events {
		if err := r.checker.Event(ev); err != nil && r.err == nil {
			r.err = err
		}
		payload, err := protocol.EncodePayload(ev)
		if err != nil && r.err == nil {
			r.err = err
		}
		r.seq++
		line := protocol.AppendEvent(nil, ev.Type(), payload, time.Unix(0, 0), r.seq)
		out = append(out, line)
		run := ev.Where().RunID
		r.lines[run] = append(r.lines[run], line)
		if _, ok := ev.(protocol.AgentEnd); ok {
			close(r.endLocked(run))
		}
		if r.onEvent != nil {
			r.onEvent(ev)
		}
	}
	return out
}

func (r *recorder) endLocked(run string) chan struct{} {
	if r.ended[run] == nil {
		r.ended[run] = make(chan struct{})
	}
	return r.ended[run]
}

// wait blocks until a run has ended.
func (r *recorder) wait(run string) {
	r.mu.Lock()
	end := r.endLocked(run)
	r.mu.Unlock()
	<-end
}

func (r *recorder) Run(run string) ([][]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines[run], !r.forgot
}

func (r *recorder) LastSeq() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq
}

func (r *recorder) done(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.err, r.checker.Done()); err != nil {
		t.Error(err)
	}
}

// tools answers calls by a function.
type tools func(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult

func (tools) List(context.Context, model.Scope) []model.ToolInfo {
	return []model.ToolInfo{{ToolSpec: model.ToolSpec{Name: "t.x"}, Module: "t", Healthy: true}}
}

func (tools) Has(_ context.Context, _ model.Scope, name string) bool {
	return name == "t.x" || name == "t__x"
}

func (tools) Servers(model.Scope) []model.ServerInfo { return nil }
func (tools) Try(context.Context, model.Scope)       {}

func (tools) Expand(_ context.Context, _ model.Scope, text string) (model.Expanded, error) {
	return model.Expanded{Text: text}, nil
}

func (tools) Check(model.Server) error { return nil }

func (tools) Ready(context.Context, model.Scope) []string { return nil }

func (tools) Jobs(string) []model.Job { return nil }

func (tools) EndSession(context.Context, string) {}

func (f tools) Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	return f(ctx, inv, progress)
}

func echoTool(_ context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	progress(model.ToolUpdate{Delta: "working", Patch: []byte(`{"last":"` + inv.ID + `"}`)})
	return model.ToolResult{OK: true, Text: "echo"}
}

// fixture is a hub over a real store.
type fixture struct {
	*Hub
	t      *testing.T
	events *recorder
	dir    string
	store  *session.Store
	faults atomic.Int64
	stop   func()

	before    func(input string, state []byte) (string, error)
	transform func([]model.Message) ([]model.Message, error)
	audited   atomic.Pointer[[]string]
}

func (f *fixture) audit(ev model.AuditEvent) {
	for {
		old := f.audited.Load()
		var list []string
		if old != nil {
			list = slices.Clone(*old)
		}
		list = append(list, ev.Event)
		if f.audited.CompareAndSwap(old, &list) {
			return
		}
	}
}

func (f *fixture) Orchestrated() bool { return f.before != nil }

func (*fixture) AfterTool(_ context.Context, _ model.Invocation, res model.ToolResult) (model.ToolResult, []string) {
	return res, nil
}

func (*fixture) Stops(string) bool { return false }

func (*fixture) OnStop(context.Context, string, string, string) (string, []string) { return "", nil }

func (*fixture) HookProblem(string) string { return "" }

func (f *fixture) Transforms() bool { return f.transform != nil }

func (f *fixture) BeforeTurn(_ context.Context, _, _, input string, state []byte) (string, error) {
	return f.before(input, state)
}

func (f *fixture) Transform(_ context.Context, _, _ string, messages []model.Message) ([]model.Message, error) {
	return f.transform(messages)
}

func newFixture(t *testing.T, dir string, m Model, call tools, events *recorder) *fixture {
	t.Helper()
	return newFixtureOn(t, session.OSDisk{}, dir, m, call, events)
}

func newFixtureOn(t *testing.T, disk session.Disk, dir string, m Model, call tools, events *recorder) *fixture {
	t.Helper()
	return newFixtureWith(t, disk, dir, m, call, events, func(*Options) {})
}

func newFixtureWith(t *testing.T, disk session.Disk, dir string, m Model, call tools, events *recorder,
	change func(*Options),
) *fixture {
	t.Helper()
	store, err := session.OpenOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, events: events, dir: dir, store: store}
	var ids atomic.Int64
	o := Options{
		Modules: f, Audit: f.audit, Store: store, Model: m, ModelInfo: model.Choice{Provider: "offline", Name: offline.Name},
		Tools: call, Events: events,
		Now: time.Now, Fault: func(string, error) { f.faults.Add(1) },
		NewID: func(prefix string) string { return fmt.Sprintf("%s%d-%d", prefix, time.Now().UnixNano(), ids.Add(1)) },
	}
	change(&o)
	f.Hub = NewHub(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f.Hub.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	f.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		f.Drain(time.Minute)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) session() string {
	f.t.Helper()
	s, err := f.newSession(context.Background(), protocol.NewSessionParams{})
	if err != nil {
		f.t.Fatal(err)
	}
	return s.SessionID
}

var no = new(bool)

// answered waits for an answer that comes later.
func answered[R protocol.Reply](a protocol.Answer[R], err error) (R, error) {
	if err == nil && a.Later != nil {
		return a.Later(context.Background())
	}
	return a.Reply, err
}

func (f *fixture) start(id, text string) (protocol.PromptAccepted, error) {
	r, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id},
		Text:  text, Wait: no,
	}))
	if err != nil {
		return protocol.PromptAccepted{}, err
	}
	f.events.accepted(r.Accepted.InputID, r.Accepted.RunID)
	return *r.Accepted, nil
}

func (r *recorder) accepted(inputID, runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checker.Accepted(inputID, runID)
}

func TestPromptAtTheInstantOfAgentEndIsNeverRefused(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id := f.session()
	for range 500 {
		a, err := f.start(id, "hello world")
		if err != nil {
			t.Fatal(err)
		}
		f.events.wait(a.RunID)
	}
	f.stop()
	f.events.done(t)
}

func TestSessionsRunAtOnceUnderSteersAndAborts(t *testing.T) {
	dir, events := t.TempDir(), newRecorder()
	f := newFixture(t, dir, offline.Model{}, echoTool, events)
	var clients sync.WaitGroup
	for n := range 4 {
		id := f.session()
		for who := range 3 {
			rng := rand.New(rand.NewPCG(uint64(n), uint64(who)))
			clients.Go(func() {
				for range 60 {
					f.meddle(id, rng)
				}
			})
		}
	}
	clients.Wait()
	f.stop()

	// What was parked is taken up by the next daemon and ends there.
	f = newFixture(t, dir, offline.Model{}, echoTool, events)
	for _, run := range f.unfinished() {
		events.wait(run)
	}
	f.stop()
	events.done(t)
	if n := f.faults.Load(); n > 0 {
		t.Errorf("%d faults were reported", n)
	}
}

func (f *fixture) unfinished() []string {
	f.events.mu.Lock()
	defer f.events.mu.Unlock()
	return f.events.checker.Open()
}

// meddle does one random thing to a session; refusals are part of the game.
func (f *fixture) meddle(id string, rng *rand.Rand) {
	ctx, scope := context.Background(), protocol.Scope{SessionID: id}
	texts := []string{"hello there", "!t.x\n!t.x {\"a\":1}\ntext", "?hm"}
	text := texts[rng.IntN(len(texts))]
	switch rng.IntN(9) {
	case 8:
		a, err := answered(f.queue(ctx, protocol.KindFollowUp, protocol.SteerParams{Scope: scope, Text: text}))
		if err == nil {
			f.events.accepted(a.InputID, a.RunID)
			_, _ = requestAs[protocol.Withdrawn](ctx, f.Hub, id, func(t ticket) input { return withdrawIn{t, a.InputID} })
		}
	case 0, 1, 2:
		_, _ = f.start(id, text)
	case 3, 4:
		a, err := answered(f.queue(ctx, protocol.KindSteer, protocol.SteerParams{Scope: scope, Text: text, IfIdle: "prompt"}))
		if err == nil {
			f.events.accepted(a.InputID, a.RunID)
		}
	case 5:
		a, err := answered(f.queue(ctx, protocol.KindFollowUp, protocol.SteerParams{Scope: scope, Text: text}))
		if err == nil {
			f.events.accepted(a.InputID, a.RunID)
		}
	case 6:
		a, err := requestAs[protocol.AbortAccepted](ctx, f.Hub, id, func(t ticket) input { return abortIn{t, ""} })
		if err == nil {
			f.events.mu.Lock()
			f.events.err = errors.Join(f.events.err, f.events.checker.HandedBack(a.Discarded))
			f.events.mu.Unlock()
		}
	case 7:
		if _, err := f.getState(ctx, protocol.GetStateParams{Scope: scope}); err != nil {
			f.t.Error(err)
		}
	}
}

func TestWaitingPromptGetsEveryEventOfItsRun(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	p := protocol.PromptParams{Text: "say this\n!t.x", IdempotencyKey: "once"}
	var first *protocol.PromptResult
	for try := range 2 {
		a, err := f.prompt(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := a.Later(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := reply.Result
		if try == 0 {
			first = got
		}
		if got.Output != "t.x: echo" || got.RunID != first.RunID || len(got.Events) != len(first.Events) {
			t.Errorf("try %d: got %q, run %s with %d events, want the first answer", try, got.Output, got.RunID, len(got.Events))
		}
	}
	var types []string
	for _, line := range first.Events {
		var env protocol.EventEnvelope
		if err := json.Unmarshal(line, &env); err != nil {
			t.Fatal(err)
		}
		types = append(types, env.Type)
	}
	if types[0] != "agent_start" || types[len(types)-1] != "agent_end" || first.EventsTruncated {
		t.Errorf("got %v, want the whole run", types)
	}
	f.events.forgot = true
	a, err := f.prompt(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := a.Later(ctx); err != nil || !reply.Result.EventsTruncated {
		t.Errorf("got %+v, %v; want to be told that events are missing", reply.Result, err)
	}
}

// panicky is a model that breaks on the word panic.
type panicky struct{ offline.Model }

func (p panicky) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	whole, done, err := req.Loaded(0)
	if err == nil {
		done()
	}
	if err == nil && strings.Contains(whole.Messages[len(whole.Messages)-1].Text, "panic") {
		panic("oh no")
	}
	return p.Model.Stream(ctx, req)
}

func TestPanicsCostOnlyTheirRun(t *testing.T) {
	f := newFixture(t, t.TempDir(), panicky{}, func(_ context.Context, inv model.Invocation,
		_ func(model.ToolUpdate),
	) model.ToolResult {
		if inv.Phase == "setup" {
			panic("oh no")
		}
		return model.ToolResult{OK: true}
	}, newRecorder())
	ctx := context.Background()
	for text, want := range map[string]string{"panic": "internal error", "!t.x": "t.x: internal", "fine": "fine"} {
		a, err := f.prompt(ctx, protocol.PromptParams{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := a.Later(ctx)
		got := fmt.Sprint(err)
		if err == nil {
			got = reply.Result.Output
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want it to say %q", text, got, want)
		}
	}
	if f.faults.Load() != 2 {
		t.Errorf("%d panics reached the log, want 2", f.faults.Load())
	}
}

func TestBrokenJournalIsAnErrorAndThenRecovers(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id := f.session()
	l, release, err := f.acquire(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.journal.Close(); err != nil { // as a disk that fails would
		t.Fatal(err)
	}
	release()
	var wire *protocol.Error
	if _, err := f.start(id, "lost?"); !errors.As(err, &wire) || wire.Code != protocol.SessionError || wire.Cause == "" {
		t.Fatalf("got %v, want session_error with its cause", err)
	}
	a, err := f.start(id, "again")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	st, err := f.getMessages(context.Background(), protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil || len(st.Messages) != 2 {
		t.Errorf("got %d messages, %v; want only those of the prompt that was accepted", len(st.Messages), err)
	}
	f.stop()
	f.events.done(t)
}

// abort aborts the run of a session.
func (f *fixture) abort(id string) {
	f.t.Helper()
	if _, err := requestAs[protocol.AbortAccepted](context.Background(), f.Hub, id, func(to ticket) input {
		return abortIn{to, ""}
	}); err != nil {
		f.t.Fatal(err)
	}
}

// failing is a disk whose next write fails when it is told so.
type failing struct {
	session.OSDisk
	next atomic.Bool
}

func (d *failing) Write(f *os.File, text []byte) (int, error) {
	if d.next.Swap(false) {
		return 0, errors.New("the disk fails")
	}
	return d.OSDisk.Write(f, text)
}

// A run whose journal failed goes on by itself once the disk is well, and says
// what happened.
func TestRunGoesOnAfterItsJournalFailed(t *testing.T) {
	m, disk := held{make(chan struct{}, 9), make(chan struct{})}, new(failing)
	f := newFixtureOn(t, disk, t.TempDir(), m, echoTool, newRecorder())
	told := make(chan protocol.ErrorEvent, 9)
	f.events.onEvent = func(ev protocol.Event) {
		if ev, ok := ev.(protocol.ErrorEvent); ok {
			told <- ev
		}
	}
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	disk.next.Store(true)
	close(m.leave)
	if ev := <-told; ev.RunID != a.RunID || ev.Code != "session_error" || ev.Cause == "" {
		t.Errorf("got %+v, want the run's error with its cause", ev)
	}
	f.events.wait(a.RunID)
	f.stop()
	f.events.done(t)
}

func TestIdleSessionsAreClosedAndComeBack(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	first := f.session()
	a, err := f.start(first, "remember me")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	for range 3 * maxIdle {
		id := f.session()
		if _, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}}); err !=
			nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	open := len(f.state.loops)
	_, isOpen := f.state.loops[first]
	f.mu.Unlock()
	if open > 2*maxIdle+1 || isOpen {
		t.Errorf("%d sessions are open, the oldest: %t", open, isOpen)
	}
	got, err := f.getMessages(context.Background(), protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: first}})
	if err != nil || len(got.Messages) != 2 {
		t.Errorf("got %d messages, %v; want both of the closed session", len(got.Messages), err)
	}
}

// Sessions that are only made do not stay open either.
func TestNewSessionsAreClosed(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	for range 4 * maxIdle {
		f.session()
	}
	f.mu.Lock()
	var open []*loop
	for _, l := range f.state.loops {
		open = append(open, l)
	}
	f.mu.Unlock()
	for _, l := range open { // until each has looked whether there is a run to resume
		c := newCall()
		if err := l.post(context.Background(), queryIn{ticket: c, read: func(*machine) (any, error) {
			return nil, nil
		}}); err == nil {
			_, _ = l.await(context.Background(), c.reply)
		}
	}
	f.session()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.state.loops) > 2*maxIdle+1 {
		t.Errorf("%d sessions are open", len(f.state.loops))
	}
}

// A waiting prompt does not hold up what its client sends next, even where it
// has to wait itself.
func TestWaitingPromptHoldsNobodyUp(t *testing.T) {
	m := held{make(chan struct{}, 9), make(chan struct{}, 9)}
	f := newFixture(t, t.TempDir(), m, echoTool, newRecorder())
	id := f.session()
	scope, ctx := protocol.Scope{SessionID: id}, context.Background()
	for range 2 {
		m.leave <- struct{}{}
		a, err := f.start(id, "go")
		if err != nil {
			t.Fatal(err)
		}
		<-m.enter
		f.events.wait(a.RunID)
	}
	compacting, err := f.compactSession(ctx, protocol.CompactSessionParams{Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	waiting, err := f.prompt(ctx, protocol.PromptParams{Scope: scope, Text: "and on"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.getState(ctx, protocol.GetStateParams{Scope: scope}); err != nil {
		t.Fatal(err)
	}
	close(m.leave)
	if _, err := compacting.Later(ctx); err != nil {
		t.Error(err)
	}
	if r, err := waiting.Later(ctx); err != nil || r.Result.Output != "partly " {
		t.Errorf("got %+v, %v", r.Result, err)
	}
}

// What get_state shows is as of its last_seq: nothing that the session decides
// in the same breath comes between.
func TestStateIsAsOfItsSeq(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	state, journal, err := f.store.Create("ses-a", f.fresh(session.Created{SessionID: "ses-a"}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = journal.Close() }()
	l, c := newLoop(f.env, state, journal), newCall()
	l.mailbox <- promptIn{nil, protocol.PromptParams{Text: "after it"}, false, nil, nil}
	err = l.batch(queryIn{ticket: c, last: true, read: func(m *machine) (any, error) { return m.runState(), nil }})
	if r := <-c.reply; err != nil || r.value != protocol.StateIdle || r.seq != 0 {
		t.Errorf("got %v as of event %d, %v; want idle before the first event", r.value, r.seq, err)
	}
}

// What a tool reports outside a run is in the journal before its command is
// answered.
func TestExtensionCommandsAreJournaledBeforeTheyAreAnswered(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	for range 20 {
		id := f.session()
		r, err := answered(f.extensionCommand(ctx, protocol.ExtensionCommandParams{
			Scope: protocol.Scope{SessionID: id},
			Name:  "t.x",
		}))
		if err != nil || !r.OK {
			t.Fatalf("got %+v, %v", r, err)
		}
		s, err := f.store.Peek(context.Background(), id)
		if err != nil || !strings.Contains(string(s.Patched()), `"last"`) {
			t.Fatalf("the journal has %s, %v", s.Patched(), err)
		}
	}
}

// A stop waits for a tool that a client runs outside any run.
func TestDrainWaitsForExtensionCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enter, leave := make(chan struct{}), make(chan struct{})
		f := newFixture(t, t.TempDir(), offline.Model{},
			func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
				close(enter)
				<-leave
				return model.ToolResult{OK: true}
			}, newRecorder())
		ctx := context.Background()
		a, err := f.extensionCommand(ctx, protocol.ExtensionCommandParams{Name: "t.x"})
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() {
			<-enter
			f.Drain(time.Minute)
			close(drained)
		}()
		go func() {
			<-enter
			synctest.Wait()
			select {
			case <-drained:
				t.Error("the daemon did not wait for the tool")
			default:
			}
			close(leave)
		}()
		if r, err := a.Later(ctx); err != nil || !r.OK {
			t.Errorf("got %+v, %v", r, err)
		}
		<-drained
	})
}

func TestOrchestratorsHaveTheirSayBeforeATextIsAccepted(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id := f.session()
	a, err := f.start(id, "!t.x") // patches the state
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	f.before = func(input string, state []byte) (string, error) {
		if !strings.Contains(string(state), `"last"`) {
			t.Errorf("got state %s, want what the tool patched", state)
		}
		if input == "secret" {
			return "", errors.New("guard: not that")
		}
		return "say " + input, nil
	}
	scope, ctx := protocol.Scope{SessionID: id}, context.Background()
	p := protocol.PromptParams{Scope: scope, Text: "hello", IdempotencyKey: "k"}
	for range 2 {
		r, err := f.prompt(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := r.Later(ctx)
		if err != nil || reply.Result.Output != "say hello" {
			t.Fatalf("got %+v, %v; want what the orchestrator made of it", reply.Result, err)
		}
		f.before = func(string, []byte) (string, error) { return "", errors.New("guard: no") } // the key answers
	}
	for name, err := range map[string]error{
		"prompt": second(f.start(id, "secret")),
		"steer": second(answered(f.queue(ctx, protocol.KindSteer, protocol.SteerParams{
			Scope: scope, Text: "secret",
			IfIdle: "prompt",
		}))),
		"follow_up": second(answered(f.queue(ctx, protocol.KindFollowUp, protocol.SteerParams{
			Scope: scope, Text: "secret",
			IfIdle: "prompt",
		}))),
	} {
		var wire *protocol.Error
		if !errors.As(err, &wire) || wire.Code != protocol.CommandRejected ||
			!strings.HasPrefix(wire.Message, "rejected_by_hook: guard: ") {
			t.Errorf("%s: got %v, want rejected_by_hook with the reason", name, err)
		}
	}
	f.stop()
	f.events.done(t)
}

func second[T any](_ T, err error) error { return err }

func TestContextModulesShapeWhatTheModelReads(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	var warned atomic.Int64
	f.events.onEvent = func(ev protocol.Event) {
		if w, ok := ev.(protocol.Warning); ok && w.Code == "context_failed" && w.TurnID != "" &&
			strings.Contains(w.Message, "shaper") {
			warned.Add(1)
		}
	}
	id, ctx := f.session(), context.Background()
	f.transform = func(messages []model.Message) ([]model.Message, error) {
		return []model.Message{{Role: model.User, Text: "shaped " + messages[len(messages)-1].Text}}, nil
	}
	for _, want := range []string{"shaped hello", "hello"} {
		r, err := f.prompt(ctx, protocol.PromptParams{Scope: protocol.Scope{SessionID: id}, Text: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := r.Later(ctx)
		if err != nil || reply.Result.Output != want {
			t.Errorf("got %+v, %v; want %q", reply.Result, err, want)
		}
		f.transform = func(messages []model.Message) ([]model.Message, error) { return messages, errors.New("shaper: broke") }
	}
	if warned.Load() != 1 {
		t.Errorf("%d warnings, want one that names the module", warned.Load())
	}
	if _, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: id}); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.events.done(t)
	got := *f.audited.Load()
	slices.Sort(got)
	if want := []string{"session:end", "session:end", "session:fork", "session:start", "session:start"}; !slices.Equal(got,
		want) {
		t.Errorf("audited %v, want %v", got, want)
	}
}

func TestBranchesLiveOnTheirOwn(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	parent := f.session()
	for _, text := range []string{"one", "two\n!t.x"} {
		a, err := f.start(parent, text)
		if err != nil {
			t.Fatal(err)
		}
		f.events.wait(a.RunID)
	}
	tree, err := f.getTree(ctx, protocol.GetTreeParams{Scope: protocol.Scope{SessionID: parent}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.branchSession(ctx, protocol.BranchSessionParams{ParentID: parent, LeafID: tree.Nodes[1].ID})
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.start(b.SessionID, "another two")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	for id, want := range map[string]int{parent: 6, b.SessionID: 4} {
		got, err := f.getMessages(ctx, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil || len(got.Messages) != want {
			t.Errorf("%s: got %d messages, %v; want %d", id, len(got.Messages), err, want)
		}
	}
	if _, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: parent, LeafID: "msg-nowhere"}); err == nil {
		t.Error("branched at a leaf that is not there")
	}
}

// held is a model that waits until it is let go.
type held struct{ enter, leave chan struct{} }

func (h held) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if !yield(model.Delta{Text: "partly "}, nil) {
			return
		}
		h.enter <- struct{}{}
		select {
		case <-h.leave:
			yield(model.Delta{Stop: model.StopEnd}, nil)
		case <-ctx.Done():
			yield(model.Delta{}, context.Cause(ctx))
		}
	}
}

func TestStateInTheMiddleOfAMessage(t *testing.T) {
	m := held{make(chan struct{}), make(chan struct{})}
	f := newFixture(t, t.TempDir(), m, echoTool, newRecorder())
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	if _, err := f.start(id, "again"); err == nil || !strings.Contains(err.Error(), "run_in_progress") {
		t.Errorf("got %v, want run_in_progress", err)
	}
	st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil {
		t.Fatal(err)
	}
	if st.RunState != "running" || st.RunID != a.RunID || st.Partial == nil || st.Partial.Text != "partly " ||
		len(st.Runs) != 1 {
		t.Errorf("got %+v, want the run and what was said so far", st)
	}
	close(m.leave)
	f.events.wait(a.RunID)
}

// A drain past its deadline leaves the run to the next daemon.
func TestDrainParksWhatDoesNotEnd(t *testing.T) {
	m := held{make(chan struct{}), make(chan struct{})}
	dir, events := t.TempDir(), newRecorder()
	f := newFixture(t, dir, m, echoTool, events)
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	f.Drain(0)
	if _, err := f.start(id, "too late"); err == nil || !strings.Contains(err.Error(), "shutting_down") {
		t.Errorf("got %v, want shutting_down", err)
	}
	f.stop()
	f = newFixture(t, dir, offline.Model{}, echoTool, events)
	events.wait(a.RunID)
	f.stop()
	events.done(t)
}

// An orchestrator that takes its time holds up nobody but those who come after
// it for the same session.
func TestASlowOrchestratorHoldsUpOnlyItsSession(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id, other := f.session(), f.session()
	asked, leave := make(chan string, 9), make(chan struct{})
	f.before = func(input string, _ []byte) (string, error) {
		asked <- input
		if input != "quick" {
			<-leave
		}
		return input, nil
	}
	ctx, scope := context.Background(), protocol.Scope{SessionID: id}
	first, err := f.prompt(ctx, protocol.PromptParams{Scope: scope, Text: "first"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.queue(ctx, protocol.KindFollowUp, protocol.SteerParams{
		Scope: scope, Text: "second",
		IfIdle: "prompt",
	})
	if err != nil {
		t.Fatal(err)
	}
	third, err := f.queue(ctx, protocol.KindFollowUp, protocol.SteerParams{Scope: scope, Text: "third"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if r, err := second.Later(ctx); err != nil || r.InputID == "" {
			t.Errorf("the second: got %+v, %v", r, err)
		}
	})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := third.Later(gone); err == nil {
		t.Error("a client that is gone is answered")
	}
	all.Go(func() {
		if r, err := first.Later(ctx); err != nil || r.Result.Output == "" {
			t.Errorf("the first: got %+v, %v", r, err)
		}
	})
	if got := <-asked; got != "first" {
		t.Errorf("%q was asked about first", got)
	}
	if _, err := f.start(other, "quick"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.getState(ctx, protocol.GetStateParams{Scope: scope}); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "quick" {
		t.Errorf("then about %q", got)
	}
	close(leave)
	if got := <-asked; got != "second" {
		t.Errorf("and then about %q", got)
	}
}

// A text is not acknowledged when there is nothing left that could keep it, and
// the model is not asked about it.
func TestNothingIsAcceptedInAFolderThatIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	m := held{make(chan struct{}, 9), make(chan struct{})}
	f := newFixture(t, dir, m, echoTool, newRecorder())
	id := f.session()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // by the loop that was open, and by one that would have to be opened
		var wire *protocol.Error
		_, err := f.start(id, "go")
		if !errors.As(err, &wire) || wire.Code != protocol.SessionError ||
			!strings.Contains(wire.Cause, "removed or replaced") {
			t.Errorf("got %v, want session_error that says what happened", err)
		}
	}
	if _, err := f.newSession(context.Background(), protocol.NewSessionParams{}); err == nil {
		t.Errorf("got %v, want no session made", err)
	}
	if len(m.enter) > 0 {
		t.Error("the model was asked")
	}
	if f.faults.Load() == 0 {
		t.Error("the log does not say it")
	}
}
