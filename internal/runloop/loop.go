package runloop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

const (
	mailboxSize = 256
	batchSize   = 256
	// maxReports bounds what models and tools say that has not been taken in, in
	// all sessions together, in bytes.
	maxReports = 4 << 20
	// maxAnswers is what answers of models have together that are not kept yet, in
	// bytes, beside the first 64 KiB of each.
	maxAnswers = 4 << 20
	// maxRequests is what requests to models take together while they are made, in bytes.
	maxRequests = 8 << 20
	// maxArguments is what the arguments of running calls take together, in bytes, beside
	// the first 64 KiB of each.
	maxArguments = 8 << 20
)

// errStopped says that a loop ended before it took an input in: the session may
// be opened again and asked once more.
var errStopped = errors.New("the session's loop has stopped")

// call is a client waiting for replies. Each channel holds one, so the loop
// never waits for a client. What is in postponed says that the input waits for
// something, and the reply with it.
type call struct {
	reply     chan reply
	ended     chan reply
	postponed chan struct{}
	left      atomic.Bool // nobody takes what ended has
}

func newCall() *call {
	return &call{reply: make(chan reply, 1), ended: make(chan reply, 1), postponed: make(chan struct{}, 1)}
}

// loop is the actor that owns one session: its machine, its journal, and the
// one piece of work that runs for it.
type loop struct {
	id      string
	env     *env
	m       *machine
	journal *session.Journal
	agent   Agent  // that makes the session's turns; nil: the daemon's own loop
	keeps   Keeper // agent, where it is one
	// outsiders wait for calls that they have asked for.
	outsiders outsiders

	mailbox chan input
	stop    chan struct{} // closed by the hub: end now
	begun   chan struct{} // closed once the interrupted run is resumed
	done    chan struct{} // closed when the loop has ended

	users    int       // posts under way; guarded by the hub
	lastUsed time.Time // guarded by the hub

	run     atomic.Pointer[protocol.RunInfo]     // the active run, for get_state of others
	shown   atomic.Pointer[protocol.SessionInfo] // as of the latest commit, for list_sessions
	asked   atomic.Pointer[protocol.Approval]    // the open question, for get_state of others
	resting atomic.Bool                          // a draining loop that may be closed
	busy    atomic.Bool                          // the machine waits for something
	isShed  atomic.Bool                          // the machine has no session, nor the loop a journal
	servers atomic.Pointer[turnServers]          // that were there when the turn began
	unready sync.Map                             // names of servers that people have been told are not ready
	working atomic.Int32                         // pieces of work that have not ended
	idle    atomic.Int64                         // bytes that it has in memory while it is idle, else 0

	open     protocol.Ref            // the run and turn that have been announced and have not ended
	cancel   context.CancelCauseFunc // of the running work, if any
	life     context.Context         // ends when the loop does
	die      context.CancelFunc      // of life
	warming  atomic.Bool             // the folder is recorded beside a model's answer
	pending  atomic.Pointer[pendingRecord]
	running  sync.WaitGroup
	captures map[string]*capture // by run
	question string              // the id of the one that asked is of
	told     int                 // bytes that asked has of the budget of questions
	late     *time.Timer         // for it, where it may not wait for ever
	held     int                 // bytes of the budget of sessions that wait
	inTree   treeReport

	delegates  map[string]*delegate // by call
	delegating atomic.Int32         // of them, whose goroutines have not ended
	unseen     []<-chan struct{}    // of the children that a former daemon has left; complete once begun is closed

	failure error // what ended the loop before its time; read it once done is closed
}

var (
	errAborted  = errors.New("the run was aborted")
	errShutdown = errors.New("the daemon is stopping")
)

func newLoop(e *env, s *session.State, j *session.Journal) *loop {
	l := &loop{
		id: s.ID, env: e, journal: j,
		m: &machine{
			s: s, ownModel: e.own, missing: e.cannotAnswer, maxSteps: e.MaxSteps, limits: e.Limits,
			filesDir: e.Store.FilesDir(s.ID), home: e.Workdir, newID: e.NewID,
		},
		captures: map[string]*capture{},
		mailbox:  make(chan input, mailboxSize), stop: make(chan struct{}), begun: make(chan struct{}),
		done: make(chan struct{}),
	}
	l.m.records = e.Changes != nil
	l.life, l.die = context.WithCancel(context.Background())
	if e.Models != nil {
		l.m.windowOf, l.m.fallbacks = e.Models.Window, e.Models.Fallbacks
	}
	if e.Policy != nil {
		l.m.judge = e.Policy.Judge
	}
	if e.Modules != nil {
		l.m.stopHooks = e.Modules.Stops
	}
	l.m.bounds, l.m.reserve, l.m.beside = e.Children, l.reserve, e.forest.others
	l.m.treesKnown = e.hub.haveTakenUp
	if e.Instructions != nil {
		l.m.named = e.Instructions.Named
	}
	if e.Agents != nil {
		l.m.hosts = e.Agents.Check
	}
	l.openAgent(s)
	l.announce()
	l.account(nil)
	return l
}

