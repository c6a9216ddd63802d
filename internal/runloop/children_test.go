package runloop

import (
	"context"
	"fmt"
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

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// family is a fixture whose offline model can call agent.
type family struct {
	*fixture
	heard *hearing
	ends  chan struct{} // holds one once a run has ended
}

// hearing is the oracle of children: a call to agent ends after its child's agent_end, and each
// call has one end.
type hearing struct {
	mu     sync.Mutex
	calls  map[string]string // to the child's run, that is not in the background
	ended  map[string]bool   // runs
	ends   map[string]int    // of calls
	told   map[string]int    // messages of children in the background, by child@run
	wrong  []string
	ref    map[string]string // run to session
	seen   []string
	notify func(ev protocol.Event)
}

func newHearing() *hearing {
	return &hearing{
		calls: map[string]string{}, ended: map[string]bool{}, ends: map[string]int{}, told: map[string]int{},
		ref: map[string]string{},
	}
}

func (h *hearing) event(ev protocol.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch ev := ev.(type) {
	case protocol.AgentStart:
		h.ref[ev.RunID] = ev.SessionID
	case protocol.AgentEnd:
		h.ended[ev.RunID] = true
	case protocol.ToolUpdate:
		if text := string(ev.Update); strings.Contains(text, `"child_session"`) && !strings.Contains(text, `"background"`) {
			_, run, _ := strings.Cut(text, `"run_id":"`)
			run, _, _ = strings.Cut(run, `"`)
			h.calls[ev.ToolCallID] = run
		}
	case protocol.MessageStart:
		if c := ev.Child; c != nil {
			h.told[session.ChildKey(c.SessionID, c.RunID)]++
		}
	case protocol.ToolEnd:
		h.ends[ev.ToolCallID]++
		h.seen = append(h.seen, fmt.Sprintf("%s ok=%t skipped=%t %s", ev.ToolName, ev.OK, ev.Skipped, ev.Result))
		run, known := h.calls[ev.ToolCallID]
		begun := h.ref[run] != ""
		if known && begun && !h.ended[run] {
			h.wrong = append(h.wrong, "call "+ev.ToolCallID+" ends before the run of its child does")
		}
		if h.ends[ev.ToolCallID] > 1 {
			h.wrong = append(h.wrong, "call "+ev.ToolCallID+" ends twice")
		}
	}
	if h.notify != nil {
		h.notify(ev)
	}
}

// check fails for what was wrong.
func (h *hearing) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.wrong {
		t.Error(w)
	}
	for key, n := range h.told {
		if n > 1 {
			t.Errorf("%s is told %d times", key, n)
		}
	}
}

// delegating judges calls as the registry does.
type delegating struct{ say map[string]string }

func (d delegating) Judge(inv model.Invocation, mode string, _ [][]byte) model.Verdict {
	v := model.Verdict{Delegates: inv.Name == agentTool, Decision: d.say[inv.Name], Rule: "by name", Code: model.Forbidden}
	if v.Decision == model.Ask && mode == string(protocol.ApprovalsDeny) {
		v.Decision, v.Code = model.Deny, model.Denied
	}
	return v
}

func (delegating) Guard(context.Context, model.Invocation) model.Verdict { return model.Verdict{} }
func (delegating) Preview(model.Invocation) string                       { return "" }
func (delegating) Keep([]byte, time.Time, string, string) error          { return nil }

func newFamily(t *testing.T, disk session.Disk, dir string, m Model, call tools, heard *hearing, change func(*Options),
) *family {
	t.Helper()
	events := newRecorder()
	f := &family{heard: heard, ends: make(chan struct{}, 1)}
	events.onEvent = func(ev protocol.Event) {
		heard.event(ev)
		if _, ended := ev.(protocol.AgentEnd); ended {
			signal(f.ends)
		}
	}
	f.fixture = newFixtureWith(t, disk, dir, m, call, events, func(o *Options) {
		o.Children = Bounds{Depth: 2, Parallel: 8, Total: 50}
		o.Policy = delegating{}
		if change != nil {
			change(o)
		}
	})
	return f
}

