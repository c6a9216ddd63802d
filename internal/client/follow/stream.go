package follow

import (
	"context"
	"errors"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Options say what a Stream follows.
type Options struct {
	// Filter is which events are told. Its epoch and after are where to begin;
	// without them that is now.
	Filter protocol.SubscribeParams
	// Older tells whether the daemon is an older core, one that knows no subscribe
	// and tells everything. With nil it is asked.
	Older *bool
	// Answer is how long the daemon's answers are waited for; 0 is half a minute.
	Answer time.Duration
}

// Stream is a subscription that outlives its connections, and its daemon. What
// nobody reads stays with the daemon.
type Stream struct {
	daemon Dialer
	o      Options
	events *client.Events // nil while there is no connection
	older  bool
	known  bool   // whether it is an older core need not be asked
	met    bool   // there was a connection; what follows is from it
	epoch  string // "" of an older core
	last   uint64 // the newest event that was told, or not asked for
	fill   client.Filler
	out    outage
}

// NewStream follows a daemon's events. It does not connect: the first Next does.
func NewStream(daemon Dialer, o Options) *Stream {
	s := &Stream{daemon: daemon, o: o}
	if o.Answer == 0 {
		s.o.Answer = callTimeout
	}
	if o.Older != nil {
		s.older, s.known = *o.Older, true
	}
	return s
}

// Next blocks until something happens, and returns it: first a Connected or a
// Disconnected, then Lines and Gaps until the connection is lost, which is a
// Disconnected. The Next after that waits, tries again where the last connection
// ended, and returns how that went. Its error is that of ctx; Next may be called
// again then, and goes on where it was.
func (s *Stream) Next(ctx context.Context) (Update, error) {
	if s.events == nil {
		return s.reconnect(ctx)
	}
	h, err := s.read(ctx)
	switch {
	case err == nil:
		return h, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	s.Close()
	return s.out.failed(err), nil
}

func (s *Stream) reconnect(ctx context.Context) (Update, error) {
	if s.out.pause > 0 {
		if err := s.out.wait(ctx); err != nil {
			return nil, err
		}
	}
	c, err := s.dial(ctx)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return s.out.failed(err), nil
}

// dial finds out what daemon it is, where that is not known, and subscribes.
func (s *Stream) dial(ctx context.Context) (Connected, error) {
	if !s.known {
		older, err := Older(ctx, s.daemon, s.o.Answer)
		if err != nil {
			return Connected{}, err
		}
		s.older = older
	}
	p := s.o.Filter
	if s.met {
		p.Epoch, p.After = s.epoch, &s.last
	}
	c, err := s.connect(ctx, s.older, p)
	var silent *client.SilentError
	switch {
	case err == nil:
		s.known = s.known || !s.older
	case errors.As(err, &silent):
		s.known = s.o.Older != nil // an older core may be in its place
	}
	return c, err
}

// connect subscribes as p says. ErrLost, a refusal and a silence are errors.
func (s *Stream) connect(ctx context.Context, older bool, p protocol.SubscribeParams) (Connected, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Answer, &client.SilentError{For: s.o.Answer})
	defer cancel()
	conn, err := s.daemon.Events(ctx)
	if err != nil {
		return Connected{}, err
	}
	var events *client.Events
	if older {
		events = client.LiveOver(conn)
	} else if events, err = client.SubscribeOver(ctx, conn, p); err != nil {
		return Connected{}, err
	}
	c := Connected{
		Epoch: events.Epoch(), After: events.Last(), Gap: events.Gap(), Older: older,
		Restarted: s.met && s.epoch != events.Epoch(),
	}
	s.events, s.older, s.met, s.out = events, older, true, outage{}
	s.epoch, s.last = c.Epoch, c.After
	return c, nil
}

// read returns the next Line or Gap of the connection.
func (s *Stream) read(ctx context.Context) (Update, error) {
	env, raw, err := s.events.Next(ctx)
	if err != nil {
		return nil, err
	}
	s.last = env.Seq
	line := Line{Event: Event{At: env.TS, Seq: env.Seq}, Type: env.Type, Payload: env.Payload, Raw: raw}
	if line.Event.Event, line.Err = client.Decode(env); line.Err != nil {
		return line, nil
	}
	if s.older {
		line.Event.Event = s.fill.Fill(env, line.Event.Event)
		user, answer := s.fill.Lost()
		line.Lost = user || answer
		return line, nil
	}
	if warning, ok := line.Event.Event.(protocol.Warning); ok && warning.Code == protocol.WarningEventsDropped {
		return Gap{Line: line, Message: warning.Message}, nil
	}
	return line, nil
}

// Epoch is the daemon's start that Last counts in; "" before the first connection
// and of an older core.
func (s *Stream) Epoch() string { return s.epoch }

// Last is the number up to which events were told or not asked for; 0 before the
// first connection and of an older core.
func (s *Stream) Last() uint64 { return s.last }

// LostAnswer tells whether an older core has left out a part of what the run of
// the last Line answered; get_messages has it once the run is over.
func (s *Stream) LostAnswer() bool {
	_, answer := s.fill.Lost()
	return answer
}

// Close ends the connection, and waits for what belongs to it. A Next after it
// would connect again.
func (s *Stream) Close() {
	if s.events != nil {
		s.events.Close()
		s.events = nil
	}
}

// Older asks whether a daemon is an older core, one that has the frozen commands
// only. It makes no session, as get_state may. timeout is how long the answer is
// waited for.
func Older(ctx context.Context, daemon Dialer, timeout time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &client.SilentError{For: timeout})
	defer cancel()
	conn, err := daemon.Commands(ctx)
	if err != nil {
		return false, err
	}
	c := client.New(conn)
	defer c.Close()
	one := 1
	_, err = client.Call(ctx, c, protocol.ListSessions, protocol.ListSessionsParams{Limit: &one})
	if errors.Is(err, client.ErrUnsupported) {
		return true, nil
	}
	return false, err
}
