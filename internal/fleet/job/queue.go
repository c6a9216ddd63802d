package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/fleet"
)

// DefaultTimeout is how long a job's host may stay away.
const DefaultTimeout = 10 * time.Minute

const (
	claimBytes = 64 << 20
	maxClaim   = 4 << 10
	maxToken   = 128 // of a claim's names and ids, so that it can be written anew
	endPrefix  = "job-"
)

// Queue is the jobs of a fleet, over one connection.
type Queue struct {
	prefix fleet.Prefix
	js     jetstream.JetStream
	jobs   jetstream.Stream
	ends   jetstream.Stream
	claims jetstream.KeyValue
	// Timeout is how long a claim lives without being renewed.
	Timeout time.Duration
}

// Open finds the streams and the bucket, and makes what is missing; timeout counts where
// the bucket is made.
func Open(ctx context.Context, js jetstream.JetStream, prefix fleet.Prefix, timeout time.Duration) (q *Queue,
	err error,
) {
	q = &Queue{prefix: prefix, js: js}
	if q.jobs, err = prefix.OpenJobs(ctx, js); err != nil {
		return nil, err
	}
	if q.jobs.CachedInfo().Config.AllowDirect {
		return nil,
			fmt.Errorf(
				"the stream %s does not fit: it answers from any server (allow_direct), and so could show a job that is over",
				prefix.JobStream())
	}
	if q.ends, err = prefix.OpenEvents(ctx, js); err != nil {
		return nil, err
	}
	return q, q.openClaims(ctx, timeout)
}

func (q *Queue) openClaims(ctx context.Context, timeout time.Duration) (err error) {
	name := q.prefix.ClaimBucket()
	q.claims, err = q.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		q.claims, err = q.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "who works at the jobs of noused daemons", TTL: timeout,
			MaxBytes: claimBytes, MaxValueSize: maxClaim, Storage: jetstream.FileStorage,
		})
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	status, err := q.claims.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	if q.Timeout = status.TTL(); q.Timeout <= 0 {
		return fmt.Errorf("the bucket %s keeps its keys for ever, and the jobs of a host that is gone would wait as long: "+
			"change it, or remove it and it is made anew", name)
	}
	return nil
}

// Submit puts a job into the queue. again: it was there already, or is over. It fails for
// a job that Check refuses, and where there is no room.
func (q *Queue) Submit(ctx context.Context, j Job) (again bool, err error) {
	if err := j.Check(); err != nil {
		return false, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return false, fmt.Errorf("the job: %w", err)
	}
	if len(text) > fleet.MaxJob {
		return false, fmt.Errorf("the job has %d bytes, and at most %d may be", len(text), fleet.MaxJob)
	}
	if _, over, err := q.End(ctx, j.ID); err != nil || over {
		return over, err
	}
	ack, err := q.js.Publish(ctx, q.prefix.JobQueue(j.ID), text, jetstream.WithMsgID(j.ID),
		jetstream.WithExpectStream(q.prefix.JobStream()), jetstream.WithExpectLastSequencePerSubject(0))
	switch {
	case isTaken(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("submit: %w", err)
	}
	return ack.Duplicate, nil
}

// isTaken tells whether a message was refused as there is one of its subject.
func isTaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Queued is a job in the queue, as it came.
type Queued struct {
	Seq  uint64
	ID   string
	Text []byte
	At   time.Time // when it was submitted, by the server's clock
}

// Next is the first job of the queue behind a sequence number. False: there is none.
func (q *Queue) Next(ctx context.Context, after uint64) (Queued, bool, error) {
	msg, err := q.jobs.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(q.prefix.JobQueue("*")))
	return q.queued(msg, err)
}

// Get is the job with that id. False: it is not in the queue.
func (q *Queue) Get(ctx context.Context, id string) (Queued, bool, error) {
	msg, err := q.jobs.GetLastMsgForSubject(ctx, q.prefix.JobQueue(id))
	return q.queued(msg, err)
}

func (q *Queue) queued(msg *jetstream.RawStreamMsg, err error) (Queued, bool, error) {
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Queued{}, false, nil
	case err != nil:
		return Queued{}, false, fmt.Errorf("the queue of jobs: %w", err)
	}
	return Queued{msg.Sequence, q.idOf(msg.Subject), msg.Data, msg.Time}, true, nil
}

