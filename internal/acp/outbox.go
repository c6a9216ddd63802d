package acp

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxUnread is what a client may leave unread, in bytes.
	maxUnread = 4 << 20
	// calmUnread is when a long replay goes on.
	calmUnread = 512 << 10
	// patience is how long a replay waits for a client that reads nothing at all.
	patience = 30 * time.Second
	// farewell is how long what waits is still written at the end.
	farewell = 2 * time.Second
)

// UnreadError says that a client does not read. It may still be told nothing: what
// waits for it is thrown away.
type UnreadError struct{ Bytes int }

func (e *UnreadError) Error() string {
	return fmt.Sprintf("the client has left %d bytes unread", e.Bytes)
}

// outbox holds lines until they are written. Those who put lines never wait; a
// reader that lets too much pile up is given up.
type outbox struct {
	lost chan struct{} // closed with err
	idle chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	more    *sync.Cond
	queue   [][]byte
	unread  int // bytes of queue and of what is being written
	longest int // of the lines there, in bytes, or more
	wrote   chan struct{}
	closed  bool
	err     error
}

func newOutbox(w io.Writer) *outbox {
	o := &outbox{lost: make(chan struct{}), idle: make(chan struct{}), wrote: make(chan struct{})}
	o.more = sync.NewCond(&o.mu)
	go o.write(w)
	return o
}

// put adds a line. One line may be longer than what may be unread, and others wait behind it.
func (o *outbox) put(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil || o.closed:
	case o.unread-o.longest > maxUnread:
		o.giveUp(&UnreadError{o.unread})
	default:
		o.queue = append(o.queue, line)
		o.unread += len(line)
		o.longest = max(o.longest, len(line))
		o.more.Signal()
	}
}

// write ends when the outbox is closed and empty, or with an error. A Write that
// nobody reads outlives it; the program's end ends that.
func (o *outbox) write(w io.Writer) {
	defer close(o.idle)
	for {
		lines := o.takeLines()
		if lines == nil {
			return
		}
		n, err := w.Write(lines)
		o.mu.Lock()
		o.unread -= n
		o.longest = min(o.longest, o.unread)
		close(o.wrote)
		o.wrote = make(chan struct{})
		if err != nil {
			o.giveUp(fmt.Errorf("write: %w", err))
		}
		o.mu.Unlock()
	}
}

// batch is how much is written at once at most, unless one line is longer.
const batch = 64 << 10

// takeLines waits for lines; nil is the end.
func (o *outbox) takeLines() (lines []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 && !o.closed && o.err == nil {
		o.more.Wait()
	}
	if o.err != nil {
		return nil
	}
	n := 0
	for n < len(o.queue) && (n == 0 || len(lines)+len(o.queue[n]) <= batch) {
		if n == 0 && (len(o.queue) == 1 || len(o.queue[0]) >= batch) {
			lines = o.queue[0]
		} else {
			lines = append(lines, o.queue[n]...)
		}
		o.queue[n] = nil
		n++
	}
	o.queue = o.queue[n:]
	return lines
}

func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.giveUp(err)
}

// giveUp is called under the lock.
func (o *outbox) giveUp(err error) {
	if o.err == nil {
		o.err, o.queue = err, nil
		close(o.lost)
		o.more.Signal()
	}
}

func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *outbox) state() (unread int, wrote chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unread, o.wrote, o.err
}

func (o *outbox) calm(ctx context.Context) error {
	for {
		unread, wrote, err := o.state()
		if err != nil || unread <= calmUnread {
			return err
		}
		stuck := time.NewTimer(patience)
		select {
		case <-wrote:
		case <-o.lost:
		case <-stuck.C:
			o.fail(&UnreadError{unread})
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		stuck.Stop()
		if err != nil {
			return err
		}
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.more.Signal()
	o.mu.Unlock()
	bye := time.NewTimer(farewell)
	defer bye.Stop()
	select {
	case <-o.idle:
	case <-o.lost:
	case <-bye.C:
	}
}
