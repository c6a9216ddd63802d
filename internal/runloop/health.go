package runloop

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// healthWait is how long those who ask how the daemon is wait for tools that have
// not yet said what they can do.
const healthWait = 5 * time.Millisecond

// daemonState is get_state for a caller who asks about the daemon alone. It reads no
// session and makes none.
func (h *Hub) daemonState() protocol.State {
	fresh := session.NewState()
	st := protocol.State{
		RunState: protocol.StateIdle, SteeringMode: fresh.SteeringMode, FollowUpMode: fresh.FollowUpMode,
		ApprovalMode: fresh.ApprovalMode,
		Daemon:       h.env.Daemon, LastSeq: h.env.Events.LastSeq(), Model: wireModel(h.env.own(), h.env.own()),
		Workdir:     h.env.Workdir,
		ActiveTools: []string{}, SessionState: jsontext.Value(`{}`), Assets: []protocol.AssetInfo{},
		Jobs:                []protocol.JobInfo{},
		ApprovalsIncomplete: !h.haveTakenUp(), // asked before the list is made
		Runs:                h.runs(true), PendingApprovals: h.pendingApprovals("", nil),
	}
	if h.env.Health != nil {
		st.Health = h.env.Health()
	}
	return st
}

// daemonTools is list_tools for a caller who asks about the daemon alone.
func (h *Hub) daemonTools(ctx context.Context) protocol.Tools {
	return h.toolsFrom(ctx, model.Scope{Workdir: h.env.Workdir}, healthWait, false, nil)
}

// Load is how much the daemon does: its active runs, those of them that wait for a
// person, and the folders that they are in, with repetitions.
func (h *Hub) Load() (running, waiting int, workdirs []string) {
	for _, run := range h.runs(true) {
		running++
		if run.WaitingFor != "" {
			waiting++
		}
		if info, ok := h.Known(run.SessionID); ok {
			workdirs = append(workdirs, info.Workdir)
		}
	}
	return running, waiting, workdirs
}
