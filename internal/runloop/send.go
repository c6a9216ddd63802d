package runloop

import (
	"context"
	"errors"
)

// sent is an input that a loop has. It keeps the loop open until its first
// reply is taken.
type sent struct {
	*call
	loop    *loop
	release func()
	make    func(ticket) input
	faults  int
}

// send posts an input made from a new call, in the order of the commands. Every
// input that was sent must be awaited.
func (h *Hub) send(ctx context.Context, id string, make func(ticket) input) (*sent, error) {
	s := &sent{make: make}
	return s, h.sendAgain(ctx, id, s)
}

func (h *Hub) sendAgain(ctx context.Context, id string, s *sent) (err error) {
	for {
		s.call = newCall()
		if s.loop, s.release, err = h.acquire(ctx, id); err != nil {
			return err
		}
		if err = s.loop.post(ctx, s.make(s.call)); err == nil {
			return nil
		}
		s.release()
		if err = s.stopped(err); err != nil {
			return err
		}
	}
}

// stopped is nil where the session may be opened again: its loop was closed, or
// its journal has failed for the first time.
func (s *sent) stopped(err error) error {
	if errors.Is(err, errStopped) && s.loop.failure != nil {
		if s.faults++; s.faults > 1 {
			return s.loop.failure
		}
	}
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// isPostponed waits until an input has its first reply, or it is known that this
// has to wait for more than the disk.
func (s *sent) isPostponed(ctx context.Context) bool {
	select {
	case r := <-s.reply:
		s.reply <- r // there is room again, and nobody else takes it
	case <-s.postponed:
		return true
	case <-s.loop.done: // first finds out
	case <-ctx.Done():
	}
	return false
}

// first waits for an input's first reply, and sends it anew where its loop
// ended without one.
func (h *Hub) first(ctx context.Context, id string, s *sent) (reply, error) {
	for {
		r, err := s.loop.await(ctx, s.reply)
		s.release()
		if !errors.Is(err, errStopped) {
			s.make = nil // what it was made of may be long, and a run too
			return r, err
		}
		if err := s.stopped(err); err != nil {
			return reply{}, err
		}
		if err := h.sendAgain(ctx, id, s); err != nil {
			return reply{}, err
		}
	}
}

// request posts an input and waits for its first reply.
func (h *Hub) request(ctx context.Context, id string, make func(ticket) input) (reply, error) {
	s, err := h.send(ctx, id, make)
	if err != nil {
		return reply{}, err
	}
	return h.first(ctx, id, s)
}
