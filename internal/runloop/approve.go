package runloop

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// approve gives an answer to the session that its question is of. The first one
// counts.
func (h *Hub) approve(ctx context.Context, p protocol.ApproveParams) (protocol.ApproveAccepted, error) {
	who, err := personOf(ctx, protocol.Approve.Name())
	if err != nil {
		return protocol.ApproveAccepted{}, err
	}
	id, ok := sessionAsking(p.ApprovalID)
	if !ok {
		return protocol.ApproveAccepted{}, noSuchApproval(p.ApprovalID)
	}
	out, err := requestAs[protocol.ApproveAccepted](ctx, h, id, func(t ticket) input {
		return answerIn{t, p.ApprovalID, p.Option, p.Reason, who, p.Content}
	})
	if gone(err) {
		err = noSuchApproval(p.ApprovalID)
	}
	return out, err
}

func (h *Hub) setApprovalMode(ctx context.Context, p protocol.SetApprovalModeParams) (protocol.ApprovalModeAccepted,
	error,
) {
	if _, err := personOf(ctx, protocol.SetApprovalMode.Name()); err != nil {
		return protocol.ApprovalModeAccepted{}, err
	}
	if err := h.modeOfParent(ctx, p); err != nil {
		return protocol.ApprovalModeAccepted{}, err
	}
	out, err := requestAs[protocol.ApprovalModeAccepted](ctx, h, p.SessionID, func(t ticket) input {
		return approvalModeIn{t, p.Mode}
	})
	if err == nil {
		err = h.lowerChildren(ctx, p)
	}
	return out, err
}

// modeOrder has the approval modes, those that allow more later.
var modeOrder = []protocol.ApprovalMode{protocol.ApprovalsDeny, protocol.ApprovalsAsk, protocol.ApprovalsAuto}

// lowerChildren gives a session's mode to those of its children that are allowed more.
func (h *Hub) lowerChildren(ctx context.Context, p protocol.SetApprovalModeParams) error {
	children, err := query(ctx, h, p.SessionID, func(m *machine) ([]string, error) {
		return slices.Clone(m.s.Children), nil
	})
	for _, id := range children {
		mode, wrong := readSession(ctx, h, id, func(m *machine) (protocol.ApprovalMode, error) {
			return m.s.ApprovalMode, nil
		})
		if wrong == nil && slices.Index(modeOrder, mode) > slices.Index(modeOrder, p.Mode) {
			_, wrong = h.setApprovalMode(ctx, protocol.SetApprovalModeParams{
				Scope: protocol.Scope{SessionID: id}, Mode: p.Mode,
			})
		}
		if wrong != nil && !gone(wrong) {
			err = cmp.Or(err, wrong)
		}
	}
	return err
}

// parentOf is the parent of a session, "" where it has none.
func (h *Hub) parentOf(ctx context.Context, id string) (string, error) {
	return query(ctx, h, id, func(m *machine) (string, error) {
		if m.s.Parent == nil {
			return "", nil
		}
		return m.s.Parent.SessionID, nil
	})
}

// toolsOfParent refuses a child session a tool that its parent does not have.
func (h *Hub) toolsOfParent(ctx context.Context, id string, tools []string) error {
	parent, err := h.parentOf(ctx, id)
	if err != nil || parent == "" {
		return err
	}
	missing, err := readSession(ctx, h, parent, func(m *machine) (string, error) {
		i := slices.IndexFunc(tools, func(name string) bool {
			return m.s.ToolsChosen && !slices.Contains(m.s.Tools, name)
		})
		if i < 0 {
			return "", nil
		}
		return tools[i], nil
	})
	switch {
	case gone(err):
		return nil
	case err != nil:
		return err
	case missing != "":
		return protocol.Rejectf(protocol.Forbidden,
			"tools: the parent, session %s, does not have %.80q, and a child has no more", parent, missing)
	}
	return nil
}

