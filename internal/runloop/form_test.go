package runloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/form"
	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

const howMany = `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"default":3}},"required":["n"]}`

// asks has the call of that generation ask how many. Its answer comes once, as that
// of every client does.
func (w *world) asks(gen int) *client {
	w.t.Helper()
	f, err := form.Parse([]byte(howMany))
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.client("the tool")
	w.step(askIn{gen, c, model.Question{Message: "How many?", Schema: []byte(howMany)}, f})
	return c
}

// inCall brings a world into a call of t.x.
func inCall(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.prompt("do it")
	w.say(toolCall("t.x"), toolCall("t.w"), model.Delta{Stop: model.StopToolCalls})
	if w.m.phase != calling {
		t.Fatal(w.story())
	}
	return w
}

func (w *world) fills(option, content string) {
	w.refused = nil
	in := answerIn{
		w.client("approve"), fmt.Sprintf("apr-%d-ses-1", w.m.s.Asked), option, "",
		person{pid: 7, uid: 1000, comm: "nous"},
		nil,
	}
	if content != "" {
		in.content = jsontext.Value(content)
	}
	w.step(in)
}

// A call asks and goes on running; what fits is taken, once, and what does not is
// refused and leaves the form open.
func TestACallAsksWhileItRuns(t *testing.T) {
	for name, c := range map[string]struct {
		option, content string
		want            string // of the answer
		outcome         protocol.ApprovalOutcome
	}{
		"filled in":    {"accept", `{"n":5}`, `accept {"n":5}`, "allowed"},
		"its defaults": {"accept", "", `accept {"n":3}`, "allowed"},
		"declined":     {"decline", "", "decline ", "denied"},
		"cancelled":    {"cancel", "", "cancel ", "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			w := inCall(t)
			tool := w.asks(w.work.gen)
			q := w.m.question()
			if q == nil || q.Kind != "question" || q.Reason != "How many?" || string(q.Schema) != howMany ||
				q.ToolName != "t.x" || w.m.phase != calling {
				t.Fatalf("asks %+v in phase %d", q, w.m.phase)
			}
			for _, bad := range []struct{ option, content string }{
				{"once", ""},
				{"accept", `{"n":0}`},
				{"accept", `{"m":1}`},
				{"decline", `{"n":5}`},
			} {
				w.fills(bad.option, bad.content)
				if w.refused == nil || !w.m.s.Run.Question.Open() {
					t.Fatalf("%+v: refused with %v, want it refused and the form open", bad, w.refused)
				}
			}
			w.fills(c.option, c.content)
			if got := tool.got; got != c.want || w.refused != nil {
				t.Errorf("the call gets %q, %v; want %q", got, w.refused, c.want)
			}
			w.fills(c.option, c.content)
			if w.refused != nil {
				t.Errorf("the same again is refused: %v", w.refused)
			}
			w.fills("accept", `{"n":9}`)
			if !w.refusedBy(protocol.ApprovalResolved) {
				t.Errorf("another answer gets %v", w.refused)
			}
			w.asks(w.work.gen)
			w.fills("cancel", "")
			w.finish()
		})
	}
}

// What ends the waiting withdraws the form, at once, and the call is told.
func TestAFormIsWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, tool *client)
		want string
	}{
		"abort": {func(w *world, _ *client) { w.step(abortIn{}) }, "abort"},
		"steer": {func(w *world, _ *client) {
			w.step(queueIn{kind: protocol.KindSteer, p: protocol.SteerParams{Text: "no"}})
		}, "steer"},
		"the call ends":    {func(w *world, _ *client) { w.step(toolDoneIn{w.work.gen, model.ToolResult{}}) }, "call"},
		"nobody waits":     {func(w *world, tool *client) { w.step(unaskIn{w.work.gen, tool}) }, "call"},
		"the daemon stops": {func(w *world, _ *client) { w.step(drainIn{}) }, "restart"},
		"it cannot wait":   {func(w *world, _ *client) { w.step(drainNowIn{}) }, "restart"},
		"killed":           {func(w *world, _ *client) { w.restart(nil) }, "restart"},
		"the disk fails":   {func(w *world, _ *client) { w.step(resumeIn{fault: true}) }, "restart"},
		"somebody else's wait": {func(w *world, _ *client) {
			w.step(unaskIn{w.work.gen, w.m})
			w.step(toolDoneIn{gen: w.work.gen})
		}, "call"},
	} {
		t.Run(name, func(t *testing.T) {
			w := inCall(t)
			tool := w.asks(w.work.gen)
			c.end(w, tool)
			if got := w.resolution(); got != "withdrawn by "+c.want {
				t.Errorf("got %q, want it withdrawn by %s\n%s", got, c.want, w.story())
			}
			if name != "killed" && name != "the disk fails" && tool.got != "cancel " {
				t.Errorf("the call gets %q", tool.got)
			}
			w.fills("accept", "")
			if !w.refusedBy(protocol.ApprovalResolved) {
				t.Errorf("an answer after that gets %v", w.refused)
			}
			w.restart(nil)
			w.finish()
		})
	}
	w := inCall(t)
	tool := w.asks(w.work.gen)
	w.step(lateIn{"apr-1-ses-1"})
	if tool.got != "cancel " || w.resolution() != "denied by timeout" || w.m.phase != calling {
		t.Errorf("nobody answers in time: the call gets %q, the form is %s", tool.got, w.resolution())
	}
	w.finish()
}

