// Package runloop runs sessions: for each one an actor that journals what it is
// told, decides by a pure machine, and drives one model call or tool call at a
// time.
//
// Concurrency: the Hub may be used by any number of goroutines. A session is
// one goroutine's, its loop's; at most one piece of work (a model stream or a
// tool call) runs for it beside the loop and reports through its mailbox.
//
// It refuses to know sockets, providers and child processes: it sees them
// through the interfaces in ports.go. It does not log: what went wrong goes to
// Options.Fault.
package runloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

const (
	idleTime  = 10 * time.Minute // after which an idle session is closed
	maxIdle   = 64               // idle sessions kept open
	idleBytes = 32 << 20         // that they have in memory together,
	fewIdle   = 4                // but so many are kept open however long they are
	sweepTime = time.Minute
	parkTime  = time.Second     // for runs that are told not to wait for a boundary
	pauseTime = 5 * time.Second // for hosted agents to be left to the next program
	closeTime = 5 * time.Second // for all sessions to close in the end
	mendTime  = time.Second     // between looks for sessions that failed
	maxRepair = 30 * time.Second

	maxResumes = 8 // sessions that are opened at a time to go on with their runs
)

// Options are what a Hub needs of the world. All are required but Models, Agents,
// Changes, Children, Worktrees, Token, MaxSteps, Limits, Spent, Instructions, Modules, Policy, Workdir, Held, Health
// and Audit.
type Options struct {
	Store *session.Store
	// Model answers, as ModelInfo says, in all sessions where there are no Models.
	Model     Model
	ModelInfo model.Choice
	Models    Models
	MaxSteps  int // model calls in one turn; 0: 500
	Limits    Limits
	// Spent is what all sessions have cost on the day of that time, in billionths
	// of a US dollar. Nil: nothing is known.
	Spent func(time.Time) int64
	// Instructions are what models are told before the conversation. Nil: nothing.
	Instructions Instructions

	Tools   Tools
	Modules Modules
	// Agents make the turns of the sessions that name one. Nil: there are none.
	Agents Agents
	// Token reports whether a token is a hosted agent's for that session. Nil: none is.
	Token func(sessionID, token string) bool
	// Changes record what turns do to folders. Nil: nothing does.
	Changes Changes
	// Children bounds child sessions. Zero: there are none.
	Children Bounds
	// Worktrees are made for children that want one. Nil: none can be.
	Worktrees Worktrees
	// Policy says which calls may be made. Nil: their caller asks nobody.
	Policy Policy
	// ApprovalTimeout is how long a question waits; 0: as long as its run.
	ApprovalTimeout time.Duration

	Events  Events
	Daemon  protocol.DaemonInfo
	Workdir string // of sessions that name none; "" is the process's
	Now     func() time.Time
	NewID   func(prefix string) string // unique for ever
	// Fault is told what went wrong inside, for the log. It must not block.
	Fault func(sessionID string, err error)
	// Held counts the events kept for prompts that wait; nil: without a limit.
	Held *budget.Budget
	// Health is how the daemon is doing beside its sessions. It must not block. Nil:
	// nobody knows.
	Health func() protocol.Health
	// Audit is told what the audit journal keeps. It must not block.
	Audit func(model.AuditEvent)
}

// env is what the loops share.
type env struct {
	Options
	reports   *semaphore.Weighted // bytes of maxReports
	answers   *budget.Pool        // of models, until they are kept
	arguments *budget.Pool        // of calls, while they run
	requests  *budget.Pool        // to models, while they are made
	forms     *budget.Budget      // bytes of maxForms
	waiting   *budget.Budget      // bytes of maxWaiting
	waking    chan struct{}       // holds one for each shed session that is read again
	questions *budget.Budget      // bytes of maxQuestions
	idle      atomic.Int64        // bytes that idle sessions have in memory
	rested    func()              // a loop has ended, or may be closed while it drains
	broken    func(*loop)         // a loop ends before its time; its failure is set
	hub       *Hub
	forest    *forest
}

