package follow

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Resend sends a command over c. Where the daemon has gone, or is going, without doing
// it, or it may be done twice, it is sent again over what another returns, for as long
// as that is not nil. No older core must be there: it knows no keys.
func Resend[R any](p protocol.Params, c *client.Client, send func(*client.Client) (R, error),
	another func(before *client.Client, why error) *client.Client,
) (R, error) {
	r, err := send(c)
	for isResent(p, err) {
		if c = another(c, err); c == nil {
			break
		}
		r, err = send(c)
	}
	return r, err
}

// Once sends a command on a connection of its own, within half a minute where it is one
// that is answered at once, and again as Resend does, to the daemon that comes in time.
// Errors are those of client.Connect and client.Call.
func Once[P protocol.Params, R protocol.Reply](ctx context.Context, daemon Dialer, def protocol.Def[P, R], p P) (R,
	error,
) {
	return client.Call(ctx, ByOnce{daemon}, def, p)
}

// ByOnce is a client.Sender that does what Once does.
type ByOnce struct{ Daemon Dialer }

// Send is client.Sender.
func (o ByOnce) Send(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	ctx, cancel := client.Bounded(ctx, p, callTimeout)
	defer cancel()
	conn, err := o.Daemon.Commands(ctx)
	if err != nil {
		return nil, err
	}
	c := client.New(conn)
	defer func() { _ = c.Close() }()
	return Resend(p, c, func(c *client.Client) (jsontext.Value, error) { return c.Send(ctx, command, p) },
		func(before *client.Client, why error) *client.Client {
			limited, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			next, err := Next(limited, o.Daemon, before, why)
			if err != nil {
				return nil
			}
			_ = c.Close()
			c = next
			return next
		})
}

const (
	againPause = 50 * time.Millisecond // between tries
	goingPause = time.Second           // until a daemon that is going is taken to be gone
)

// ErrNoKeys is what Next ends with where an older core answers.
var ErrNoKeys = errors.New("an older core answers now, which may do it twice: it was not sent again")

// Next connects to the daemon that comes after one that has gone, or is going, for a
// command that ended with why. It tries until ctx ends; the error is that of the last try.
// A daemon that is going is given a moment to hang up: over a fleet none does.
func Next(ctx context.Context, daemon Dialer, before *client.Client, why error) (*client.Client, error) {
	if !errors.Is(why, client.ErrLost) {
		select {
		case <-before.Gone():
		case <-time.After(goingPause):
		case <-ctx.Done():
			return nil, errors.New("it has not stopped in time")
		}
	}
	for {
		older, err := Older(ctx, daemon, callTimeout)
		if older {
			return nil, ErrNoKeys
		}
		if err == nil {
			var conn net.Conn
			if conn, err = daemon.Commands(ctx); err == nil {
				return client.New(conn), nil
			}
		}
		select {
		case <-time.After(againPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// IsResent tells whether a command that changes nothing, and has ended so, is sent again.
func IsResent(err error) bool { return isResent(protocol.PingParams{}, err) }

// isResent tells whether a command that has ended so is sent again, to the daemon that
// comes next.
func isResent(p protocol.Params, err error) bool {
	var (
		wire    *protocol.Error
		foreign *client.ForeignError
	)
	switch {
	case errors.As(err, &wire): // before ErrLost: what a daemon says when it hangs up
		return wire.Reason() == protocol.ShuttingDown && (wire.Cause != protocol.CauseBegun || isRepeatable(p))
	case errors.As(err, &foreign):
		return false
	}
	return errors.Is(err, client.ErrLost) && isRepeatable(p)
}

// isRepeatable tells whether a command may be sent again though the daemon may have done
// it: a text that has a key is done once, and what else there is changes nothing the second
// time; a session that is made twice harms nobody. A tool's call may do harm, a summary
// costs, what is taken away cannot be found again, a second abort may be of another run,
// and the second undo_rewind undoes another rewind.
func isRepeatable(params protocol.Params) bool {
	switch p := params.(type) {
	case protocol.ExtensionCommandParams, protocol.CallToolParams, protocol.CompactSessionParams, protocol.ShutdownParams,
		protocol.DeleteSessionParams, protocol.WithdrawParams, protocol.BranchSessionParams:
		return false
	case protocol.AbortParams:
		return p.RunID != ""
	case protocol.RewindParams:
		return p.DryRun
	case protocol.UndoRewindParams:
		return p.DryRun
	}
	text, key := sends(params)
	return text == "" || key != ""
}
