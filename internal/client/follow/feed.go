package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// ErrQuiet says that nothing has happened for a while.
var ErrQuiet = errors.New("nothing has happened")

// FeedOptions say what a Feed follows, and how.
type FeedOptions struct {
	Options
	Patience time.Duration // how long a daemon that went away is waited for; 0: it does not come back
	Note     func(format string, args ...any)
}

// Feed is a Stream that gives up after a while without a daemon, and tells a person about its
// connection.
type Feed struct {
	*Stream
	First Connected // the first connection
	o     FeedOptions
}

// Subscribe listens to a daemon, and blocks until it has answered. It fails where none listens;
// one that is being restarted is waited for.
func Subscribe(ctx context.Context, daemon Dialer, o FeedOptions) (*Feed, error) {
	f := &Feed{Stream: NewStream(daemon, o.Options), o: o}
	h, err := f.Stream.Next(ctx)
	switch h := h.(type) {
	case Connected:
		f.First = h
	case Disconnected:
		if err = h.Err; !errors.Is(err, client.ErrLost) || errors.As(err, new(*client.ForeignError)) {
			break
		}
		var again Update // the daemon may be starting anew
		if again, err = f.await(ctx, h.Err); err == nil {
			f.First = again.(Connected)
		}
	}
	return f, err
}

// Next is the next Line or Gap, or the Connected after a loss. client.ErrLost or a
// *client.NoDaemonError says that the daemon did not come back, ErrQuiet that nothing has
// happened for so long; 0 is for ever.
func (f *Feed) Next(ctx context.Context, quiet time.Duration) (Update, error) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if quiet > 0 {
		bounded, cancel = context.WithTimeoutCause(ctx, quiet, ErrQuiet)
	}
	defer cancel()
	h, err := f.Stream.Next(bounded)
	switch h := h.(type) {
	case Disconnected:
		return f.await(ctx, h.Err)
	case Connected: // after a wait that was cut short
		f.announce(h)
	}
	return h, err
}

// NextLine is the next event, or the one that reports a gap. It passes over connections.
func (f *Feed) NextLine(ctx context.Context) (Line, error) {
	for {
		h, err := f.Next(ctx, 0)
		if err != nil {
			return Line{}, err
		}
		switch h := h.(type) {
		case Line:
			return h, nil
		case Gap:
			return h.Line, nil
		}
	}
}

// Reconnect gives the connection up for a reason and makes another one.
func (f *Feed) Reconnect(ctx context.Context, why error) (Update, error) {
	f.Close()
	return f.await(ctx, why)
}

// await tries to come back for as long as the feed is patient.
func (f *Feed) await(ctx context.Context, why error) (Update, error) {
	if f.o.Patience == 0 {
		return nil, fmt.Errorf("%w: %w", client.ErrLost, why)
	}
	f.o.Note("connection to the daemon lost; trying again for %s", f.o.Patience)
	limited, cancel := context.WithTimeout(ctx, f.o.Patience)
	defer cancel()
	for {
		h, err := f.Stream.Next(limited)
		var refused *protocol.Error
		switch h := h.(type) {
		case Connected:
			f.announce(h)
			return h, nil
		case Disconnected:
			why = h.Err
		}
		var gone *client.NoDaemonError
		switch {
		case errors.As(why, &refused):
			return nil, why
		case err == nil:
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(why, &gone):
			return nil, why
		default:
			return nil, fmt.Errorf("%w, not back after %s", client.ErrLost, f.o.Patience)
		}
	}
}

func (f *Feed) announce(c Connected) {
	switch {
	case c.Lacks != nil:
		f.o.Note("connected again; what happened meanwhile is not known: %v", c.Lacks)
	case c.Restarted:
		f.o.Note("connected again: the daemon was restarted")
	case c.Gap:
		f.o.Note("connected again: the events up to %d are gone", c.After)
	default:
		f.o.Note("connected again")
	}
}
