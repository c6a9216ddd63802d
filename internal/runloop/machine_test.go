package runloop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/session"
	"noused/internal/testenv"
)

// world is everything around one machine: it performs the effects at once,
// keeps the journal, and notes what every client was told.
type world struct {
	kept    []string // rules
	t       *testing.T
	m       *machine
	records []session.Record
	checker *protocoltest.Checker
	events  []protocol.Event
	work    work // the latest piece that was started and not cancelled
	ids     int
	clock   time.Time
	asked   map[*client]bool // clients without their reply
	waiting map[*client]bool // clients without their run's end
	refused error            // the latest refusal

	accepted   []string // inputs
	handedBack []protocol.DiscardedInput
	withdrawn  protocol.Withdrawn // the latest

	may      map[string]string // by tool: the decision on its calls; others ask a little of everything
	moved    string            // before the path of every call: a link leads there
	defaults map[string]string // by tool: what its calls come to with defaults
	runs     map[string]int    // calls that were made, by their ids

	guarded bool // orchestrators are asked now and then

	own  model.Choice // the daemon's
	gone string       // the model of that name cannot be asked

	others []model.Choice // the fallbacks
	hooked bool           // hooks may send runs back
	folder bool           // what turns change is recorded
	played *playedFolder  // that folder; nil: none
}

type client struct {
	name string
	wait bool
	got  string // how its form ended, if it is a tool that asked
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, checker: protocoltest.NewChecker(), clock: time.Unix(1e9, 0),
		asked: map[*client]bool{}, waiting: map[*client]bool{}, runs: map[string]int{},
		may: map[string]string{"t.y": model.Ask, "t.z": model.Deny}, own: model.Choice{Provider: "p", Name: "test"},
	}
	w.records = []session.Record{{At: w.clock, Fact: session.Created{SessionID: "ses-1"}}}
	w.boot()
	return w
}

// boot starts a machine from what is kept alone, as a daemon's start does.
func (w *world) boot() { w.bootAs(resumeIn{}) }

func (w *world) bootAs(in resumeIn) {
	s := session.NewState()
	for _, r := range w.records {
		if err := s.Apply(r); err != nil {
			w.t.Fatalf("the journal does not fold: %v", err)
		}
	}
	w.m = &machine{s: s, ownModel: func() model.Choice {
		return w.own
	}, maxSteps: 50, newID: func(prefix string) string { w.ids++; return fmt.Sprint(prefix, w.ids) }}
	w.m.judge, w.m.records, w.m.bounds = w.judge, w.folder, Bounds{Depth: 2, Parallel: 8, Total: 50}
	w.m.stopHooks = func(string) bool { return w.hooked }
	w.m.fallbacks = func() []model.Choice { return w.others }
	w.m.missing = func(c model.Choice) error {
		if c.Name == w.gone {
			return fmt.Errorf("%q is gone", c.Name)
		}
		return nil
	}
	w.work = work{}
	if s.Run != nil { // the store has this
		s.Run.Said = w.announced(s.Run.Open.ID)
	}
	w.step(in)
}

// announced is what clients learned of a message before its end.
func (w *world) announced(id string) (p session.Piece) {
	for _, ev := range w.events {
		if u, ok := ev.(protocol.MessageUpdate); ok && u.MessageID == id {
			p.Text += u.Delta
			p.Thinking += u.ThinkingDelta
		}
	}
	return p
}

func (w *world) step(in input) {
	w.t.Helper()
	w.clock = w.clock.Add(time.Second)
	w.m.step(w.clock, in)
	out := w.m.drainEffects()
	w.records = append(w.records, out.records...)
	for _, k := range out.rules { // as the loop does
		w.kept = append(w.kept, string(k.rule))
		w.m.record(session.RuleKept{ApprovalID: k.approvalID})
		w.records = append(w.records, w.m.drainEffects().records...)
	}
	for _, r := range out.replies {
		w.answer(r)
	}
	for _, ev := range out.events {
		w.events = append(w.events, ev)
		if w.checker == nil {
			continue
		}
		if err := w.checker.Event(ev); err != nil {
			w.t.Fatalf("after %d events: %v\n%s", len(w.events), err, w.story())
		}
	}
	for _, job := range out.work {
		if job.tool != nil {
			w.started(job.tool)
		}
		w.work = job
		if job.cancels() {
			w.work = work{}
			if w.m.phase == calling { // a cancelled tool still gives its result
				w.work = work{gen: job.gen, tool: &model.Invocation{}}
			}
		}
	}
	w.play(out)
}

// judge is by the tool's name.
func (w *world) judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
	v := model.Verdict{
		Decision: cmpOr(w.may[inv.Name], model.Allow), Rule: "by name", Code: model.Forbidden,
		Path: w.moved + "/where/" + inv.Name, Linked: w.moved != "", Delegates: inv.Name == agentTool,
	}
	switch {
	case v.Decision == model.Deny:
	case slices.ContainsFunc(answers, func(rule []byte) bool { return string(rule) == `"`+inv.Name+`"` }):
		v.Decision = model.Allow
	case v.Decision == model.Ask:
		v.Changes = w.m.s.Asked%2 == 1
		v.Offer = &model.Offer{Pattern: inv.Name, Rule: []byte(`"` + inv.Name + `"`)}
		if mode != "ask" {
			v.Decision, v.Code = map[string]string{"auto": model.Allow, "deny": model.Deny}[mode], model.Denied
		}
	}
	v.Guarded = w.guarded && w.m.s.Messages%3 == 0
	if filled := w.defaults[inv.Name]; filled != "" && filled != string(inv.Arguments) {
		v.Arguments = []byte(filled)
	}
	return v
}

