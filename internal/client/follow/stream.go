package follow

import (
	"context"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Options say what a Stream follows.
type Options struct {
	// Filter is which events are told. Its epoch and after are where to begin;
	// without them that is now.
	Filter protocol.SubscribeParams
	// Answer is how long the daemon's answers are waited for; 0 is half a minute.
	Answer time.Duration
}

// Stream is a subscription that outlives its connections, and its daemon. What
// nobody reads stays with the daemon.
type Stream struct {
	daemon Dialer
	o      Options
	events *client.Events // nil while there is no connection
	met    bool           // there was a connection; what follows is from it
	epoch  string         // "" of a daemon that has none
	last   uint64         // the newest event that was told, or not asked for
	out    outage

	lostAnswer bool
}

// NewStream follows a daemon's events. It does not connect: the first Next does.
func NewStream(daemon Dialer, o Options) *Stream {
	s := &Stream{daemon: client.Adapt(daemon), o: o}
	if o.Answer == 0 {
		s.o.Answer = callTimeout
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

// dial subscribes where the last connection ended.
func (s *Stream) dial(ctx context.Context) (Connected, error) {
	p := s.o.Filter
	if s.met {
		p.Epoch, p.After = s.epoch, &s.last
	}
	return s.connect(ctx, p)
}

// connect subscribes as p says. ErrLost, a refusal and a silence are errors.
func (s *Stream) connect(ctx context.Context, p protocol.SubscribeParams) (Connected, error) {
	events, err := client.SubscribeAt(ctx, s.daemon, p, s.o.Answer)
	if err != nil {
		return Connected{}, err
	}
	c := Connected{
		Epoch: events.Epoch(), After: events.Last(), Gap: events.Gap(), Lacks: events.Lacks(),
		Restarted: s.met && s.epoch != events.Epoch(),
	}
	s.events, s.met, s.out = events, true, outage{}
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
	line.Event.Event, line.Lost, line.Err = s.events.Decode(env)
	s.lostAnswer = s.events.LostAnswer()
	if warning, ok := line.Event.Event.(protocol.Warning); ok && warning.Code == protocol.WarningEventsDropped {
		return Gap{Line: line, Message: warning.Message}, nil
	}
	return line, nil
}

// Epoch is the daemon's start that Last counts in; "" before the first connection.
func (s *Stream) Epoch() string { return s.epoch }

// Last is the number up to which events were told or not asked for; 0 before the
// first connection.
func (s *Stream) Last() uint64 { return s.last }

// LostAnswer tells whether a part is missing of what the run of the last Line answered;
// get_messages has it once the run is over.
func (s *Stream) LostAnswer() bool { return s.lostAnswer }

// Close ends the connection, and waits for what belongs to it. A Next after it
// would connect again.
func (s *Stream) Close() {
	if s.events != nil {
		s.events.Close()
		s.events = nil
	}
}

// Older is client.Older.
func Older(ctx context.Context, daemon Dialer, timeout time.Duration) (bool, error) {
	return client.Older(ctx, daemon, timeout)
}
