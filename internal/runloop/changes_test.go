package runloop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// playedFolder is a session's folder and its recorder, which a kill leaves as they are. The
// folder is a number that every call changes.
type playedFolder struct {
	now    int
	turn   string // that was recorded before, as was
	was    int
	after  string // the turn that is being recorded, as the work gen
	gen    int
	former input          // a record that was taken or given up, which a loop may still post
	began  map[string]int // what the folder was before the first call of a turn
	ended  map[string]int // and at its end
	asked  int
	unsure bool // it is slow now and then
}

// play does what a machine wants of the folder.
func (w *world) play(out effects) {
	f := w.played
	if f == nil {
		return
	}
	if out.settle {
		if f.after != "" {
			f.former = recordedIn{gen: f.gen, rec: model.Recorded{Changes: "of another turn", Files: 1}}
		}
		f.turn, f.after = "", ""
	}
	for _, job := range out.work {
		switch {
		case job.after != "":
			if _, ok := f.ended[job.after]; !ok {
				f.ended[job.after] = f.now
			}
			f.after, f.gen = job.after, job.gen
		case job.tool != nil:
			w.playBefore(job.before)
			f.now++
		}
	}
}

// playBefore is recordBefore of the loop.
func (w *world) playBefore(turn string) {
	f := w.played
	if turn == "" {
		return
	}
	if _, ok := f.began[turn]; !ok {
		f.began[turn] = f.now
	}
	f.asked++
	if f.after != "" && f.asked%2 == 0 {
		w.step(w.record())
	}
	if f.after != "" || f.unsure && f.asked%7 == 0 {
		w.step(unrecordedIn{nil, turn, "slow"})
		return
	}
	if f.turn != turn {
		f.turn, f.was = turn, f.now
	}
}

// record is what After comes to.
func (w *world) record() input {
	f := w.played
	in := recordedIn{gen: f.gen}
	switch {
	case f.turn != f.after:
		in.rec.Unbegun = true
	case f.was != f.now:
		in.rec = model.Recorded{Changes: fmt.Sprintf("%d-%d", f.was, f.now), Files: 1}
	}
	return in
}

// Whatever happens to a session whose folder is slow to be recorded: what is kept of a turn is
// exactly what it has changed, or why that is not known. A record that was given up is taken for no
// other, and a daemon that is killed forgets none.
func TestRecordsOfTurnsAreExact(t *testing.T) {
	late, missing, exact := 0, 0, 0
	for seed := range 100 {
		rng := rand.New(rand.NewPCG(uint64(seed), 29))
		w := newWorld(t)
		w.folder = true
		w.played = &playedFolder{began: map[string]int{}, ended: map[string]int{}, unsure: seed%2 == 0}
		w.boot()
		for range 300 {
			was := w.m.late.gen
			switch {
			case w.played.former != nil && w.played.after != "" && rng.IntN(3) == 0:
				w.step(w.played.former)
			case w.played.after == "" || rng.IntN(4) > 0:
				w.random(rng.IntN)
			case rng.IntN(3) > 0:
				w.step(slowRecordIn{w.played.gen})
			default:
				w.step(w.record())
			}
			if was == 0 && w.m.late.gen > 0 {
				late++
			}
			if rng.IntN(40) == 0 {
				w.played.after, w.played.former = "", nil
				if rng.IntN(3) == 0 { // it is gone with the power, or was not there yet
					w.played.turn = ""
				}
				w.restart(rng)
			}
		}
		w.finish()
		steps, err := w.m.s.StepsOf("", "")
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]string{}
		for _, s := range steps {
			turn := s.RunID + "/" + turnID(s.Turn)
			if _, twice := known[turn]; twice {
				t.Errorf("seed %d: turn %s is kept twice", seed, turn)
			}
			known[turn] = s.Changes
			began, touched := w.played.began[turn]
			switch want := fmt.Sprintf("%d-%d", began, w.played.ended[turn]); {
			case s.Missing != "":
				missing++
			case s.Changes == "" && !touched:
			case s.Changes != want:
				t.Errorf("seed %d: turn %s is kept as %s, and is %s", seed, turn, s.Changes, want)
			default:
				exact++
			}
		}
		for turn := range w.played.began {
			if _, ok := known[turn]; !ok {
				t.Errorf("seed %d: nothing is known of turn %s", seed, turn)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d\n%s", seed, w.story())
		}
	}
	if late == 0 || missing == 0 || exact == 0 {
		t.Errorf("%d were late, %d are missing, %d exact", late, missing, exact)
	}
}

// slowRecorder is a recorder of a folder that takes its time.
type slowRecorder struct {
	Changes
	before, after time.Duration

	mu      sync.Mutex
	done    []string
	settled int
}

