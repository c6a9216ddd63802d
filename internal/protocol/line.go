package protocol

import (
	"bytes"
	"fmt"
	"io"
)

// DefaultMaxLine is the longest line accepted unless configured otherwise, in
// bytes without its end (wire-v1 §1).
const DefaultMaxLine = 16 << 20

// LineTooLongError reports a line over the limit, or one that has no room
// for now. The line has been discarded up to its LF; reading goes on with the
// next one.
type LineTooLongError struct {
	Limit  int
	NoRoom bool   // the budget has not so many bytes left
	Prefix []byte // the first bytes of the line, valid until the next read
}

func (e *LineTooLongError) Error() string {
	if e.NoRoom {
		return fmt.Sprintf("there is no room for a line of more than %d bytes now: others have taken it", len(e.Prefix))
	}
	return fmt.Sprintf("line is longer than %d bytes", e.Limit)
}

// Room is memory that readers share, in bytes. Take may wait until there is some;
// false: there is none, and none is taken.
type Room interface {
	Take(n int) bool
	Give(n int)
}

// LineReader yields LF-ended lines of bounded length. A trailing CR is
// stripped, empty lines are skipped, and an unfinished last line counts as a
// line. It holds at most the limit plus one read in memory, and gives a large
// buffer back once the large line is consumed. Not safe for concurrent use.
type LineReader struct {
	src     io.Reader
	max     int
	room    Room // nil: as much as it needs
	held    int  // bytes of it
	buf     []byte
	r, w    int  // unread bytes are buf[r:w]
	scanned int  // buf[r:scanned] holds no LF
	cut     bool // the last line has no end
	err     error
}

const (
	lineBuffer = 8 << 10
	keepBuffer = 256 << 10
	// readSize is the most that is read at once into a buffer of that size, so that
	// no more than that lies behind a long line.
	readSize = 64 << 10
)

// NewLineReader reads lines of at most limit bytes from src.
func NewLineReader(src io.Reader, limit int) *LineReader {
	return &LineReader{src: src, max: limit}
}

// Within has the reader take from room what it needs beyond its first 8 KiB, and
// no longer than it needs it. A line that does not fit is a
// *LineTooLongError. Close must be called when reading is over.
func (l *LineReader) Within(room Room) *LineReader {
	l.room = room
	return l
}

// Close gives the memory back. Nothing can be read any more.
func (l *LineReader) Close() {
	l.hold(0)
	l.buf, l.r, l.w, l.scanned, l.err = nil, 0, 0, 0, io.ErrClosedPipe
}

// Shrink gives up the memory of a long line that is no longer used, unless much
// has been read behind it. The last line is not valid any more.
func (l *LineReader) Shrink() {
	if len(l.buf) > lineBuffer && l.w-l.r <= lineBuffer {
		l.shrinkTo(lineBuffer)
	}
}

// shrinkTo moves what is unread into a buffer of that size, which is no more than
// the reader has.
func (l *LineReader) shrinkTo(size int) {
	rest := make([]byte, size)
	l.scanned -= l.r
	l.w, l.r = copy(rest, l.buf[l.r:l.w]), 0
	l.buf = rest
	l.hold(size - lineBuffer)
}

// Next returns the next line, valid until the following call. It blocks as src
// does. Errors are those of src, or a *LineTooLongError after which Next may
// be called again.
func (l *LineReader) Next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:l.w], '\n'); i >= 0 {
			end := l.scanned + i
			line := bytes.TrimSuffix(l.buf[l.r:end], []byte{'\r'})
			l.r, l.scanned, l.cut = end+1, end+1, false
			switch {
			case len(line) > l.max:
				return nil, l.tooLong(line)
			case len(line) > 0:
				return line, nil
			}
			continue
		}
		l.scanned = l.w
		if l.w-l.r > l.max+1 { // one more for a CR
			return nil, l.discard(false)
		}
		if l.err != nil {
			line := bytes.TrimSuffix(l.buf[l.r:l.w], []byte{'\r'})
			l.r, l.cut = l.w, true
			switch {
			case len(line) > l.max:
				return nil, l.tooLong(line)
			case len(line) > 0:
				return line, nil
			}
			return nil, l.err
		}
		if !l.fill() {
			return nil, l.discard(true)
		}
	}
}

// Cut reports whether the line that Next returned last is an unfinished one.
func (l *LineReader) Cut() bool { return l.cut }

// More reports whether a further whole line is in memory, so that Next will
// not block. An empty line is none.
func (l *LineReader) More() bool {
	for {
		end := bytes.IndexByte(l.buf[l.r:l.w], '\n')
		switch {
		case end < 0:
			return false
		case end > 1, end == 1 && l.buf[l.r] != '\r':
			return true
		}
		l.r += end + 1
		l.scanned = max(l.scanned, l.r)
	}
}

func (l *LineReader) tooLong(line []byte) *LineTooLongError {
	return &LineTooLongError{Limit: l.max, Prefix: line[:min(len(line), 1<<10)]}
}

func (l *LineReader) discard(noRoom bool) error {
	e := l.tooLong(bytes.Clone(l.buf[l.r:min(l.w, l.r+1<<10)]))
	e.NoRoom = noRoom
	for l.err == nil {
		l.r, l.w, l.scanned = 0, 0, 0
		l.fill()
		if i := bytes.IndexByte(l.buf[:l.w], '\n'); i >= 0 {
			l.r, l.scanned = i+1, i+1
			return e
		}
	}
	l.r, l.w, l.scanned = 0, 0, 0
	return e
}

// fill makes room and reads once. False: there is no room.
func (l *LineReader) fill() bool {
	switch {
	case l.held > 0 && len(l.buf) > readSize && l.r > 0 && l.w > l.r && l.w-l.r <= readSize: // others may need it
		l.shrinkTo(readSize)
	case l.r > 0:
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.scanned -= l.r
		l.r = 0
	}
	switch {
	case l.w == 0 && (len(l.buf) > keepBuffer || l.held > 0):
		l.Shrink()
	case l.w == len(l.buf):
		size := max(lineBuffer, min(2*len(l.buf), l.max+lineBuffer))
		if !l.hold(size - lineBuffer) {
			return false
		}
		grown := make([]byte, size)
		copy(grown, l.buf)
		l.buf = grown
	}
	l.read()
	return true
}

// hold has n bytes of the room taken.
func (l *LineReader) hold(n int) bool {
	if n > l.held {
		if l.room != nil && !l.room.Take(n-l.held) {
			return false
		}
	} else if l.room != nil && n < l.held {
		l.room.Give(l.held - n)
	}
	l.held = n
	return true
}

func (l *LineReader) read() {
	for tries := 0; ; tries++ {
		n, err := l.src.Read(l.buf[l.w:min(len(l.buf), l.w+readSize)])
		l.w += n
		if err != nil {
			l.err = err
		} else if n == 0 && tries < 100 {
			continue
		} else if n == 0 {
			l.err = io.ErrNoProgress
		}
		return
	}
}
