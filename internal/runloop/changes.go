package runloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

const (
	// recordWait is how long a run waits until its folder is recorded: it goes on without
	// that then.
	recordWait = 2 * time.Second
	// recordTime is how long that may take beside what goes on.
	recordTime = 5 * time.Minute
)

// change is what the machine knows of the open turn's changes.
type change struct {
	begun   bool   // the folder was to be recorded before something that may change it
	former  bool   // and may have been by a former daemon
	owed    bool   // and was, as it had begun something that may change the folder
	missing string // why that could not be done
	told    string // the latest reason that people have been told
	then    func() // goes on once what has changed is recorded
}

// lateRecord is the record of a turn that the run has not waited for. Nothing has changed
// the folder since that turn as long as there is one.
type lateRecord struct {
	gen   int // of the work; 0: there is none
	runID string
	turn  int
	owed  bool // as that of change
}

type (
	// unrecordedIn says why the folder could not be recorded before a call of a turn, which
	// may change it now.
	unrecordedIn struct {
		ticket    ticket // answered once that is on the disk
		turn, why string
	}
	// slowRecordIn says that it takes long to record what a turn has changed.
	slowRecordIn struct{ gen int }
	// recordedIn has what a turn has changed.
	recordedIn struct {
		gen int
		rec model.Recorded
		err error
	}
)

// turnName is what the open turn is called, or the one that has ended last.
func (m *machine) turnName() string { return m.s.Run.ID + "/" + turnID(m.s.Run.Turn) }

// recordFirst is the turn whose folder has to be recorded before something that may change
// it, "" where that was done.
func (m *machine) recordFirst(reads bool) string {
	if !m.records || m.change.begun || reads {
		return ""
	}
	m.change.begun = true
	return m.turnName()
}

func (in unrecordedIn) step(m *machine) {
	m.giveUpLate(errOvertaken)
	if m.s.Run != nil && m.change.begun && in.turn == m.turnName() {
		m.changesMissing(in.why)
	}
	m.reply(in.ticket, nil)
}

// changesMissing keeps, and tells, why it is not known what the turn changes.
func (m *machine) changesMissing(why string) {
	m.change.missing = why
	m.recordChanged(model.Recorded{}, why) // the next daemon would not know
	m.tellUnrecorded(m.ref(), "what this turn changes in the folder", why)
}

// resumeChange takes up what a former daemon knew of the open turn's changes.
func (m *machine) resumeChange() {
	run, steps := m.s.Run, m.s.Steps
	m.change.former = run.Turn > 0
	if n := len(steps); n > 0 && steps[n-1].RunID == run.ID && steps[n-1].Turn == run.Turn {
		m.change.missing = steps[n-1].Missing
	}
	m.change.owed = run.Changing && m.change.missing == ""
	m.change.begun = m.change.owed || m.change.missing != ""
}

// tellUnrecorded says once why changes are not recorded.
func (m *machine) tellUnrecorded(ref protocol.Ref, what, why string) {
	if m.change.told == why {
		return
	}
	m.change.told = why
	m.publish(protocol.Status{
		Ref: ref, Code: protocol.StatusChangesUnavailable,
		Message: what + " is not recorded, and cannot be taken back: " + why,
	})
}

// recordTurn records what the turn that has ended has changed, and goes on with then. False:
// there is nothing to record.
func (m *machine) recordTurn(then func()) bool {
	switch {
	case !m.records || !m.change.begun && !m.change.former:
		return false
	case m.late.gen != 0: // which its first call would have waited for, and was not made
		return false
	case m.change.missing != "":
		m.turnRecorded(model.Recorded{})
		return false
	case m.s.Changed(m.s.Run.ID, m.s.Run.Turn): // by a former daemon, as far as could be known
		m.out.settle = true
		return false
	}
	m.change.then = then
	m.await(recording, work{after: m.turnName()})
	return true
}

func (in recordedIn) step(m *machine) {
	switch {
	case in.gen == m.late.gen:
		m.lateRecorded(in.rec, in.err)
		return
	case in.gen != m.gen || m.phase != recording:
		return
	}
	switch {
	case m.change.missing != "": // there is no record from before that can be trusted
		in.rec = model.Recorded{}
	case in.err != nil:
		m.changesMissing(in.err.Error())
	case in.rec.Unbegun && m.change.owed:
		m.changesMissing(errUnbegun.Error())
	}
	then := m.change.then
	m.turnRecorded(in.rec)
	m.goOn(then)
}

// step has the run go on without the record, which is journaled when it is there.
func (in slowRecordIn) step(m *machine) {
	if in.gen != m.gen || m.phase != recording {
		return
	}
	then := m.change.then
	m.late = lateRecord{m.gen, m.s.Run.ID, m.s.Run.Turn, m.change.owed}
	m.recordChanged(model.Recorded{}, errSlow.Error()) // unless the daemon lives to know better
	m.turnRecorded(model.Recorded{})
	m.goOn(then)
}

