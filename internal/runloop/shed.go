package runloop

import (
	"context"
	"errors"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A session may wait for an answer, or a child, for days, and many may at once. There is room
// for what some of them have in memory; each of the others is shed: its loop goes
// on without history and journal, and reads them again for its next input.
const (
	maxWaiting  = 24 << 20 // bytes that sessions which wait have in memory together
	memoryShare = 2        // a session has about so many bytes for each of its journal
	maxWaking   = 2        // sessions that are read again at a time
	maxParent   = 48 << 10 // bytes that one which waits for a child has: that may take long
)

// settle keeps a session that waits for an answer in memory where there is room
// for it, and sheds it else. What an idle one has there is counted.
func (l *loop) settle() {
	want, size := 0, min(memoryShare*l.journal.Size(), l.m.s.Memory())
	switch {
	case l.m.phase == waiting, l.m.waitsForChild():
		want, size = int(size), 0
	case l.m.phase == idle:
	default:
		size = 0
	}
	l.env.idle.Add(size - l.idle.Swap(size))
	switch more := want - l.held; {
	case l.m.late.gen != 0: // what a turn has changed is being recorded, and in no journal yet
		want = min(want, l.held)
	case l.m.waitsForChild() && want > maxParent, more > 0 && !l.env.waiting.Take(more):
		l.shed()
		want = 0
	}
	l.env.waiting.Give(max(0, l.held-want))
	l.held = want
}

// shed forgets what the journal has.
func (l *loop) shed() {
	_ = l.journal.Close() // all of it is on the disk
	l.journal, l.m.s, l.m.msg, l.m.call = nil, nil, message{}, model.ToolCall{}
	l.isShed.Store(true)
}

// wake reads a shed session again, to go on where it was. release lets the next
// one be read.
func (l *loop) wake() (release func(), err error) {
	l.env.waking <- struct{}{} // each of those before it ends with its batch
	release = func() { <-l.env.waking }
	state, journal, problems, err := l.env.Store.Load(context.Background(), l.id)
	l.env.reportProblems(l.id, problems)
	if err == nil && (state.Run == nil || !state.Run.Question.Open() && !state.Run.WaitsForChild()) {
		err = errors.Join(errors.New("what it waited for is gone from its journal"), journal.Close())
	}
	if err != nil {
		release()
		return nil, l.broke("the session's journal cannot be read", err)
	}
	l.m.s, l.journal = state, journal
	if call := state.Run.Call(state.Run.Started); call.ID != "" {
		l.m.call = model.ToolCall{ID: call.ID, Name: call.Name}
	}
	l.isShed.Store(false)
	return release, nil
}

// parkShed leaves a shed session where it is when the daemon stops. Nothing has to
// be written: to wait for an answer is no crash.
func (l *loop) parkShed(in input) bool {
	switch in := in.(type) {
	case drainIn, drainNowIn:
	case pauseIn:
		l.m.draining, l.m.phase, l.m.quieting = true, parked, true
		l.keeps.Pause()
		return true
	case agentIn:
		if !in.news.Paused {
			return false
		}
		l.m.quieting = false
	default:
		return false
	}
	l.m.draining, l.m.phase = true, parked
	l.resting.Store(true)
	l.env.rested()
	return true
}

// reportProblems reports what was wrong with a journal and has been got over.
func (e *env) reportProblems(id string, problems []session.Problem) {
	for _, p := range problems {
		e.Fault(id, p)
		e.Events.Append(protocol.Status{
			Ref: protocol.Ref{SessionID: id}, Code: protocol.StatusJournalRepaired,
			Message: p.Error(),
		})
	}
}
