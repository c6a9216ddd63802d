package runloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// Worktrees makes git worktrees.
type Worktrees interface {
	// Make makes one of the repository that a folder is in, with a branch of its own named
	// after title, and returns where it is. It blocks until its files are there, or ctx ends.
	Make(ctx context.Context, workdir, title string) (dir string, err error)
}

// delegate looks after one child of a loop's session, from its start to its end. Its
// goroutine is the loop's, and ends with it: what it was about is begun again from the
// journals.
type delegate struct {
	child session.Child
	birth birth
	stop  chan struct{} // closed when the child is to stop
	once  sync.Once
	done  chan struct{} // closed once end is known
	end   childEnd
	// seen is closed, by see, once the child's session has been looked at: its tree counts what is there.
	seen chan struct{}
	see  func()

	entered bool // it has its place in its tree; its goroutine's
	held    bool // so, as it may work for a former daemon's start of it; its goroutine's
}

func (d *delegate) halt() { d.once.Do(func() { close(d.stop) }) }

func newDelegate(w childWork) *delegate {
	d := &delegate{
		child: w.child, birth: w.birth, stop: make(chan struct{}), done: make(chan struct{}), seen: make(chan struct{}),
	}
	d.see = sync.OnceFunc(func() { close(d.seen) })
	return d
}

// prepare does what the machine wants done with children, after the write, but for looking after those that it returns.
// Their trees are kept from here on, also where the run of the call is over by the same write.
func (l *loop) prepare(list []childWork) (begin []*delegate) {
	for _, w := range list {
		d := l.delegates[w.child.CallID]
		switch {
		case d == nil && !w.stop:
			d = newDelegate(w)
			if l.delegates == nil {
				l.delegates = map[string]*delegate{}
			}
			l.delegates[w.child.CallID] = d
			l.env.forest.want(d.birth.root, l.m.s, max(d.child.Nth, d.child.Counted))
			if w.again {
				l.unseen = append(l.unseen, d.seen)
			}
			if d.held = w.again && l.env.Store.Exists(d.child.ChildID); d.held { // before others look for a place
				l.env.forest.hold(d.birth.root, d.child.ChildRunID, d.place())
			}
			begin = append(begin, d)
		case d != nil && w.stop:
			d.halt()
		}
	}
	return begin
}

// delegateAll has children looked after, after the commit.
func (l *loop) delegateAll(list []*delegate) {
	for _, d := range list {
		l.delegating.Add(1)
		l.running.Go(func() {
			defer l.delegating.Add(-1)
			defer l.env.forest.unwant(d.birth.root, l.id)
			l.lookAfter(d)
		})
	}
}

// forgetDelegates forgets those whose calls, or messages, are told.
func (l *loop) forgetDelegates() {
	for id, d := range l.delegates {
		if !l.m.owes(d.child) {
			delete(l.delegates, id)
		}
	}
}

// owes reports that what a child comes to is not told yet.
func (m *machine) owes(c session.Child) bool {
	if c.Background {
		for _, b := range m.s.Background {
			if b.Key() == c.Key() {
				return true
			}
		}
		return false
	}
	return m.s.Run != nil && m.s.Run.Call(c.CallID).ID != ""
}

// lookAfter blocks until the child's run has ended, or the loop does.
func (l *loop) lookAfter(d *delegate) {
	defer d.see()
	defer func() {
		if v := recover(); v != nil {
			l.env.Fault(l.id, fmt.Errorf("panic beside the child session %s: %v\n%s", d.child.ChildID, v, debug.Stack()))
			d.end = notBegun(model.Internal, "the daemon failed beside the child session; its log has the detail")
			close(d.done)
		}
	}()
	end, ok := l.env.hub.runChild(l.life, l.id, d)
	if !ok {
		return
	}
	if d.child.Background {
		res := l.env.hub.childResult(l.life, d, end, d.birth.most)
		l.report(childReportIn{child: d.child, end: end, text: reportText(d.child, end, res)})
	}
	d.end = end
	close(d.done)
}

