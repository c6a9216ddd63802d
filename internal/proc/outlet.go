package proc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stderrTail is how much of a child's stderr is kept, in bytes.
	stderrTail = 64 << 10
	// maxPipe bounds what is read of a pipe after its time is up: no pipe of an
	// ordinary user holds more.
	maxPipe = 1 << 20
	// lineSlack is how far a line may grow over its limit before the reader is
	// told; it covers what the line reader has in hand.
	lineSlack = 64 << 10
)

var errEndlessLine = errors.New("line without an end")

// outlet is the daemon's end of a child's stdout or stderr. It ends at EOF or,
// some time after the child has exited, when the pipe is found empty: somebody
// else who holds it is not waited for. One goroutine reads at a time.
type outlet struct {
	file    *os.File
	maxLine int // 0: lines are of no interest
	run     int // bytes since the last LF
	rest    int // bytes that may still be read, once expired
	expired bool
	paused  atomic.Bool // nothing more is to be read
	ended   chan struct{}
	end     sync.Once
}

func newOutlet(f *os.File, maxLine int) *outlet {
	return &outlet{file: f, maxLine: maxLine, rest: maxPipe, ended: make(chan struct{})}
}

// giveUp takes what is in the pipe for all that there will be.
func (o *outlet) giveUp() { o.file.SetReadDeadline(time.Now()) }

// expire gives the pipe that long to reach its EOF.
func (o *outlet) expire(d time.Duration) { o.file.SetReadDeadline(time.Now().Add(d)) }

// Read fails for good when a line has gone far over its limit, as the line
// reader would otherwise look for its end as long as there is no end.
func (o *outlet) Read(b []byte) (int, error) {
	if o.maxLine > 0 && o.run > o.maxLine+lineSlack {
		return 0, errEndlessLine
	}
	n, err := o.read(b)
	if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
		o.run = n - i - 1
	} else {
		o.run += n
	}
	return n, err
}

func (o *outlet) read(b []byte) (int, error) {
	n, err := 0, error(nil)
	if o.paused.Load() {
		return 0, ErrPaused
	}
	if !o.expired {
		n, err = o.file.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if o.paused.Load() {
				return n, ErrPaused
			}
			o.expired = true
			o.file.SetReadDeadline(time.Time{})
		}
	}
	if o.expired {
		n, err = o.readNow(b)
	}
	if err != nil {
		o.end.Do(func() { close(o.ended) })
	}
	return n, err
}

// readNow reads what is in the pipe, and takes an empty pipe for its end.
func (o *outlet) readNow(b []byte) (n int, err error) {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err := conn.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), b[:min(len(b), o.rest)])
		return true
	}); err != nil {
		return 0, err
	}
	if err != nil || n <= 0 {
		return 0, io.EOF
	}
	o.rest -= n
	return n, nil
}

// drain reads to the end, into w if there is one.
func (o *outlet) drain(w *tail) {
	buf := make([]byte, 16<<10)
	for {
		n, err := o.read(buf)
		if w != nil {
			w.write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf = append(t.buf, b...); len(t.buf) > 2*stderrTail { // moved seldom
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-stderrTail:]...)
	}
}

func (t *tail) text(limit int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	if limit = min(limit, stderrTail); len(b) > limit {
		b = b[len(b)-limit:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i < len(b)-1 {
			b = b[i+1:]
		}
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "\uFFFD")
}