func (r *slowRecorder) Warm(context.Context, string, string) {}

func (r *slowRecorder) wait(ctx context.Context, most time.Duration, what string) error {
	select {
	case <-time.After(most):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, what)
	return nil
}

func (r *slowRecorder) Before(ctx context.Context, _, _, turn string) error {
	return r.wait(ctx, r.before, "before "+turn)
}

func (r *slowRecorder) After(ctx context.Context, _, _, turn string) (model.Recorded, error) {
	return model.Recorded{Changes: "0123", Files: 1}, r.wait(ctx, r.after, "after "+turn)
}

func (r *slowRecorder) Settle(string, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled++
}

func (r *slowRecorder) Show(_ context.Context, _, _ string, steps []model.ChangeStep, _ string, _ bool) (
	out model.ChangeReport, err error,
) {
	for _, s := range steps {
		if s.Changes != "" {
			out.Files = append(out.Files, model.ChangedFile{Path: s.Changes})
		}
	}
	return out, nil
}

func (r *slowRecorder) Plan(context.Context, string, string, []model.ChangeStep, []string, bool) (model.RewindPlan,
	error,
) {
	return model.RewindPlan{}, nil
}

func (r *slowRecorder) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// slowly is a test in a session whose folder takes that long to be recorded after a turn.
func slowly(t *testing.T, after time.Duration, test func(f *fixture, r *slowRecorder, id string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tool := func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			return model.ToolResult{OK: true, Text: "done"}
		}
		r := &slowRecorder{after: after}
		f := newFixtureWith(t, &unsynced{}, dir, offline.Model{}, tool, newRecorder(), func(o *Options) { o.Changes = r })
		test(f, r, f.session())
		f.stop()
	})
}

// run has a call made in a session, and tells how long that took.
func (f *fixture) runFor(id, text string) time.Duration {
	f.t.Helper()
	began := time.Now()
	if _, err := answered(f.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: text,
	})); err != nil {
		f.t.Error(err)
	}
	return time.Since(began)
}