// started holds a call against what allows it: no call without a yes, none twice,
// none with other arguments.
func (w *world) started(inv *model.Invocation) {
	w.t.Helper()
	if want := w.moved + "/where/" + inv.Name; inv.Path != want {
		w.t.Fatalf("%s is called for the path %q, judged was %q", inv.Name, inv.Path, want)
	}
	if w.runs[inv.ID]++; w.runs[inv.ID] > 1 {
		w.t.Fatalf("call %s is made %d times\n%s", inv.ID, w.runs[inv.ID], w.story())
	}
	if w.may[inv.Name] == model.Deny {
		w.t.Fatalf("%s is made, and denied\n%s", inv.Name, w.story())
	}
	if w.may[inv.Name] != model.Ask {
		return
	}
	mode, ruled, allowed, form := protocol.ApprovalsAsk, false, false, false
	for _, r := range w.records {
		switch f := r.Fact.(type) {
		case session.ApprovalModeSet:
			mode = f.Mode
		case session.ApprovalAsked:
			if form = f.Kind == protocol.ApprovalQuestion; form {
				continue
			}
			allowed = false
			if f.CallID == inv.ID {
				defer func() {
					if !allowed {
						w.t.Fatalf("%s was asked about and is made without a yes\n%s", inv.ID, w.story())
					}
				}()
			}
		case session.ApprovalDecided:
			if form {
				continue
			}
			allowed = f.Outcome == protocol.OutcomeAllowed
			ruled = ruled || f.Rule != nil // for this tool, which is the only one that asks
		}
	}
	if mode != protocol.ApprovalsAuto && !ruled && !allowed {
		w.t.Fatalf("%s of %s is made, and nobody has allowed it\n%s", inv.ID, inv.Name, w.story())
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func (w *world) answer(r reply) {
	c, ok := r.to.(*client)
	switch {
	case !ok || r.postponed:
		return
	case r.ended != nil:
		if !w.waiting[c] {
			w.t.Fatalf("%s is told twice that its run ended", c.name)
		}
		delete(w.waiting, c)
		return
	case !w.asked[c]:
		w.t.Fatalf("%s is answered twice", c.name)
	}
	delete(w.asked, c)
	if r.err != nil {
		w.refused = r.err
		return
	}
	switch v := r.value.(type) {
	case model.Answer:
		c.got = v.Action + " " + string(v.Content)
	case protocol.PromptAccepted:
		w.checker.Accepted(v.InputID, v.RunID)
		if !slices.Contains(w.accepted, v.InputID) {
			w.accepted = append(w.accepted, v.InputID)
		}
		if c.wait {
			w.waiting[c] = true
		}
	case protocol.Withdrawn:
		w.withdrawn = v
	case protocol.AbortAccepted:
		w.handedBack = append(w.handedBack, v.Discarded...)
		if err := w.checker.HandedBack(v.Discarded); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) client(name string) *client {
	c := &client{name: name}
	w.asked[c] = true
	return c
}

// story is the tail of what was announced.
func (w *world) story() string {
	out := ""
	for _, ev := range w.events[max(0, len(w.events)-25):] {
		out += fmt.Sprintf("%s %+v\n", ev.Type(), ev)
	}
	return out
}

// finish plays a world's model and tools to the end, so that whatever was
// promised can be asked for.
func (w *world) finish() {
	w.t.Helper()
	w.gone = "none"
	w.step(modelsIn{})
	for n := 0; !w.m.resting(); n++ {
		if n > 100_000 {
			w.t.Fatalf("the run does not end\n%s", w.story())
		}
		if w.m.phase == waiting || w.m.phase == calling && n%2 == 0 && w.m.s.Run.Question.Open() {
			q := w.m.s.Run.Question
			w.step(answerIn{nil, q.ApprovalID, q.Options[n%len(q.Options)].ID, "", person{}, nil})
			continue
		}
		if w.m.phase == looking {
			w.step(lookedIn{w.work.gen, "-a", model.Verdict{}})
			continue
		}
		if w.work.tool != nil {
			w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
			continue
		}
		if w.m.phase == recording || w.m.late.gen != 0 {
			w.step(w.record())
			continue
		}
		if w.m.phase == ending {
			w.step(stopCheckedIn{w.work.gen, "not yet", nil})
			continue
		}
		w.step(deltaIn{w.work.gen, model.Delta{Text: "bye", Stop: model.StopEnd}})
		w.step(modelDoneIn{w.work.gen, nil})
	}
	if w.checker == nil {
		return
	}
	if err := w.checker.Done(); err != nil {
		w.t.Fatalf("%v\n%s", err, w.story())
	}
	if w.m.filling.asker != nil {
		w.t.Fatalf("a call waits for ever for its form\n%s", w.story())
	}
	for c := range w.asked {
		w.t.Fatalf("%s was never answered", c.name)
	}
	for c := range w.waiting {
		w.t.Fatalf("%s never heard of its run's end", c.name)
	}
}

// random does one random thing that can happen to a session.
func (w *world) random(pick func(n int) int) {
	w.t.Helper()
	w.guarded = true
	texts := []string{"a", "b\nc", "!t.x"}
	text := texts[pick(len(texts))]
	stale := w.work.gen - pick(2)*pick(3)
	switch pick(40) {
	case 39:
		w.gone = []string{"none", "none", "test", "small", ""}[pick(5)]
		w.own = []model.Choice{{}, {Provider: "p", Name: "test"}, {Provider: "p", Name: "small"}}[pick(3)]
		w.others = [][]model.Choice{nil, {{Provider: "p", Name: "none"}, {Provider: "p", Name: "other"}}}[pick(2)]
		w.step(modelsIn{})
	case 34, 35:
		w.asks(stale)
	case 36:
		w.step(unaskIn{stale, w.m.filling.asker})
	case 30, 31:
		id := fmt.Sprintf("apr-%d-ses-1", max(0, w.m.s.Asked-pick(3)))
		option := []string{
			protocol.OptionOnce, protocol.OptionDeny, protocol.OptionSession, protocol.OptionAlways,
			protocol.OptionContinue, "never", "accept", "accept", "decline", "cancel",
		}[pick(10)]
		content := []jsontext.Value{nil, nil, jsontext.Value(`{"n":5}`), jsontext.Value(`{"n":"x"}`)}[pick(4)]
		w.step(answerIn{w.client("approve"), id, option, "", person{pid: 7, uid: 1, comm: "nous"}, content})
	case 32:
		guards := []model.Verdict{{}, {Decision: model.Deny, Code: model.Forbidden}}
		w.step(lookedIn{stale, "-a", guards[pick(2)]})
		w.step(lateIn{fmt.Sprintf("apr-%d-ses-1", w.m.s.Asked)})
	case 33:
		if pick(4) == 0 {
			w.step(approvalModeIn{w.client("approvals"), []protocol.ApprovalMode{"ask", "auto", "deny"}[pick(3)]})
		}
		w.m.limits = Limits{RunTokens: int64(pick(3)) * 50}
	case 0, 1, 2:
		c := w.client("prompt")
		c.wait = pick(2) == 0
		p := protocol.PromptParams{
			Text: text, StreamingBehavior: []protocol.Kind{"", "steer", "follow_up"}[pick(3)],
			Approvals: []protocol.ApprovalMode{"", "deny"}[pick(8)/7],
		}
		if pick(4) == 0 {
			p.IdempotencyKey = fmt.Sprint("key", pick(5))
		}
		if entries := w.m.s.Entries(); len(entries) > 0 && pick(3) == 0 {
			p.LeafID = entries[pick(len(entries))].ID
		}
		w.step(promptIn{c, p, c.wait, nil, nil})
	case 3, 4, 5:
		p := protocol.SteerParams{Text: text, IfIdle: []protocol.Kind{"", "prompt"}[pick(2)]}
		w.step(queueIn{w.client("steer"), protocol.KindSteer, p, nil})
	case 6, 7:
		p := protocol.SteerParams{Text: text, IfIdle: []protocol.Kind{"", "prompt"}[pick(2)]}
		w.step(queueIn{w.client("follow_up"), protocol.KindFollowUp, p, nil})
	case 8:
		w.step(abortIn{w.client("abort"), []string{"", "run-0"}[pick(2)]})
	case 9:
		kind := []protocol.Kind{protocol.KindSteer, protocol.KindFollowUp}[pick(2)]
		w.step(modeIn{w.client("mode"), "set", kind, []protocol.Mode{protocol.ModeOneAtATime, protocol.ModeAll}[pick(2)]})
	case 10:
		w.step(toolsIn{w.client("tools"), []string{"t.x", "t.y", "t.z"}[:pick(4)], 0})
	case 11:
		if entries := w.m.s.Entries(); len(entries) > 0 {
			w.step(leafIn{w.client("leaf"), entries[pick(len(entries))].ID})
		}
	case 12:
		w.step(compactIn{w.client("compact"), ""})
	case 13:
		w.step(toolUpdateIn{stale, model.ToolUpdate{Delta: "x", Patch: []byte(`{"a":{"b":1,"c":null}}`)}})
	case 14:
		w.step(toolUpdateIn{stale, model.ToolUpdate{Delta: "bad", Warning: "invalid_tool_event"}})
	case 15, 16:
		w.step(toolDoneIn{stale, model.ToolResult{OK: pick(2) == 0, Text: "r"}})
	case 17:
		err := []error{errors.New("overloaded"), tooLong(), noCredit(time.Duration(pick(2)) * time.Second)}[pick(3)]
		w.step(modelDoneIn{stale, err})
	case 24:
		w.step(modelIn{w.client("model"), model.Choice{
			Provider: []string{"", "p"}[pick(2)], Name: "small",
			ContextWindow: int64(pick(3)) * 20,
		}})
	case 25:
		w.step(titleIn{w.client("title"), text})
	case 26:
		w.step(readIn{w.client("read")})
	case 37:
		w.step(deferredIn{w.client("deferred"), stale, session.ToolsDeferred{Search: "t.z"}})
	case 38:
		w.step(foundIn{stale, []string{"t.x", "t.y"}[:pick(3)]})
	case 29:
		w.hooked = pick(2) == 0
		w.step(stopCheckedIn{stale, []string{"", "tests fail"}[pick(2)], nil})
	case 27, 28:
		if n := len(w.accepted); n > 0 {
			w.step(withdrawIn{w.client("withdraw"), w.accepted[n-1-pick(min(n, 4))]})
		}
	case 18:
		w.step(deltaIn{stale, model.Delta{Thinking: "hm"}})
	case 19, 20:
		call := &model.ToolCall{
			ID: "call_0", Name: []string{"t.x", "t.y", "t.y", "t.z"}[pick(4)],
			Arguments: []byte(`{ "n":  1.0 }`),
		}
		w.step(deltaIn{stale, model.Delta{ToolCall: call}})
	default:
		stops := []model.StopReason{model.StopEnd, model.StopToolCalls, model.StopLength, ""}
		w.step(deltaIn{stale, model.Delta{Text: text}})
		w.step(deltaIn{stale, model.Delta{Stop: stops[pick(4)], Usage: model.Usage{InputTokens: int64(pick(20))}}})
		w.step(modelDoneIn{stale, nil})
	}
}

// TestInvariantsOverAMillionSteps is the §4 oracle over random lives.
func TestInvariantsOverAMillionSteps(t *testing.T) {
	const life = 500
	for seed := range testenv.Tries(1_000_000 / life) {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		w := newWorld(t)
		for range life {
			w.random(rng.IntN)
		}
		w.finish()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A daemon killed between any two steps goes on with the same runs, and no
// text is lost or said twice.
func TestInvariantsAcrossRestarts(t *testing.T) {
	for seed := range testenv.Tries(300) {
		rng := rand.New(rand.NewPCG(uint64(seed), 11))
		w := newWorld(t)
		for range 300 {
			w.random(rng.IntN)
			if rng.IntN(40) == 0 {
				w.restart(rng)
			}
		}
		w.finish()
	}
}

// restart loses everything but the journal, sometimes with its unsynced end.
func (w *world) restart(rng *rand.Rand) {
	w.t.Helper()
	clear(w.asked) // the connections are gone
	clear(w.waiting)
	open := w.m.s.Run
	w.boot()
	if open != nil && w.m.s.Run != nil && w.m.s.Run.ID != open.ID && rng != nil {
		started, ended := w.checker.Run(open.ID)
		if started && !ended {
			w.t.Fatalf("run %s was replaced by %s", open.ID, w.m.s.Run.ID)
		}
	}
}

// everything lets a comparison see private fields as well, but for where the texts of
// entries are.
var everything = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }),
	cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && slices.Contains([]string{"body", "lent", "encoded"}, f.Name())
	}, cmp.Ignore()),
}