// ask prompts and waits for the run's end.
func (f *family) ask(id, text string) string {
	f.t.Helper()
	r, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: text,
	}))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Result.Release()
	return r.Result.Output
}

func agentCall(args string) string { return "!agent " + args }

func TestAChildAnswersItsCall(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
	id := f.session()
	got := f.ask(id, agentCall(`{"prompt":"hello child","description":"greet"}`))
	if !strings.Contains(got, "agent: hello child") || !strings.Contains(got, "completed]") {
		t.Errorf("got %q, want the child's answer", got)
	}
	list, err := answered(f.listSessions(context.Background(), protocol.ListSessionsParams{}))
	if err != nil {
		t.Fatal(err)
	}
	child := list.Sessions[0]
	if child.Parent == nil || child.Parent.SessionID != id || child.Title != "greet" || child.Unread {
		t.Errorf("got %+v, want a child of %s that nobody has to read", child, id)
	}
	st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: child.SessionID}})
	if err != nil || st.Parent == nil || *st.Parent != *child.Parent {
		t.Errorf("got %+v, %v; want the parent in the state", st.Parent, err)
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}

// Calls of one answer run at the same time, and are told one after another.
func TestChildrenOfOneAnswerRunTogether(t *testing.T) {
	var mu sync.Mutex
	inside := 0
	both := make(chan struct{})
	tool := func(ctx context.Context, _ model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
		mu.Lock()
		if inside++; inside == 3 {
			close(both)
		}
		mu.Unlock()
		select {
		case <-both: // only together
		case <-ctx.Done():
		}
		return model.ToolResult{OK: true, Text: "met"}
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, tool, newHearing(), nil)
	call := agentCall(`{"prompt":"!t.x"}`)
	got := f.ask(f.session(), call+"\n"+call+"\n"+call)
	if n := strings.Count(got, "met"); n != 3 {
		t.Errorf("got %q, want three results", got)
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}

func TestBoundsOfChildrenAreNamed(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"depth", `{"prompt":"!agent {\"prompt\":\"!agent {}\"}"}`, "prompt: is empty"},
		{"depth", `{"prompt":"!agent {\"prompt\":\"!agent {\\\"prompt\\\":\\\"x\\\"}\"}"}`, "depth in [children] is 2"},
		{"unknown", `{"prompt":"x","session_id":"ses-0"}`, "is no child session of this one"},
		{"arguments", `{"prompt":"x","wish":1}`, "bad_request: arguments: want {\"prompt\":\"…\"} and what else the tool's schema has"},
		{"model", `{"prompt":"x","model":"p/none"}`, "bad_request"},
		{"worktree", `{"prompt":"x","worktree":true}`, "bad_request"},
		{"agent", `{"prompt":"x","agent":"none"}`, "agent: there is no agent"},
	} {
		f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
		id := f.session()
		if c.name == "agent" {
			if _, err := f.setApprovalMode(aPerson(), protocol.SetApprovalModeParams{
				Scope: protocol.Scope{SessionID: id}, Mode: protocol.ApprovalsAuto,
			}); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.ask(id, agentCall(c.text)); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		f.stop()
		f.events.done(t)
		f.heard.check(t)
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
		o.Children.Total, o.Children.Parallel = 2, 1
	})
	call := agentCall(`{"prompt":"x"}`)
	got := f.ask(f.session(), call+"\n"+call+"\n"+call)
	if strings.Count(got, "completed]") != 2 || !strings.Contains(got, "total in [children] is 2") {
		t.Errorf("got %q, want two children and the bound", got)
	}
}

// A waiting child lends its place to its own: no tree waits for itself.
func TestATreeOfOnePlaceAtATimeEnds(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
		o.Children.Parallel = 1
	})
	inner := `!agent {\"prompt\":\"leaf\"}`
	call := agentCall(`{"prompt":"` + inner + `\n` + inner + `"}`)
	got := f.ask(f.session(), call+"\n"+call)
	if n := strings.Count(got, "leaf"); n != 4 {
		t.Errorf("got %d answers, want 4: %q", n, got)
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}

