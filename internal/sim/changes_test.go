//go:build sim

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

// What sessions change is in folders of the simulator's, where a file is a number and what is
// written is durable. The real run loop records turns, plans rewinds, writes them down and
// takes them up; only git and the disk of the folder are played.

// files are those of a session's folder; 0 is one that is not there.
type files map[string]int

// delta is what of files was changed: from, to.
type delta map[string][2]int

// snapshot is a folder before a turn.
type snapshot struct {
	turn string
	was  files
}

// tree is a session's folder, and what is known of it.
type tree struct {
	now      files
	before   *snapshot        // until the turn's change is settled
	at       map[string]files // before each message of the user
	rewound  map[string]files // before each rewind
	done     map[string]bool  // what rewinds have changed
	applying bool
}

func (w *world) tree(session string) *tree {
	if w.trees[session] == nil {
		w.trees[session] = &tree{now: files{}, at: map[string]files{}, rewound: map[string]files{}, done: map[string]bool{}}
	}
	return w.trees[session]
}

// touch is what a call does to its session's folder. w.mu is held.
func (w *world) touch(session string) {
	t := w.tree(session)
	if t.applying {
		w.fail("a call of %s changes a file while they are rewound", session)
	}
	w.touched++
	file := fmt.Sprint("file ", w.touched%3)
	t.now[file] = w.touched
	if w.touched%7 == 0 {
		delete(t.now, file)
	}
}

// recorder is runloop's port.
type recorder struct{ l *life }

var _ runloop.Changes = recorder{}

func (recorder) Warm(context.Context, string, string) {}

func (r recorder) Before(ctx context.Context, session, _, turn string) error {
	if err := r.l.stopUntil(ctx, "record before "+turn); err != nil {
		return err
	}
	r.l.w.mu.Lock()
	defer r.l.w.mu.Unlock()
	if t := r.l.w.tree(session); !r.l.gone() && (t.before == nil || t.before.turn != turn) {
		t.before = &snapshot{turn, maps.Clone(t.now)}
	}
	return nil
}

func (r recorder) After(ctx context.Context, session, _, turn string) (model.Recorded, error) {
	if err := r.l.stopUntil(ctx, "record after "+turn); err != nil {
		return model.Recorded{}, err
	}
	slow, err := r.beSlow(ctx, "record after "+turn)
	if err != nil {
		return model.Recorded{}, err
	}
	r.l.w.mu.Lock()
	defer r.l.w.mu.Unlock()
	if slow {
		r.l.w.sometimes("a folder is recorded beside what goes on")
	}
	t := r.l.w.tree(session)
	if t.before == nil || t.before.turn != turn {
		return model.Recorded{Unbegun: true}, nil
	}
	d := delta{}
	for name := range union(t.before.was, t.now) {
		if from, to := t.before.was[name], t.now[name]; from != to {
			d[name] = [2]int{from, to}
		}
	}
	return model.Recorded{Changes: d.text(), Files: len(d)}, nil
}

