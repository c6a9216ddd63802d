package host

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
)

// retryPause is how long a part waits at first that could not do its work, as it was
// denied something or the server has no room.
const retryPause = 2 * time.Second

// link is one connection, from when it was made until it is lost.
type link struct {
	host   *Host
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	nc     *fleet.Conn
	js     jetstream.JetStream
	hosts  jetstream.KeyValue
	at     uint64 // revision of the presence
}

// part is something that a link does for as long as there is one. It returns nil when
// there is nothing left to do, and is tried again after an error. It calls well when
// it works.
type part struct {
	name string
	run  func(l *link, well func()) error
}

// parts are what a daemon does in its fleet, once the name is its own and commands are
// taken.
func (h *Host) parts() []part {
	all := []part{{"events", h.out.send}}
	if h.o.Jobs != nil {
		all = append(all, part{"jobs", func(l *link, well func()) error { return h.o.Jobs.Serve(l.ctx, l.js, well) }})
	}
	return all
}

// serve does all until the link ends.
func (l *link) serve() {
	var all sync.WaitGroup
	for _, p := range l.host.parts() {
		all.Go(func() { l.keep(p) })
	}
	l.stay()
	l.cancel(nil)
	all.Wait()
}

// keep runs a part until the link ends, or it has nothing left to do. One that fails
// soon each time is tried less and less often.
func (l *link) keep(p part) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = retryPause, longPause
	for l.ctx.Err() == nil {
		begun := time.Now()
		err := l.try(p)
		if err == nil || l.ctx.Err() != nil {
			return
		}
		l.host.status.problem(p.name, err)
		if time.Since(begun) > longPause {
			pause.Reset()
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-l.ctx.Done():
		}
	}
}

// try runs a part once. A panic is an error of its.
func (l *link) try(p part) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = l.host.panicked(p.name, v)
		}
	}()
	return p.run(l, func() { l.host.status.solved(p.name) })
}