func TestABackgroundChildComesOnceAsAMessage(t *testing.T) {
	heard := newHearing()
	ends := make(chan string, 10)
	heard.notify = func(ev protocol.Event) {
		if end, ok := ev.(protocol.AgentEnd); ok {
			ends <- end.SessionID
		}
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, heard, nil)
	id := f.session()
	if got := f.ask(id, agentCall(`{"prompt":"later","background":true}`)); !strings.Contains(got, "in the background") {
		t.Errorf("got %q", got)
	}
	for n := 0; n < 2; {
		if <-ends == id {
			n++
		}
	}
	all, err := f.getMessages(context.Background(), protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil {
		t.Fatal(err)
	}
	var told []protocol.Message
	for _, text := range all.Messages {
		var m protocol.Message
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if m.Child != nil {
			told = append(told, m)
		}
	}
	if len(told) != 1 || heard.told[session.ChildKey(told[0].Child.SessionID, told[0].Child.RunID)] != 1 {
		t.Fatalf("got messages %+v of children, told %v", told, heard.told)
	}
	f.ask(id, told[0].Text) // a person says the same
	f.stop()
	f.events.done(t)
	heard.check(t)
	if len(heard.told) != 1 {
		t.Errorf("got messages %v, want one", heard.told)
	}
}

// Parents for which there is no room in memory while they wait are read again.
func TestAParentThatWaitsTakesNoMemory(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
	f.env.waiting = budget.New(0)
	call := agentCall(`{"prompt":"!agent {\"prompt\":\"leaf\"}"}`)
	id := f.session()
	for range 3 {
		if got := f.ask(id, call+"\n"+call); strings.Count(got, "leaf") != 2 {
			t.Errorf("got %q, want two answers", got)
		}
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
	if n := f.faults.Load(); n > 0 {
		t.Errorf("got %d faults", n)
	}
}

// A parent that has much in memory is shed while it waits, also where there is room, and each time that it was read.
func TestALongParentThatWaitsIsShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, hangsIn(begun), newHearing(), nil)
		id := f.session()
		f.ask(id, strings.Repeat("long ", maxParent/5))
		a, err := f.start(id, agentCall(`{"prompt":"!t.x"}`))
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		for range 2 {
			if !f.isShed(id) {
				t.Error("it is in memory")
			}
			if _, err := f.getState(context.Background(), protocol.GetStateParams{
				Scope: protocol.Scope{SessionID: id},
			}); err != nil {
				t.Fatal(err)
			}
		}
		f.abort(id)
		f.events.wait(a.RunID)
		f.stop()
		f.events.done(t)
		f.heard.check(t)
	})
}

// The limits of a run count what its children use.
func TestATreeHasOneBudget(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
		o.Limits.RunTokens = 30
	})
	for _, c := range []struct {
		prompt string
		over   bool
	}{{"one two", false}, {"one two three four five six seven eight nine ten eleven twelve", true}} {
		r, err := answered(f.prompt(context.Background(), protocol.PromptParams{
			Scope: protocol.Scope{SessionID: f.session()}, Text: agentCall(`{"prompt":"` + c.prompt + `"}`),
			Approvals: protocol.ApprovalsDeny,
		}))
		if over := err != nil && strings.Contains(err.Error(), "run_tokens in [limits] is 30"); over != c.over {
			t.Errorf("%q: got %v, want over the limit: %t", c.prompt, err, c.over)
		}
		if err == nil {
			r.Result.Release()
		}
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}