func (m *machine) goOn(then func()) {
	if m.s.Run.Aborting {
		then = m.finishAbort
	}
	then()
}

// turnRecorded keeps what a turn has changed.
func (m *machine) turnRecorded(rec model.Recorded) {
	if rec.Changes != "" {
		m.recordChanged(rec, "")
	}
	m.out.settle = m.out.settle || m.late.gen == 0
	m.change = change{told: m.change.told}
}

func (m *machine) recordChanged(rec model.Recorded, missing string) {
	m.record(session.TurnChanged{
		RunID: m.s.Run.ID, Turn: m.s.Run.Turn, Changes: rec.Changes, Files: rec.Files, Missing: missing,
	})
}

// lateRecorded keeps what a turn has changed which the run has not waited for.
func (m *machine) lateRecorded(rec model.Recorded, err error) {
	late := m.late
	m.late, m.out.settle = lateRecord{}, true
	if err == nil && rec.Unbegun && late.owed {
		err = errUnbegun
	}
	if err != nil {
		m.tellUnrecorded(protocol.Ref{SessionID: m.s.ID}, "what the turn before has changed in the folder", err.Error())
		return // and its record says so already
	}
	m.record(session.TurnChanged{RunID: late.runID, Turn: late.turn, Changes: rec.Changes, Files: rec.Files})
}

// giveUpLate gives up a late record.
func (m *machine) giveUpLate(why error) {
	if m.late.gen != 0 {
		m.lateRecorded(model.Recorded{}, why)
	}
}

var errOvertaken = errors.New("something else was to change the folder before that was done")

// pendingRecord is the record of an ended turn, until that is settled.
type pendingRecord struct {
	ctx     context.Context
	cancel  context.CancelFunc
	settled chan struct{}
}