// difference is what two states do not have in common.
func difference(a, b *session.State) string {
	for _, s := range []*session.State{a, b} { // they look for what they have when they are asked
		s.Entry("none")
		s.Ended("none")
	}
	diff := cmp.Diff(a, b, everything)
	for i, e := range a.Entries() {
		if diff == "" {
			diff = cmp.Diff(e.Body().MessageAdded, b.Entries()[i].Body().MessageAdded, everything)
		}
	}
	return diff
}

// The live session equals the fold of its journal, at every moment.
func TestStateIsTheFoldOfTheJournal(t *testing.T) {
	for seed := range testenv.Tries(40) {
		rng := rand.New(rand.NewPCG(uint64(seed), 13))
		w := newWorld(t)
		beside := session.NewState()
		for folded := 0; len(w.records) < 300; folded = len(w.records) {
			w.random(rng.IntN)
			apply(t, beside, w.records[folded:])
			if rng.IntN(40) > 0 { // it is slow
				continue
			}
			if diff := difference(beside, w.m.s); diff != "" {
				t.Fatalf("seed %d: -fold +live:\n%s", seed, diff)
			}
		}
		again := session.NewState()
		apply(t, again, w.records)
		if diff := difference(again, w.m.s); diff != "" {
			t.Fatalf("seed %d: -fold +live:\n%s", seed, diff)
		}
	}
}

