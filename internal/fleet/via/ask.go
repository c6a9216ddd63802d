package via

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"noused/internal/client"
	"noused/internal/client/hosts"
	"noused/internal/protocol"
)

// Raw sends one command without a connection of its own, and returns its reply's payload, an
// object, as the daemon wrote it. It is for what is answered at once. Errors are those of
// Commands, and *protocol.Error.
func Raw[P protocol.Params, R protocol.Reply](ctx context.Context, h *Host, def protocol.Def[P, R],
	p P,
) (jsontext.Value, error) {
	line, err := json.Marshal(struct {
		V       string `json:"v"`
		ID      string `json:"id"`
		Type    string `json:"type"`
		Payload P      `json:"payload"`
	}{protocol.Version, hello, def.Name(), p})
	if err != nil {
		return nil, fmt.Errorf("%s: encode: %w", def.Name(), err)
	}
	reply, err := h.request(ctx, line)
	if err != nil {
		return nil, err
	}
	var in struct {
		OK      bool            `json:"ok"`
		Payload jsontext.Value  `json:"payload"`
		Error   *protocol.Error `json:"error"`
	}
	switch err := json.Unmarshal(reply, &in); {
	case err != nil:
		return nil, &client.ForeignError{Err: err}
	case in.Error != nil:
		return nil, fmt.Errorf("%s: %w", def.Name(), in.Error)
	case !in.OK || in.Payload.Kind() != '{':
		return nil, &client.ForeignError{Err: errors.New("the reply has no payload")}
	}
	return in.Payload, nil
}

func (h *Host) request(ctx context.Context, line []byte) ([]byte, error) {
	l, err := h.fleet.connect(ctx)
	if err != nil {
		return nil, err
	}
	subject := h.fleet.o.Prefix.Command(h.name)
	ctx, done := l.withDenials(ctx, `"`+subject+`"`)
	defer done(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, &client.SilentError{For: helloTime})
	defer cancel()
	msg, err := l.nc.RequestWithContext(ctx, subject, line)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, &NoHostError{Name: h.name, Server: l.server}
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, &AwayError{l.server, err}
	}
	if len(msg.Data) > h.fleet.most {
		return nil, h.fleet.tooLong(len(msg.Data))
	}
	return msg.Data, nil
}

// AsHost is the host as one of several, which tells no events.
func (h *Host) AsHost() hosts.Host {
	return hosts.Host{
		Name: h.name,
		Sessions: func(ctx context.Context, p protocol.ListSessionsParams) (jsontext.Value, error) {
			return Raw(ctx, h, protocol.ListSessions, p)
		},
		State: func(ctx context.Context, p protocol.GetStateParams) (jsontext.Value, error) {
			return Raw(ctx, h, protocol.GetState, p)
		},
	}
}