// firstMessage is the id of a session's first message.
func (f *fixture) firstMessage(id string) string {
	f.t.Helper()
	first, err := readSession(context.Background(), f.Hub, id, func(m *machine) (string, error) {
		return m.s.Entries()[0].ID, nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return first
}

func (f *fixture) changed(id string) string {
	f.t.Helper()
	all, err := answered(f.getChanges(nous, protocol.GetChangesParams{Scope: protocol.Scope{SessionID: id}}))
	if err != nil {
		f.t.Error(err)
	}
	said := fmt.Sprint(len(all.Files), " files")
	for _, m := range all.Missing {
		said += "; " + m.Why
	}
	return said
}

// A folder that takes longer to be recorded than a run waits is recorded nevertheless.
func TestASlowRecordIsKeptOnceItIsThere(t *testing.T) {
	slowly(t, 30*time.Second, func(f *fixture, r *slowRecorder, id string) {
		if took := f.runFor(id, "go\n!t.x"); took > recordWait+time.Second {
			t.Errorf("the run waited %v for it", took)
		}
		first := f.firstMessage(id)
		back := protocol.RewindParams{
			Scope: protocol.Scope{SessionID: id}, To: first, What: protocol.RewindFiles, DryRun: true,
		}
		if _, err := answered(f.rewind(nous, back)); reasonOf(err) != protocol.Busy {
			t.Errorf("a rewind meanwhile: %v", err)
		}
		if got := f.changed(id); got != "1 files" { // it waits
			t.Errorf("then: got %q", got)
		}
		if _, err := answered(f.rewind(nous, back)); err != nil {
			t.Errorf("a rewind then: %v", err)
		}
	})
}

// The next turn's first call waits for a slow record, and if that is not there in time, neither
// turn is guessed about.
func TestACallWaitsForASlowRecordAWhile(t *testing.T) {
	for after, want := range map[time.Duration]string{
		3 * time.Second:  "2 files",
		30 * time.Second: "0 files; it was not done within 2s; it was not done within 2s",
	} {
		slowly(t, after, func(f *fixture, r *slowRecorder, id string) {
			f.runFor(id, "go\n!t.x")
			if took := f.runFor(id, "again\n!t.x"); took > 2*recordWait+time.Second {
				t.Errorf("the second run waited %v", took)
			}
			if got := f.changed(id); got != want {
				t.Errorf("after %v: got %q, want %q; %s", after, got, want, strings.Join(r.done, ", "))
			}
		})
	}
}

// A run that changes nothing does not take a slow record from the run before.
func TestATextBesideASlowRecord(t *testing.T) {
	slowly(t, 30*time.Second, func(f *fixture, _ *slowRecorder, id string) {
		f.runFor(id, "go\n!t.x")
		f.runFor(id, "and now?")
		if got := f.changed(id); got != "1 files" {
			t.Errorf("got %q", got)
		}
	})
}

// A session whose folder is still recorded can be deleted.
func TestASessionIsDeletedBesideASlowRecord(t *testing.T) {
	slowly(t, 30*time.Second, func(f *fixture, _ *slowRecorder, id string) {
		f.runFor(id, "go\n!t.x")
		if err := f.remove(id); err != nil {
			t.Error(err)
		}
	})
}

// A daemon that is told to stop waits for a slow record as it does for a run, and no longer. It says
// where that was not enough, and the next one does not guess.
func TestAStopWaitsForASlowRecordAWhile(t *testing.T) {
	for _, test := range []struct {
		after, drain     time.Duration
		want, then, told string
	}{
		{30 * time.Second, time.Minute, "1 files", "2 files", ""},
		{
			30 * time.Second, 10 * time.Second, "0 files; it was not done within 2s", "1 files; it was not done within 2s",
			"the daemon is stopping",
		},
	} {
		slowly(t, test.after, func(f *fixture, _ *slowRecorder, id string) {
			var told atomic.Value
			f.events.onEvent = func(ev protocol.Event) {
				if s, ok := ev.(protocol.Status); ok && s.Code == protocol.StatusChangesUnavailable {
					told.Store(s.Message)
				}
			}
			f.runFor(id, "go\n!t.x")
			began := time.Now()
			f.Drain(test.drain)
			if took := time.Since(began); took > test.drain+time.Second {
				t.Errorf("a stop within %v took %v", test.drain, took)
			}
			if said, _ := told.Load().(string); !strings.Contains(said, test.told) || (said == "") != (test.told == "") {
				t.Errorf("a stop within %v told %q", test.drain, said)
			}
			f.stop()
			f = newFixtureWith(t, &unsynced{}, f.dir, offline.Model{}, echoTool, newRecorder(), func(o *Options) {
				o.Changes = &slowRecorder{}
			})
			defer f.stop()
			if got := f.changed(id); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			f.runFor(id, "again\n!t.x")
			if got := f.changed(id); got != test.then {
				t.Errorf("then: got %q, want %q", got, test.then)
			}
		})
	}
}

// What a session's children have changed, and theirs, is named beside its own changes: of all runs, or of those that
// are asked for. Who has changed nothing, or cannot be read, is not named.
func TestTheChangesOfChildrenAreNamed(t *testing.T) {
	r := &slowRecorder{}
	f := newFamily(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newHearing(),
		func(o *Options) { o.Changes = r })
	id := f.session()
	named := func() string {
		t.Helper()
		p := protocol.GetChangesParams{Scope: protocol.Scope{SessionID: id}}
		if all, err := answered(f.getChanges(nous, p)); err != nil || all.Children != nil {
			t.Errorf("nobody asks for children: got %v, %v", all.Children, err)
		}
		p.Children = true
		all, err := answered(f.getChanges(nous, p))
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, c := range all.Children {
			said = append(said, fmt.Sprintf("%s: %d", c.Title, c.Files))
		}
		return strings.Join(said, ", ")
	}
	f.ask(id, "go\n!t.x")
	if got := named(); got != "" {
		t.Errorf("of a session without children: got %q", got)
	}
	inner := `!agent {\"description\":\"inner\",\"prompt\":\"!t.x\"}`
	f.ask(id, agentCall(`{"description":"outer","prompt":"`+inner+`"}`)+"\n"+
		agentCall(`{"description":"reader","prompt":"hello"}`))
	f.ask(id, agentCall(`{"description":"other","prompt":"!t.x"}`))
	if got := named(); got != "other: 1, inner: 1" {
		t.Errorf("got %q", got)
	}
	children, err := f.childrenOf(context.Background(), id)
	if err != nil || len(children) != 3 {
		t.Fatalf("children: %v, %v", children, err)
	}
	f.ask(children[2], "!t.x") // of its own, and of its other run
	if got := named(); got != "other: 2, inner: 1" {
		t.Errorf("then: got %q", got)
	}
	outer := protocol.DeleteSessionParams{SessionID: children[0], Children: true}
	if _, err := f.deleteSession(context.Background(), outer); err != nil {
		t.Fatal(err)
	}
	if got := named(); got != "other: 2" {
		t.Errorf("once a child is deleted: got %q", got)
	}
	f.stop()
	f.events.done(t)
	f.heard.check(t)
}