// A script's run, which denies what would be asked, has its child's run deny it, too. The child's session asks
// anyone who prompts it later.
func TestAChildOfAScriptsRunDeniesInThatRunAlone(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
	id := f.session()
	r, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: agentCall(`{"prompt":"one two"}`), Approvals: protocol.ApprovalsDeny,
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.Result.Release()
	parent, err := f.store.Peek(t.Context(), id)
	if err != nil || len(parent.Children) != 1 {
		t.Fatalf("it has the children %v, %v", parent.Children, err)
	}
	child, err := f.store.Peek(t.Context(), parent.Children[0])
	if err != nil || child.ApprovalMode != protocol.ApprovalsAsk {
		t.Errorf("the child's mode is %s, %v", child.ApprovalMode, err)
	}
	journal, err := os.ReadFile(filepath.Join(f.dir, "sessions", child.ID+".jsonl"))
	if err != nil || !strings.Contains(string(journal), `"approvals":"deny"`) {
		t.Errorf("the child's run asks: %s, %v", journal, err)
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}

// hangsIn is a tool that hangs in the first child, and begun says when.
func hangsIn(begun chan struct{}) tools {
	var once sync.Once
	return func(ctx context.Context, _ model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
		once.Do(func() { close(begun) })
		<-ctx.Done()
		return model.Failed("aborted", "stopped")
	}
}

func TestAnAbortStopsTheChildrenFirst(t *testing.T) {
	begun := make(chan struct{})
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, hangsIn(begun), newHearing(), nil)
	id := f.session()
	call := agentCall(`{"prompt":"!t.x"}`)
	a, err := f.start(id, call+"\n"+call+"\n!t.x")
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	f.abort(id)
	f.events.wait(a.RunID)
	f.stop()
	f.events.done(t)
	f.heard.check(t)
	for run := range f.heard.ref {
		if !f.heard.ended[run] {
			t.Errorf("run %s is left", run)
		}
	}
}

// A steer that waits for the end of a call waits on after a restart: it stopped the child, as if the call had ended
// (found by the simulator).
func TestASteerWaitsForAChildAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // the stop waits for the tool
		begun, ctx := make(chan struct{}), context.Background()
		f := newFamily(t, session.OSDisk{}, dir, offline.Model{}, hangsIn(begun), newHearing(), nil)
		id := f.session()
		if _, err := f.start(id, agentCall(`{"prompt":"!t.x"}`)); err != nil {
			t.Fatal(err)
		}
		<-begun
		if _, err := answered(f.queue(ctx, protocol.KindSteer, protocol.SteerParams{
			Scope: protocol.Scope{SessionID: id}, Text: "look here",
		})); err != nil {
			t.Fatal(err)
		}
		f.stop()
		next := newHearing()
		f = newFamily(t, session.OSDisk{}, dir, offline.Model{}, echoTool, next, nil)
		f.settled([]string{id}, nil)
		f.stop()
		answered := func(s string) bool { return strings.HasPrefix(s, "agent ok=true skipped=false") }
		if !slices.ContainsFunc(next.seen, answered) {
			t.Errorf("got %q, want what the child has said", next.seen)
		}
	})
}

// What people have queued in a child that its parent's abort stops is handed back by its end: nobody heard of it
// any more (found by the simulator).
func TestTextsOfAChildThatIsStoppedAreHandedBack(t *testing.T) {
	begun := make(chan struct{})
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, hangsIn(begun), newHearing(), nil)
	id, ctx := f.session(), context.Background()
	a, err := f.start(id, agentCall(`{"prompt":"!t.x"}`))
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	child, err := query(ctx, f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	in, err := answered(f.queue(ctx, protocol.KindFollowUp, protocol.SteerParams{
		Scope: protocol.Scope{SessionID: child}, Text: "and then",
	}))
	if err != nil {
		t.Fatal(err)
	}
	f.events.accepted(in.InputID, in.RunID)
	f.abort(id)
	f.events.wait(a.RunID)
	f.stop()
	f.events.done(t) // which fails where a text was neither delivered nor handed back
}

func TestASteerSkipsTheOtherChildren(t *testing.T) {
	steerFirstChild(t, agentCall(`{"prompt":"!t.x"}`), 2, false)
}

// A call whose child was stopped for a steer is told as aborted where an abort has handed the steer back meanwhile
// (found by the simulator).
func TestAnAbortBetweenASteerAndItsTurnSkipsNothing(t *testing.T) {
	steerFirstChild(t, agentCall(`{"prompt":"!t.x"}`), 2, true)
}

// One that is to work in the background is begun in its turn: it worked on, and its call was told as done, where
// the steer had to skip it (found by the simulator).
func TestASteerSkipsAChildInTheBackground(t *testing.T) {
	steerFirstChild(t, agentCall(`{"prompt":"x","background":true}`), 1, false)
}