// post hands an input over; it blocks while the mailbox is full, or too much
// waits in all of them. The error is errStopped where the loop has ended.
func (l *loop) post(ctx context.Context, in input) error {
	size := weight(in)
	if err := l.env.reports.Acquire(ctx, size); err != nil {
		return context.Cause(ctx)
	}
	select {
	case l.mailbox <- in:
		if l.hasEnded() {
			l.empty() // nobody else does
		}
		return nil
	case <-l.done:
		l.env.release(in)
		return errStopped
	case <-ctx.Done():
		l.env.release(in)
		return context.Cause(ctx)
	}
}

// release gives back what an input has, once it has been taken in or never will be.
func (e *env) release(in input) {
	e.reports.Release(weight(in))
	if end, ok := in.(answerDoneIn); ok {
		end.part.End()
	}
}

// empty forgets what is in the mailbox: its posters learn from done that nobody
// answers.
func (l *loop) empty() {
	for {
		select {
		case in := <-l.mailbox:
			l.env.release(in)
		default:
			return
		}
	}
}

func (l *loop) hasEnded() bool {
	return isClosed(l.done)
}

// isClosed reports that a channel is closed to which nobody sends.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await returns the next reply of a channel, or why there will be none.
func (l *loop) await(ctx context.Context, replies <-chan reply) (reply, error) {
	select {
	case r := <-replies:
		return r, r.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	case <-l.done:
	}
	select {
	case r := <-replies:
		return r, r.err
	default:
		return reply{}, errStopped
	}
}

// outcome returns the next reply of a channel for a client whose input was
// accepted, and cannot be asked to come again.
func (l *loop) outcome(ctx context.Context, replies <-chan reply) (reply, error) {
	r, err := l.await(ctx, replies)
	switch {
	case !errors.Is(err, errStopped):
	case l.failure != nil:
		err = l.failure
	default:
		refused := protocol.Rejectf(protocol.ShuttingDown,
			"the daemon stops; what was running goes on when it is started again")
		refused.Cause = protocol.CauseBegun
		err = refused
	}
	return r, err
}

// serve runs the loop until stop is closed or its journal fails.
func (l *loop) serve() {
	defer l.env.rested() // a drain does not wait for a loop whose journal has failed
	defer func() {
		if l.failure != nil {
			l.env.broken(l) // once it has ended: the hub may be waiting for that
		}
	}()
	defer l.empty()
	defer close(l.done)
	defer func() {
		for runID := range l.captures {
			l.drop(runID)
		}
	}()
	defer func() {
		if !l.m.deleted || l.failure != nil { // else the hub tells, once the session is gone
			l.env.Audit(model.AuditEvent{Event: "session:end", Component: "session", SessionID: l.id})
		}
	}()
	defer func() {
		if l.journal != nil { // else the session is shed
			_ = l.journal.Close()
		}
	}()
	defer func() {
		l.env.idle.Add(-l.idle.Swap(0))
		l.env.waiting.Give(l.held)
		l.env.questions.Give(l.told)
	}()
	defer l.abandon()
	defer l.closeAgent()
	defer func() {
		if l.late != nil {
			l.late.Stop()
		}
	}()
	begun := sync.OnceFunc(func() { close(l.begun) })
	for {
		select {
		case <-l.stop:
			if !l.m.resting() { // a disk that was slow kept it from its mailbox
				l.failure = l.applyInput(drainNowIn{})
			}
			return
		case in := <-l.mailbox:
			if l.failure = l.applyInput(in); l.failure != nil || l.m.deleted || l.m.reopens {
				return
			}
			if l.m.phase != rewinding || l.m.rewind.fact.RewindID == "" { // else a rewind is being recovered
				begun()
			}
		}
	}
}

// applyInput takes an input in, reading the session again where that has to be.
func (l *loop) applyInput(in input) error {
	if l.isShed.Load() {
		if l.parkShed(in) {
			return nil
		}
		release, err := l.wake()
		if err != nil {
			l.env.release(in)
			return err
		}
		defer release()
	}
	if err := l.batch(in); err != nil {
		return err
	}
	l.settle()
	return nil
}

