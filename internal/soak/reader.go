package main

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"sync"

	"noused/internal/client"
	"noused/internal/protocol"
)

// maxSeen is how many events are remembered, to compare what readers were told.
const maxSeen = 1 << 16

// seen is what all readers of a daemon were told in its present epoch.
type seen struct {
	report *report

	mu    sync.Mutex
	epoch string
	seed  maphash.Seed
	lines map[uint64]uint64 // hashes by number
	ends  map[string]uint64 // the number of the event that ended a run
	order []string          // of ends
}

func newSeen(r *report) *seen { return &seen{report: r, seed: maphash.MakeSeed()} }

// addEvent compares a line with what others were told, and notes the ends of runs.
func (s *seen) addEvent(epoch string, env protocol.EventEnvelope, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch {
		s.epoch, s.lines, s.ends, s.order = epoch, map[uint64]uint64{}, map[string]uint64{}, nil
	}
	hash := maphash.Bytes(s.seed, line)
	if was, ok := s.lines[env.Seq]; ok && was != hash {
		s.report.violation("two readers were told different events %d", env.Seq)
	}
	s.lines[env.Seq] = hash
	delete(s.lines, env.Seq-maxSeen)
	ev, err := client.Decode(env)
	if err != nil {
		s.report.violation("event %d: %v", env.Seq, err)
		return
	}
	if end, ok := ev.(protocol.AgentEnd); ok {
		if at, ended := s.ends[end.RunID]; ended && at != env.Seq {
			s.report.violation("run %s ended twice, at %d and %d", end.RunID, at, env.Seq)
		}
		if _, ended := s.ends[end.RunID]; !ended {
			s.order = append(s.order, end.RunID)
			s.report.count("runs ended")
		}
		s.ends[end.RunID] = env.Seq
		if len(s.order) > maxSeen/16 {
			delete(s.ends, s.order[0])
			s.order = s.order[1:]
		}
	}
}

// cursor is where a reader is: it finds holes, and what comes twice.
type cursor struct {
	epoch string
	last  uint64
}

// moves takes the next event of a connection in; false where it is not the one that
// comes next. A warning may stand for those that were dropped, and says so.
func (c *cursor) moves(env protocol.EventEnvelope, dropped uint64) bool {
	right := env.Seq == c.last+1 || dropped == c.last+1
	c.last = env.Seq
	return right
}

// reader follows all events, and loses its connection again and again.
type reader struct {
	world *world
	rng   *rand.Rand
	at    cursor
}

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		var p protocol.SubscribeParams
		if r.at.epoch != "" {
			p.Epoch, p.After = r.at.epoch, &r.at.last
		}
		events, err := client.Subscribe(ctx, r.world.socket(), p)
		if err != nil {
			pause(ctx, retryTime)
			continue
		}
		if events.Epoch() == r.at.epoch && events.Gap() {
			r.world.report.count("gaps that were told")
		}
		if events.Epoch() != r.at.epoch || events.Gap() {
			r.at = cursor{events.Epoch(), events.Last()}
		}
		r.follow(ctx, events, r.rng.IntN(2000))
		_ = events.Close()
		r.world.report.count("readers that came back")
	}
}

// follow reads so many events.
func (r *reader) follow(ctx context.Context, events *client.Events, n int) {
	for ; n > 0; n-- {
		env, line, err := events.Next(ctx)
		if err != nil {
			return
		}
		before, dropped := r.at.last, uint64(0)
		if ev, err := client.Decode(env); err == nil {
			if w, ok := ev.(protocol.Warning); ok && w.Code == protocol.WarningEventsDropped {
				dropped = w.FromSeq
				r.world.report.count("drops that were told")
			}
		}
		if !r.at.moves(env, dropped) {
			r.world.report.violation("%s: event %d comes after %d", r.world.name, env.Seq, before)
		}
		if dropped == 0 {
			r.world.seen.addEvent(r.at.epoch, env, line)
		}
	}
}