func apply(t *testing.T, s *session.State, records []session.Record) {
	t.Helper()
	for _, r := range records {
		if err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 3, 19, 0, 21, 3, 15, 8, 0, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t)
		next := 0
		pick := func(n int) int {
			if next >= len(data) {
				return 0
			}
			next++
			return int(data[next-1]) % n
		}
		for next < len(data) {
			w.random(pick)
			if pick(30) == 29 {
				w.restart(nil)
			}
		}
		w.finish()
	})
}

// types lists what was announced, for the stories below.
func (w *world) types() []string {
	var out []string
	for _, ev := range w.events {
		s := ev.Type()
		switch ev := ev.(type) {
		case protocol.TurnStart:
			s += " " + string(ev.Kind)
		case protocol.TurnEnd:
			s += " " + string(ev.StopReason)
		case protocol.AgentEnd:
			s += " " + string(ev.StopReason)
		case protocol.MessageStart:
			s += " " + ev.Role
		case protocol.MessageEnd:
			s += " " + ev.Role + " " + string(ev.StopReason)
		case protocol.ToolEnd:
			s += fmt.Sprintf(" ok=%t skipped=%t", ev.OK, ev.Skipped)
		case protocol.Status:
			s += " " + string(ev.Code)
		}
		out = append(out, s)
	}
	return out
}

func (w *world) prompt(text string) {
	w.step(promptIn{nil, protocol.PromptParams{Text: text}, false, nil, nil})
}

func (w *world) say(d ...model.Delta) {
	for _, d := range d {
		w.step(deltaIn{w.work.gen, d})
	}
	w.step(modelDoneIn{w.work.gen, nil})
}

func toolCall(name string) model.Delta {
	return model.Delta{ToolCall: &model.ToolCall{Name: name, Arguments: []byte(`{}`)}}
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.types()); diff != "" {
		w.t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSteerDuringAToolSkipsTheRest(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.say(toolCall("t.x"), toolCall("t.y"), model.Delta{Stop: model.StopToolCalls})
	w.step(queueIn{nil, protocol.KindFollowUp, protocol.SteerParams{Text: "later"}, nil})
	w.step(queueIn{nil, protocol.KindSteer, protocol.SteerParams{Text: "stop that"}, nil})
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true, Text: "done"}})
	w.finish()
	w.expect(
		"agent_start", "turn_start prompt", "message_start user", "message_end user ",
		"message_start assistant", "message_end assistant tool_calls",
		"tool_execution_start", "status follow_up_queued", "status steer_queued",
		"tool_execution_update", "tool_execution_end ok=true skipped=false",
		"tool_execution_start", "tool_execution_update", "tool_execution_end ok=false skipped=true",
		"turn_end steered",
		"turn_start steer", "message_start user", "message_end user ", "message_start assistant", "message_update",
		"message_end assistant end", "turn_end end",
		"turn_start follow_up", "message_start user", "message_end user ", "message_start assistant", "message_update",
		"message_end assistant end", "turn_end end",
		"agent_end completed",
	)
}

// Who comes later reads of a call that was not run why, in no words that he would have to
// compare.
func TestEntriesSayWhyACallWasNotRun(t *testing.T) {
	for _, c := range []struct {
		input input
		want  []protocol.NotRun
	}{
		{
			queueIn{nil, protocol.KindSteer, protocol.SteerParams{Text: "stop that"}, nil},
			[]protocol.NotRun{"", protocol.NotRunSteered},
		},
		{abortIn{}, []protocol.NotRun{"", protocol.NotRunAborted}},
	} {
		w := newWorld(t)
		w.prompt("go")
		w.say(toolCall("t.x"), toolCall("t.y"), model.Delta{Stop: model.StopToolCalls})
		w.step(c.input)
		w.step(toolDoneIn{w.work.gen, model.ToolResult{Text: "done"}})
		w.finish()
		path, _ := w.m.s.Path("")
		var got []protocol.NotRun
		for _, e := range path {
			if entry, ok := wireEntry("", e.Body()).(protocol.Message); ok && entry.Role == "tool" {
				got = append(got, entry.NotRun)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c.input, diff)
		}
	}
}

