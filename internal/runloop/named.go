package runloop

import (
	"context"
	"errors"

	"noused/internal/model"
	"noused/internal/protocol"
)

// namedAgent returns the named agent of that name in a session's folder, nil for "".
func (h *Hub) namedAgent(ctx context.Context, id, name string) (*model.NamedAgent, error) {
	if name == "" {
		return nil, nil
	}
	from, err := query(ctx, h, id, scope)
	if err != nil {
		return nil, err
	}
	as, err := (*model.NamedAgent)(nil), errors.New("there are no named agents here")
	if h.env.Instructions != nil {
		as, err = h.env.Instructions.Named(from.Workdir, name)
	}
	switch {
	case err != nil:
		return nil, protocol.Errorf(protocol.InvalidPayload, "as: %v", err)
	case as.Agent != "":
		return nil, protocol.Errorf(protocol.InvalidPayload, "as: the turns of %s are made by %s: make a session for that "+
			"agent", name, as.Agent)
	}
	return as, nil
}
