package client

import (
	"context"
	"errors"
	"time"

	"noused/internal/protocol"
)

// SubscribeAt subscribes to a daemon, whichever it is: one that knows no subscribe tells
// everything, from then on, and the Events' Lacks says so. It waits for answers for as long
// as answer says, then the error is a *SilentError. Errors are those of Subscribe, too.
func SubscribeAt(ctx context.Context, d Dialer, p protocol.SubscribeParams, answer time.Duration) (*Events, error) {
	k := &core{}
	if a, ok := d.(*adapted); ok {
		k = a.core
		if err := a.greet(ctx); err != nil { // who is asked for a password has any time
			return nil, err
		}
	}
	if k.is() == unknown {
		is, err := Older(ctx, d, answer)
		if err != nil {
			return nil, err
		}
		k.set(ageOf(is))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answer, &SilentError{For: answer})
	defer cancel()
	conn, err := d.Events(ctx)
	if err != nil {
		return nil, err
	}
	if k.is() == older {
		e := LiveOver(conn)
		e.adapt(k)
		return e, nil
	}
	e, err := SubscribeOver(ctx, conn, p)
	if silent := (*SilentError)(nil); errors.As(err, &silent) {
		k.set(unknown) // an older core may be in its place
	}
	return e, err
}

// adapt has the events of an older core numbered, and completed by what is sent to it.
func (e *Events) adapt(k *core) {
	e.core, e.fill, e.gap = k, &Filler{}, true
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fills == nil {
		k.fills = map[*Filler]bool{}
	}
	k.fills[e.fill] = true
}

// release ends adapt. Lost: the daemon that comes next may be another one.
func (e *Events) release(lost bool) {
	if e.core == nil {
		return
	}
	e.core.mu.Lock()
	defer e.core.mu.Unlock()
	delete(e.core.fills, e.fill)
	if lost {
		e.core.age = unknown
	}
}

func (k *core) eachFill(do func(*Filler)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for f := range k.fills {
		do(f)
	}
}

// Lacks is nil, or an *OlderError: the daemon keeps no events, and some may be missed
// without a word, or told in part.
func (e *Events) Lacks() error {
	if e.core == nil {
		return nil
	}
	return errNoEvents
}

// Decode returns an event with what an older core leaves out of it; lost says that a part
// of what its run said could not be made whole.
func (e *Events) Decode(env protocol.EventEnvelope) (ev protocol.Event, lost bool, err error) {
	if ev, err = Decode(env); err != nil || e.fill == nil {
		return ev, false, err
	}
	ev = e.fill.Fill(env, ev)
	user, answer := e.fill.Lost()
	return ev, user || answer, nil
}

// LostAnswer tells whether a part is missing of what the run of the last event answered.
func (e *Events) LostAnswer() bool {
	if e.fill == nil {
		return false
	}
	_, answer := e.fill.Lost()
	return answer
}