// awaitChild waits for the child of a call, and reports what the call comes to.
func (l *loop) awaitChild(ctx context.Context, gen int, d *delegate, most int) {
	select {
	case <-d.done:
		res := l.env.hub.childResult(ctx, d, d.end, most)
		_ = l.post(context.Background(), childDoneIn{gen, d.end, res})
	case <-ctx.Done():
	case <-l.life.Done():
	}
}

var (
	// errNotBegun says that the child's run was not begun yet.
	errNotBegun = errors.New("the child's run was not begun")
	errHalted   = errors.New("the child was stopped before its run was begun")
)

// runChild begins a child's run, unless it has been, and waits for its end. False: ctx has
// ended, or the daemon stops. The child keeps its place then, as it works on, or is begun, while
// the parent's session is opened again.
func (h *Hub) runChild(ctx context.Context, parent string, d *delegate) (end childEnd, ok bool) {
	defer func() {
		if ok && (d.entered || d.held) {
			h.env.forest.leave(d.birth.root, d.child.ChildRunID)
		}
	}()
	halt := d.stop        // nil once it was heard
	var unopened childEnd // what it has used, as its journal says
	for vain := 0; ; {
		end, err := h.watchChild(ctx, d, nil)
		if err != nil && !errors.Is(err, errNotBegun) && !isClosed(d.seen) {
			unopened = h.countUnopened(ctx, d)
		}
		d.see()
		if errors.Is(err, errNotBegun) {
			end, err = h.beginChild(ctx, parent, d)
		}
		switch {
		case err == nil:
			return end, true
		case ctx.Err() != nil:
			return end, false
		case errors.Is(err, errStopped):
			continue
		case errors.As(err, new(openError)) && isClosed(d.stop):
			if vain++; vain == maxVain {
				return notBegun(model.Internal, "it could not be stopped, and may go on once its journal can be read: "+
					err.Error()), true
			}
		}
		if why, final := refused(err); final {
			why.usage, why.below = unopened.usage, unopened.below
			why.children, why.counted = unopened.children, unopened.counted
			return why, true
		}
		timer := time.NewTimer(childRetry)
		select {
		case <-timer.C:
		case <-halt: // somebody else may have opened its session, and it goes on
			halt = nil
		case <-ctx.Done():
			timer.Stop()
			return end, false
		}
	}
}

// refused is why a child has no run and will have none. False: it may be had later, when the
// journal can be written again, or from the next daemon.
func refused(err error) (childEnd, bool) {
	var wire *protocol.Error
	var open openError
	switch {
	case errors.Is(err, errHalted):
		return notBegun("aborted", "not run: the run was aborted"), true
	case errors.As(err, &open):
		return notBegun(model.Internal, open.Error()), !errors.As(err, new(syscall.Errno))
	case errors.As(err, &wire) && wire.Code != protocol.SessionError && wire.Reason() != protocol.ShuttingDown:
		return notBegun(model.BadRequest, wire.Message), true
	}
	return childEnd{}, false
}

func notBegun(code, message string) childEnd {
	res := model.Failed(code, message)
	return childEnd{stop: protocol.StopError, code: protocol.Code(code), message: message, notRun: &res}
}

func (d *delegate) place() treePlace {
	return treePlace{d.birth.created.Parent.SessionID, d.child.RunID, d.child.Background}
}

// keepPlace gives the child its place in its tree, as its run has begun.
func (h *Hub) keepPlace(d *delegate) {
	h.env.forest.hold(d.birth.root, d.child.ChildRunID, d.place())
	d.entered, d.birth.entry = true, nil // whose message has been read
}

// enter waits for the child's place in its tree.
func (h *Hub) enter(ctx context.Context, d *delegate) error {
	if d.held {
		d.held = false
		h.env.forest.leave(d.birth.root, d.child.ChildRunID)
	}
	if d.entered {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, takeUpWait)
	defer cancel()
	select {
	case <-h.takenUp: // those that a former daemon has left have their places
	case <-waiting.Done():
	case <-d.stop:
	}
	if !h.env.forest.enter(ctx, d.stop, d.birth.root, d.child.ChildRunID, d.place()) {
		return cmp.Or(context.Cause(ctx), errHalted)
	}
	d.entered = true
	return context.Cause(ctx) // the place may have come with the end of the loop: then the next one begins the child
}