// modeOfParent refuses a mode by which a child session may do more than its parent.
func (h *Hub) modeOfParent(ctx context.Context, p protocol.SetApprovalModeParams) error {
	parent, err := h.parentOf(ctx, p.SessionID)
	if err != nil || parent == "" {
		return err
	}
	mode, err := readSession(ctx, h, parent, func(m *machine) (protocol.ApprovalMode, error) {
		return m.s.ApprovalMode, nil
	})
	switch {
	case gone(err):
		return nil
	case err != nil:
		return err
	case slices.Index(modeOrder, p.Mode) > slices.Index(modeOrder, mode):
		return protocol.Rejectf(protocol.Forbidden, "mode: the parent, session %s, has %q, and a child is allowed no more",
			parent, mode)
	}
	return nil
}

// personOf refuses what only a person may do to whatever the daemon has started,
// and where nobody knows who asks (approvals.md §2).
func personOf(ctx context.Context, command string) (person, error) {
	c, known := protocol.CallerOf(ctx)
	switch {
	case !known:
		return person{}, protocol.Rejectf(protocol.Forbidden, "%s is for people, and it is not known who asks", command)
	case c.Descendant:
		return person{}, protocol.Rejectf(protocol.Forbidden,
			"%s is for people, and the daemon itself has started what asks (process %d)", command, c.PID)
	case c.Refused != "":
		return person{}, protocol.Rejectf(protocol.Forbidden, "%s is for people, and %s", command, c.Refused)
	}
	who := person{pid: c.PID, uid: c.UID, peer: c.Peer}
	if c.Comm != nil {
		who.comm = c.Comm()
	}
	return who, nil
}

// sessionAsking is the session that a question's id names.
func sessionAsking(approvalID string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(approvalID, "apr-")
	if !ok {
		return "", false
	}
	_, id, ok = strings.Cut(rest, "-")
	return id, ok && session.ValidID(id)
}

// maxQuestions bounds the arguments, diffs and forms of questions that every state
// has, in bytes.
const maxQuestions = 1 << 20

// shorten leaves out of an approval what does not fit into the states of other
// sessions. It returns the bytes that it takes there.
func (l *loop) shorten(a *protocol.Approval) int {
	a.ToolName = strings.Clone(a.ToolName) // may be a part of all that the model said
	size := len(a.Arguments) + len(a.Diff) + len(a.Schema)
	if l.env.questions.Take(size) {
		return size
	}
	a.Arguments, a.Diff, a.Schema, a.Shortened = nil, "", nil, true
	return 0
}

// pendingQuestion is the open question as a state has it, nil where there is none.
func (m *machine) pendingQuestion() *protocol.Approval {
	q := m.question()
	if q != nil {
		q.SessionID, q.RunID = m.s.ID, m.s.Run.ID
	}
	return q
}

// pendingApprovals are the open questions of all sessions, the oldest first. That
// of the session asked, if it has one, is own.
func (h *Hub) pendingApprovals(asked string, own *protocol.Approval) []protocol.Approval {
	out := []protocol.Approval{}
	if own != nil {
		out = append(out, *own)
	}
	h.readLifecycle(func(s *lifecycle) {
		for _, l := range s.loops {
			if a := l.asked.Load(); a != nil && l.id != asked && !l.hasEnded() {
				out = append(out, *a)
			}
		}
	})
	slices.SortFunc(out, func(a, b protocol.Approval) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ApprovalID, b.ApprovalID))
	})
	return out
}

func audit(sessionID, callID string, ok bool, data decision) model.AuditEvent {
	ev := model.AuditEvent{
		Event: "policy:decision", Component: "policy", Status: "ok", SessionID: sessionID,
		RequestID: callID,
	}
	if !ok {
		ev.Status = "error"
	}
	ev.Data, _ = json.Marshal(data, jsontext.AllowInvalidUTF8(true))
	return ev
}