// steerFirstChild steers a run that waits for a child, as many of whose calls work, and ends that child. With abort
// the run is aborted before the second one has ended.
func steerFirstChild(t *testing.T, second string, work int, abort bool) {
	begun, stopped, goOn := make(chan struct{}, 2), make(chan struct{}, 2), make(chan struct{}, 2)
	heard := newHearing()
	hangs := func(ctx context.Context, _ model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
		begun <- struct{}{}
		<-ctx.Done()
		stopped <- struct{}{}
		<-goOn
		return model.Failed("aborted", "stopped")
	}
	goOn <- struct{}{} // the first
	if !abort {
		goOn <- struct{}{}
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, hangs, heard, nil)
	id := f.session()
	call := agentCall(`{"prompt":"!t.x"}`)
	a, err := f.start(id, call+"\n"+second)
	if err != nil {
		t.Fatal(err)
	}
	for range work {
		<-begun
	}
	in, err := answered(f.queue(context.Background(), protocol.KindSteer, protocol.SteerParams{
		Scope: protocol.Scope{SessionID: id}, Text: "look here",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !abort { // which hands it back in its answer
		f.events.accepted(in.InputID, in.RunID)
	}
	st, err := query(context.Background(), f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	f.abort(st)
	if abort {
		<-stopped
		<-stopped
		got, err := requestAs[protocol.AbortAccepted](context.Background(), f.Hub, id, func(to ticket) input {
			return abortIn{to, ""}
		})
		if err != nil || len(got.Discarded) != 1 || got.Discarded[0].InputID != in.InputID {
			t.Fatalf("got %+v, %v, want the steer handed back", got, err)
		}
		goOn <- struct{}{}
	}
	f.events.wait(a.RunID)
	f.stop()
	f.events.done(t)
	heard.check(t)
	skipped := func(s string) bool { return strings.Contains(s, "skipped=true skipped") }
	if slices.ContainsFunc(heard.seen, skipped) == abort {
		t.Errorf("got %q; the second call is to be skipped: %t", heard.seen, !abort)
	}
	if runs := len(heard.ref); runs != 1+work {
		t.Errorf("there were %d runs, want %d", runs, 1+work)
	}
}

// A child that its parent waits for cannot be deleted: the next daemon made it again, and its work was done twice
// (found by the simulator).
func TestAChildThatIsWaitedForIsNotDeleted(t *testing.T) {
	begun, ends := make(chan struct{}), make(chan string, 10)
	heard := newHearing()
	heard.notify = func(ev protocol.Event) {
		if end, ok := ev.(protocol.AgentEnd); ok {
			ends <- end.SessionID
		}
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, hangsIn(begun), heard, nil)
	id, ctx := f.session(), context.Background()
	a, err := f.start(id, agentCall(`{"prompt":"!t.x"}`)+"\n"+agentCall(`{"prompt":"done"}`))
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	done := <-ends
	_, err = f.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: done})
	if err == nil || !strings.Contains(err.Error(), "run_in_progress: session "+id+" waits for its child session") {
		t.Errorf("got %v, want that its parent waits for it", err)
	}
	f.abort(id)
	f.events.wait(a.RunID)
	if _, err = f.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: done}); err != nil {
		t.Errorf("nobody waits for it any more, and it is not deleted: %v", err)
	}
}

func TestAParentIsDeletedWithItsChildren(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
	id, ctx := f.session(), context.Background()
	f.ask(id, agentCall(`{"prompt":"!agent {\"prompt\":\"leaf\"}"}`))
	_, err := f.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: id})
	if err == nil || !strings.Contains(err.Error(), "has_children") {
		t.Errorf("got %v, want has_children", err)
	}
	if _, err := f.deleteSession(ctx, protocol.DeleteSessionParams{SessionID: id, Children: true}); err != nil {
		t.Fatal(err)
	}
	if ids, err := f.store.IDs(); err != nil || len(ids) > 0 {
		t.Errorf("got %v, %v; want nothing left", ids, err)
	}
}

