package follow

import (
	"errors"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Resend sends a command over c. Where the daemon has gone, or is going, without doing
// it, or it may be done twice, it is sent again over what another returns, for as long
// as that is not nil. No older core must be there: it knows no keys.
func Resend[R any](p protocol.Params, c *client.Client, send func(*client.Client) (R, error), another func(before *client.Client, why error) *client.Client) (R, error) {
	r, err := send(c)
	for isResent(p, err) {
		if c = another(c, err); c == nil {
			break
		}
		r, err = send(c)
	}
	return r, err
}

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
// costs, what is taken away cannot be found again, and a second abort may be of another run.
func isRepeatable(params protocol.Params) bool {
	switch p := params.(type) {
	case protocol.ExtensionCommandParams, protocol.CompactSessionParams, protocol.ShutdownParams,
		protocol.DeleteSessionParams, protocol.WithdrawParams, protocol.BranchSessionParams:
		return false
	case protocol.AbortParams:
		return p.RunID != ""
	}
	_, text, key := sends(params)
	return text == "" || key != ""
}
