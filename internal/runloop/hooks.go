package runloop

import (
	"context"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// stopCheck asks hooks whether a run may end with that output.
type stopCheck struct{ workdir, output string }

// stopCheckedIn has what they say: text, "" where the run may end, and why hooks failed.
type stopCheckedIn struct {
	gen      int
	text     string
	problems []string
}

// maySendBack reports whether hooks are asked before the run ends: once it has been sent back
// they are not.
func (m *machine) maySendBack() bool {
	return m.stopHooks != nil && !m.s.Run.SentBack && (!m.s.Run.Outside || m.s.Run.Turn > 1) && m.s.Run.Ended.StopReason == protocol.StopEnd &&
		m.stopHooks(m.workdir())
}

// checkStop asks the hooks, and ends the run when they have answered.
func (m *machine) checkStop() {
	if !m.park() {
		m.await(ending, work{stop: &stopCheck{m.workdir(), m.s.Run.Output}})
	}
}

func (in stopCheckedIn) step(m *machine) {
	if in.gen != m.gen || m.phase != ending {
		return
	}
	m.phase = idle
	m.warnOfHooks(in.problems)
	switch {
	case len(m.s.Pending) > 0: // those come first, and the hooks are asked again
		m.nextTurn()
	case in.text != "":
		m.enqueue(nil, protocol.KindFollowUp, session.CommandOnStop,
			"A hook does not let this run end yet. It says:\n\n"+in.text, "", nil)
		m.nextTurn()
	default:
		m.endRun(protocol.StopCompleted, nil)
	}
}

// hookFailedIn says why hooks failed after a call.
type hookFailedIn struct {
	gen      int
	problems []string
}

func (in hookFailedIn) step(m *machine) {
	if in.gen == m.gen && m.phase == calling {
		m.warnOfHooks(in.problems)
	}
}

func (m *machine) warnOfHooks(problems []string) {
	for _, why := range problems {
		m.publish(protocol.Warning{Ref: m.ref(), Code: protocol.WarningHookFailed, Message: why, ToolCallID: m.call.ID})
	}
}

// checkStop runs the hooks of the end of a run.
func (l *loop) checkStop(ctx context.Context, gen int, at stopCheck) {
	text, problems := l.env.Modules.OnStop(ctx, l.id, at.workdir, at.output)
	_ = l.post(context.Background(), stopCheckedIn{gen, text, problems})
}

// afterTool has hooks add to a call's result.
func (l *loop) afterTool(ctx context.Context, gen int, inv model.Invocation, res model.ToolResult) model.ToolResult {
	if l.env.Modules == nil || ctx.Err() != nil {
		return res
	}
	out, problems := l.env.Modules.AfterTool(ctx, inv, res)
	if ctx.Err() != nil {
		return res
	}
	if len(problems) > 0 {
		_ = l.post(ctx, hookFailedIn{gen, problems})
	}
	return out
}

// tellHooks says, once of each reason, why the hooks of the session's folder do not run. The
// error is that of ctx.
func (l *loop) tellHooks(ctx context.Context, gen int, call modelCall) error {
	if l.env.Modules == nil || call.req.Summary {
		return nil
	}
	why := l.env.Modules.HookProblem(call.from.Workdir)
	if why == "" {
		return nil
	}
	if _, told := l.unready.LoadOrStore("hooks: "+why, true); told {
		return nil
	}
	return l.post(ctx, noticeIn{gen, protocol.WarningHookFailed, why})
}