// Hub finds, opens and closes sessions. Make it with NewHub, give it its
// goroutine with Run.
type Hub struct {
	env     *env
	pings   chan chan struct{}
	drained chan struct{} // every loop rests; holds one
	failed  chan struct{} // there are repairs; holds one

	choosing  sync.Mutex    // held while the active session changes
	searching chan struct{} // holds one while all files are read: for a search, or a usage
	resuming  sync.WaitGroup
	resumes   chan struct{} // holds one for each session that is opened to go on
	takenUp   chan struct{} // closed once the runs of a former daemon go on

	rootsMissing atomic.Bool    // what the root of a tree has used could not be read
	leaving      sync.WaitGroup // hosted sessions that are being closed
	asking       sessionQueue   // of texts that orchestrators are asked about

	mu    sync.Mutex
	state lifecycle
}

// NewHub returns a hub whose sessions open as they are asked for.
func NewHub(o Options) *Hub {
	if o.Audit == nil {
		o.Audit = func(model.AuditEvent) {}
	}
	o.MaxSteps = cmp.Or(o.MaxSteps, maxSteps)
	if abs, err := filepath.Abs(o.Workdir); err == nil {
		o.Workdir = resolved(abs) // as that of every session is
	}
	h := &Hub{
		pings: make(chan chan struct{}), drained: make(chan struct{}, 1), failed: make(chan struct{}, 1),
		searching: make(chan struct{}, 1),
		resumes:   make(chan struct{}, maxResumes), takenUp: make(chan struct{}),
		state: lifecycle{loops: map[string]*loop{}, taken: map[string]chan struct{}{}, repairs: map[string]*repair{}},
	}
	h.env = &env{
		hub: h, forest: &forest{bounds: o.Children},
		Options: o, reports: semaphore.NewWeighted(maxReports), answers: budget.NewPool(maxAnswers),
		requests: budget.NewPool(maxRequests), arguments: budget.NewPool(maxArguments), waiting: budget.New(maxWaiting),
		waking:    make(chan struct{}, maxWaking),
		questions: budget.New(maxQuestions), forms: budget.New(maxForms), broken: h.broken, rested: func() {
			h.update(func(*lifecycle) {})
		},
	}
	return h
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Run takes up the runs that a former daemon left unfinished and then minds
// the idle sessions and those that failed. It blocks until ctx ends, and its error
// is nil.
func (h *Hub) Run(ctx context.Context) error {
	defer h.resuming.Wait()
	h.resuming.Go(func() { h.takeUp(ctx) })
	sweep := time.NewTicker(sweepTime)
	defer sweep.Stop()
	var mend <-chan time.Time // nil while nothing has failed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			h.evict(h.env.Now().Add(-idleTime))
		case <-h.failed:
			if mend == nil {
				mend = time.After(mendTime)
			}
		case <-mend:
			mend = nil
			h.resuming.Go(func() { h.mend(ctx) })
		case pong := <-h.pings:
			close(pong)
		}
	}
}

// Ping makes a round trip through the hub's goroutine and fails when ctx ends
// first: the watchdog's question.
func (h *Hub) Ping(ctx context.Context) error {
	pong := make(chan struct{})
	select {
	case h.pings <- pong:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-pong
	return nil
}

// Drain blocks. It lets every run reach its next boundary, for at most timeout, leaves it
// there to be resumed, and closes all sessions. No session opens afterwards. One
// whose disk hangs it waits for no longer than a few seconds more.
func (h *Hub) Drain(timeout time.Duration) {
	h.lead(drainIn{}, timeout, func(*loop) bool { return true })
	h.closeAll()
}

// Leave is Drain for a daemon that starts anew: hosted agents live on, and the next program goes
// on where they are. They are stopped last, and for no longer than that takes.
func (h *Hub) Leave(timeout time.Duration) {
	h.update(func(s *lifecycle) { s.keeping = true })
	h.lead(drainIn{}, timeout, func(l *loop) bool { return l.keeps == nil })
	h.update(func(s *lifecycle) { s.keeping = false })
	h.lead(pauseIn{}, pauseTime, func(l *loop) bool { return l.keeps != nil })
	h.closeAll()
}

// lead leads the runs of some sessions to a boundary.
func (h *Hub) lead(in input, timeout time.Duration, which func(*loop) bool) {
	h.tellAll(in, timeout, which)
	if !h.rest(timeout) {
		h.tellAll(drainNowIn{}, parkTime, which)
		h.rest(parkTime)
	}
}

// closeAll closes all sessions for good.
func (h *Hub) closeAll() {
	var left []*loop
	h.update(func(s *lifecycle) { left = s.stop() })
	for _, l := range left {
		close(l.stop)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, l := range left {
		if waited(ctx, l.done) != nil {
			h.env.Fault(l.id, fmt.Errorf("the session was not closed within %v: its disk hangs, or a tool does", closeTime))
		}
	}
	gone := make(chan struct{})
	go func() { // ends with the agents
		h.leaving.Wait()
		close(gone)
	}()
	_ = waited(ctx, gone)
}

// rest waits until every session may be closed, for at most that long.
func (h *Hub) rest(timeout time.Duration) (all bool) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		if h.readLifecycle(func(s *lifecycle) { all = s.resting() }); all {
			return true
		}
		select {
		case <-h.drained:
		case <-deadline.C:
			return false
		}
	}
}

