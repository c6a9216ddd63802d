package proc

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"noused/internal/protocol"
)

const (
	// freeLine is the size, in bytes, up to which a line needs no permit.
	freeLine = 64 << 10
	// longRoom is what all children's longer lines may take together, in bytes. One
	// that may become longer than that has it alone.
	longRoom = 2 << 20
	// linePatience is how long a line that does not end may keep others waiting.
	linePatience = 10 * time.Second
)

// ErrStalled is how a long line ends that others waited for.
var ErrStalled = fmt.Errorf(
	"a line of more than %d KiB did not end within %v, and other tools' long lines wait for its room", freeLine>>10,
	linePatience)

// longLines is the room that the long lines of all children share. A line takes
// as much as it may become before it grows, so that each that has begun can end.
type longLines struct {
	free *semaphore.Weighted
	one  chan struct{} // holds one while a long line is taken in

	mu    sync.Mutex
	since map[*lineRoom]time.Time // those that have room
}

func newLongLines() *longLines {
	return &longLines{
		free: semaphore.NewWeighted(longRoom), one: make(chan struct{}, 1), since: map[*lineRoom]time.Time{},
	}
}

// turn waits until no other long line is being taken in.
func (l *longLines) turn() (done func()) {
	l.one <- struct{}{}
	return func() { <-l.one }
}

// room is for the lines of one child's output, of at most maxLine bytes. Reading
// them fails once giveUp is called.
func (l *longLines) room(maxLine int, giveUp func()) *lineRoom {
	r := &lineRoom{all: l, giveUp: giveUp, most: min(int64(maxLine), longRoom)}
	r.wanted, r.stop = context.WithCancel(context.Background())
	return r
}

// watch sees to it that somebody who waits does not wait for ever.
func (l *longLines) watch(waiting context.Context) {
	look := time.NewTicker(linePatience)
	defer look.Stop()
	for {
		select {
		case <-waiting.Done():
			return
		case <-look.C:
			l.evict()
		}
	}
}

// evict has the line that has had room for longest fail, if that is too long and
// it is the child that has not ended it.
func (l *longLines) evict() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest *lineRoom
	for r, since := range l.since {
		if r.making.Load() && (oldest == nil || since.Before(l.since[oldest])) {
			oldest = r
		}
	}
	if oldest != nil && time.Since(l.since[oldest]) >= linePatience {
		oldest.failed.Store(true)
		oldest.giveUp()
	}
}

// lineRoom is a [protocol.Room] for the lines of one child.
type lineRoom struct {
	all    *longLines
	giveUp func()
	most   int64           // what a long line takes
	wanted context.Context // done once nobody wants its lines any more
	stop   context.CancelFunc
	making atomic.Bool // its next line is waited for
	failed atomic.Bool // that line kept others waiting for too long

	held  int // bytes of its reader
	taken bool
}

// next is the next line of the child's output. What had come of one that did not
// end is no line.
func (r *lineRoom) next(lines *protocol.LineReader) ([]byte, error) {
	r.making.Store(true)
	defer r.making.Store(false)
	line, err := lines.Next()
	if r.failed.Load() {
		return nil, ErrStalled
	}
	return line, err
}

// Take waits for room where the line gets long. False: its lines are not wanted
// any more.
func (r *lineRoom) Take(n int) bool {
	if r.held+n > freeLine && !r.taken && !r.enter() {
		return false
	}
	r.held += n
	return true
}

// Give gives the room back once the long line is gone.
func (r *lineRoom) Give(n int) {
	if r.held -= n; r.held > freeLine || !r.taken {
		return
	}
	r.all.mu.Lock()
	delete(r.all.since, r)
	r.all.mu.Unlock()
	r.taken = false
	r.all.free.Release(r.most)
}

func (r *lineRoom) enter() bool {
	if !r.all.free.TryAcquire(r.most) {
		waiting, got := context.WithCancel(r.wanted)
		go r.all.watch(waiting)
		err := r.all.free.Acquire(r.wanted, r.most)
		got()
		if err != nil {
			return false
		}
	}
	r.all.mu.Lock()
	r.all.since[r] = time.Now()
	r.all.mu.Unlock()
	r.taken = true
	return true
}

// Held reads from something that is no child, such as a server elsewhere. What it
// has read takes room among the children's long lines until Drop. It belongs to
// one goroutine.
type Held struct {
	src  io.Reader
	room *lineRoom
	n    int // bytes that were read since Drop
}

// Hold returns a reader of src. Reading src fails once giveUp is called, which may
// be from any goroutine.
func (s *Supervisor) Hold(src io.Reader, most int, giveUp func()) *Held {
	return &Held{src: src, room: s.spawner.lines.room(most, giveUp)}
}

// Read reads, and waits for room where there is none.
func (h *Held) Read(p []byte) (int, error) {
	h.room.making.Store(true)
	defer h.room.making.Store(false)
	n, err := h.src.Read(p[:min(len(p), freeLine/2)])
	if h.room.failed.Load() || !h.room.Take(n) {
		return 0, ErrStalled
	}
	h.n += n
	return n, err
}

// Turn waits until no other long text is being taken in; done is to be called when
// what was read has been handed on.
func (h *Held) Turn() (done func()) {
	if h.n < freeLine {
		return func() {}
	}
	return h.room.all.turn()
}

// Drop gives the room of what was read back.
func (h *Held) Drop() {
	h.room.Give(h.n)
	h.n = 0
}

// Close gives all of it back. Nothing is read any more.
func (h *Held) Close() {
	h.room.stop()
	h.Drop()
}