// watchChild waits for the end of a child's run, which it begins with start. errNotBegun:
// there is no such run.
func (h *Hub) watchChild(ctx context.Context, d *delegate, start *childStart) (end childEnd, err error) {
	if !h.env.Store.Exists(d.child.ChildID) {
		if !d.child.New {
			return end, protocol.Errorf(protocol.SessionNotFound, "session_id: there is no session %s any more", d.child.ChildID)
		}
		return end, errNotBegun
	}
	l, release, err := h.acquire(ctx, d.child.ChildID)
	if err != nil {
		return end, err
	}
	c := newCall()
	if err = l.post(ctx, childRunIn{c, d.child.ChildRunID, start}); err == nil {
		select {
		case <-c.postponed: // it stays open while it runs
			h.keepPlace(d)
			d.see()
		case r := <-c.reply:
			if end, ended := r.value.(childEnd); ended && !d.child.Ended {
				h.env.forest.ended(d.birth.root, d.child.ChildRunID, end)
			}
			c.reply <- r // there is room again, and nobody else takes it
		case <-l.done:
		case <-ctx.Done():
		}
	}
	release()
	if err != nil {
		return end, l.whyStopped(err)
	}
	return awaitEnd(ctx, l, c, d)
}

// whyStopped is what has ended a loop before its time, where that is why an error came.
func (l *loop) whyStopped(err error) error {
	if errors.Is(err, errStopped) && l.failure != nil {
		return l.failure
	}
	return err
}

// awaitEnd waits for the reply to a childRunIn, and has the run aborted when the child is to
// stop.
func awaitEnd(ctx context.Context, l *loop, c *call, d *delegate) (end childEnd, err error) {
	select {
	case <-d.stop:
		_ = l.post(ctx, abortIn{nil, d.child.ChildRunID})
	case r := <-c.reply:
		c.reply <- r
	case <-ctx.Done():
	case <-l.done:
	}
	r, err := l.await(ctx, c.reply)
	if err != nil {
		return end, l.whyStopped(err)
	}
	end, known := r.value.(childEnd)
	if !known {
		err = errNotBegun
	}
	return end, err
}

// beginChild makes a child's session, unless it is there, and begins its run.
func (h *Hub) beginChild(ctx context.Context, parent string, d *delegate) (end childEnd, err error) {
	if err := h.enter(ctx, d); err != nil {
		return end, err
	}
	if isClosed(d.stop) {
		return end, errHalted
	}
	a, err := h.childArgs(ctx, parent, d)
	if err != nil {
		return end, err
	}
	start := d.birth.start
	if start.terms.As, err = h.namedChild(ctx, d, a); err != nil {
		return end, err
	}
	var chosen []session.Fact
	if as := start.terms.As; as != nil && as.Agent != "" { // which has no other place for instructions
		a.Agent, a.Prompt, chosen, start.terms.As = as.Agent, as.Text+"\n\n"+a.Prompt, chosenIn(as), nil
	}
	if start.late, err = h.lateOf(ctx, parent, start.root); err != nil {
		return end, err
	}
	start.text = a.Prompt
	if d.child.New && !h.env.Store.Exists(d.child.ChildID) {
		if err := h.bear(ctx, d, a, chosen); err != nil {
			return end, err
		}
	}
	if err := h.narrow(ctx, parent, d.child.ChildID); err != nil {
		return end, err
	}
	if h.orchestrated() {
		if start.text, err = h.beforeTurn(ctx, d.child.ChildID, a.Prompt, ""); err != nil {
			return end, err
		}
	}
	return h.watchChild(ctx, d, &start)
}

// narrow takes from a child what its parent is not allowed by now.
func (h *Hub) narrow(ctx context.Context, parent, child string) error {
	type allowed struct {
		mode   protocol.ApprovalMode
		tools  []string
		chosen bool
	}
	read := func(m *machine) (allowed, error) {
		return allowed{m.s.ApprovalMode, slices.Clone(m.s.Tools), m.s.ToolsChosen}, nil
	}
	above, err := readSession(ctx, h, parent, read)
	if err != nil {
		return err
	}
	is, err := readSession(ctx, h, child, read)
	if err != nil {
		return err
	}
	if slices.Index(modeOrder, is.mode) > slices.Index(modeOrder, above.mode) {
		if _, err := h.request(ctx, child, func(t ticket) input { return approvalModeIn{t, above.mode} }); err != nil {
			return err
		}
	}
	if !above.chosen {
		return nil
	}
	left := above.tools
	if is.chosen {
		left = slices.DeleteFunc(slices.Clone(is.tools), func(name string) bool {
			return !slices.Contains(above.tools, name)
		})
	}
	if is.chosen && len(left) == len(is.tools) {
		return nil
	}
	_, err = h.request(ctx, child, func(t ticket) input { return toolsIn{t, left, len(left)} })
	return err
}

