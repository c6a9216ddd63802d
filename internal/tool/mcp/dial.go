package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/proc"
	"noused/internal/tool"
)

// dialer reaches a server, in one of several ways.
type dialer interface {
	// dial reaches it once. The wire's reports go to the link, which is made for it.
	// The error is a [tool.Fault]. It does not wait for the server.
	dial(ctx context.Context, l *link) (wire, error)
	// waiting says that the server wants somebody to log in, where nobody has since,
	// and what to do; "" where it does not.
	waiting() string
}

// wire is what a connection lives on.
type wire interface {
	sdk.Transport
	// established says that the handshake is done.
	established()
	// stop ends it without ceremony and does not wait for that.
	stop(why *tool.Fault)
	// close ends it in order, by force when ctx is done, and does not wait.
	close(ctx context.Context)
	// ended is closed when nothing is left of it.
	ended() <-chan struct{}
	// epitaph says why it has ended, to those who still waited for something.
	epitaph() *tool.Fault
}

func newDialer(d *tool.Descriptor, s *proc.Supervisor, o Options, log *zap.Logger) dialer {
	if d.Transport.Type == "http" {
		return newCaller(d, s, o, log)
	}
	return &spawner{d, s, log}
}
