package bridge

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// window is a session that the editor has open. Its methods but post belong to its
// goroutine.
type window struct {
	b      *bridge
	id     string
	link   *follow.Session
	ctx    context.Context
	cancel context.CancelFunc
	todo   chan func()
	calls  sync.WaitGroup // goroutines that wait for the daemon or the editor

	known   bool // there was a snapshot
	state   protocol.State
	lost    bool            // the daemon is away, and the log has it
	opening []opening       // requests that the next snapshot answers
	held    []follow.Update // what waits until it is known whose texts are whose

	seen  uint64 // number of the newest event that was taken in
	draw  drawing
	flush *time.Timer // while a call has output that was not told

	prompts []*prompt       // without an answer, in the order in which they came
	line    chan struct{}   // closed when the text that was sent last has its answer
	sending atomic.Int32    // texts that were sent, and may not be accepted yet
	own     map[string]bool // texts of this editor's that were not delivered yet
	aborts  int             // that were not answered yet
	owed    atomic.Bool     // an abort that could not be sent to any daemon
	texts   context.Context // ends with the next abort
	giveUp  context.CancelFunc

	asks   map[string]context.CancelFunc // approvals that the editor was asked
	agents []string                      // whose programs are there
	models []protocol.ListedModel
	told   told

	planning bool          // prompts are sent as plan
	settled  chan struct{} // closed but between a turn's end and what follows it: a turn, or the run's end

	found   int      // how often commands were asked for
	written *written // what came of it; nil: nothing yet
}

// opening is a request that opened the session; replay says to draw all of it.
type opening struct {
	request *acp.Request
	replay  bool
	made    string   // the id, where the session is a new one
	agents  []string // whose programs are there
}

// newWindow follows a session. Its goroutines end with the bridge, or with gone.
func (b *bridge) newWindow(id string) *window {
	w := &window{
		b: b, id: id, link: follow.Open(b.Daemon, id, nil, nil), todo: make(chan func()), draw: newDrawing(),
		line: make(chan struct{}), settled: make(chan struct{}),
		own: map[string]bool{}, asks: map[string]context.CancelFunc{}, flush: time.NewTimer(time.Hour),
	}
	w.flush.Stop()
	close(w.line)
	close(w.settled)
	w.ctx, w.cancel = context.WithCancel(b.ctx)
	w.texts, w.giveUp = context.WithCancel(w.ctx)
	b.wg.Go(w.run)
	return w
}

