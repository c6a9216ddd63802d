package work

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"noused/internal/fleet"
	"noused/internal/fleet/job"
)

const (
	// maxPlaces is how many jobs that it could take a daemon keeps in mind. Those behind
	// them are looked at when one of them is gone.
	maxPlaces = 4096
	lookEvery = 15 * time.Second // at the queue, though nothing was heard of a new job
	firstLook = 5 * time.Millisecond
	lastLook  = 2 * time.Second // for a job that was heard of
	// maxTurn is how many jobs are looked at, or tried for, before claims are renewed and
	// what was heard is read: each is a question to the server.
	maxTurn = 100
)

// place is a job of the queue that fits this daemon.
type place struct {
	id    string
	seq   uint64
	again time.Time // before that it is another's
}

// serving is the worker's part over one connection. It belongs to one goroutine.
type serving struct {
	w      *Worker
	q      *job.Queue
	after  uint64 // what has this sequence number or less was looked at
	order  []*place
	places map[string]*place
	hints  chan string

	spent   int       // of this turn's maxTurn
	begun   time.Time // when the queue was looked at from its beginning
	due     bool      // the queue is to be looked at
	awaited string    // the job that was heard of last, until it is found
	since   time.Time // it was heard of
}

// hint takes note of a job that was submitted; of many the last will do.
func (s *serving) hint(id string) {
	for {
		select {
		case s.hints <- id:
			return
		default:
		}
		select {
		case <-s.hints:
		default:
		}
	}
}

func (s *serving) loop(ctx context.Context, watcher jetstream.KeyWatcher) error {
	renew := time.NewTicker(max(s.q.Timeout/3, time.Millisecond))
	defer renew.Stop()
	look := time.NewTimer(0)
	defer look.Stop()
	s.due, s.begun = true, time.Now()
	for {
		if err := s.fill(ctx); err != nil {
			return err
		}
		look.Reset(s.next())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-s.hints:
			s.awaited, s.since, s.due = id, time.Now(), true
		case <-look.C:
			s.due = true
		case <-s.w.freed:
			s.due = true
		case <-renew.C:
			s.again()
			for _, t := range s.w.tasks() {
				if err := t.renew(ctx, s.q); err != nil {
					return err
				}
			}
		case entry, more := <-watcher.Updates():
			if !more {
				return errors.New("the watch of claims has ended")
			}
			if entry == nil {
				continue
			}
			if err := s.changed(ctx, entry); err != nil {
				return err
			}
		}
	}
}

// again has the queue looked at from its beginning now and then: a job that was this
// daemon's once may have been given up by another since.
func (s *serving) again() {
	if time.Since(s.begun) > s.q.Timeout {
		s.after, s.due, s.begun = 0, true, time.Now()
	}
}

// next is how long nothing needs to be looked at, if nothing is heard. Who submits a job
// is heard before the server has it, perhaps.
func (s *serving) next() time.Duration {
	if s.spent >= maxTurn {
		return 0
	}
	wait := lookEvery
	for _, p := range s.order {
		if !p.again.IsZero() {
			wait = min(wait, max(time.Until(p.again), time.Millisecond))
		}
	}
	if heard := time.Since(s.since); s.awaited != "" && heard < lastLook {
		wait = min(wait, max(heard, firstLook))
	}
	return wait
}

func (s *serving) free() int {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.o.Slots - len(s.w.active)
}

// fill takes jobs for the slots that are free, the oldest first. It may have more to do
// after a turn.
func (s *serving) fill(ctx context.Context) error {
	s.spent = 0
	for i := 0; s.free() > 0 && s.spent < maxTurn; {
		if i == len(s.order) {
			more, err := s.findJob(ctx)
			if err != nil || !more {
				return err
			}
			continue
		}
		p := s.order[i]
		if time.Now().Before(p.again) {
			i++
			continue
		}
		s.spent++
		gone, err := s.claimJob(ctx, p)
		if err != nil {
			return err
		}
		if gone {
			s.forget(p.id)
		} else {
			i++
		}
	}
	return nil
}

// findJob finds the next job that fits. False: there is none, or the turn is over.
func (s *serving) findJob(ctx context.Context) (bool, error) {
	for ; s.due && len(s.order) < maxPlaces && s.spent < maxTurn; s.spent++ {
		m, ok, err := s.q.Next(ctx, s.after)
		if err != nil {
			return false, err
		}
		if !ok {
			s.due = false
			break
		}
		if s.after = m.Seq; m.ID == s.awaited {
			s.awaited = ""
		}
		j, err := job.Parse(m.ID, m.Text)
		if err != nil {
			if err := s.refuse(ctx, m, err); err != nil {
				return false, err
			}
			continue
		}
		if !j.Fits(s.w.o.Labels) || s.places[m.ID] != nil || s.w.task(m.ID) != nil {
			continue
		}
		s.remember(m)
		return true, nil
	}
	return false, nil
}

