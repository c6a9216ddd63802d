package via

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
)

// Bounds of what is taken from the bucket of hosts, and of what is reported of it.
const (
	maxHosts   = 10_000
	maxEntries = 4 * maxHosts // that are looked at
	hostsSize  = 32 << 20     // bytes of them
	maxNotes   = 8
)

// errNotListed is that a daemon has not said that it is there.
var errNotListed = errors.New("the daemon is not among the fleet's hosts")

// Seen is a daemon that is there. Last is when it has last said so, by the server's
// clock.
type Seen struct {
	fleet.Presence
	Last time.Time
}

// Hosts lists the daemons that are there, by name. What cannot be read is passed over.
// Errors are *AwayError, *RefusedError, and ctx's.
func (f *Fleet) Hosts(ctx context.Context) ([]Seen, error) {
	l, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	var all []Seen
	bucket := f.o.Prefix.HostBucket()
	err = l.store(ctx, "bucket "+bucket, func(ctx context.Context) error {
		looked, size := 0, 0
		left, err := fleet.PullNow(ctx, l.js, fleet.BucketStream(bucket), fleet.Entries(bucket), ahead,
			func(msg jetstream.Msg) bool {
				if n, ok := f.ofEntry(msg); ok && n.Seen != nil {
					all = append(all, *n.Seen)
				}
				looked, size = looked+1, size+len(msg.Data())
				return len(all) < maxHosts && looked < maxEntries && size < hostsSize
			})
		if left > 0 && err == nil {
			f.note(fmt.Sprintf("the bucket %s has %d entries more than nous takes: %d hosts are listed", bucket, left, len(all)))
		}
		return err
	})
	slices.SortFunc(all, func(x, y Seen) int { return cmp.Compare(x.Name, y.Name) })
	return all, err
}

// ofEntry is what a change in the bucket says. False: it cannot be read.
func (f *Fleet) ofEntry(msg jetstream.Msg) (News, bool) {
	name := strings.TrimPrefix(msg.Subject(), fleet.EntrySubject(f.o.Prefix.HostBucket(), ""))
	if len(msg.Data()) == 0 && len(msg.Headers()) > 0 { // a mark that it was removed
		return News{Host: name, Gone: true}, true
	}
	p, err := readPresence(name, msg.Data())
	meta, wrong := msg.Metadata()
	if err = cmp.Or(err, wrong); err != nil {
		f.note(err.Error())
		return News{}, false
	}
	return News{Host: name, Seen: &Seen{p, meta.Timestamp}}, true
}

// readPresence takes nothing for a presence that does not look like one.
func readPresence(name string, value []byte) (p fleet.Presence, err error) {
	switch {
	case len(value) > fleet.MaxPresence:
		err = fmt.Errorf("it has more than %d bytes", fleet.MaxPresence)
	case json.Unmarshal(value, &p) != nil:
		err = errors.New("it is no presence of a daemon")
	case p.Name != name:
		err = fmt.Errorf("it is for %.70q", p.Name)
	default:
		err = cmp.Or(fleet.CheckName(name), fleet.CheckLabels(p.Labels))
	}
	if err != nil {
		return p, fmt.Errorf("the entry %.70q of the fleet's hosts is passed over: %w", name, err)
	}
	return p, nil
}

// note tells what was passed over, the first few times.
func (f *Fleet) note(text string) {
	switch n := f.notes.Add(1); {
	case f.o.Note == nil || n > maxNotes:
	case n == maxNotes:
		f.o.Note(text + "; what else is passed over is not told")
	default:
		f.o.Note(text)
	}
}

// presence is how the daemon describes itself.
func (h *Host) presence(ctx context.Context, l *link) (p fleet.Presence, err error) {
	bucket := h.fleet.o.Prefix.HostBucket()
	err = l.store(ctx, "bucket "+bucket, func(ctx context.Context) error {
		kv, err := l.js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		entry, err := kv.Get(ctx, h.name)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return errNotListed
		}
		if err != nil {
			return err
		}
		p, err = readPresence(h.name, entry.Value())
		return err
	})
	return p, err
}
