package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxRecord is the longest line that a journal may have, in bytes.
const maxRecord = 64 << 20

// maxLine is how much is looked at for the end of a line that is too long, in bytes. A
// file of holes can be as long as the disk never was: it is neither read to its end nor
// copied.
const maxLine = 2 * maxRecord

// maxReused is the longest line, in bytes, whose memory is used for the next one.
const maxReused = 4 << 20

var (
	errLong    = fmt.Errorf("the line is longer than %d bytes", maxRecord)
	errNul     = errors.New("the line has a NUL byte: it is a hole, which a file system may leave where power failed")
	errEndless = fmt.Errorf("a line has no end within %d bytes: cut it out, or move the journal away", maxLine)
)

// lineReader reads a journal's lines one after the other, and holds at most one of
// them, of at most maxRecord bytes. Make it with newLineReader.
type lineReader struct {
	in   *bufio.Reader
	long []byte // a line that in has no room for
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{in: bufio.NewReaderSize(r, 64<<10)} }

func (l *lineReader) reset(r io.Reader) { l.in.Reset(r) }

// next returns a line without its LF, valid until the next call, and how many
// bytes it took. errLong comes in the place of one that is too long, errNul in that of a
// long one with a NUL byte, which is not kept, io.EOF at the end; what stands there without an LF
// has only a size. After errEndless there is nothing more to be had.
func (l *lineReader) next() (line []byte, size int64, err error) {
	if cap(l.long) > maxReused {
		l.long = nil
	}
	l.long = l.long[:0]
	hole := false
	for {
		part, err := l.in.ReadSlice('\n')
		size += int64(len(part))
		whole := err == nil
		hole = hole || size > int64(len(part)) && bytes.IndexByte(part, 0) >= 0
		switch {
		case !whole && !errors.Is(err, bufio.ErrBufferFull):
			return nil, size, err
		case whole && size > maxRecord:
			return nil, size, errLong
		case size > maxLine:
			return nil, size, errEndless
		case whole && hole:
			return nil, size, errNul
		case whole && size == int64(len(part)):
			return part[:len(part)-1], size, nil
		case size > maxRecord, hole:
			l.long = nil
		default:
			l.long = append(l.long, part...)
		}
		if whole {
			return l.long[:len(l.long)-1], size, nil
		}
	}
}
