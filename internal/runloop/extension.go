package runloop

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
)

func (h *Hub) extensionCommand(_ context.Context, p protocol.ExtensionCommandParams) (a protocol.Answer[protocol.ExtensionResult], err error) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.ExtensionResult, error) { return h.runExtension(ctx, id, p) }
	return a, nil
}

func (h *Hub) runExtension(ctx context.Context, id string, p protocol.ExtensionCommandParams) (protocol.ExtensionResult, error) {
	if !h.env.Tools.Has(ctx, p.Name) {
		return protocol.ExtensionResult{}, protocol.Rejectf(protocol.ExtensionNotFound, "name: there is no operation %.80q", p.Name)
	}
	inv := model.Invocation{
		ToolCall:  model.ToolCall{ID: h.env.NewID("call-"), Name: p.Name, Arguments: []byte(p.Payload)},
		SessionID: id, Phase: p.Phase,
	}
	if len(inv.Arguments) == 0 || p.Payload.Kind() == jsontext.KindNull {
		inv.Arguments = []byte("{}")
	}
	if inv.Phase == "" {
		inv.Phase = "setup"
	}
	type texts struct{ prompt, output string }
	last, err := query(ctx, h, id, func(m *machine) (texts, error) {
		prompt, output := m.s.LastTexts()
		return texts{prompt, output}, nil
	})
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	inv.Prompt, inv.Output = last.prompt, last.output
	_, release, err := h.acquire(ctx, id) // it stays open meanwhile
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	defer release()
	var lost error
	res := h.env.callTool(ctx, id, inv, func(u model.ToolUpdate) {
		if len(u.Patch) > 0 || u.Asset != nil || u.Job != nil || u.Warning != "" {
			if _, err := h.ask(ctx, id, func(t ticket) input { return sideUpdateIn{t, u} }); err != nil {
				lost = err
			}
		}
	})
	if gone(lost) { // with its jobs, but for one that was started just now
		h.env.Tools.EndJobs(context.WithoutCancel(ctx), id)
	}
	if lost != nil && ctx.Err() == nil {
		res = model.Failed("internal", "the session could not keep what the tool reported: "+lost.Error())
	}
	return protocol.ExtensionResult{
		OK: res.OK, Result: res.Text, Outputs: res.Outputs, Value: rawValue(res.Value), Error: wireToolError(res.Error),
	}, nil
}
