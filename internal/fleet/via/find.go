package via

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/protocol"
)

const (
	// farBack is about how many bytes of the stream are read for who does not say where
	// it was: so much a daemon of this machine keeps, too.
	farBack    = 16 << 20
	maxStrange = 64 // messages in a row that are no events
)

// finder finds the place of an event in the stream. A host's messages are in order, so
// it halves what is left with each look.
type finder struct {
	stream  jetstream.Stream
	pattern string
	epoch   string // the daemon's

	after uint64 // what follows is behind this event
	gap   bool
}

// find returns the number, in the stream's own count, from which on the events are that
// p asks for.
func (f *finder) find(ctx context.Context, p protocol.SubscribeParams) (start uint64, err error) {
	state := f.stream.CachedInfo().State
	first, end := max(state.FirstSeq, 1), state.LastSeq+1
	newest, err := f.newest(ctx, first, end)
	if err != nil {
		return 0, err
	}
	known := p.Epoch == f.epoch
	switch {
	case p.After == nil && (p.Epoch == "" || known):
		f.after = newest
		return end, nil
	case p.After != nil && known, p.After != nil && p.Epoch == "" && *p.After <= newest:
		f.after = *p.After
	default:
		f.gap = true
	}
	if !known || f.gap {
		first = max(first, end-min(end, farBack/max(state.Bytes/max(state.Msgs, 1), 1)))
	}
	start, err = f.search(ctx, first, end, func(seq uint64) bool { return seq > f.after })
	if err != nil {
		return 0, err
	}
	return start, f.mind(ctx, start)
}

// mind notes a gap where the first event that there is is not the first one wanted.
func (f *finder) mind(ctx context.Context, start uint64) error {
	msg, err := f.messageAt(ctx, start)
	if err != nil || msg == nil {
		return err
	}
	epoch, seq, _ := fleet.OfMessageID(msg.Header.Get(jetstream.MsgIDHeader))
	e, why := readEvent(msg.Data, seq)
	if epoch == f.epoch && why == "" && e.first() > f.after+1 {
		f.gap, f.after = true, e.first()-1
	}
	return nil
}

// newest is the number of the newest event in the stream; 0: there is none.
func (f *finder) newest(ctx context.Context, first, end uint64) (uint64, error) {
	seq := uint64(0)
	// The place behind the last message of the host: nothing follows there.
	_, err := f.halve(first, end, func(at uint64) (next uint64, behind bool, err error) {
		msg, err := f.messageAt(ctx, at)
		if err != nil || msg == nil {
			return 0, false, err
		}
		if epoch, n, _ := fleet.OfMessageID(msg.Header.Get(jetstream.MsgIDHeader)); epoch == f.epoch {
			seq = max(seq, n)
		}
		return msg.Sequence + 1, true, nil
	})
	return seq, err
}

// search is the first place from which on all events of the epoch are wanted.
func (f *finder) search(ctx context.Context, first, end uint64, wanted func(seq uint64) bool) (uint64, error) {
	return f.halve(first, end, func(at uint64) (next uint64, behind bool, err error) {
		msg, err := f.messageAt(ctx, at)
		if err != nil || msg == nil {
			return 0, false, err
		}
		epoch, seq, _ := fleet.OfMessageID(msg.Header.Get(jetstream.MsgIDHeader))
		return msg.Sequence + 1, epoch != f.epoch || !wanted(seq), nil
	})
}

// halve finds the first place in [first, end] that is not before what is looked for.
// before says so of a place, and which one is the next that may not be.
func (f *finder) halve(first, end uint64, before func(at uint64) (next uint64, is bool, err error)) (uint64, error) {
	for first < end {
		at := first + (end-first)/2
		next, is, err := before(at)
		switch {
		case err != nil:
			return 0, err
		case is:
			first = max(next, at+1)
		default:
			end = at
		}
	}
	return first, nil
}

// messageAt returns the host's first message at a place or behind it that has an event's
// id; nil: there is none.
func (f *finder) messageAt(ctx context.Context, at uint64) (*jetstream.RawStreamMsg, error) {
	for range maxStrange {
		msg, err := f.stream.GetMsg(ctx, at, jetstream.WithGetMsgSubject(f.pattern))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if _, _, ok := fleet.OfMessageID(msg.Header.Get(jetstream.MsgIDHeader)); ok {
			return msg, nil
		}
		at = msg.Sequence + 1
	}
	return nil,
		fmt.Errorf(
			"the stream of events has more than %d messages in a row on %s that are no events: somebody else writes there",
			maxStrange, f.pattern)
}
