package via

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client"
	"noused/internal/protocol"
)

// events is a connection that has a host's events.
type events struct {
	*conn
	requests chan request
	reading  chan struct{} // closed when somebody reads
	read     sync.Once
}

// request is a line that was written.
type request struct {
	id     string
	params protocol.SubscribeParams
	err    error
}

func (h *Host) events(l *link) *events {
	return &events{
		conn:     h.open(l, "$JS."),
		requests: make(chan request, 1), reading: make(chan struct{}),
	}
}

// Read blocks until there is an event. The first one has them sent, if nothing was
// asked for.
func (c *events) Read(p []byte) (int, error) {
	c.read.Do(func() { close(c.reading) })
	return c.conn.Read(p)
}

// Write takes subscribe.
func (c *events) Write(p []byte) (int, error) {
	return c.write(p, func(line []byte) error {
		var r request
		r.id, r.params, r.err = protocol.DecodeSubscribe(line)
		select {
		case c.requests <- r:
			return nil
		case <-c.ctx.Done():
			return c.why()
		}
	})
}

// pump carries out what is asked for until the connection ends.
func (c *events) pump() {
	var r request
	select {
	case r = <-c.requests:
	case <-c.reading:
		select {
		case r = <-c.requests: // it was asked before
		default:
		}
	case <-c.ctx.Done():
		return
	}
	for {
		next, err := c.serve(r)
		if err != nil {
			c.end(err)
			return
		}
		r = next
	}
}

// serve answers a request and hands on what it asks for, until the next one.
func (c *events) serve(r request) (next request, err error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var s *source
	if r.err == nil {
		s, err = c.host.source(ctx, c.link, r.params)
		if err != nil {
			return next, err
		}
		defer s.close()
	}
	if line, err := s.answer(r); err != nil {
		return next, err
	} else if line != nil && !c.put(ctx, line) {
		return next, c.why()
	}
	if s == nil {
		return c.await(ctx)
	}
	got := make(chan request, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { // ends with ctx
		if r, err := c.await(ctx); err == nil {
			got <- r
			cancel()
		}
	})
	err = c.hand(ctx, s)
	cancel()
	waiting.Wait()
	select {
	case next = <-got:
		return next, nil
	default:
		return next, err
	}
}

func (c *events) await(ctx context.Context) (r request, err error) {
	select {
	case r = <-c.requests:
		return r, nil
	case <-ctx.Done():
		return r, c.why()
	}
}

// hand gives the reader what comes.
func (c *events) hand(ctx context.Context, s *source) error {
	for {
		lines, err := s.next(ctx)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if !c.put(ctx, line) {
				return ctx.Err()
			}
		}
	}
}

// answer is the line that answers a request; nil where nobody has asked.
func (s *source) answer(r request) ([]byte, error) {
	switch {
	case r.err != nil:
		return refusal(r.id, r.err), nil
	case r.id == "":
		return nil, nil
	}
	return protocol.AppendResponse(nil, r.id, "subscribed", protocol.Subscribed{
		Epoch: s.epoch, NextSeq: s.last + 1,
		Gap: s.gap,
	})
}

// Close ends the connection.
func (c *events) Close() error { return c.close() }

// broken is the end of a source.
func (c *link) broken(err error) error {
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, jetstream.ErrConsumerDeleted):
		return &AwayError{c.server, errors.New("it sends no events any more")}
	}
	return fmt.Errorf("%w: the fleet's events: %w", client.ErrLost, err)
}