func TestAbortInTheMiddleOfAStreamKeepsWhatCame(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
	w.step(abortIn{})
	w.expect("agent_start", "turn_start prompt", "message_start user", "message_end user ",
		"message_start assistant", "message_update", "status abort_requested", "message_end assistant aborted",
		"turn_end aborted", "agent_end aborted")
	path, _ := w.m.s.Path("")
	if got := path[len(path)-1].Body().Message.Text; got != "half a " {
		t.Errorf("the session keeps %q, want what was streamed", got)
	}
}

// A daemon that is killed while it writes that a hosted run is aborted leaves calls without a
// result: the next one tells none of them, as nothing of the run happens after its abort.
func TestAnAbortOfAHostedRunThatWasTorn(t *testing.T) {
	w := newWorld(t)
	w.records = []session.Record{{At: w.clock, Fact: session.Created{SessionID: "ses-1", Agent: "codex"}}}
	w.boot()
	w.prompt("go")
	one, two := toolCall("t.x"), toolCall("t.x")
	one.ToolCall.ID, two.ToolCall.ID = "call-1", "call-2"
	w.say(one, two, model.Delta{Stop: model.StopToolCalls, More: true})
	heard := len(w.events)
	w.step(abortIn{})
	torn := slices.IndexFunc(w.records, func(r session.Record) bool {
		_, ok := r.Fact.(session.AbortRequested)
		return ok
	})
	w.records, w.events, w.checker = w.records[:torn+1], w.events[:heard], nil // nobody has heard of it
	w.boot()
	w.events = w.events[heard:]
	w.expect("status run_resumed", "tool_execution_update", "tool_execution_end ok=false skipped=false",
		"turn_end aborted", "agent_end aborted")
}

// A steer behind an approval of a hosted agent withdraws it. Where a power failure leaves that
// and not the end of the call, the call is skipped by the next daemon, as it would have been:
// the agent never had leave, so it is known that the call did not happen. A denied one is told
// as denied.
func TestAnEndedApprovalOfAHostedRunThatWasTorn(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *world)
		want []string
	}{
		{"steer", func(w *world) {
			w.step(queueIn{nil, protocol.KindSteer, protocol.SteerParams{Text: "instead"}, nil})
		}, []string{"tool_execution_end ok=false skipped=true", "turn_end steered", "turn_start steer"}},
		{
			"deny", func(w *world) { w.answerWith(protocol.OptionDeny, "not now") },
			[]string{"tool_execution_end ok=false skipped=false"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.records = []session.Record{{At: w.clock, Fact: session.Created{SessionID: "ses-1", Agent: "codex"}}}
			w.boot()
			w.prompt("go")
			call := toolCall("t.y")
			call.ToolCall.ID = "call-1"
			w.say(call, model.Delta{Stop: model.StopToolCalls, More: true})
			heard := len(w.events)
			c.end(w)
			torn := slices.IndexFunc(w.records, func(r session.Record) bool {
				_, ok := r.Fact.(session.ApprovalDecided)
				return ok
			})
			w.records, w.events, w.checker = w.records[:torn+1], w.events[:heard], nil // nobody has heard of it
			w.boot()
			got := w.types()[heard:]
			at := slices.Index(got, c.want[0])
			if at < 0 || !slices.Equal(got[at:min(at+len(c.want), len(got))], c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
			for _, ev := range w.events[heard:] {
				if end, ok := ev.(protocol.ToolEnd); ok && c.name == "deny" && end.Result != "denied: not now" {
					t.Errorf("the denied call is told as %q", end.Result)
				}
			}
		})
	}
}

// A daemon that is killed while it records what an aborted turn has changed leaves that to the
// next one: the run ends when it is known (found by the simulator).
func TestWhatAnAbortedTurnChangedIsRecordedAfterAKill(t *testing.T) {
	w := newWorld(t)
	w.folder = true
	w.boot()
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.step(abortIn{})
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
	turn := w.work.after
	if turn == "" {
		t.Fatal("nothing is recorded")
	}
	w.boot()
	if w.work.after != turn {
		t.Fatalf("recorded is %q, want %q", w.work.after, turn)
	}
	w.step(recordedIn{gen: w.work.gen, rec: model.Recorded{Changes: "0123", Files: 1}})
	steps, err := w.m.s.StepsOf("", "")
	if got := w.types(); err != nil || len(steps) != 1 || got[len(got)-1] != "agent_end aborted" {
		t.Errorf("changed are %+v, %v, after %q", steps, err, got)
	}
}

// That a turn's changes are not recorded is known to the next daemon: it took the turn for one that had changed
// nothing, and a rewind left what it had written (found by the simulator).
func TestThatChangesAreMissingIsKnownAfterAKill(t *testing.T) {
	w := newWorld(t)
	w.folder = true
	w.boot()
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.step(unrecordedIn{nil, w.m.turnName(), "it was not done in time"})
	w.boot()
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	if w.work.before != "" {
		t.Errorf("the folder is recorded in the middle of the turn, as if that was before it")
	}
	w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
	w.whole("done")
	steps, err := w.m.s.StepsOf("", "")
	if err != nil || len(steps) != 1 || steps[0].Missing == "" || w.m.s.Run != nil {
		t.Errorf("changed are %+v, %v", steps, err)
	}
}

