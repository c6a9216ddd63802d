package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// forgotten is how long a server remembers a reader that gives no sign.
	forgotten = time.Minute
	// quiet is how long nothing comes before it is asked whether there is anything left.
	quiet = 250 * time.Millisecond
	// mostNew is how many new messages may arrive while the present ones are read.
	mostNew = 1000
)

// Pull reads what a stream has of a subject, and then what comes; from says where it
// begins, and ahead how much may be on its way. It pulls, as what a server sends by
// itself does not cross from one account to another. pending is how many messages there
// are already. The caller stops messages.
func Pull(ctx context.Context, js jetstream.JetStream, stream string, from jetstream.ConsumerConfig,
	ahead jetstream.PullMessagesOpt,
) (messages jetstream.MessagesContext, pending uint64, err error) {
	p, err := pull(ctx, js, stream, from, ahead)
	return p.messages, p.left, err
}

// PullNow is Pull for the messages of now: take is given one message after the other,
// until it has enough. ahead is how many messages may be on their way. left is how many
// it was not given. It fails where nothing has come for as long as js waits for an answer.
func PullNow(ctx context.Context, js jetstream.JetStream, stream string, from jetstream.ConsumerConfig, ahead int,
	take func(jetstream.Msg) (more bool),
) (left uint64, err error) {
	// A limit in bytes has the server send more than the library keeps room for.
	p, err := pull(ctx, js, stream, from, jetstream.PullMaxMessages(ahead))
	if err != nil {
		return 0, err
	}
	defer p.messages.Stop()
	most := 2*p.left + mostNew // entries may be written anew faster than they are read
	for more := true; more && p.left > 0 && p.got < most; {
		msg, err := p.next(ctx)
		if err != nil {
			return p.left, err
		}
		if msg != nil {
			more = take(msg)
		}
	}
	return p.left, nil
}

// Waiting is how many messages there are from where from begins.
func Waiting(ctx context.Context, js jetstream.JetStream, stream string, from jetstream.ConsumerConfig) (uint64,
	error,
) {
	consumer, err := js.CreateConsumer(ctx, stream, reader(from))
	if err != nil {
		return 0, err
	}
	return consumer.CachedInfo().NumPending, nil
}

// Entries is where Pull begins for the entries of a bucket, whose stream is BucketStream.
func Entries(bucket string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject: EntrySubject(bucket, ">"),
	}
}

// BucketStream is the name of the stream that a bucket is.
func BucketStream(bucket string) string { return "KV_" + bucket }

// EntrySubject is the subject of a bucket's entry.
func EntrySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

var errLeftOut = errors.New("a message that the server has sent did not come: try again")

// pulling is a stream that is being read.
type pulling struct {
	js       jetstream.JetStream
	stream   string
	from     jetstream.ConsumerConfig
	messages jetstream.MessagesContext
	got      uint64
	left     uint64
}

func reader(from jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	from.AckPolicy, from.InactiveThreshold, from.MemoryStorage, from.Replicas = jetstream.AckNonePolicy, forgotten, true, 1
	return from
}

func pull(ctx context.Context, js jetstream.JetStream, stream string, from jetstream.ConsumerConfig,
	ahead jetstream.PullMessagesOpt,
) (p pulling, err error) {
	p = pulling{js: js, stream: stream, from: reader(from)}
	consumer, err := js.CreateConsumer(ctx, stream, p.from)
	if err != nil {
		return p, err
	}
	p.from.Name, p.left = consumer.CachedInfo().Name, consumer.CachedInfo().NumPending
	p.messages, err = consumer.Messages(ahead)
	return p, err
}

// next waits for a message; nil: the rest has run out meanwhile.
func (p *pulling) next(ctx context.Context) (jetstream.Msg, error) {
	for until := time.Now().Add(p.js.Options().DefaultTimeout); ; {
		msg, err := p.soon(ctx)
		switch {
		case err == nil:
			meta, err := msg.Metadata()
			if p.got++; err != nil || meta.Sequence.Consumer != p.got {
				return nil, errLeftOut
			}
			p.left = meta.NumPending
			return msg, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded) || time.Now().After(until):
			return nil, err
		}
		if err := p.countLeft(ctx); err != nil || p.left == 0 {
			return nil, err
		}
	}
}

func (p *pulling) soon(ctx context.Context) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	return p.messages.Next(jetstream.NextContext(ctx))
}

// countLeft asks how much there is still, which what is on its way is a part of.
func (p *pulling) countLeft(ctx context.Context) error {
	consumer, err := p.js.CreateOrUpdateConsumer(ctx, p.stream, p.from)
	if err != nil {
		return err
	}
	info := consumer.CachedInfo()
	p.left = info.NumPending + info.Delivered.Consumer - min(p.got, info.Delivered.Consumer)
	return nil
}