// A child that is asked again goes on in its own session.
func TestAChildGoesOn(t *testing.T) {
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), nil)
	id := f.session()
	f.ask(id, agentCall(`{"prompt":"first"}`))
	child, err := query(context.Background(), f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := f.ask(id, agentCall(`{"prompt":"second","session_id":"`+child+`"}`)); !strings.Contains(got, "agent: second") {
		t.Errorf("got %q", got)
	}
	if ids, err := f.store.IDs(); err != nil || len(ids) != 2 {
		t.Errorf("got %v, %v; want two sessions", ids, err)
	}
}

// What is allowed a child is never more than its parent, and people see whose it is.
func TestAChildIsAllowedNoMore(t *testing.T) {
	heard := newHearing()
	paths := make(chan []string, 1)
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, heard, func(o *Options) {
		o.Policy = delegating{map[string]string{"t.x": model.Ask}}
	})
	heard.notify = func(ev protocol.Event) {
		if s, ok := ev.(protocol.Status); ok && s.Code == protocol.StatusApprovalRequested {
			paths <- s.Approval.SessionPath
		}
	}
	id, ctx := f.session(), aPerson()
	a, err := f.start(id, "fix login\n"+agentCall(`{"prompt":"!t.x","description":"run tests"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := <-paths; len(got) != 2 || got[1] != "run tests" || !strings.HasPrefix(got[0], "fix login") {
		t.Errorf("got path %q", got)
	}
	child, err := query(ctx, f.Hub, id, func(m *machine) (string, error) { return m.s.Children[0], nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.setApprovalMode(ctx, protocol.SetApprovalModeParams{
		Scope: protocol.Scope{SessionID: child}, Mode: protocol.ApprovalsAuto,
	}); err == nil || !strings.Contains(err.Error(), "a child is allowed no more") {
		t.Errorf("got %v, want a refusal", err)
	}
	tools := func(id string, names ...string) error {
		_, err := f.setActiveTools(ctx, protocol.SetActiveToolsParams{Scope: protocol.Scope{SessionID: id}, Tools: names})
		return err
	}
	if err := tools(child, "t.x"); err != nil {
		t.Errorf("a tool that the parent has: %v", err)
	}
	if err := tools(id); err != nil {
		t.Fatal(err)
	}
	if err := tools(child, "t.x"); err == nil || !strings.Contains(err.Error(), `does not have "t.x"`) {
		t.Errorf("got %v, want a refusal of what the parent does not have", err)
	}
	if _, err := f.setApprovalMode(ctx, protocol.SetApprovalModeParams{
		Scope: protocol.Scope{SessionID: id}, Mode: protocol.ApprovalsDeny,
	}); err != nil {
		t.Fatal(err)
	}
	if mode, err := query(ctx, f.Hub, child, func(m *machine) (protocol.ApprovalMode, error) {
		return m.s.ApprovalMode, nil
	}); err != nil || mode != protocol.ApprovalsDeny {
		t.Errorf("got %s, %v; want the child's mode lowered with its parent's", mode, err)
	}
	if _, err := f.approve(ctx, protocol.ApproveParams{
		ApprovalID: "apr-1-" + child, Option: protocol.OptionOnce,
	}); err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	f.stop()
	f.events.done(t)
	heard.check(t)
}

// What was taken from a parent is taken from a child that goes on, and from one that waits to be made.
func TestAChildIsAllowedNoMoreThanItsParentIsByThen(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	waits := func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
		once.Do(func() { close(begun); <-goOn })
		return model.ToolResult{OK: true, Text: "done"}
	}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, waits, newHearing(), func(o *Options) {
		o.Children.Parallel = 1
	})
	id, ctx := f.session(), aPerson()
	setMode := func(mode protocol.ApprovalMode) {
		t.Helper()
		if _, err := f.setApprovalMode(ctx, protocol.SetApprovalModeParams{
			Scope: protocol.Scope{SessionID: id}, Mode: mode,
		}); err != nil {
			t.Fatal(err)
		}
	}
	setMode(protocol.ApprovalsAuto)
	call := agentCall(`{"prompt":"!t.x"}`)
	a, err := f.start(id, call+"\n"+call)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	setMode(protocol.ApprovalsDeny)
	close(goOn)
	f.events.wait(a.RunID)
	children, err := query(ctx, f.Hub, id, func(m *machine) ([]string, error) { return slices.Clone(m.s.Children), nil })
	if err != nil || len(children) != 2 {
		t.Fatalf("got %v, %v; want two children", children, err)
	}
	for _, child := range children {
		mode, err := query(ctx, f.Hub, child, func(m *machine) (protocol.ApprovalMode, error) {
			return m.s.ApprovalMode, nil
		})
		if err != nil || mode != protocol.ApprovalsDeny {
			t.Errorf("child %s has %q, %v; want its parent's mode", child, mode, err)
		}
	}
	if _, err := requestAs[protocol.ToolsAccepted](ctx, f.Hub, id, func(to ticket) input {
		return toolsIn{to, []string{agentTool}, 1}
	}); err != nil {
		t.Fatal(err)
	}
	got := f.ask(id, agentCall(`{"prompt":"!t.x","session_id":"`+children[0]+`"}`))
	if !strings.Contains(got, "not active") {
		t.Errorf("got %q, want the child refused a tool that its parent has not", got)
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}

func aPerson() context.Context {
	return protocol.WithCaller(context.Background(), protocol.Caller{PID: 1, UID: 1})
}

// A tree is kept or removed as one, whichever of its sessions was used last: no child is left without its
// parent, and none is taken from a parent that stays.
func TestATreeIsPrunedAsOne(t *testing.T) {
	var later atomic.Int64
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(), func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	id := f.session()
	f.ask(id, agentCall(`{"prompt":"!agent {\"prompt\":\"leaf\"}"}`))
	list, err := answered(f.listSessions(context.Background(), protocol.ListSessionsParams{}))
	if err != nil || len(list.Sessions) != 3 {
		t.Fatalf("got %d sessions, %v; want a tree of three", len(list.Sessions), err)
	}
	f.session() // is the active one
	leaf := list.Sessions[0].SessionID
	prune := func(keep Keep, dry bool) (gone []string) {
		t.Helper()
		if err := f.PruneSessions(context.Background(), keep, dry, func(s protocol.PrunedSession) {
			gone = append(gone, s.SessionID)
		}); err != nil {
			t.Error(err)
		}
		return gone
	}
	recent := time.Now().Add(48 * time.Hour)
	if err := os.Chtimes(filepath.Join(f.dir, "sessions", leaf+".jsonl"), recent, recent); err != nil {
		t.Fatal(err)
	}
	later.Store(int64(50 * time.Hour))
	if gone := prune(Keep{Older: 24 * time.Hour}, false); slices.Contains(gone, id) || slices.Contains(gone, leaf) {
		t.Errorf("removed %v, though the leaf was used just now", gone)
	}
	later.Store(int64(100 * time.Hour))
	for _, dry := range []bool{true, false} {
		gone := prune(Keep{Older: 24 * time.Hour}, dry)
		if len(gone) != 3 || gone[0] != leaf || gone[2] != id {
			t.Errorf("dry %t: removed %v, want all three, children first", dry, gone)
		}
	}
}

// A model is told which files a child has changed, and of which that is not sure.
func TestTheFilesOfAChildAreTold(t *testing.T) {
	many := slices.Repeat([]protocol.ChangedFile{{Path: "x"}}, maxChildFiles+1)
	for _, test := range []struct {
		files []protocol.ChangedFile
		want  string
	}{
		{nil, ""},
		{[]protocol.ChangedFile{{Path: "a"}, {Path: "b\n"}}, "; files changed: a, b"},
		{[]protocol.ChangedFile{{Path: "a", Shared: true}}, "; files that it or somebody else changed: a"},
		{
			[]protocol.ChangedFile{{Path: "a", Shared: true}, {Path: "b"}},
			"; files changed: b; files that it or somebody else changed: a",
		},
		{many, "; files changed: " + strings.Repeat("x, ", maxChildFiles-1) + "x and 1 more"},
	} {
		if got := filesNote(test.files); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
