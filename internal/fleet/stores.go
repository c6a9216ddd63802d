package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of what is made where it is missing. Who wants others makes the streams first.
const (
	eventBytes = 256 << 20
	eventAge   = 3 * 24 * time.Hour
	jobBytes   = 64 << 20
	jobAge     = 30 * 24 * time.Hour
	hostBytes  = 8 << 20
	// MaxJob is the largest job, in bytes.
	MaxJob = 256 << 10
	// MaxPresence is the largest Presence, in bytes.
	MaxPresence = 32 << 10
	// leastEvent is the smallest bound of a message's size that the stream of events may have:
	// the end of a job without its output is shorter, and so is what stands for an event that
	// is too long.
	leastEvent = 16 << 10
	headerSize = 512 // more than the headers of a message take
	// For so long a server knows what it has stored by its message id.
	eventDuplicates = 2 * time.Minute
	jobDuplicates   = 24 * time.Hour
)

// OpenEvents returns the stream of events, and makes it where there is none.
func (p Prefix) OpenEvents(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	s, err := ensure(ctx, js, jetstream.StreamConfig{
		Name: p.EventStream(), Description: "events of noused daemons, and the ends of jobs",
		Subjects:  []string{p.Events("*"), p.JobDone("*")},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage,
		MaxBytes: eventBytes, MaxAge: eventAge, Duplicates: eventDuplicates,
	})
	if err != nil {
		return nil, err
	}
	if most := s.CachedInfo().Config.MaxMsgSize; most > 0 && most < leastEvent {
		return nil, fmt.Errorf("the stream %s does not fit: it takes messages of at most %d bytes, want %d or more",
			p.EventStream(), most, leastEvent)
	}
	return s, nil
}

// Room is how long a message to the stream of events may be, without its headers, in bytes:
// a longer one is not carried by the server, or not taken by the stream.
func Room(nc *nats.Conn, events jetstream.Stream) int {
	most := int(nc.MaxPayload())
	if limit := int(events.CachedInfo().Config.MaxMsgSize); limit > 0 {
		most = min(most, limit)
	}
	return most - headerSize
}

// OpenJobs returns the stream of jobs, and makes it where there is none. A job that
// there is no room for is refused.
func (p Prefix) OpenJobs(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	return ensure(ctx, js, jetstream.StreamConfig{
		Name: p.JobStream(), Description: "jobs for noused daemons",
		Subjects:  []string{p.JobQueue("*")},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage,
		MaxBytes: jobBytes, MaxAge: jobAge, MaxMsgSize: MaxJob, Duplicates: jobDuplicates,
	})
}

// OpenHosts returns the bucket of the daemons that are there, and makes it where there
// is none.
func (p Prefix) OpenHosts(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	name := p.HostBucket()
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "noused daemons that are there", TTL: PresenceTTL,
			MaxBytes: hostBytes, MaxValueSize: MaxPresence, Storage: jetstream.MemoryStorage,
		})
		if err != nil {
			return nil, fmt.Errorf("the bucket %s is missing and cannot be made: %w", name, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, explained(err))
	}
	status, err := kv.Status(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	case status.TTL() != PresenceTTL:
		return nil, fmt.Errorf("the bucket %s keeps its keys for %s, want %s: change it, or remove it and it is made anew",
			name, status.TTL(), PresenceTTL)
	}
	return kv, nil
}

func ensure(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if s, err = js.CreateStream(ctx, want); err != nil {
			return nil, fmt.Errorf("the stream %s is missing and cannot be made: %w", want.Name, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", want.Name, explained(err))
	}
	if why := misfit(s.CachedInfo().Config, want); why != "" {
		return nil, fmt.Errorf("the stream %s does not fit: %s; change it, or remove it and it is made anew", want.Name, why)
	}
	return s, nil
}

// explained says of a server that has nobody to answer why that is.
func explained(err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("the server has no JetStream, or not for this account: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the server does not answer; where it denies a subject it is named beside this: %w", err)
	}
	return err
}

// misfit says why a stream cannot be used; "" is that it can. How much it keeps, and
// where, is for its maker to say.
func misfit(have, want jetstream.StreamConfig) string {
	for _, subject := range want.Subjects {
		if !slices.Contains(have.Subjects, subject) {
			return fmt.Sprintf("it does not take %s", subject)
		}
	}
	switch {
	case have.Retention != want.Retention:
		return fmt.Sprintf("its retention is %s, want %s", have.Retention, want.Retention)
	case have.Discard != want.Discard:
		return fmt.Sprintf("where it is full it discards %s messages, want %s", have.Discard, want.Discard)
	case have.Duplicates < want.Duplicates:
		return fmt.Sprintf("it knows duplicates for %s, want %s", have.Duplicates, want.Duplicates)
	case have.NoAck:
		return "it does not acknowledge"
	case have.Sealed:
		return "it is sealed"
	}
	return ""
}
