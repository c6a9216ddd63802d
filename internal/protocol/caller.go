package protocol

import "context"

// Caller is the process whose command a handler answers. Descendant: the daemon,
// or something that it started, has started it; that is a tool, not a person.
type Caller struct {
	PID, UID   int
	Descendant bool
	// Comm is what the kernel calls it, as text that can be shown. It does not block
	// but for /proc; nil: nobody knows.
	Comm func() string
	// Peer is who sends the command from another machine, as far as the way there says
	// it, and never empty then; the process is nobody's. Refused says why nobody there is
	// taken for a person; "": they are.
	Peer, Refused string
}

type callerKey struct{}

// WithCaller returns a context for the commands of one connection.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who sent the command. False: nobody knows, and what only a
// person may do must be refused.
func CallerOf(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}