func (q *Queue) idOf(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

// Submitted is told the id of each job when it is submitted, perhaps before it can be
// read. What it does must not block.
func (q *Queue) Submitted(tell func(id string)) (*nats.Subscription, error) {
	return q.js.Conn().Subscribe(q.prefix.JobQueue("*"), func(msg *nats.Msg) { tell(q.idOf(msg.Subject)) })
}

// Take makes the claim of a job. False: there is one already.
func (q *Queue) Take(ctx context.Context, id string, c Claim) (revision uint64, ok bool, err error) {
	revision, err = q.claims.Create(ctx, id, encode(c))
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, false, nil
	}
	return revision, err == nil, err
}

// Renew writes a claim anew. False: another has written it since that revision, or it has
// run out.
func (q *Queue) Renew(ctx context.Context, id string, c Claim, revision uint64) (next uint64, ok bool, err error) {
	next, err = q.claims.Update(ctx, id, encode(c), revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return 0, false, nil
	}
	return next, err == nil, err
}

// Claimed is the claim of a job. False: there is none.
func (q *Queue) Claimed(ctx context.Context, id string) (c Claim, revision uint64, ok bool, err error) {
	entry, err := q.claims.Get(ctx, id)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return c, 0, false, nil
	case err != nil:
		return c, 0, false, err
	}
	return ReadClaim(entry.Value()), entry.Revision(), true, nil
}

// Release gives a claim up, unless another has written it since that revision: anybody may
// take the job.
func (q *Queue) Release(ctx context.Context, id string, revision uint64) error {
	if err := q.claims.Delete(ctx, id, jetstream.LastRevision(revision)); !isTaken(err) {
		return err
	}
	return nil
}

// Watch reports all claims, and then of each that changes; a nil entry ends the first.
func (q *Queue) Watch(ctx context.Context) (jetstream.KeyWatcher, error) {
	return q.claims.WatchAll(ctx)
}

func encode(c Claim) []byte {
	text, _ := json.Marshal(c) // texts alone
	return text
}

// ReadClaim reads a claim. One that cannot be read, or is longer than any of a daemon's, is
// somebody's.
func ReadClaim(text []byte) Claim {
	var c Claim
	if len(text) > maxClaim || json.Unmarshal(text, &c) != nil || max(len(c.Host), len(c.Instance), len(c.SessionID),
		len(c.RunID)) > maxToken {
		return Claim{Host: "?"}
	}
	return c
}

// Finish tells the end of a job, unless one was told, and takes it out of the queue. It
// may be called again after an error, or an end of the process. told: it is this one, or
// was told by an earlier call. It has as much of the output as the server takes.
func (q *Queue) Finish(ctx context.Context, e End) (told bool, err error) {
	text := e.encodeWithin(fleet.Room(q.js.Conn(), q.ends))
	ack, err := q.js.Publish(ctx, q.prefix.JobDone(e.ID), text, jetstream.WithMsgID(endPrefix+e.ID),
		jetstream.WithExpectStream(q.prefix.EventStream()), jetstream.WithExpectLastSequencePerSubject(0))
	switch {
	case isTaken(err):
	case err != nil:
		return false, fmt.Errorf("tell the end: %w", err)
	default:
		told = !ack.Duplicate
	}
	if err := q.jobs.Purge(ctx, jetstream.WithPurgeSubject(q.prefix.JobQueue(e.ID))); err != nil {
		return told, fmt.Errorf("take the job out of the queue: %w", err)
	}
	return told, nil
}

// Refuse ends a job that no daemon could do. One whose id is a pattern of subjects, and so
// would be that of other jobs, has no end, and is taken out alone; where the server does not
// let it be, it stays, and is passed over.
func (q *Queue) Refuse(ctx context.Context, m Queued, e End) (told bool, err error) {
	if m.ID != "*" && m.ID != ">" {
		return q.Finish(ctx, e)
	}
	return q.jobs.DeleteMsg(ctx, m.Seq) == nil, ctx.Err()
}

// Drop takes a job out of the queue whose end was told.
func (q *Queue) Drop(ctx context.Context, id string) error {
	return q.jobs.Purge(ctx, jetstream.WithPurgeSubject(q.prefix.JobQueue(id)))
}

