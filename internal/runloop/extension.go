package runloop

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (h *Hub) extensionCommand(_ context.Context, p protocol.ExtensionCommandParams) (
	a protocol.Answer[protocol.ExtensionResult], err error,
) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.ExtensionResult, error) { return h.runExtension(ctx, id, p) }
	return a, nil
}

func (h *Hub) runExtension(ctx context.Context, id string, p protocol.ExtensionCommandParams) (protocol.ExtensionResult,
	error,
) {
	from, err := query(ctx, h, id, scope)
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	if !h.env.Tools.Has(ctx, from, p.Name) {
		return protocol.ExtensionResult{}, protocol.Rejectf(protocol.ExtensionNotFound, "name: there is no operation %.80q",
			p.Name)
	}
	inv := model.Invocation{
		ToolCall: model.ToolCall{ID: h.env.NewID("call-"), Name: p.Name, Arguments: []byte(p.Payload)},
		Scope:    from, Phase: p.Phase,
	}
	if len(inv.Arguments) == 0 || p.Payload.Kind() == jsontext.KindNull {
		inv.Arguments = []byte("{}")
	}
	if inv.Phase == "" {
		inv.Phase = "setup"
	}
	type view struct {
		prompt, output *session.Entry
		most           int
	}
	last, err := query(ctx, h, id, func(m *machine) (v view, err error) {
		if run := m.s.Run; run != nil && p.Note != "" {
			return v, runInProgress(m.s.ID, run.ID)
		}
		v.most = m.maxResult()
		v.prompt, v.output = m.s.LastTexts()
		return v, nil
	})
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	texts, err := h.env.texts(ctx, id, last.prompt, last.output)
	if err != nil {
		return protocol.ExtensionResult{}, unread(ctx, id, err)
	}
	inv.Prompt, inv.Output = texts[0], texts[1]
	if p.Note != "" {
		inv.MaxResult = last.most
	}
	_, release, err := h.acquire(ctx, id) // it stays open meanwhile
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	defer release()
	var lost error
	res := h.env.callByUser(ctx, id, inv, func(u model.ToolUpdate) {
		if len(u.Patch) > 0 || u.Asset != nil || u.Job != nil || u.Warning != "" || u.Delta != "" && p.OutputID != "" {
			if _, err := h.request(ctx, id, func(t ticket) input { return sideUpdateIn{t, u, p.OutputID} }); err != nil {
				lost = err
			}
		}
	})
	if gone(lost) { // with its jobs, but for one that was started just now
		h.env.Tools.EndSession(context.WithoutCancel(ctx), id)
	}
	if lost != nil && ctx.Err() == nil {
		res = model.Failed(model.Internal, "the session could not keep what the tool reported: "+lost.Error())
	}
	out := protocol.ExtensionResult{
		OK: res.OK, Result: res.Text, Outputs: res.Outputs, Value: rawValue(res.Value), Error: wireToolError(res.Error),
	}
	if p.Note != "" && ctx.Err() == nil {
		out.MessageID, err = requestAs[string](ctx, h, id, func(t ticket) input {
			return noteIn{t, p.Note + "\n\n" + res.Text}
		})
	}
	return out, err
}

// texts are those of a session's messages, "" for nil.
func (e *env) texts(ctx context.Context, id string, of ...*session.Entry) ([]string, error) {
	out := make([]string, len(of))
	for i, entry := range of {
		if entry == nil {
			continue
		}
		if err := e.Store.Bodies(ctx, id, []*session.Entry{entry}, func(_ *session.Entry, b *session.Body) error {
			out[i] = b.Message.Text
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// callByUser makes a call that is the user's own act: nobody is asked, but what a
// rule denies stays denied (approvals.md §2). What would be asked is denied to those who
// come from another machine and are not taken for a person.
func (e *env) callByUser(ctx context.Context, id string, inv model.Invocation,
	progress func(model.ToolUpdate),
) model.ToolResult {
	mode := protocol.ApprovalsAsk
	if c, _ := protocol.CallerOf(ctx); c.Refused != "" {
		mode = protocol.ApprovalsDeny
	}
	inv.Allowed = mode == protocol.ApprovalsAsk
	if e.Policy != nil {
		v := e.Policy.Judge(inv, string(mode), nil)
		if v.Decision == model.Ask {
			v.Decision, v.Rule = model.Allow, "allow: extension_command ("+v.Rule+")"
		}
		if v.Decision != "" {
			e.Audit(ruleAudit(id, inv.ToolCall, v))
		}
		inv.Path = v.Path
		if v.Decision == model.Deny {
			return model.Failed(v.Code, v.Why)
		}
	}
	return e.callTool(ctx, id, inv, progress)
}

// noteIn keeps a text as a message of the user that nobody has to answer. Where
// a run has begun meanwhile it comes after that.
type noteIn struct {
	ticket ticket
	text   string
}

func (in noteIn) step(m *machine) {
	if m.s.Run != nil || m.phase == compacting || m.phase == rewinding {
		m.postpone(in.ticket, in)
		return
	}
	id := m.newID("msg-")
	m.record(session.MessageAdded{
		ID: id, ParentID: m.s.Leaf, TurnKind: protocol.KindPrompt, Message: model.Message{Role: model.User, Text: in.text},
	})
	m.moveLeaf(id) // which is durable
	m.reply(in.ticket, id)
}