// await blocks until it is settled, or its loop has ended. Nil is settled.
func (r *pendingRecord) await(ctx context.Context) error {
	if r == nil {
		return nil
	}
	select {
	case <-r.settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recordBefore records the folder before a turn's first call that may change it. What goes
// wrong is on the disk before the call is made: the next daemon could not tell.
func (l *loop) recordBefore(cut context.Context, workdir, turn string) {
	if turn == "" || l.env.Changes == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(cut, recordWait, errSlow)
	defer cancel()
	err := l.pending.Load().await(ctx)
	if err == nil {
		err = inTime(ctx, func() error { return l.env.Changes.Before(ctx, l.id, workdir, turn) })
	}
	if err != nil && cut.Err() == nil {
		told := newCall()
		if l.post(cut, unrecordedIn{told, turn, err.Error()}) == nil {
			_, _ = l.await(cut, told.reply)
		}
	}
}

var errUnbegun = errors.New("the record from before the turn, which another daemon began, is gone")

var errSlow = fmt.Errorf("it was not done within %v", recordWait)

// inTime calls do, and does not wait longer than ctx for a disk that hangs.
func inTime(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { // ends when the disk answers
		defer func() {
			if v := recover(); v != nil {
				done <- fmt.Errorf("internal error: %v", v)
			}
		}()
		done <- do()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginRecord is before recordAfter.
func (l *loop) beginRecord() *pendingRecord {
	r := &pendingRecord{settled: make(chan struct{})}
	r.ctx, r.cancel = context.WithTimeoutCause(l.life, recordTime, fmt.Errorf("it was not done within %v", recordTime))
	l.pending.Store(r)
	return r
}

// settleRecord has what is recorded, or given up, be what the next turn begins with.
func (l *loop) settleRecord() {
	l.env.Changes.Settle(l.id, l.m.workdir())
	l.dropRecord()
}

// dropRecord ends the waits for a record.
func (l *loop) dropRecord() {
	if r := l.pending.Swap(nil); r != nil {
		r.cancel()
		close(r.settled)
	}
}

// recordAfter records what a turn has changed.
func (l *loop) recordAfter(r *pendingRecord, gen int, workdir, turn string) {
	defer r.cancel()
	slow := time.AfterFunc(recordWait, func() { _ = l.post(r.ctx, slowRecordIn{gen}) })
	defer slow.Stop()
	in := recordedIn{gen: gen}
	var rec model.Recorded
	if in.err = inTime(r.ctx, func() (err error) {
		rec, err = l.env.Changes.After(r.ctx, l.id, workdir, turn)
		return err
	}); in.err == nil {
		in.rec = rec
	}
	_ = l.post(context.Background(), in)
}

// warm records the folder beside a model's answer, so that the first call waits for little.
func (l *loop) warm(workdir string) {
	if l.env.Changes == nil || l.warming.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(l.life, recordTime)
	l.working.Add(1)
	l.running.Go(func() {
		defer l.working.Add(-1)
		defer l.warming.Store(false)
		defer cancel()
		if l.pending.Load().await(ctx) == nil {
			_ = inTime(ctx, func() error { l.env.Changes.Warm(ctx, l.id, workdir); return nil })
		}
	})
}

// getChanges tells what a session has changed.
func (h *Hub) getChanges(ctx context.Context, p protocol.GetChangesParams) (a protocol.Answer[protocol.Changes],
	err error,
) {
	if _, err := personOf(ctx, protocol.GetChanges.Name()); err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Changes, error) {
		h.awaitTakenUp(ctx)
		return h.changes(ctx, p)
	}
	return a, nil
}

func (h *Hub) changes(ctx context.Context, p protocol.GetChangesParams) (out protocol.Changes, err error) {
	if h.env.Changes == nil {
		return out, noChanges()
	}
	v, err := h.changesOf(ctx, p)
	if err != nil {
		return out, err
	}
	out = protocol.Changes{SessionID: v.id, Files: []protocol.ChangedFile{}}
	for _, s := range v.steps {
		if s.Missing != "" {
			out.Missing = append(out.Missing, protocol.MissingTurn{RunID: s.RunID, TurnID: turnID(s.Turn), Why: s.Missing})
		}
	}
	rep, err := h.env.Changes.Show(ctx, v.id, v.workdir, stepsOf(v.steps), p.Path, p.Diff)
	if err != nil {
		return out, changesFailed(ctx, "the session's changes cannot be shown", err)
	}
	for _, f := range rep.Files {
		out.Files = append(out.Files, protocol.ChangedFile(f))
	}
	if out.Folder, out.Truncated = rep.Folder, rep.Truncated; p.Diff {
		out.Diff = &rep.Diff
	}
	if p.Children {
		out.Children = h.changedChildren(ctx, v.children)
	}
	return out, nil
}

const (
	// maxChangedChildren is how many children are named that have changed files.
	maxChangedChildren = 100
	// maxLookedAt is how many children are looked at for that.
	maxLookedAt = 1000
)

// changedChildren are those of some children, and of theirs, that have changed files: the latest first, each before its
// own. What is still being recorded does not count, and one that cannot be read is left out.
func (h *Hub) changedChildren(ctx context.Context, ids []string) (out []protocol.ChangedChild) {
	seen := map[string]bool{} // a journal may say anything
	for len(ids) > 0 && len(out) < maxChangedChildren && len(seen) < maxLookedAt && ctx.Err() == nil {
		id := ids[len(ids)-1]
		ids = ids[:len(ids)-1]
		if seen[id] {
			continue
		}
		seen[id] = true
		v, err := h.viewChanges(ctx, protocol.GetChangesParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil {
			continue
		}
		ids = slices.Concat(ids, v.children)
		if !slices.ContainsFunc(v.steps, func(s session.Step) bool { return s.Changes != "" }) {
			continue
		}
		rep, err := h.env.Changes.Show(ctx, id, v.workdir, stepsOf(v.steps), "", false)
		if err == nil && len(rep.Files) > 0 {
			out = append(out, protocol.ChangedChild{SessionID: id, Title: v.title, Files: len(rep.Files)})
		}
	}
	return out
}

// changesView is what has to be known of a session to tell what it has changed.
type changesView struct {
	id, title, workdir string
	steps              []session.Step
	late               bool // the latest is still being recorded
	children           []string
}

// changesOf waits for the record of a turn that has ended.
func (h *Hub) changesOf(ctx context.Context, p protocol.GetChangesParams) (changesView, error) {
	v, err := h.viewChanges(ctx, p)
	if err == nil && v.late {
		if err = h.awaitRecord(ctx, v.id); err == nil {
			v, err = h.viewChanges(ctx, p)
		}
	}
	return v, err
}

func (h *Hub) viewChanges(ctx context.Context, p protocol.GetChangesParams) (changesView, error) {
	return readSession(ctx, h, p.SessionID, func(m *machine) (changesView, error) {
		steps, err := m.s.StepsOf(p.From, p.To)
		if err != nil {
			return changesView{}, protocol.Errorf(protocol.InvalidPayload, "%v", err)
		}
		return changesView{
			id: m.s.ID, title: m.s.Title, workdir: m.workdir(), steps: slices.Clone(steps), late: m.late.gen != 0,
			children: slices.Clone(m.s.Children),
		}, nil
	})
}

// awaitRecord blocks until a turn is recorded that has ended, or that is given up.
func (h *Hub) awaitRecord(ctx context.Context, id string) error {
	l, release, err := h.acquire(ctx, id)
	if err != nil {
		return err
	}
	pending := l.pending.Load()
	release()
	return pending.await(ctx)
}

func noChanges() error {
	return protocol.Errorf(protocol.SessionError, "this daemon does not record what sessions change")
}

func changesFailed(ctx context.Context, what string, err error) error {
	var wire *protocol.Error
	switch {
	case errors.As(err, &wire):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &protocol.Error{Code: protocol.SessionError, Message: what, Cause: err.Error()}
}

func stepsOf(steps []session.Step) []model.ChangeStep {
	out := make([]model.ChangeStep, len(steps))
	for i, s := range steps {
		out[i] = model.ChangeStep{Changes: s.Changes, Missing: s.Missing}
	}
	return out
}