// batch steps everything that waits and then does what was decided, with one
// write and at most one sync for all of it. On an error the loop must end: what
// the disk holds is found out by opening the session again.
func (l *loop) batch(in input) (err error) {
	defer func() {
		if v := recover(); v != nil {
			l.env.Fault(l.id, fmt.Errorf("panic in the session's loop: %v\n%s", v, debug.Stack()))
			err = protocol.Errorf(protocol.InternalError, "internal error; the daemon's log has the detail")
		}
	}()
	now := l.env.Now()
	var taken []input
	defer func() {
		for _, in := range taken {
			l.env.release(in)
		}
	}()
	for n := 1; ; n++ {
		taken = append(taken, in)
		if l.env.Spent != nil {
			l.m.today = l.env.Spent(now)
		}
		l.m.step(now, in)
		if q, ok := in.(queryIn); ok && q.last || l.m.deleted || l.m.reopens || n == batchSize {
			return l.commit()
		}
		select {
		case in = <-l.mailbox:
		default:
			return l.commit()
		}
	}
}

// commit journals, announces and replies, in that order. A model may start to
// answer while the disk syncs; a tool starts when its start is on the disk.
func (l *loop) commit() error {
	out := l.m.drainEffects()
	sync, err := l.journal.Write(out.records)
	if err == nil && len(out.work) > 0 && out.work[0].cancels() {
		l.start(out.work[0])
		out.work = out.work[1:]
	}
	if out.cut && l.agent != nil { // after the end of what begins its turn, and before another does
		l.agent.Cut()
	}
	if out.steered && l.agent != nil {
		l.agent.Steered()
	}
	if out.pause && l.keeps != nil {
		l.keeps.Pause()
	}
	early := err == nil && !slices.ContainsFunc(out.work, work.waits)
	if early {
		l.startAll(out.work)
	}
	if err == nil && (sync || out.vouched && !l.journal.Durable()) {
		err = l.journal.Sync()
	}
	if err == nil {
		err = l.journal.Announced(l.m.msg.id, out.said)
	}
	if err != nil {
		failure := l.broke("the session's journal cannot be written", err)
		l.fail(out.replies, failure)
		return failure
	}
	l.keepRules(&out)
	l.spread(out)
	l.tellQuestion()
	for _, c := range out.captures {
		if to, ok := c.to.(*call); ok {
			l.captures[c.runID] = newCapture(l.env.Held, to)
		}
	}
	l.run.Store(l.runInfo())
	begin := l.prepare(out.children)
	l.account(out.records)
	l.announce() // a reader of the events finds the same in lists
	if len(out.events) > 0 {
		lines := l.env.Events.Append(out.events...)
		if len(l.captures) > 0 {
			for i, ev := range out.events {
				l.captureLine(ev.Where().RunID, lines[i])
			}
		}
	}
	l.open = protocol.Ref{}
	if l.m.s.Run != nil {
		l.open = l.m.turnRef()
	}
	l.busy.Store(l.m.phase != idle)
	for _, r := range out.replies {
		r.seq = l.env.Events.LastSeq()
		l.answer(r)
	}
	for _, r := range out.replies {
		if r.ended != nil {
			l.drop(r.ended.runID)
		}
	}
	l.delegateAll(begin)
	l.forgetDelegates()
	if !early {
		l.startAll(out.work)
	}
	if l.m.draining && l.m.resting() {
		l.resting.Store(true)
		l.env.rested()
	}
	return nil
}

// spread hands on what is on the disk now, to all but clients.
func (l *loop) spread(out effects) {
	if out.settle && l.env.Changes != nil {
		l.settleRecord()
	}
	for _, why := range out.faults {
		l.env.Fault(l.id, why)
	}
	for _, ev := range out.audits {
		l.env.Audit(ev)
	}
	for _, r := range out.results {
		l.agent.Answer(r.callID, r.res)
	}
}

// keepRules adds the rules that somebody has answered approvals with. One that is not kept is told.
func (l *loop) keepRules(out *effects) {
	for _, kept := range out.rules {
		if err := l.keepRule(kept); err != nil {
			l.env.Fault(l.id, err)
			out.events = append(out.events, protocol.Warning{
				Ref:  protocol.Ref{SessionID: l.id},
				Code: protocol.WarningRuleNotKept, Message: "the rule is not kept: " + err.Error(),
			})
		}
		l.m.record(session.RuleKept{ApprovalID: kept.approvalID}) // is written with the next batch
	}
}

