package via

import (
	"context"
	"errors"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
)

// News is something that has happened in a fleet. Of an event it has the host and its
// type; of a host that has said how it is, Seen.
type News struct {
	Host string
	Type string // of an event; "" otherwise
	Seen *Seen
	Gone bool // the host has said that it leaves
}

// Watch is what happens in a fleet from when it was made.
type Watch struct {
	fleet         *Fleet
	link          *link
	events, hosts jetstream.MessagesContext
	ctx           context.Context
	end           context.CancelCauseFunc
	own           sync.WaitGroup
	news          chan News
}

// Watch begins to watch: first come the present hosts. The events are those of
// all hosts. Errors are those of Hosts.
func (f *Fleet) Watch(ctx context.Context) (*Watch, error) {
	l, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &Watch{fleet: f, link: l, news: make(chan News)}
	if err := l.store(ctx, "stream "+f.o.Prefix.EventStream(), w.follow); err != nil {
		return nil, err
	}
	if err := l.store(ctx, "bucket "+f.o.Prefix.HostBucket(), w.pullHosts); err != nil {
		w.events.Stop()
		return nil, err
	}
	w.ctx, w.end = l.withDenials(context.Background(), "$JS.")
	w.own.Go(func() { w.forward(w.events, w.ofEvent) })
	w.own.Go(func() { w.forward(w.hosts, f.ofEntry) })
	return w, nil
}

func (w *Watch) follow(ctx context.Context) error {
	prefix := w.fleet.o.Prefix
	consumer, err := w.link.js.CreateConsumer(ctx, prefix.EventStream(), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy,
		FilterSubject: prefix.Events("*"), InactiveThreshold: forgotten, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		return err
	}
	w.events, err = consumer.Messages(w.link.ahead())
	return err
}

func (w *Watch) pullHosts(ctx context.Context) (err error) {
	bucket := w.fleet.o.Prefix.HostBucket()
	w.hosts, _, err = fleet.Pull(ctx, w.link.js, fleet.BucketStream(bucket), fleet.Entries(bucket), w.link.ahead())
	return err
}

// Next blocks until there is news. Errors are those of a connection that was lost, and
// ctx's.
func (w *Watch) Next(ctx context.Context) (News, error) {
	select {
	case n := <-w.news:
		return n, nil
	case <-w.ctx.Done():
		return News{}, context.Cause(w.ctx)
	case <-ctx.Done():
		return News{}, context.Cause(ctx)
	}
}

// Close ends it.
func (w *Watch) Close() {
	w.end(errors.New("the watch was closed"))
	w.hosts.Stop()
	w.events.Stop()
	w.own.Wait()
}

// forward hands on what comes, as far as it can be read.
func (w *Watch) forward(messages jetstream.MessagesContext, read func(jetstream.Msg) (News, bool)) {
	for count := uint64(1); ; count++ {
		msg, err := messages.Next(jetstream.NextContext(w.ctx))
		if err != nil {
			w.end(w.link.broken(err))
			return
		}
		if meta, err := msg.Metadata(); err != nil || meta.Sequence.Consumer != count {
			w.end(errLeftOut)
			return
		}
		n, ok := read(msg)
		if !ok {
			continue
		}
		select {
		case w.news <- n:
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *Watch) ofEvent(msg jetstream.Msg) (News, bool) {
	host, _, ok := w.fleet.o.Prefix.OfEvent(msg.Subject())
	var e struct {
		Type string `json:"type"`
	}
	return News{Host: host, Type: e.Type}, ok && json.Unmarshal(msg.Data(), &e) == nil && e.Type != ""
}