// refuse ends a job that no daemon could do. Nobody claims it, as nothing is done.
func (s *serving) refuse(ctx context.Context, m job.Queued, why error) error {
	told, err := s.q.Refuse(ctx, m, job.Failed(m.ID, s.w.o.Name, "invalid_payload", why.Error()))
	if told {
		s.w.o.Log.Warn("a job is refused", zap.String("job", m.ID), zap.Error(why))
	}
	return err
}

// remember keeps in mind a job that fits, the oldest first.
func (s *serving) remember(m job.Queued) {
	if s.places[m.ID] != nil || len(s.order) >= maxPlaces {
		return
	}
	p := &place{id: m.ID, seq: m.Seq}
	i, _ := slices.BinarySearchFunc(s.order, m.Seq, func(p *place, seq uint64) int { return cmp.Compare(p.seq, seq) })
	s.order, s.places[m.ID] = slices.Insert(s.order, i, p), p
}

func (s *serving) forget(id string) {
	delete(s.places, id)
	s.order = slices.DeleteFunc(s.order, func(p *place) bool { return p.id == id })
}

// claimJob tries to get a job. gone: it need not be looked at again.
func (s *serving) claimJob(ctx context.Context, p *place) (gone bool, err error) {
	revision, ok, err := s.q.Take(ctx, p.id, s.w.claim())
	if err != nil {
		return false, err
	}
	if !ok {
		p.again = time.Now().Add(s.q.Timeout)
		return false, nil
	}
	return true, s.start(ctx, p.id, revision, nil)
}

// claim is one that this daemon makes.
func (w *Worker) claim() job.Claim {
	return job.Claim{Host: w.o.Name, Instance: w.o.Instance, At: time.Now().UTC()}
}

// start begins with a job whose claim is this daemon's. before is the claim, where it was
// found: the job may have been begun, or somebody else has written it.
func (s *serving) start(ctx context.Context, id string, revision uint64, before *job.Claim) error {
	m, ok, err := s.q.Get(ctx, id)
	if err != nil {
		return err
	}
	_, over, err := s.q.End(ctx, id)
	switch {
	case err != nil:
		return err
	case over:
		if err := s.q.Drop(ctx, id); err != nil {
			return err
		}
		return s.ended(ctx, id, revision)
	case !ok:
		return s.ended(ctx, id, revision)
	}
	j, err := job.Parse(id, m.Text)
	fits := j.Fits(s.w.o.Labels)
	switch {
	case err != nil:
		return s.refuse(ctx, m, err)
	case fits && s.free() > 0:
		s.w.startTask(record{Job: j, Again: before != nil}, revision)
		return nil
	case before != nil && before.Cancel:
		_, err := s.q.Finish(ctx, job.Cancelled(id))
		return err
	case fits && s.w.o.Slots > 0:
		s.remember(m)
	}
	s.w.o.Log.Info("the claim of a job is given up", zap.String("job", id), zap.Bool("labels_fit", fits),
		zap.Int("slots", s.w.o.Slots))
	return s.q.Release(ctx, id, revision)
}

// ended writes into a claim that its job is over.
func (s *serving) ended(ctx context.Context, id string, revision uint64) error {
	c := s.w.claim()
	c.Ended = true
	_, _, err := s.q.Renew(ctx, id, c, revision)
	return err
}

// changed takes note of a claim that was made, changed or given up. One whose key is the id
// of no job is passed over.
func (s *serving) changed(ctx context.Context, entry jetstream.KeyValueEntry) error {
	id := entry.Key()
	if fleet.CheckID(id) != nil {
		return nil
	}
	if entry.Operation() != jetstream.KeyValuePut {
		if p := s.places[id]; p != nil {
			p.again = time.Time{}
		}
		return nil
	}
	c := job.ReadClaim(entry.Value())
	if t := s.w.task(id); t != nil {
		return t.changed(ctx, s.q, c, entry.Revision())
	}
	p := s.places[id]
	switch {
	case c.Ended:
		s.forget(id)
	case c.Instance == s.w.o.Instance && c.Host == s.w.o.Name:
		return s.adopt(ctx, id)
	case p != nil:
		p.again = time.Now().Add(s.q.Timeout)
	}
	return nil
}

// adopt goes on with a job that this daemon has claimed, and knows nothing of: it was
// killed right then. What is heard may be old.
func (s *serving) adopt(ctx context.Context, id string) error {
	c, revision, ok, err := s.q.Claimed(ctx, id)
	if err != nil || !ok || c.Ended || c.Instance != s.w.o.Instance || s.w.task(id) != nil {
		return err
	}
	next, ok, err := s.q.Renew(ctx, id, c, revision)
	if err != nil || !ok {
		return err
	}
	s.forget(id)
	if err := s.start(ctx, id, next, &c); err != nil {
		return err
	}
	if t := s.w.task(id); t != nil && c.Cancel {
		t.cancel()
	}
	return nil
}

// reclaim looks whether the jobs that were begun are this daemon's still.
func (s *serving) reclaim(ctx context.Context) error {
	for _, t := range s.w.tasks() {
		if err := t.reclaim(ctx, s.q); err != nil {
			return err
		}
	}
	return nil
}
