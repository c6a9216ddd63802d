package runloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

const (
	// recordWait is how long a turn waits until its folder is recorded: it goes on without
	// that then.
	recordWait = 2 * time.Second
	// warmTime is how long a folder may take to be recorded beside a model's answer.
	warmTime = 5 * time.Minute
)

// change is what the machine knows of the open turn's changes.
type change struct {
	begun   bool   // the folder was to be recorded before something that may change it
	former  bool   // and may have been by a former daemon
	missing string // why that could not be done
	told    string // the latest reason that people have been told
	then    func() // goes on once what has changed is recorded
}

type (
	// unrecordedIn says why the folder could not be recorded before a call.
	unrecordedIn struct {
		ticket ticket // answered once that is on the disk
		gen    int
		why    string
	}
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
	if in.gen == m.gen && m.s.Run != nil {
		m.changesMissing(in.why)
		m.tellUnrecorded(in.why)
	}
	m.reply(in.ticket, nil)
}

// changesMissing keeps why it is not known what the turn changes.
func (m *machine) changesMissing(why string) {
	m.change.missing = why
	m.record(session.TurnChanged{RunID: m.s.Run.ID, Turn: m.s.Run.Turn, Missing: why})
}

// resumeChange takes up what a former daemon knew of the open turn's changes.
func (m *machine) resumeChange() {
	run, steps := m.s.Run, m.s.Steps
	m.change.former = run.Turn > 0
	if n := len(steps); n > 0 && steps[n-1].RunID == run.ID && steps[n-1].Turn == run.Turn {
		m.change.missing = steps[n-1].Missing
		m.change.begun = m.change.missing != ""
	}
}

// tellUnrecorded says once why changes are not recorded.
func (m *machine) tellUnrecorded(why string) {
	if m.change.told == why {
		return
	}
	m.change.told = why
	m.publish(protocol.Status{
		Ref: m.ref(), Code: protocol.StatusChangesUnavailable,
		Message: "what this turn changes in the folder is not recorded, and cannot be taken back: " + why,
	})
}

// recordTurn records what the turn that has ended has changed, and goes on with then. False:
// there is nothing to record.
func (m *machine) recordTurn(then func()) bool {
	switch {
	case !m.records || !m.change.begun && !m.change.former:
		return false
	case m.change.missing != "":
		m.turnRecorded(model.Recorded{})
		return false
	}
	m.change.then = then
	m.await(recording, work{after: m.turnName()})
	return true
}

func (in recordedIn) step(m *machine) {
	if in.gen != m.gen || m.phase != recording {
		return
	}
	if in.err != nil {
		m.changesMissing(in.err.Error())
		m.tellUnrecorded(in.err.Error())
	}
	then := m.change.then
	m.turnRecorded(in.rec)
	if m.s.Run.Aborting {
		then = m.finishAbort
	}
	then()
}

// turnRecorded keeps what a turn has changed.
func (m *machine) turnRecorded(rec model.Recorded) {
	if rec.Changes != "" {
		m.record(session.TurnChanged{
			RunID: m.s.Run.ID, Turn: m.s.Run.Turn, Changes: rec.Changes, Files: rec.Files,
		})
	}
	m.out.settle = true
	m.change = change{told: m.change.told}
}

// recordBefore records the folder before a turn's first call that may change it. What goes
// wrong is on the disk before the call is made: the next daemon could not tell.
func (l *loop) recordBefore(cut context.Context, gen int, workdir, turn string) {
	if turn == "" || l.env.Changes == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(cut, recordWait, errSlow)
	defer cancel()
	err := inTime(ctx, func() error { return l.env.Changes.Before(ctx, l.id, workdir, turn) })
	if err != nil && cut.Err() == nil {
		told := newCall()
		if l.post(cut, unrecordedIn{told, gen, err.Error()}) == nil {
			_, _ = l.await(cut, told.reply)
		}
	}
}

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

// recordAfter records what a turn has changed.
func (l *loop) recordAfter(ctx context.Context, gen int, workdir, turn string) {
	ctx, cancel := context.WithTimeoutCause(ctx, recordWait, errSlow)
	defer cancel()
	in := recordedIn{gen: gen}
	var rec model.Recorded
	if in.err = inTime(ctx, func() (err error) {
		rec, err = l.env.Changes.After(ctx, l.id, workdir, turn)
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
	ctx, cancel := context.WithTimeout(l.life, warmTime)
	l.working.Add(1)
	l.running.Go(func() {
		defer l.working.Add(-1)
		defer l.warming.Store(false)
		defer cancel()
		_ = inTime(ctx, func() error { l.env.Changes.Warm(ctx, l.id, workdir); return nil })
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
	type view struct {
		id, workdir string
		steps       []session.Step
	}
	v, err := readSession(ctx, h, p.SessionID, func(m *machine) (view, error) {
		steps, err := m.s.StepsOf(p.From, p.To)
		if err != nil {
			return view{}, protocol.Errorf(protocol.InvalidPayload, "%v", err)
		}
		return view{m.s.ID, m.workdir(), append([]session.Step{}, steps...)}, nil
	})
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
	return out, nil
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