// post has the window's goroutine do something. False: it has ended.
func (w *window) post(do func()) bool {
	select {
	case w.todo <- do:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// run ends with the window's context.
func (w *window) run() {
	defer func() {
		w.b.drop(w)
		w.link.Close()
		w.calls.Wait()
	}()
	for w.ctx.Err() == nil { // what is posted to a window that is gone is not taken
		happenings := w.link.Updates()
		if len(w.held) > 0 {
			happenings = nil
		}
		select {
		case do := <-w.todo:
			do()
		case h, ok := <-happenings:
			if ok {
				w.applyUpdate(h)
			}
		case <-w.flush.C:
			w.tellOutput()
		case <-w.ctx.Done():
			return
		}
	}
}

// away does something that waits, and then what came of it in the window's
// goroutine.
func away[R any](w *window, do func() (R, error), then func(R, error)) {
	w.calls.Go(func() {
		r, err := do()
		w.post(func() { then(r, err) })
	})
}

// answering is away for a request that is no prompt: it is answered also where the
// window ends meanwhile.
func answering[R any](w *window, r *acp.Request, do func() (R, error), then func(R, error)) {
	w.calls.Go(func() {
		got, err := do()
		w.conclude(r, func() { then(got, err) })
	})
}

// conclude has the window's goroutine answer a request; where the window has ended, it is
// answered here.
func (w *window) conclude(r *acp.Request, answer func()) {
	if !w.post(answer) && w.b.ctx.Err() == nil {
		r.Fail(unknown(w.id))
	}
}

// update tells the editor of something. While a replay is on its way nothing is
// told: the replay has it.
func (w *window) update(update any) {
	if !w.muted() {
		w.b.conn.Update(w.id, update)
	}
}

func (w *window) muted() bool {
	return !w.known || slices.ContainsFunc(w.opening, func(o opening) bool { return o.replay })
}

// open answers a request when the session is known as it is at one moment. Where
// nothing is to be drawn again it is known already.
func (w *window) open(o opening) {
	if o.agents != nil {
		w.agents = o.agents
	}
	switch {
	case w.known && !o.replay && !w.muted():
		w.opened(o)
	default:
		if w.known && o.replay {
			w.link.Follow(w.id)
		}
		w.opening = append(w.opening, o)
	}
}

func (w *window) opened(o opening) {
	modes, options := acp.Modes{Current: w.mode(), Available: w.modes()}, w.options()
	o.request.Reply(acp.OpenResult{SessionID: o.made, Modes: modes, Options: options})
	w.told.mode, w.told.options, w.told.commands = modes.Current, options, nil
	w.written = nil
	w.findCommands()
	w.findModels()
	w.tellState()
}

// applyUpdate takes in what the follower tells.
func (w *window) applyUpdate(h follow.Update) {
	switch h.(type) {
	case follow.Snapshot, follow.Disconnected: // what follows the turn is in the one, or not known any more
		w.settledNow()
	}
	if s, ok := h.(follow.Snapshot); ok && s.Lost != nil && s.State.SessionID != w.id {
		h = follow.Refused{SessionID: w.id, Err: s.Lost}
	}
	if w.sending.Load() > 0 && w.mustKnow(h) {
		w.held = append(w.held, h)
		return
	}
	if _, off := h.(follow.Disconnected); !off {
		w.lost = false
	}
	switch h := h.(type) {
	case follow.Snapshot:
		w.snapshot(h)
	case follow.Events:
		w.events(h.List)
	case follow.Changed:
		w.changed(h.State)
	case follow.Refused:
		w.b.Log("session %s: %v", w.id, h.Err)
		w.gone(w.b.explain(h.Err))
	case follow.Disconnected:
		if !w.lost {
			w.b.Log("session %s: %v; trying again", w.id, h.Err)
			if w.sending.Load() > 0 { // a daemon may have got the text: it waits for the next one
				w.calls.Go(func() { w.b.comeBack(w.ctx) })
			}
		}
		w.lost = true
	case follow.Broken:
		w.b.Log("session %s: %v", w.id, h.Err)
		w.gone(acp.Errorf(acp.InternalError, "the session cannot be followed any more"))
	}
}

// mustKnow tells whether something can only be taken in when it is known which
// texts are the editor's: an event may overtake the reply that accepts its text.
func (w *window) mustKnow(h follow.Update) bool {
	_, all := h.(follow.Snapshot)
	return all
}

// release takes in what was held.
func (w *window) release() {
	list := w.held
	w.held = nil
	for i, h := range list {
		w.applyUpdate(h)
		if len(w.held) > 0 {
			w.held = append(w.held, list[i+1:]...)
			return
		}
	}
}

// events takes events in. The rest is held from the first one on that may deliver
// a text whose sender is not known.
func (w *window) events(list []follow.Event) {
	for i, ev := range list {
		if start, ok := ev.Event.(protocol.TurnStart); ok && w.sending.Load() > 0 && !w.knows(start.InputIDs) {
			w.held = append(w.held, follow.Events{List: list[i:]})
			w.settledNow() // else what is sent would wait for what is held until it was
			return
		}
		w.event(ev)
	}
}

func (w *window) knows(inputs []string) bool {
	return !slices.ContainsFunc(inputs, func(id string) bool { return !w.own[id] })
}

// snapshot shows what has not been shown yet, all of it where that was asked for,
// and answers those who waited for it.
func (w *window) snapshot(s follow.Snapshot) {
	if s.State.SessionID != w.id {
		return // the daemon's active one, in the place of one that is gone
	}
	if s.Lacks != nil {
		w.gone(acp.Errorf(acp.InternalError, "the daemon is an older core that nous acp cannot work with"))
		return
	}
	first, waiting := !w.known, w.opening
	replay := slices.ContainsFunc(waiting, func(o opening) bool { return o.replay })
	w.known, w.opening = true, nil
	if s.New || replay {
		w.seen = 0
	}
	if replay {
		w.draw = newDrawing()
	}
	silent := first && !replay
	if err := w.drawAll(s, silent, replay); err != nil {
		return // the client is gone, or the window
	}
	w.learn(s.State)
	if replay {
		w.told = told{}
		w.tellPlan()
	}
	for _, o := range waiting {
		w.opened(o)
	}
	w.changed(s.State)
	w.settle(s)
}

// changed is the session's state after all that was told so far.
func (w *window) changed(s protocol.State) {
	w.learn(s)
	w.tellState()
	w.syncApprovals(s.PendingApprovals)
	if w.owed.Load() {
		w.aborting(w.payAbort)
	}
}

// gone ends the window: the session is no more.
func (w *window) gone(why *acp.Error) {
	for _, o := range w.opening {
		o.request.Fail(why)
	}
	for _, p := range w.prompts {
		p.fail(why)
	}
	w.opening, w.prompts = nil, nil
	w.cancel()
}

// event takes one event in.
func (w *window) event(ev follow.Event) {
	if ev.Seq <= w.seen {
		return
	}
	w.seen = ev.Seq
	switch e := ev.Event.(type) {
	case protocol.TurnStart:
		w.turnStarted(e)
	case protocol.TurnEnd:
		w.endCalls()
		w.turnEnded(e)
	case protocol.AgentEnd:
		w.endCalls()
		w.runEnded(e)
		w.findCommands() // servers that were started for the run are heard now, which no event reports
	case protocol.MessageStart:
		w.messageStarted(e)
	case protocol.MessageUpdate:
		w.messageUpdated(e)
	case protocol.MessageEnd:
		w.messageEnded(e)
	case protocol.ToolStart:
		w.callStarted(e)
	case protocol.ToolUpdate:
		w.callUpdated(e)
	case protocol.ToolEnd:
		w.callEnded(e)
	case protocol.Status:
		w.status(e)
	case protocol.Warning:
		w.notice("warning", e.Message)
	case protocol.ErrorEvent:
		w.notice("error", e.Message)
	}
}

func (w *window) status(e protocol.Status) {
	switch e.Code {
	case protocol.StatusApprovalRequested:
		if a := e.Approval; a != nil {
			a.RunID = e.RunID
			w.askEditor(*a)
		}
	case protocol.StatusApprovalResolved:
		w.resolved(e.ApprovalID)
	case protocol.StatusInputWithdrawn:
		w.withdrawn(e.InputID)
	case protocol.StatusToolsChanged:
		w.findCommands()
	case protocol.StatusTitleSet:
		w.state.Title = e.Title
		w.tellTitle()
	}
}

func (w *window) notice(severity, text string) {
	if w.b.notices && text != "" {
		w.update(acp.Notice{Update: "notice", Severity: severity, Title: text})
	}
}

// entry is one of get_messages, of either type.
type entry struct {
	protocol.Message
	Summary string `json:"summary"`
}

// decodeEntry reads an entry. One that cannot be read is shown as nothing.
func decodeEntry(raw jsontext.Value) (e entry) {
	if bytes.Contains(raw, []byte(`"message"`)) || bytes.Contains(raw, []byte(`"compaction"`)) {
		_ = json.Unmarshal(raw, &e)
	}
	return e
}