// beSlow takes longer, now and then, than a run waits.
func (r recorder) beSlow(ctx context.Context, key string) (slow bool, err error) {
	r.l.w.mu.Lock()
	chance := r.l.w.chanceOf("slow " + key)
	r.l.w.mu.Unlock()
	if chance.IntN(3) > 0 {
		return false, nil
	}
	select {
	case <-time.After(time.Duration(2100+chance.IntN(5000)) * time.Millisecond):
		return true, nil
	case <-r.l.dead:
		return true, errDead
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

func (r recorder) Settle(session, _ string) {
	r.l.w.mu.Lock()
	defer r.l.w.mu.Unlock()
	if !r.l.gone() {
		r.l.w.settled(session)
		r.l.w.tree(session).before = nil
		r.l.w.ripe = max(r.l.w.ripe, 2)
	}
}

// settled holds what was recorded before a turn, and is thrown away now, against what the journal has of the turn:
// after a power cut there is nothing else. w.mu is held.
func (w *world) settled(id string) {
	before := w.tree(id).before
	if before == nil || w.holed(id) {
		return
	}
	count := func(text []byte) (n int) {
		for _, f := range factsOf[session.TurnChanged](text, "turn_changed") {
			if fmt.Sprint(f.RunID, "/", f.Turn) == before.turn {
				n++
			}
		}
		return n
	}
	if count(w.durable(id)) < count(w.journal(id)) {
		w.fail("what turn %s is from is thrown away, and a power cut would leave nothing of what it has changed", before.turn)
	}
}

// Hold has nothing to wait for: what is played here is done at once.
func (r recorder) Hold(context.Context, string) (release func(), err error) { return func() {}, nil }

func union(a, b files) map[string]bool {
	all := map[string]bool{}
	for _, f := range []files{a, b} {
		for name := range f {
			all[name] = true
		}
	}
	return all
}

func (d delta) text() string {
	if len(d) == 0 {
		return ""
	}
	text, _ := json.Marshal(d)
	return string(text)
}

func deltaOf(text string) delta {
	d := delta{}
	_ = json.Unmarshal([]byte(text), &d)
	return d
}

// together is what steps have changed; missing is one that is not known.
func together(steps []model.ChangeStep) (all delta, missing string) {
	all = delta{}
	for _, s := range steps {
		missing = max(missing, s.Missing)
		for name, d := range deltaOf(s.Changes) {
			if before, ok := all[name]; ok {
				d[0] = before[0]
			}
			all[name] = d
		}
	}
	return all, missing
}

func (r recorder) Show(ctx context.Context, _, _ string, steps []model.ChangeStep, _ string, _ bool) (
	out model.ChangeReport, err error,
) {
	all, _ := together(steps)
	for _, name := range sorted(all) {
		out.Files = append(out.Files, model.ChangedFile{Path: name, Status: "modified"})
	}
	return out, r.l.stopUntil(ctx, "show changes")
}

func (r recorder) Plan(ctx context.Context, session, _ string, steps []model.ChangeStep, _ []string, _ bool) (
	p model.RewindPlan, err error,
) {
	if err := r.l.stopUntil(ctx, "plan a rewind of "+session); err != nil {
		return p, err
	}
	r.l.w.mu.Lock()
	defer r.l.w.mu.Unlock()
	all, missing := together(steps)
	if missing != "" {
		p.Conflicts = append(p.Conflicts, model.RewindConflict{Path: ".", Why: missing})
		return p, nil // what that turn has left is not known
	}
	now, do := r.l.w.tree(session).now, delta{}
	undo := len(steps) == 1 && r.l.w.tree(session).done[steps[0].Changes]
	for _, name := range sorted(all) {
		switch d := all[name]; {
		case now[name] != d[1] && undo: // a turn, or another rewind, has changed it since
			p.Conflicts = append(p.Conflicts, model.RewindConflict{Path: name, Why: "it was changed since"})
		case now[name] != d[1]:
			r.l.w.fail("%s of %s is %d, and its turns have left %d", name, session, now[name], d[1])
		case d[0] != d[1]:
			do[name] = [2]int{d[1], d[0]}
			p.Files = append(p.Files, model.RewindAction{Path: name, Action: "restore"})
		}
	}
	if len(p.Conflicts) == 0 {
		p.Changes = do.text()
	}
	return p, nil
}

func (r recorder) Apply(session, _, changes, id string) error {
	w := r.l.w
	w.mu.Lock()
	begun := w.begunOnDisk(session, id)
	t := w.tree(session)
	switch {
	case r.l.gone():
	case begun == nil:
		w.fail("rewind %s changes files, and a power cut would leave nothing of it", id)
	case w.running[session] != "":
		w.fail("rewind %s changes files while %s is active", id, w.running[session])
	}
	if !r.l.gone() {
		t.rewound[id] = maps.Clone(t.now)
	}
	w.mu.Unlock()
	if err := r.put(session, id, deltaOf(changes), 1); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rewoundTo(session, begun)
	return nil
}

// put brings files to what they are before (0) or after (1) a change, one at a time.
func (r recorder) put(session, id string, d delta, to int) error {
	w := r.l.w
	t := w.tree(session)
	w.mu.Lock()
	t.applying = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.applying = false
	}()
	for _, name := range sorted(d) {
		if err := r.l.stopUntil(context.Background(), "rewind "+id+" "+name); err != nil {
			return err
		}
		w.mu.Lock()
		if t.now[name] = d[name][to]; t.now[name] == 0 {
			delete(t.now, name)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.done[d.text()] = true
	return nil
}

func (r recorder) Recover(session, _, changes, id string) (finished bool, err error) {
	w := r.l.w
	w.mu.Lock()
	w.sometimes("a rewind is taken up by the next daemon")
	begun, to := w.begunOnDisk(session, id), 1
	if !w.calm && w.chanceOf("recover "+id).IntN(3) == 0 {
		to = 0 // as if files had changed meanwhile
		w.sometimes("a rewind is taken back by the next daemon")
	}
	w.mu.Unlock()
	if err := r.put(session, id, deltaOf(changes), to); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if to == 1 {
		w.rewoundTo(session, begun)
	}
	return to == 1, nil
}

// begunOnDisk is the record of a rewind that a power cut would leave; nil: there is none.
func (w *world) begunOnDisk(id, rewind string) *session.RewindBegun {
	for _, f := range factsOf[session.RewindBegun](w.durable(id), "rewind_begun") {
		if f.RewindID == rewind {
			return &f
		}
	}
	return nil
}

// rewoundTo holds the folder against what it was. w.mu is held.
func (w *world) rewoundTo(id string, r *session.RewindBegun) {
	if r == nil || w.life.gone() || w.holed(id) {
		return
	}
	w.sometimes("a rewind is done")
	t := w.tree(id)
	if r.Undoes != "" {
		w.sometimes("a rewind is undone")
		for name := range deltaOf(r.Changes) {
			if was, ok := t.rewound[r.Undoes]; ok && t.now[name] != was[name] {
				w.fail("rewind %s undoes %s, and %s of %s is %d, and was %d", r.RewindID, r.Undoes, name, id, t.now[name],
					was[name])
			}
		}
		return
	}
	was, ok := t.at[r.To]
	if ok && r.What != protocol.RewindConversation && !maps.Equal(was, t.now) {
		w.fail("rewind %s takes %s to %v, and it was %v before %s", r.RewindID, id, t.now, was, r.To)
	}
}

// noteChanges notes what of an event is about folders. w.mu is held.
func (w *world) noteChanges(ev protocol.Event) {
	in := ev.Where().SessionID
	switch ev := ev.(type) {
	case protocol.AgentStart:
		w.running[in] = ev.RunID
	case protocol.AgentEnd:
		delete(w.running, in)
	case protocol.MessageStart:
		if t := w.tree(in); ev.Role == "user" {
			t.at[ev.MessageID] = maps.Clone(t.now)
		}
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusRunResumed:
			w.running[in] = ev.RunID
		case protocol.StatusRewindRecovered:
			w.recovered++
		}
	}
}

// sendRewind takes something back, or puts it back.
func (c *client) sendRewind(in string) {
	w := c.w
	w.mu.Lock()
	at := sorted(w.tree(in).at)
	w.mu.Unlock()
	switch n := w.rng.IntN(6); {
	case n == 0:
		c.send("get_changes", map[string]any{"session_id": in})
	case n < 4 && len(c.rewinds) > 0:
		last := c.rewinds[len(c.rewinds)-1]
		c.send("undo_rewind", map[string]any{"session_id": last.session, "rewind_id": last.input})
	case len(at) > 0:
		what := []string{"files", "both", "conversation"}[w.rng.IntN(3)]
		c.send("rewind", map[string]any{
			"session_id": in, "to": at[w.rng.IntN(len(at))], "what": what, "dry_run": w.rng.IntN(8) == 0,
		})
	}
}

// rewound notes the reply to a rewind, or to its undoing.
func (c *client) rewound(cmd *command, id string) {
	w := c.w
	in, _ := cmd.payload["session_id"].(string)
	if id == "" || cmd.payload["dry_run"] == true {
		return
	}
	w.ripe = 5
	if cmd.typ == "rewind" {
		c.rewinds = append(c.rewinds, taken{in, id})
	}
	w.vow("rewound: "+id, in, func(all map[string]*sessiontest.Story) bool {
		return all[in] != nil && all[in].Rewinds[id]
	})
}