// Nobody is asked for a call that is over, twice at a time, where a steer waits, in a
// run that asks nobody, or without an end.
func TestWhatIsNotAsked(t *testing.T) {
	w := inCall(t)
	if c := w.asks(w.work.gen - 1); c.got != "cancel " {
		t.Errorf("a call that is over gets %q", c.got)
	}
	w.asks(w.work.gen)
	if w.asks(w.work.gen); !errors.Is(w.refused, errOneForm) {
		t.Errorf("a second form gets %v", w.refused)
	}
	w.step(queueIn{kind: protocol.KindSteer, p: protocol.SteerParams{Text: "no"}})
	if c := w.asks(w.work.gen); c.got != "cancel " || w.m.s.Asked != 1 {
		t.Errorf("where a steer waits it gets %q", c.got)
	}
	w.finish()

	w = inCall(t)
	w.step(approvalModeIn{mode: protocol.ApprovalsDeny})
	if c := w.asks(w.work.gen); c.got != "decline " || w.m.s.Asked != 0 ||
		!strings.Contains(w.story(), "nobody can answer here: How many?") {
		t.Errorf("where nobody is asked it gets %q\n%s", c.got, w.story())
	}
	w.step(approvalModeIn{mode: protocol.ApprovalsAuto})
	for n := 0; ; n++ {
		if n > 5000 {
			t.Fatal("it may ask without an end")
		}
		w.refused = nil
		if w.asks(w.work.gen); errors.Is(w.refused, errManyForms) {
			break
		}
		w.fills("decline", "")
	}
	w.step(toolDoneIn{gen: w.work.gen})
	w.refused = nil
	if w.asks(w.work.gen); w.refused != nil || w.m.question() == nil {
		t.Errorf("the next call gets %v", w.refused)
	}
	w.finish()
}

// Killed after each record of a life with a form: it is never open after the restart
// nor asked again, and its call is not made twice.
func TestKilledWhileACallAsks(t *testing.T) {
	whole := inCall(t)
	whole.asks(whole.work.gen)
	whole.fills("accept", "")
	whole.finish()
	asked := slices.IndexFunc(whole.records, func(r session.Record) bool {
		_, ok := r.Fact.(session.ApprovalAsked)
		return ok
	})
	for n := asked + 1; n <= len(whole.records); n++ {
		w := newWorld(t)
		w.checker, w.events = nil, nil
		w.records, w.ids = slices.Clone(whole.records[:n]), 1000
		w.restart(nil)
		if q := w.m.question(); q != nil {
			t.Errorf("after %T: %s is open", w.records[n-1].Fact, q.ApprovalID)
		}
		w.finish()
		decided := slices.DeleteFunc(slices.Clone(w.records), func(r session.Record) bool {
			_, ok := r.Fact.(session.ApprovalDecided)
			return !ok
		})
		if len(decided) != 1 {
			t.Errorf("after %T: the form is decided %d times", w.records[n-1].Fact, len(decided))
		}
	}
}

// Over the hub: a flood of forms is refused and costs nobody anything, hostile ones
// are refused, and the form of one session is answered by its id.
func TestToolsAskOverTheHub(t *testing.T) {
	var said []string
	shown, flooded := make(chan struct{}), make(chan struct{})
	call := func(ctx context.Context, inv model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
		for _, schema := range []string{
			`{"$ref":"#"}`, "", `[`, `{"type":"object","properties":{"a":{"$ref":"#"}}}`,
			`{"type":"object","properties":{"a":{"type":"string","examples":` + strings.Repeat("[", 2000) +
				strings.Repeat("]", 2000) + `}}}`,
		} {
			if _, err := inv.Ask(ctx, model.Question{Schema: []byte(schema)}); err == nil {
				t.Errorf("%.40s is asked", schema)
			}
		}
		if _, err := inv.Ask(ctx, model.Question{
			Message: strings.Repeat("x", maxFormText+1),
			Schema:  []byte(howMany),
		}); !errors.Is(err, errFormText) {
			t.Errorf("a long text: %v", err)
		}
		first := make(chan string, 1)
		go func() {
			a, err := inv.Ask(ctx, model.Question{Message: "How many?", Schema: []byte(howMany)})
			first <- fmt.Sprintf("%s %s %v", a.Action, a.Content, err)
		}()
		<-shown
		for range 1000 {
			if _, err := inv.Ask(ctx, model.Question{Schema: []byte(howMany)}); !errors.Is(err, errOneForm) {
				t.Errorf("another form: %v", err)
			}
		}
		close(flooded)
		said = append(said, <-first)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		a, err := inv.Ask(gone, model.Question{Schema: []byte(howMany)})
		said = append(said, fmt.Sprintf("%s %v", a.Action, err))
		return model.ToolResult{OK: true, Text: "done"}
	}
	f := newFixture(t, t.TempDir(), offline.Model{}, call, newRecorder())
	_, asked, run := f.asksFor("!t.x")
	close(shown)
	<-flooded
	f.events.mu.Lock()
	f.events.onEvent = nil
	f.events.mu.Unlock()
	out, err := f.approve(nous, protocol.ApproveParams{
		ApprovalID: asked.ApprovalID, Option: "accept",
		Content: jsontext.Value(`{"n":7}`),
	})
	if err != nil || out.Outcome != protocol.OutcomeAllowed {
		t.Errorf("approve: %+v, %v", out, err)
	}
	f.events.wait(run)
	if got, want := strings.Join(said, "; "), `accept {"n":7} <nil>; cancel <nil>`; got != want {
		t.Errorf("the tool got %q, want %q", got, want)
	}
	f.stop()
	f.events.done(t)
	if used := f.env.forms.Used(); used != 0 {
		t.Errorf("%d bytes of forms are held for ever", used)
	}
}
