package via

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"noused/internal/client"
)

const (
	checkEvery = 5 * time.Second  // while there are connections
	helloTime  = 10 * time.Second // for a daemon to answer a ping
)

// Host is one daemon of a fleet, by its name.
type Host struct {
	fleet *Fleet
	name  string

	mu       sync.Mutex
	conns    map[*conn]struct{}
	checking func()   // ends the looking after the daemon, and waits for that; nil while there are no connections
	known    []string // the hosts that were listed when this one was missing
}

// Host leads to the daemon of that name, which fleet.CheckName takes.
func (f *Fleet) Host(name string) *Host {
	return &Host{fleet: f, name: name, conns: map[*conn]struct{}{}}
}

// Name is the host's.
func (h *Host) Name() string { return h.name }

// String is where the daemon is, as messages name it.
func (h *Host) String() string { return h.name + " at " + h.fleet.Server() }

// NoHostError says that no daemon of that name takes commands. It is a client.ErrLost:
// it may come back.
type NoHostError struct {
	Name, Server string
	Known        []string // who is there; empty also where that is not known
}

func (e *NoHostError) Error() string {
	return fmt.Sprintf("no daemon called %s answers in the fleet at %s", e.Name, e.Server)
}

// Unwrap returns client.ErrLost.
func (e *NoHostError) Unwrap() error { return client.ErrLost }

// Next says what to do.
func (e *NoHostError) Next() string {
	const most = 8
	switch n := len(e.Known); {
	case n == 0:
		return "no host is there: [fleet] in a daemon's configuration has it join; nous fleet hosts lists them"
	case n > most:
		return fmt.Sprintf("there are %s and %d more; nous fleet hosts lists them", strings.Join(e.Known[:most], ", "),
			n-most)
	default:
		return "there are: " + strings.Join(e.Known, ", ")
	}
}

// Commands is a connection on which each line is a request to the daemon. It has
// answered a ping. Errors are *NoHostError, *AwayError, *RefusedError,
// *client.SilentError, and ctx's.
func (h *Host) Commands(ctx context.Context) (net.Conn, error) {
	l, err := h.fleet.connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := h.commands(l)
	if err != nil {
		return nil, err
	}
	if err := c.hello(ctx); err != nil {
		_ = c.Close()
		return nil, h.named(ctx, err)
	}
	c.own.Go(c.pump)
	h.has(c.conn)
	return c, nil
}

// Events is a connection that has the daemon's events: all from the first read on, or
// what a subscribe that is written asks for (wire-v1 §5). It asks nothing of the
// server yet.
func (h *Host) Events(ctx context.Context) (net.Conn, error) {
	l, err := h.fleet.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := h.events(l)
	c.own.Go(c.pump)
	h.has(c.conn)
	return c, nil
}

// named adds to an error which hosts there are.
func (h *Host) named(ctx context.Context, err error) error {
	var gone *NoHostError
	if !errors.As(err, &gone) {
		return err
	}
	h.mu.Lock()
	known := h.known
	h.mu.Unlock()
	if known == nil {
		known = []string{}
		if all, err := h.fleet.Hosts(ctx); err == nil {
			for _, p := range all {
				known = append(known, p.Name)
			}
		}
		h.mu.Lock()
		h.known = known
		h.mu.Unlock()
	}
	gone.Known = known
	return err
}

// has takes note of a connection. While there are some, the daemon is looked after: the
// server does not say that one has gone.
func (h *Host) has(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[c] = struct{}{}
	if h.checking == nil {
		ctx, cancel := context.WithCancel(context.Background())
		var own sync.WaitGroup
		own.Go(func() { h.check(ctx) }) // ended by left
		h.checking = func() { cancel(); own.Wait() }
	}
}

// left forgets a connection. Behind the last one it waits until nobody looks after the
// daemon any more.
func (h *Host) left(c *conn) {
	h.mu.Lock()
	delete(h.conns, c)
	end := func() {}
	if len(h.conns) == 0 && h.checking != nil {
		end, h.checking = h.checking, nil
	}
	h.mu.Unlock()
	end()
}

// gone ends all connections.
func (h *Host) gone(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		c.end(err)
	}
}

// check ends the connections when the daemon is gone, or has been started anew. What is
// wrong at first, who has connected is told.
func (h *Host) check(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for first, epoch := true, ""; ; first = false {
		now, err := h.meet(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case first && err != nil:
		case err != nil:
			h.gone(err)
		case epoch != "" && now != "" && now != epoch:
			h.gone(fmt.Errorf("%w: the daemon was started anew", client.ErrLost))
		}
		epoch = cmp.Or(now, epoch)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// meet pings the daemon and returns its epoch.
func (h *Host) meet(ctx context.Context) (epoch string, err error) {
	l, err := h.fleet.connect(ctx)
	if err != nil {
		return "", err
	}
	if err := h.ping(ctx, l); err != nil {
		return "", err
	}
	p, err := h.presence(ctx, l)
	if errors.Is(err, errNotListed) {
		err = nil // it answers
	}
	return p.Epoch, err
}

func (h *Host) ping(ctx context.Context, l *link) error {
	c, err := h.commands(l)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return c.hello(ctx)
}
