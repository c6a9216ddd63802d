package bridge

import (
	"slices"

	"noused/internal/acp"
	"noused/internal/protocol"
)

// modePlan is the mode in which prompts are sent as the named agent plan. It is the editor's, not the
// session's: approvals stay as they are.
const modePlan = "plan"

// modes are those that the editor can choose among: of approvals, and plan where noused makes
// the turns.
func (w *window) modes() []acp.Mode {
	if w.hosted() {
		return modes
	}
	return append(slices.Clone(modes), acp.Mode{
		ID: modePlan, Name: "Plan", Description: "what you send is planned; nothing is changed",
	})
}

func (w *window) mode() string {
	if w.planning {
		return modePlan
	}
	return string(w.state.ApprovalMode)
}

// setPlan has prompts sent as plan, where the daemon has that agent: an older one would make the run
// with all tools.
func (w *window) setPlan(r *acp.Request, field string, answer func() any) {
	if w.hosted() {
		r.Fail(acp.Errorf(acp.InvalidParams, "%s: %s makes the turns of this session, and it has no mode plan of noused's",
			field, w.state.Agent))
		return
	}
	answeringInLine(w, r, func() (protocol.Skills, error) {
		return insist(w.ctx, w, protocol.ListSkills, protocol.ListSkillsParams{Scope: protocol.Scope{SessionID: w.id}})
	}, func(s protocol.Skills, err error) {
		switch {
		case err != nil:
			r.Fail(w.b.explain(err))
		case !slices.ContainsFunc(s.Named, func(a protocol.NamedAgent) bool { return a.Name == modePlan }):
			r.Fail(acp.Errorf(acp.InvalidParams, "%s: the daemon is older and has no mode plan", field))
		default:
			w.planning = true
			r.Reply(answer())
			w.tellState()
		}
	})
}

// isPlanning tells whether a text that is sent in line now is planned: a choice that came before it
// has had its answer. A run whose turn has just ended would have a planned prompt refused: settled
// is closed when it has another turn or has ended. It may be called from any goroutine but the
// window's. Where the window has ended, the text is planned.
func (w *window) isPlanning() (planning bool, settled <-chan struct{}) {
	known := make(chan struct{})
	if !w.post(func() { planning, settled = w.planning, w.settled; close(known) }) {
		return true, w.ctx.Done()
	}
	<-known
	return planning, settled
}

// unsettled notes that a turn has ended, and that its run may do so next.
func (w *window) unsettled() {
	select {
	case <-w.settled:
		w.settled = make(chan struct{})
	default:
	}
}

// settledNow notes that the run goes on after a turn, or has ended, or that nobody can say.
func (w *window) settledNow() {
	select {
	case <-w.settled:
	default:
		close(w.settled)
	}
}
