package runloop

import (
	"context"
	"encoding/base64"

	"noused/internal/model"
	"noused/internal/protocol"
)

// expand puts into a text what a command's file, or what servers, have for it. Nothing is sent: that is the
// client's.
func (h *Hub) expand(ctx context.Context, p protocol.ExpandParams) (a protocol.Answer[protocol.Expanded], err error) {
	if _, err := personOf(ctx, protocol.Expand.Name()); err != nil {
		return a, err
	}
	from, err := query(ctx, h, p.SessionID, scope)
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Expanded, error) {
		if h.env.Instructions != nil {
			text, ok, err := h.env.Instructions.Expand(from.Workdir, p.Text)
			switch {
			case err != nil:
				return protocol.Expanded{}, protocol.Errorf(protocol.InvalidPayload, "text: %v", err)
			case ok:
				return protocol.Expanded{Text: text}, nil
			}
		}
		e, err := h.env.Tools.Expand(ctx, from, p.Text)
		if err != nil {
			return protocol.Expanded{}, protocol.Errorf(protocol.InvalidPayload, "text: %v", err)
		}
		out := protocol.Expanded{Text: e.Text}
		for _, i := range e.Images {
			out.Attachments = append(out.Attachments, protocol.AttachmentParams{
				Data:      base64.StdEncoding.EncodeToString(i.Data),
				MediaType: i.MediaType, Name: i.Name,
			})
		}
		return out, nil
	}
	return a, nil
}

func wirePrompts(list []model.ServerPrompt) []protocol.ServerPrompt {
	var out []protocol.ServerPrompt
	for _, p := range list {
		one := protocol.ServerPrompt{Name: p.Name, Description: p.Description}
		for _, a := range p.Arguments {
			one.Arguments = append(one.Arguments, protocol.PromptArgument(a))
		}
		out = append(out, one)
	}
	return out
}