// childArgs reads the arguments of a child's call.
func (h *Hub) childArgs(ctx context.Context, parent string, d *delegate) (a agentArgs, err error) {
	if d.birth.entry == nil {
		return a, protocol.Errorf(protocol.InternalError, "the message with the call is gone from the journal")
	}
	text, err := h.env.Store.Arguments(ctx, parent, d.birth.entry, d.child.CallID)
	if err != nil {
		return a, err
	}
	if a, err = readAgentArgs(text); err != nil {
		err = protocol.Errorf(protocol.InvalidPayload, "%v", err)
	}
	return a, err
}

// bear makes a child's session, with what is chosen there of a hosted agent's options.
func (h *Hub) bear(ctx context.Context, d *delegate, a agentArgs, chosen []session.Fact) (err error) {
	created, facts := d.birth.created, d.birth.facts
	hosted := h.hosts(a.Agent)
	if hosted || d.child.Host != "" {
		if created.Agent, err = h.agentOf(a.Agent); err != nil {
			return err
		}
		facts = slices.DeleteFunc(slices.Clone(facts), func(f session.Fact) bool { _, is := f.(session.ModelSet); return is })
	}
	if a.Model != "" {
		if h.env.Models == nil || hosted {
			return protocol.Errorf(protocol.InvalidPayload, "model: this child has no choice of models")
		}
		choice, err := h.env.Models.Choose(a.Model, "", "")
		if err != nil {
			return protocol.Errorf(protocol.InvalidPayload, "model: %v", err)
		}
		facts = append(slices.Clone(facts), session.ModelSet{Model: choice})
	}
	if a.Worktree {
		if h.env.Worktrees == nil {
			return protocol.Errorf(protocol.InvalidPayload, "worktree: this daemon makes none")
		}
		if created.Workdir, err = h.env.Worktrees.Make(ctx, created.Workdir, a.Description); err != nil {
			return cmp.Or(context.Cause(ctx), error(protocol.Errorf(protocol.InvalidPayload, "worktree: %v", err)))
		}
		created.Workdir = resolved(created.Workdir)
	}
	records := h.fresh(created)
	for _, f := range slices.Concat(facts, chosen) {
		records = append(records, session.Record{At: h.env.Now(), Fact: f})
	}
	return h.create(records, false)
}

// childResult is what a parent's model reads of a child whose run has ended.
func (h *Hub) childResult(ctx context.Context, d *delegate, end childEnd, most int) model.ToolResult {
	if end.notRun != nil {
		return *end.notRun
	}
	type view struct {
		said    *session.Entry
		steps   []session.Step
		workdir string
	}
	id, run := d.child.ChildID, d.child.ChildRunID
	v, err := readSession(ctx, h, id, func(m *machine) (view, error) {
		steps, err := m.s.StepsOf(run, run)
		if err != nil { // it has said nothing
			steps = nil
		}
		return view{m.s.RunOutput(run), slices.Clone(steps), m.workdir()}, nil
	})
	answer := ""
	if err == nil {
		var texts []string
		if texts, err = h.env.texts(ctx, id, v.said); err == nil {
			answer = texts[0]
		}
	}
	if err != nil {
		answer = fmt.Sprintf("the answer cannot be read: %v", err)
	}
	files := []protocol.ChangedFile{}
	if h.env.Changes != nil && len(v.steps) > 0 {
		if rep, err := h.env.Changes.Show(ctx, id, v.workdir, stepsOf(v.steps), "", false); err == nil {
			for _, f := range rep.Files {
				files = append(files, protocol.ChangedFile(f))
			}
		}
	}
	return resultOf(d.child, end, v.workdir, answer, files, most)
}