// tellAll posts an input to every loop. One whose mailbox stays full, as its disk
// hangs, is not waited for longer than that.
func (h *Hub) tellAll(in input, timeout time.Duration, which func(*loop) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var open []*loop
	h.update(func(s *lifecycle) { s.stage, open = max(s.stage, draining), s.all() })
	for _, l := range open {
		if which(l) {
			_ = l.post(ctx, in)
		}
	}
}

// ModelsChanged has the runs go on that wait for a model, where it can be asked now. It
// waits at most patience for sessions whose mailboxes are full.
func (h *Hub) ModelsChanged(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var open []*loop
	h.readLifecycle(func(s *lifecycle) { open = s.all() })
	var telling sync.WaitGroup // one whose disk hangs keeps no other waiting
	for _, l := range open {
		if !l.isShed.Load() { // such a one waits for an answer
			telling.Go(func() { _ = l.post(ctx, modelsIn{}) })
		}
	}
	telling.Wait()
}

// acquire returns the loop of a session, opening it if need be, and keeps it
// open until release is called. It blocks while the session's journal is read,
// until ctx ends.
func (h *Hub) acquire(ctx context.Context, id string) (l *loop, release func(), err error) {
	for {
		var others chan struct{}
		stopped := false
		h.update(func(s *lifecycle) {
			stopped, l = s.stage == closed, s.open(id)
			switch {
			case stopped:
			case l != nil:
				s.use(l)
			default:
				delete(s.loops, id) // its journal failed: open it again
				others = s.claim(id)
			}
		})
		switch {
		case stopped:
			return nil, nil, shuttingDown()
		case l != nil:
			return l, func() { h.release(l) }, nil
		case others == nil:
			return h.open(ctx, id)
		}
		if err := waited(ctx, others); err != nil {
			return nil, nil, err
		}
	}
}

