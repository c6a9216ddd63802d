package protocol

import (
	"bytes"
	"fmt"
	"io"
)

// DefaultMaxLine is the longest line accepted unless configured otherwise, in
// bytes without its end (wire-v1 §1).
const DefaultMaxLine = 16 << 20

// LineTooLongError reports a line over the limit. The line has been discarded
// up to its LF; reading goes on with the next one.
type LineTooLongError struct {
	Limit  int
	Prefix []byte // the first bytes of the line, valid until the next read
}

func (e *LineTooLongError) Error() string {
	return fmt.Sprintf("line is longer than %d bytes", e.Limit)
}

// LineReader yields LF-ended lines of bounded length. A trailing CR is
// stripped, empty lines are skipped, and an unfinished last line counts as a
// line. It holds at most the limit plus one read in memory, and gives a large
// buffer back once the large line is consumed. Not safe for concurrent use.
type LineReader struct {
	src     io.Reader
	max     int
	buf     []byte
	r, w    int // unread bytes are buf[r:w]
	scanned int // buf[r:scanned] holds no LF
	err     error
}

const (
	lineBuffer = 8 << 10
	keepBuffer = 256 << 10
)

// NewLineReader reads lines of at most limit bytes from src.
func NewLineReader(src io.Reader, limit int) *LineReader {
	return &LineReader{src: src, max: limit}
}

// Next returns the next line, valid until the following call. It blocks as src
// does. Errors are those of src, or a *LineTooLongError after which Next may
// be called again.
func (l *LineReader) Next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scanned:l.w], '\n'); i >= 0 {
			end := l.scanned + i
			line := bytes.TrimSuffix(l.buf[l.r:end], []byte{'\r'})
			l.r, l.scanned = end+1, end+1
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
			return nil, l.discard()
		}
		if l.err != nil {
			line := bytes.TrimSuffix(l.buf[l.r:l.w], []byte{'\r'})
			l.r = l.w
			switch {
			case len(line) > l.max:
				return nil, l.tooLong(line)
			case len(line) > 0:
				return line, nil
			}
			return nil, l.err
		}
		l.fill()
	}
}

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

func (l *LineReader) discard() error {
	e := l.tooLong(bytes.Clone(l.buf[l.r:min(l.w, l.r+1<<10)]))
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

// fill makes room and reads once.
func (l *LineReader) fill() {
	if l.r > 0 {
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.scanned -= l.r
		l.r = 0
	}
	switch {
	case l.w == 0 && len(l.buf) > keepBuffer:
		l.buf = make([]byte, lineBuffer)
	case l.w == len(l.buf):
		grown := make([]byte, max(lineBuffer, min(2*len(l.buf), l.max+lineBuffer)))
		copy(grown, l.buf)
		l.buf = grown
	}
	for tries := 0; ; tries++ {
		n, err := l.src.Read(l.buf[l.w:])
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