func TestFailedModelDeliversWhatWaits(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.step(queueIn{nil, protocol.KindFollowUp, protocol.SteerParams{Text: "and then"}, nil})
	w.step(modelDoneIn{w.work.gen, errors.New("no route to host")})
	w.step(modelDoneIn{w.work.gen, errors.New("no route to host")})
	w.expect("agent_start", "turn_start prompt", "message_start user", "message_end user ", "status follow_up_queued",
		"turn_end error",
		"turn_start follow_up", "message_start user", "message_end user ", "turn_end error", "agent_end error")
	end := w.events[len(w.events)-1].(protocol.AgentEnd)
	if want := (protocol.RunError{Code: "provider_error", Message: "no route to host"}); end.Error == nil ||
		*end.Error != want {
		t.Errorf("got %+v, want %+v", end.Error, want)
	}
}

func TestSteerWhileAbortingStartsARunAfterwards(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.step(abortIn{})
	c := w.client("steer")
	w.step(queueIn{c, protocol.KindSteer, protocol.SteerParams{Text: "instead", IfIdle: "prompt"}, nil})
	if !w.asked[c] {
		t.Error("answered while the old run is still ending")
	}
	w.step(toolDoneIn{w.work.gen, model.ToolResult{}})
	w.finish()
	if got := w.types(); !slices.Contains(got, "agent_end aborted") || got[len(got)-1] != "agent_end completed" {
		t.Errorf("got %v, want the aborted run and then a completed one", got)
	}
}

// What waits for the end of a run is taken up at once, all of it: the first
// opens the next run, the others go to its queue.
func TestEverythingPutOffIsTakenUpTogether(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.step(abortIn{})
	for range 3 {
		instead := protocol.PromptParams{Text: "instead", StreamingBehavior: "steer"}
		w.step(promptIn{ticket: w.client("prompt"), p: instead})
	}
	w.step(toolDoneIn{w.work.gen, model.ToolResult{}})
	if len(w.asked) > 0 {
		t.Errorf("%d clients wait for their answer while the next run goes on", len(w.asked))
	}
	w.finish()
	if w.checker == nil {
		return
	}
	if err := w.checker.Done(); err != nil {
		t.Error(err)
	}
}

func TestALeafWhileARunIsActive(t *testing.T) {
	w := newWorld(t)
	w.prompt("one")
	w.finish()
	first := w.m.s.Entries()[0].ID
	w.prompt("two")
	for leaf, want := range map[string]string{"msg-nowhere": "session_error", first: "leaf_id: run"} {
		w.refused = nil
		w.step(promptIn{
			w.client(leaf),
			protocol.PromptParams{Text: "x", LeafID: leaf, StreamingBehavior: "steer"},
			false,
			nil,
			nil,
		})
		if w.refused == nil || !strings.Contains(w.refused.Error(), want) {
			t.Errorf("leaf %s: got %v, want %s", leaf, w.refused, want)
		}
	}
}

// A disk that fails again and again is no crash of the daemon.
func TestARunOutlivesADiskThatFails(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	for range 2 * maxCrashes {
		w.step(resumeIn{fault: true})
	}
	w.finish()
	if got := w.types(); got[len(got)-1] != "agent_end completed" {
		t.Errorf("got %v, want the run completed", got)
	}
}

// A disk that fails for good does not have the model asked for ever.
func TestARunOnADiskThatNeverGetsWellIsEnded(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	for range maxFaults + 1 {
		w.step(resumeIn{fault: true})
	}
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.Error == nil || end.Error.Code != "session_error" {
		t.Errorf("got %+v, want the run ended", w.events[len(w.events)-1])
	}
}

func TestATurnOfTooManyStepsEnds(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	for range maxSteps {
		w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
		w.step(toolDoneIn{w.work.gen, model.ToolResult{OK: true}})
	}
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.Error == nil || end.Error.Code != "step_limit" {
		t.Errorf("got %+v, want the run ended with step_limit", w.events[len(w.events)-1])
	}
}

func TestARunThatKeepsCrashingTheDaemonIsEnded(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.step(queueIn{nil, protocol.KindSteer, protocol.SteerParams{Text: "hold on"}, nil})
	for range maxCrashes {
		w.boot()
	}
	end, ok := w.events[len(w.events)-1].(protocol.AgentEnd)
	if !ok || end.Error == nil || end.Error.Code != "crash_loop" {
		t.Fatalf("got %+v, want the run ended with crash_loop", w.events[len(w.events)-1])
	}
	if len(end.Discarded) != 1 || end.Discarded[0].Text != "hold on" {
		t.Errorf("got %+v, want the queued text handed back", end.Discarded)
	}
	w.finish()
}

func TestAnInterruptedToolIsNotRunAgain(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
	w.boot()
	if w.work.tool != nil {
		t.Error("the tool is run a second time")
	}
	history, _ := w.m.s.Conversation().Held()
	if got := history[len(history)-1]; got.Role != model.Tool || got.OK || got.Text == "" {
		t.Errorf("the model reads %+v, want a result that says what the call may have done", got)
	}
	w.finish()
}

