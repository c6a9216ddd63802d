package job

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
	"noused/internal/format"
	"noused/internal/protocol"
)

const (
	maxKept     = 8 << 20 // bytes of claims that a list has
	claimsAhead = 256     // messages that are on their way: of maxClaim
	endsAhead   = 16      // of MaxOutput and some
)

// Claims are the claims of jobs that are not over, by the id of the job. left is how many
// of all claims were not looked at, as there are too many.
func (q *Queue) Claims(ctx context.Context) (all map[string]Claim, left uint64, err error) {
	all = map[string]Claim{}
	size, of := 0, fleet.EntrySubject(q.claims.Bucket(), "")
	left, err = fleet.PullNow(ctx, q.js, fleet.BucketStream(q.claims.Bucket()), fleet.Entries(q.claims.Bucket()),
		claimsAhead, func(msg jetstream.Msg) bool {
			id := strings.TrimPrefix(msg.Subject(), of)
			if len(msg.Data()) == 0 && len(msg.Headers()) > 0 { // a mark that it was given up
				return true
			}
			if c := ReadClaim(msg.Data()); !c.Ended {
				all[id] = c
				size += len(id) + len(msg.Data())
			}
			return size < maxKept
		})
	if err != nil {
		return nil, 0, fmt.Errorf("the claims of jobs: %w", err)
	}
	return all, left, nil
}

// Ends are the newest ends that are kept, without their outputs, at most so many, the
// oldest first. older is how many there are beside them.
func (q *Queue) Ends(ctx context.Context, most uint64) (ends []End, older uint64, err error) {
	from, older, err := q.newest(ctx, most)
	if err != nil {
		return nil, 0, err
	}
	_, err = fleet.PullNow(ctx, q.js, q.prefix.EventStream(), from, endsAhead, func(msg jetstream.Msg) bool {
		e := ReadEnd(q.idOf(msg.Subject()), msg.Data()).brief()
		if meta, err := msg.Metadata(); err == nil {
			e.At = meta.Timestamp.UTC()
		}
		ends = append(ends, e)
		return uint64(len(ends)) < most
	})
	if err != nil {
		return nil, 0, fmt.Errorf("the ends of jobs: %w", err)
	}
	return ends, older, nil
}

// brief is an end as a list has it: it holds on to nothing of what was read, and what
// others have written there is bounded.
func (e End) brief() End {
	short := func(s string) string { return strings.Clone(format.Cut(s, maxPath)) }
	b := End{
		ID: short(e.ID), Host: short(e.Host), SessionID: short(e.SessionID), RunID: short(e.RunID),
		StopReason: protocol.StopReason(short(string(e.StopReason))),
	}
	if e.Error != nil {
		b.Error = &protocol.RunError{Code: protocol.Code(short(string(e.Error.Code))), Message: short(e.Error.Message)}
	}
	return b
}

// newest is where the newest ends begin, at most so many, and how many are before them.
func (q *Queue) newest(ctx context.Context, most uint64) (from jetstream.ConsumerConfig, older uint64, err error) {
	info, err := q.ends.Info(ctx)
	if err != nil {
		return from, 0, fmt.Errorf("the ends of jobs: %w", err)
	}
	from = jetstream.ConsumerConfig{
		FilterSubject: q.prefix.JobDone("*"),
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
	}
	behind := func(seq uint64) (uint64, error) {
		from.OptStartSeq = seq
		n, err := fleet.Waiting(ctx, q.js, q.prefix.EventStream(), from)
		if err != nil {
			return 0, fmt.Errorf("the ends of jobs: %w", err)
		}
		return n, nil
	}
	low, high, kept := max(info.State.FirstSeq, 1), info.State.LastSeq+1, uint64(0)
	all, err := behind(low)
	if err != nil || all <= most {
		return from, 0, err
	}
	for high-low > 1 { // there are too many behind low, and not behind high
		middle := low + (high-low)/2
		n, err := behind(middle)
		switch {
		case err != nil:
			return from, 0, err
		case n > most:
			low = middle
		default:
			high, kept = middle, n
		}
	}
	from.OptStartSeq = high
	return from, all - kept, nil
}