// keepRule adds a rule to the user's own.
func (l *loop) keepRule(kept keptRule) error {
	if l.env.Policy == nil {
		return fmt.Errorf("this daemon has no rules")
	}
	return l.env.Policy.Keep(kept.rule, l.env.Now(), l.id, kept.title)
}

// broke reports what ends the loop before its time.
func (l *loop) broke(message string, err error) *protocol.Error {
	l.env.Fault(l.id, err)
	l.env.forest.keep(l.id) // before those learn of it who look after its children
	failure := &protocol.Error{Code: protocol.SessionError, Message: message, Cause: err.Error()}
	if l.open.RunID != "" {
		l.env.Events.Append(protocol.ErrorEvent{
			Ref: l.open, Code: failure.Code, Message: failure.Message,
			Cause: failure.Cause,
		})
	}
	return failure
}

// tellQuestion has others see what the run waits for, and sees to it that it does
// not wait for longer than it may.
func (l *loop) tellQuestion() {
	id := ""
	if run := l.m.s.Run; run != nil && run.Question.Open() {
		id = run.Question.ApprovalID
	}
	if id == l.question {
		return
	}
	l.env.questions.Give(l.told)
	l.question, l.told = id, 0
	if l.late != nil {
		l.late.Stop()
		l.late = nil
	}
	shown := l.m.pendingQuestion()
	if shown != nil {
		if most := l.env.ApprovalTimeout; most > 0 {
			l.late = time.AfterFunc(shown.CreatedAt.Add(most).Sub(l.env.Now()), func() {
				_ = l.post(context.Background(), lateIn{id})
			})
		}
		l.told = l.shorten(shown)
	}
	l.asked.Store(shown)
}

// evictable reports that the session can be closed without anybody noticing.
func (l *loop) evictable() bool {
	return !l.busy.Load() && l.working.Load() == 0 && l.delegating.Load() == 0 && len(l.mailbox) == 0
}

// announce has others see what the session has come to.
func (l *loop) announce() {
	now := l.m.info()
	l.shown.Store(&now)
}

func (l *loop) runInfo() *protocol.RunInfo {
	if l.m.s.Run == nil {
		return nil
	}
	return &protocol.RunInfo{SessionID: l.id, RunID: l.m.s.Run.ID, RunState: l.m.runState()}
}

func (l *loop) answer(r reply) {
	c, ok := r.to.(*call)
	switch {
	case !ok:
	case r.postponed:
		signal(c.postponed)
	case r.ended == nil:
		c.reply <- r
	default:
		r.value = l.result(r.ended)
		c.finish(r)
	}
}

// fail answers what a broken batch leaves unanswered.
func (l *loop) fail(replies []reply, err error) {
	for _, r := range replies {
		if c, ok := r.to.(*call); ok && r.ended == nil && !r.postponed {
			c.reply <- reply{err: err}
		}
	}
}

func (l *loop) startAll(jobs []work) {
	for _, w := range jobs {
		l.start(w)
	}
}

// start starts a piece of work, or cancels the running one.
func (l *loop) start(w work) {
	if w.cancels() {
		if l.cancel != nil {
			l.cancel(errAborted)
		}
		return
	}
	if w.call != nil { // it may wait for long
		w.call.history = w.call.history.Unread()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	workdir := l.m.workdir()
	var child *delegate
	if w.child != nil {
		child = l.delegates[w.child.callID]
	}
	var record *pendingRecord
	if w.after != "" {
		record = l.beginRecord()
	}
	l.cancel = cancel
	l.working.Add(1)
	l.running.Go(func() {
		defer l.working.Add(-1)
		defer cancel(nil)
		switch {
		case w.call != nil:
			l.callModel(ctx, w.gen, *w.call)
		case w.tool != nil:
			l.callTool(ctx, w)
		case w.after != "":
			l.recordAfter(record, w.gen, workdir, w.after)
		case w.rewind != nil:
			l.doRewind(ctx, w.gen, *w.rewind)
		case w.stop != nil:
			l.checkStop(ctx, w.gen, *w.stop)
		case w.child != nil:
			l.awaitChild(ctx, w.gen, child, w.child.most)
		default:
			l.runPrecheck(ctx, w.gen, *w.look)
		}
	})
}

// abandon ends the running work and waits for it.
func (l *loop) abandon() {
	l.die()
	if l.cancel != nil {
		l.cancel(errShutdown)
	}
	idle := make(chan struct{})
	go func() {
		l.running.Wait()
		close(idle)
	}()
	for {
		select {
		case in := <-l.mailbox: // its poster learns from done that nobody answers
			l.env.release(in)
		case <-idle:
			l.dropRecord()
			return
		}
	}
}