// Who followed a message that the daemon did not live to end hears of its end
// from the next one, and sees it in the session; then the model is asked again.
func TestAMessageThatWasOpenAtARestartIsEnded(t *testing.T) {
	for name, stop := range map[string]func(*world){
		"killed":              func(*world) {},
		"killed twice":        func(w *world) { w.boot() },
		"past the drain":      func(w *world) { w.step(drainIn{}); w.step(drainNowIn{}) },
		"its disk had failed": func(w *world) { w.bootAs(resumeIn{fault: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
			id := w.events[len(w.events)-1].(protocol.MessageUpdate).MessageID
			stop(w)
			w.boot()
			w.finish()
			ends := slices.DeleteFunc(slices.Clone(w.events), func(ev protocol.Event) bool {
				end, ok := ev.(protocol.MessageEnd)
				return !ok || end.MessageID != id
			})
			if len(ends) != 1 || ends[0].(protocol.MessageEnd).StopReason != "error" {
				t.Errorf("got %+v, want one end of %s with stop_reason error\n%s", ends, id, w.story())
			}
			if e := w.m.s.Entry(id); e == nil || !e.Broken() || e.Body().Message.Text != "half a " {
				t.Errorf("the session has %+v for it", e)
			}
			if got := w.types(); got[len(got)-1] != "agent_end completed" {
				t.Errorf("got %v, want the run completed", got)
			}
		})
	}
}

// A message that began and announced nothing else has an end, and is not in
// the session: it would be an answer without a word.
func TestAMessageWithNothingInItIsNotKept(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.step(deltaIn{w.work.gen, toolCall("t.x")})
	id := w.events[len(w.events)-1].(protocol.MessageStart).MessageID
	w.boot()
	w.boot()
	w.finish()
	ends := 0
	for _, ev := range w.events {
		if end, ok := ev.(protocol.MessageEnd); ok && end.MessageID == id {
			ends++
		}
	}
	if ends != 1 || w.m.s.Entry(id) != nil {
		t.Errorf("got %d ends of %s, and the session has %+v for it", ends, id, w.m.s.Entry(id))
	}
}

// A disk that fails in the same place again and again does not have the model
// asked for ever, though every message it began is ended in the journal.
func TestMessagesThatWereBrokenOffAreNoProgress(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	for range maxFaults + 1 {
		w.step(deltaIn{w.work.gen, model.Delta{Text: "half a "}})
		w.bootAs(resumeIn{fault: true})
	}
	if got := w.types(); got[len(got)-1] != "agent_end error" {
		t.Errorf("got %v, want the run ended", got)
	}
}

// Whatever a model or a tool makes up, the session can be kept and read again.
func TestHostileJSONIsKeptReadable(t *testing.T) {
	deep := strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990)
	w := newWorld(t)
	w.prompt("go")
	for _, args := range []string{"{oops", "\xff", deep, `{"a":1,"a":2}`, `{"a":` + deep + `}`} {
		w.step(deltaIn{w.work.gen, model.Delta{ToolCall: &model.ToolCall{Name: "t.x", Arguments: []byte(args)}}})
	}
	w.say(model.Delta{Text: "\xff", Stop: model.StopToolCalls})
	for _, patch := range []string{"{oops", deep, `{"a":` + deep + `}`, `{"a":1,"a":2}`} {
		w.step(toolUpdateIn{w.work.gen, model.ToolUpdate{Delta: "\xff", Update: []byte(patch), Patch: []byte(patch)}})
		w.step(toolUpdateIn{w.work.gen, model.ToolUpdate{Asset: &model.Asset{ID: "\xff", Metadata: []byte(patch)}}})
	}
	w.finish()
	for _, ev := range w.events {
		if _, err := protocol.EncodePayload(ev); err != nil {
			t.Errorf("%s cannot be announced: %v", ev.Type(), err)
		}
	}
	store, err := session.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, j, err := store.Create("ses-1", w.records)
	if err != nil {
		t.Fatal(err)
	}
	_, again, problems, err := store.Load(context.Background(), "ses-1")
	if err != nil || len(problems) > 0 {
		t.Errorf("the journal cannot be read again: %v %v", err, problems)
	}
	if err := errors.Join(j.Close(), again.Close(), store.Close()); err != nil {
		t.Error(err)
	}
}

// What tools keep in a session is bounded: what is too much is told and not kept,
// whether a run called the tool or a client did. What makes it less is kept.
func TestWhatToolsKeepInASessionIsBounded(t *testing.T) {
	big := func(name string, n int) model.ToolUpdate {
		return model.ToolUpdate{
			Delta: "patched", Update: []byte(`{"type":"state_patch"}`),
			Patch: fmt.Appendf(nil, `{%q:%q}`, name, strings.Repeat("x", n)),
		}
	}
	asset := func(n int) model.ToolUpdate {
		return model.ToolUpdate{Delta: "made", Asset: &model.Asset{
			ID: "a", Path: "/tmp/a",
			Metadata: fmt.Appendf(nil, "%q", strings.Repeat("x", n)),
		}}
	}
	for name, say := range map[string]func(*world, model.ToolUpdate){
		"in a run":    func(w *world, u model.ToolUpdate) { w.step(toolUpdateIn{w.work.gen, u}) },
		"outside one": func(w *world, u model.ToolUpdate) { w.step(sideUpdateIn{update: u}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
			say(w, big("a", 600_000))
			say(w, asset(600_000))
			size, records := w.m.s.PatchedSize(), len(w.records)
			for _, u := range []model.ToolUpdate{big("b", 500_000), asset(500_000), big("a", 2_000_000)} {
				before := len(w.events)
				say(w, u)
				warning, ok := w.events[len(w.events)-1].(protocol.Warning)
				if !ok || len(w.events) != before+1 || !strings.Contains(warning.Message, "1 MiB") {
					t.Errorf("got %+v, want one warning that names the limit", w.events[before:])
				}
				if want := map[bool]protocol.Code{
					true:  protocol.WarningAssetsTooLarge,
					false: protocol.WarningStateTooLarge,
				}[u.Asset != nil]; warning.Code != want {
					t.Errorf("got %s, want %s", warning.Code, want)
				}
			}
			if len(w.records) != records || w.m.s.PatchedSize() != size || len(w.m.s.Assets) != 1 {
				t.Errorf("what was refused was kept: %d records more, %d assets", len(w.records)-records, len(w.m.s.Assets))
			}
			say(w, model.ToolUpdate{Patch: []byte(`{"a":null}`)})
			say(w, big("b", 500_000))
			if got := w.m.s.PatchedSize(); got < 500_000 || got > 501_000 {
				t.Errorf("the state has %d bytes, want the new value in the place of the old one", got)
			}
		})
	}
}

