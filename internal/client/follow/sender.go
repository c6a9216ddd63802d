package follow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Sender sends commands as a program does that a person waits for: no answer is waited for
// without an end, and a command that the daemon did not do, as it goes or has gone, is sent again
// to the one that comes next, so that nobody is refused because of a restart. It notes what it
// waits for.
type Sender struct {
	Daemon   Dialer
	Conn     *client.Client // nil: each command has a connection of its own
	Answer   time.Duration  // how long an answer is waited for that is given at once
	Patience time.Duration  // how long a daemon that went away is waited for
	Note     func(format string, args ...any)
	Stopping *atomic.Bool // set once it was noted that the daemon is stopping
}

// Send is client.Sender.
func (s Sender) Send(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	if s.Conn == nil {
		conn, err := s.Daemon.Commands(ctx)
		if err != nil {
			return nil, err
		}
		s.Conn = client.New(conn)
		defer s.Conn.Close()
	}
	ctx, done := s.bounded(ctx, p)
	defer done()
	return s.resend(ctx, command, p)
}

// bounded ends the wait for an answer that is given at once, and reports one
// that may take its time.
func (s Sender) bounded(ctx context.Context, p protocol.Params) (context.Context, func()) {
	ctx, cancel := client.Bounded(ctx, p, s.Answer)
	if !client.AnsweredLate(p) {
		return ctx, cancel
	}
	late := time.AfterFunc(s.Answer, func() { s.Note("the daemon has not answered yet; Ctrl-C stops the waiting") })
	return ctx, func() { late.Stop(); cancel() }
}

// resend sends a command, and again as Resend has it.
func (s Sender) resend(ctx context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	var next *client.Client
	defer func() {
		if next != nil {
			_ = next.Close()
		}
	}()
	return Resend(p, s.Conn, func(c *client.Client) (jsontext.Value, error) { return c.Send(ctx, command, p) },
		func(before *client.Client, why error) *client.Client {
			after, err := s.reconnect(ctx, before, why)
			if err != nil {
				switch {
				case ctx.Err() != nil:
				case errors.Is(why, client.ErrLost):
					s.Note("%v; it may have been done", err)
				default:
					s.Note("%v", err)
				}
				return nil
			}
			if next != nil {
				_ = next.Close()
			}
			next = after
			return next
		})
}

// reconnect connects again to a daemon that knows of keys, and says what it waits for. One that
// is going is waited for; after that it is patient.
func (s Sender) reconnect(ctx context.Context, before *client.Client, why error) (*client.Client, error) {
	if s.Patience == 0 {
		return nil, why
	}
	if errors.Is(why, client.ErrLost) {
		s.Note("connection to the daemon lost before it answered; trying again for %s", s.Patience)
	} else if s.Stopping.CompareAndSwap(false, true) {
		s.Note("the daemon is stopping; waiting for the next one")
	}
	limited, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	c, err := Next(limited, s.Daemon, before, why)
	if err != nil && !errors.Is(err, ErrNoKeys) {
		err = fmt.Errorf("not back after %s: %w", s.Patience, err)
	}
	return c, err
}
