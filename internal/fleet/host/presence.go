package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
)

const (
	askTime      = 5 * time.Second // for an answer of the server's
	nudgePause   = time.Second     // between two words about what the daemon does
	maxWorkdirs  = 16
	maxWorkdir   = 512                                     // bytes; a longer one is left out
	presenceTime = fleet.PresenceTTL - fleet.PresenceEvery // without one, the name may be another's soon
)

// takenError is that another daemon has the name.
type takenError struct{ by fleet.Presence }

func (e *takenError) Error() string {
	return fmt.Sprintf("another daemon of the fleet is called %q (epoch %.60s, version %.60s); give one of the two "+
		"another name in [fleet]", e.by.Name, e.by.Epoch, e.by.Version)
}

// claim takes the name, which must be free or this daemon's own.
func (l *link) claim() (err error) {
	ctx, cancel := context.WithTimeout(l.ctx, askTime)
	defer cancel()
	if l.hosts, err = l.host.o.Prefix.OpenHosts(ctx, l.js); err != nil {
		return err
	}
	name, value := l.host.o.Name, l.host.presence()
	if l.at, err = l.hosts.Create(ctx, name, value); !errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	entry, err := l.hosts.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("the name %s: %w", name, err)
	}
	var by fleet.Presence
	_ = json.Unmarshal(entry.Value(), &by) // what cannot be read is another's
	if !l.host.owns(by) {
		_ = l.nc.Publish(l.host.o.Prefix.Rival(name), value)
		_ = l.nc.FlushWithContext(ctx) // the daemon that has the name is told, where that may be
		return &takenError{by}
	}
	l.at, err = l.hosts.Update(ctx, name, value, entry.Revision())
	return err
}

// owns tells whether a presence is this daemon's, or that of one before it with the
// same state folder, which is gone as this one has the lock on that. Where both say so
// of each other, somebody has copied the folder.
func (h *Host) owns(p fleet.Presence) bool {
	if p.Epoch == h.o.Epoch {
		return true
	}
	return p.Instance == h.o.Instance && !h.ousted.Load()
}

// stay says that the daemon is there, until the link ends or the name may be lost.
func (l *link) stay() {
	defer func() {
		if v := recover(); v != nil {
			l.cancel(l.host.panicked("presence", v))
		}
	}()
	tick := time.NewTicker(fleet.PresenceEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		case <-l.host.nudges:
		}
		l.host.forgetRival(time.Now())
		err := l.updatePresence()
		switch {
		case err == nil:
			last = time.Now()
			l.host.status.solved("presence")
		case l.ctx.Err() != nil:
			return
		case errors.Is(err, jetstream.ErrKeyRevisionMismatch) || time.Since(last) > presenceTime:
			l.overtaken()
			l.cancel(fmt.Errorf("the name %s may be another's: %w", l.host.o.Name, err))
			return
		default:
			l.host.status.problem("presence", err)
		}
		select {
		case <-time.After(nudgePause):
		case <-l.ctx.Done():
		}
	}
}

func (l *link) updatePresence() (err error) {
	ctx, cancel := context.WithTimeout(l.ctx, askTime)
	defer cancel()
	at, err := l.hosts.Update(ctx, l.host.o.Name, l.host.presence(), l.at)
	if err == nil {
		l.at = at
	}
	return err
}

// overtaken remembers that a daemon of the same state folder has taken the name while
// this one lives: the folder was copied, and the two would take it from each other.
func (l *link) overtaken() {
	ctx, cancel := context.WithTimeout(l.ctx, askTime)
	defer cancel()
	entry, err := l.hosts.Get(ctx, l.host.o.Name)
	if err != nil {
		return
	}
	var by fleet.Presence
	if json.Unmarshal(entry.Value(), &by) == nil && by.Epoch != l.host.o.Epoch {
		l.host.ousted.Store(true)
	}
}

// leave says that the daemon is gone, if it stops.
func (l *link) leave() {
	if l.host.ctx.Err() == nil || l.nc.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), askTime)
	defer cancel()
	if l.hosts.Delete(ctx, l.host.o.Name, jetstream.LastRevision(l.at)) == nil {
		return
	}
	entry, err := l.hosts.Get(ctx, l.host.o.Name) // what was told last may have been cut off by the stop, and is there
	var last fleet.Presence
	if err == nil && json.Unmarshal(entry.Value(), &last) == nil && last.Epoch == l.host.o.Epoch {
		_ = l.hosts.Delete(ctx, l.host.o.Name, jetstream.LastRevision(entry.Revision()))
	}
}

// presence is how the daemon describes itself.
func (h *Host) presence() []byte {
	p := fleet.Presence{
		Name: h.o.Name, Labels: h.o.Labels, Version: h.o.Version, Epoch: h.o.Epoch, Slots: h.o.Slots,
		Instance: h.o.Instance, At: time.Now().UTC(),
	}
	if r := h.rival.Load(); r != nil {
		p.Rival = &r.Rival
	}
	var dirs []string
	p.Running, p.Waiting, dirs = h.o.Load()
	for _, dir := range append([]string{h.o.Workdir}, dirs...) {
		if len(p.Workdirs) < maxWorkdirs && len(dir) <= maxWorkdir && !slices.Contains(p.Workdirs, dir) {
			p.Workdirs = append(p.Workdirs, dir)
		}
	}
	value, _ := json.Marshal(p) // numbers and texts alone
	return value
}