// End is how a job ended. False: it has not, or that is no longer kept.
func (q *Queue) End(ctx context.Context, id string) (e End, ok bool, err error) {
	msg, err := q.ends.GetLastMsgForSubject(ctx, q.prefix.JobDone(id))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return e, false, nil
	case err != nil:
		return e, false, fmt.Errorf("the ends of jobs: %w", err)
	}
	return ReadEnd(id, msg.Data), true, nil
}

// Wait waits for the end of a job.
func (q *Queue) Wait(ctx context.Context, id string) (e End, err error) {
	// A plain subscription would not cross from the hosts' account to a person's.
	from := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy, FilterSubject: q.prefix.JobDone(id)}
	told := make(chan struct{})
	if messages, _, err := fleet.Pull(ctx, q.js, q.prefix.EventStream(), from, jetstream.PullMaxMessages(1)); err == nil {
		ended := make(chan struct{})
		go func() { // ends with messages
			defer close(ended)
			if _, err := messages.Next(); err == nil {
				close(told)
			}
		}()
		defer func() { messages.Stop(); <-ended }()
	}
	look := time.NewTicker(lookEvery) // what is told can be missed
	defer look.Stop()
	for {
		e, over, err := q.End(ctx, id)
		if err != nil || over {
			return e, err
		}
		select {
		case <-told:
			told = nil
			look.Reset(soon)
		case <-look.C:
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
}

const (
	lookEvery = time.Second
	soon      = 5 * time.Millisecond
)

// ReadEnd reads an end that was told.
func ReadEnd(id string, text []byte) End {
	var e End
	if err := json.Unmarshal(text, &e); err != nil || e.ID != id {
		return Failed(id, "", "internal_error", "its end cannot be read")
	}
	return e
}

// Cancelling says what a cancel has done.
type Cancelling string

// What a cancel finds.
const (
	Unknown Cancelling = "unknown" // no job of that id waits, runs, or has ended
	Removed Cancelling = "removed" // it waited, and is over now
	Asked   Cancelling = "asked"   // its host was told to abort it
	Away    Cancelling = "away"    // its host was told, and did not do it in time: its end is told without it
	Over    Cancelling = "over"    // it had ended
)

// Cancel cancels a job: its end is told when it returns without an error. host is whose
// the job was, which has some patience's time to end the run; one that is away aborts it
// when it comes back.
func (q *Queue) Cancel(ctx context.Context, id string, patience time.Duration) (did Cancelling, host string,
	err error,
) {
	did, c, err := q.cancel(ctx, id)
	if err != nil || did != Asked {
		return did, c.Host, err
	}
	for until := time.Now().Add(patience); time.Now().Before(until); pause(ctx) {
		if _, over, err := q.End(ctx, id); err != nil || over {
			return Asked, c.Host, err
		}
	}
	e := Cancelled(id)
	e.Host, e.SessionID, e.RunID = c.Host, c.SessionID, c.RunID
	if told, err := q.Finish(ctx, e); err != nil || !told {
		return Asked, c.Host, err
	}
	return Away, c.Host, nil
}

const cancelPause = 50 * time.Millisecond

func pause(ctx context.Context) {
	t := time.NewTimer(cancelPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (q *Queue) cancel(ctx context.Context, id string) (did Cancelling, c Claim, err error) {
	for ; ctx.Err() == nil; pause(ctx) {
		if _, over, err := q.End(ctx, id); err != nil || over {
			return Over, c, err
		}
		if _, ok, err := q.Get(ctx, id); err != nil || !ok {
			return Unknown, c, err
		}
		_, ok, err := q.Take(ctx, id, Claim{At: time.Now().UTC(), Cancel: true})
		if err != nil {
			return "", c, err
		}
		if ok {
			_, err := q.Finish(ctx, Cancelled(id))
			return Removed, c, err
		}
		c, revision, ok, err := q.Claimed(ctx, id)
		switch {
		case err != nil:
			return "", c, err
		case !ok || c.Ended: // since just now
			continue
		case c.Host == "": // a client that has ended before it had cancelled it
			_, err := q.Finish(ctx, Cancelled(id))
			return Removed, c, err
		case c.Cancel:
			return Asked, c, nil
		}
		c.Cancel = true
		if _, ok, err := q.Renew(ctx, id, c, revision); err != nil || ok {
			return Asked, c, err
		}
	}
	return "", c, ctx.Err()
}