// waited returns nil once done is closed, or why ctx ended first.
func waited(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open reads a session's file; others who want the session wait meanwhile, and
// nobody else does.
func (h *Hub) open(ctx context.Context, id string) (*loop, func(), error) {
	state, journal, problems, err := h.env.Store.Load(ctx, id)
	h.env.reportProblems(id, problems)
	var l *loop
	h.update(func(s *lifecycle) {
		if s.release(id); err == nil {
			l = h.admit(s, state, journal)
		}
		if l != nil {
			s.use(l)
		}
	})
	switch {
	case errors.Is(err, session.ErrNotFound):
		return nil, nil, notFound(id)
	case err != nil && ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case err != nil:
		return nil, nil, cannotOpen(err)
	case l == nil:
		_ = journal.Close()
		return nil, nil, shuttingDown()
	}
	return l, func() { h.release(l) }, nil
}

// admit gives an opened session its loop, unless the hub is closed: then it is
// nil, and the journal still its opener's to close. It is a change of update's.
func (h *Hub) admit(now *lifecycle, s *session.State, j *session.Journal) *loop {
	if now.stage == closed {
		return nil
	}
	l := newLoop(h.env, s, j)
	l.lastUsed = h.env.Now()
	l.m.draining = now.stage == draining
	now.loops[s.ID] = l
	h.env.Audit(model.AuditEvent{Event: "session:start", Component: "session", SessionID: s.ID})
	l.busy.Store(true)
	r := now.repairs[s.ID]
	l.mailbox <- resumeIn{fault: r != nil && r.disk}
	go l.serve() // ended by Drain or evict, which wait for it, or by its journal
	return l
}

func (h *Hub) release(l *loop) {
	h.update(func(s *lifecycle) { s.leave(l, h.env.Now()) })
	h.thin()
}

// thin closes idle sessions where too many are open.
func (h *Hub) thin() {
	crowded := false
	if h.readLifecycle(func(s *lifecycle) {
		crowded = len(s.loops) > 2*maxIdle || h.env.idle.Load() > idleBytes
	}); crowded {
		h.evict(time.Time{})
	}
}

// evict closes the idle sessions that were last used before then, and of the
// others the oldest that are too many. Anyone who wants one of them waits until its
// journal is closed, and nobody else does.
func (h *Hub) evict(before time.Time) {
	var leaving []*loop
	h.update(func(s *lifecycle) { leaving = s.dismiss(before) })
	for _, l := range leaving {
		close(l.stop)
	}
	for _, l := range leaving {
		gone := func() {
			<-l.done
			h.update(func(s *lifecycle) { s.release(l.id) })
		}
		if l.agent == nil { // it ends at once
			gone()
		} else { // when the agent has; others need not wait for that
			h.leaving.Go(gone)
		}
	}
}

// openError says why a session cannot be opened: to a client, and to the daemon.
type openError struct {
	wire  *protocol.Error
	cause error // session.ErrReadOnly, or of the operating system, for one
}

func (e openError) Error() string   { return e.wire.Error() }
func (e openError) Unwrap() []error { return []error{e.wire, e.cause} }

func cannotOpen(err error) error {
	wire := &protocol.Error{Code: protocol.SessionError, Message: "the session cannot be opened", Cause: err.Error()}
	return openError{wire, err}
}

func notFound(id string) error {
	if !session.ValidID(id) {
		return protocol.Errorf(protocol.SessionNotFound,
			"session_id: %.80q is no session id: those have letters, digits and '-' only", id)
	}
	return protocol.Errorf(protocol.SessionNotFound, "session_id: there is no session %s", id)
}

// create makes a session, and with activate makes it the active one.
func (h *Hub) create(facts []session.Record, activate bool) error {
	h.choosing.Lock()
	defer h.choosing.Unlock()
	return h.createLocked(facts, activate)
}

func (h *Hub) createLocked(facts []session.Record, activate bool) error {
	create := h.env.Store.CreateAside
	if activate {
		create = h.env.Store.Create
	}
	state, journal, err := create(facts[0].Fact.(session.Created).SessionID, facts)
	if err != nil {
		return &protocol.Error{Code: protocol.SessionError, Message: "the session cannot be made", Cause: err.Error()}
	}
	var l *loop
	if h.update(func(s *lifecycle) { l = h.admit(s, state, journal) }); l == nil {
		_ = journal.Close()
		return shuttingDown()
	}
	h.thin()
	return nil
}

// sessionID is the session that a command is for; "" means the active one,
// made on first need.
func (h *Hub) sessionID(id string) (string, error) {
	if id != "" {
		return id, nil
	}
	if id, err := h.active(); id != "" || err != nil {
		return id, err
	}
	h.choosing.Lock()
	defer h.choosing.Unlock()
	if id, err := h.active(); id != "" || err != nil {
		return id, err
	}
	id = h.env.NewID("ses-")
	return id, h.createLocked(h.fresh(session.Created{
		SessionID: id, Workdir: resolved(h.env.Workdir), Agent: h.defaultAgent(),
	}), true)
}

func (h *Hub) active() (string, error) {
	id, err := h.env.Store.Active()
	if err != nil {
		return "", &protocol.Error{
			Code: protocol.SessionError, Message: "the active session cannot be determined",
			Cause: err.Error(),
		}
	}
	return id, nil
}

func (h *Hub) fresh(c session.Created) []session.Record {
	return []session.Record{{At: h.env.Now(), Fact: c}}
}

// wrap names the session in an unexpected error.
func wrap(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("session %s: %w", id, err)
}