// A session of a daemon that knew no bounds is read as it is, and takes no more.
func TestASessionThatHoldsMoreThanItMay(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		patch := fmt.Appendf(nil, `{"%d":%q}`, n, strings.Repeat("x", 1_000_000))
		w.records = append(w.records, session.Record{At: w.clock, Fact: session.Patched{Patch: patch}})
	}
	w.boot()
	if got := len(w.m.s.Patched()); got < 3_000_000 {
		t.Fatalf("the state has %d bytes", got)
	}
	records := len(w.records)
	w.step(sideUpdateIn{update: model.ToolUpdate{Patch: []byte(`{"more":1}`)}})
	if len(w.records) != records {
		t.Error("it took more")
	}
	w.step(sideUpdateIn{update: model.ToolUpdate{Patch: []byte(`{"0":"less"}`)}})
	if got := w.m.s.PatchedSize(); got > 2_100_000 {
		t.Errorf("the state has %d bytes, want it to have become less", got)
	}
}

// A provider that counts more tokens than there can be has not counted: what the
// session has used, and how full its context is, stays what can be believed.
func TestCountsThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.prompt("go")
		w.say(model.Delta{Text: "so"}, model.Delta{Stop: model.StopEnd, Usage: model.Usage{
			InputTokens:  math.MaxInt64,
			OutputTokens: 2, CachedTokens: -1,
		}})
	}
	if want := (model.Usage{OutputTokens: 6}); w.m.s.Usage != want {
		t.Errorf("the session has used %+v, want %+v", w.m.s.Usage, want)
	}
	if got := w.m.s.Tokens(); got < 0 || got > 1000 {
		t.Errorf("the context has %d tokens", got)
	}
}

// Clients of other v1 cores show of a tool only what it said while it ran: one that
// said nothing has said the beginning of its result.
func TestAToolThatSaysNothingIsShown(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for name, c := range map[string]struct {
		updates []model.ToolUpdate
		result  model.ToolResult
		want    []string // deltas
	}{
		"a result":       {nil, model.ToolResult{OK: true, Text: "found it"}, []string{"found it"}},
		"an error":       {nil, model.Failed("timeout", "too slow"), []string{"timeout: too slow"}},
		"a long result":  {nil, model.ToolResult{OK: true, Text: "x" + long}, []string{"x" + long[:maxResultHead-2]}},
		"nothing at all": {nil, model.ToolResult{OK: true}, []string{"no output"}},
		"only a patch": {
			[]model.ToolUpdate{{Patch: []byte(`{"a":1}`)}},
			model.ToolResult{OK: true, Text: "found it"},
			[]string{"", "found it"},
		},
		"said for itself": {
			[]model.ToolUpdate{{Delta: "at work"}},
			model.ToolResult{OK: true, Text: "found it"},
			[]string{"at work"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prompt("go")
			w.say(toolCall("t.x"), model.Delta{Stop: model.StopToolCalls})
			for _, u := range c.updates {
				w.step(toolUpdateIn{w.work.gen, u})
			}
			w.step(toolDoneIn{w.work.gen, c.result})
			var got []string
			for _, ev := range w.events {
				if u, ok := ev.(protocol.ToolUpdate); ok {
					got = append(got, u.Delta)
					if own := len(got) <= len(c.updates); u.OfResult == own {
						t.Errorf("of_result is %t in update %d", u.OfResult, len(got))
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCutOffToolCallsAreFailed(t *testing.T) {
	w := newWorld(t)
	w.prompt("go")
	w.say(toolCall("t.x"), model.Delta{Stop: model.StopLength})
	if w.work.tool != nil {
		t.Error("a call out of a message that was cut off is run")
	}
	w.finish()
}

func TestAnsweredOnceForAnIdempotencyKey(t *testing.T) {
	w := newWorld(t)
	p := protocol.PromptParams{Text: "go", IdempotencyKey: "k"}
	first, second := &client{name: "first"}, &client{name: "second"}
	w.asked[first] = true
	w.step(promptIn{first, p, false, nil, nil})
	w.finish()
	w.boot()
	before := len(w.events)
	w.asked[second] = true
	w.step(promptIn{second, p, false, nil, nil})
	if len(w.asked) > 0 || len(w.events) != before {
		t.Errorf("%d unanswered, %d new events; want an answer and nothing done", len(w.asked), len(w.events)-before)
	}
	w.clock = w.clock.Add(25 * time.Hour)
	w.step(promptIn{nil, p, false, nil, nil})
	if len(w.events) == before {
		t.Error("the key still counts after a day")
	}
}

// Who asks by a key for a run that ended, where the journal cannot be read that says how, is
// answered at once: that run ends no more.
func TestARunWhoseEndCannotBeReadIsNotWaitedFor(t *testing.T) {
	for _, another := range []bool{false, true} { // a run is active meanwhile
		w := newWorld(t)
		p := protocol.PromptParams{Text: "go", IdempotencyKey: "k"}
		w.step(promptIn{nil, p, false, nil, nil})
		w.finish()
		first := w.m.s.LastRun.RunID
		w.prompt("another")
		w.finish()
		w.records = slices.DeleteFunc(w.records, func(r session.Record) bool {
			end, is := r.Fact.(session.RunEnded)
			return is && end.RunID == first
		})
		w.boot()
		if another {
			w.prompt("one more")
		}
		again := &client{name: "again", wait: true}
		w.asked[again] = true
		w.step(promptIn{again, p, true, nil, nil})
		if w.asked[again] || w.waiting[again] {
			t.Errorf("another run %v: it is waited for", another)
		}
		w.finish()
	}
}

// A message's stop reason goes onto the wire as the model's word.
func TestStopReasonsOfModelsAreTheWires(t *testing.T) {
	for ours, wire := range map[model.StopReason]protocol.StopReason{
		model.StopEnd: protocol.StopEnd, model.StopToolCalls: protocol.StopToolCalls, model.StopLength: protocol.StopLength,
		model.StopAborted: protocol.StopAborted, model.StopError: protocol.StopError,
	} {
		if string(ours) != string(wire) {
			t.Errorf("got %q on the wire, want %q as models have it", wire, ours)
		}
	}
}
