package builtin

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxNews is how much output one log tells, in bytes. With more between two
// logs, the middle is left out of them; the result has its own measure.
const maxNews = 8 << 10

// output collects what a command writes: the last of it for the result, and
// what is new for the logs.
type output struct {
	mu    sync.Mutex
	tail  []byte // of what was written, more than maxText if there was more
	size  int    // bytes written
	lines int    // LF written
	whole spill  // all of it, once tail is not

	fresh   []byte // not told yet
	skipped int    // bytes that will not be told, after fresh
}

// readFrom reads until an error, of which the end is one.
func (o *output) readFrom(r io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		o.write(buf[:n])
		if err != nil {
			return
		}
	}
}

func (o *output) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size > len(o.tail) { // some is gone from the tail
		o.whole.write(b)
	} else if len(o.tail)+len(b) > 2*maxText {
		o.whole.write(o.tail)
		o.whole.write(b)
	}
	o.size += len(b)
	o.lines += bytes.Count(b, []byte("\n"))
	if o.tail = append(o.tail, b...); len(o.tail) > 2*maxText {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-maxText-1:]...)
	}
	if room := maxNews - len(o.fresh); o.skipped == 0 && len(b) <= room {
		o.fresh = append(o.fresh, b...)
	} else if o.skipped == 0 {
		o.fresh = append(o.fresh, b[:room]...)
		o.skipped = len(b) - room
	} else {
		o.skipped += len(b)
	}
}

// news returns what has not been told yet, in whole lines; a line too long to
// wait for comes in parts, between characters.
func (o *output) news() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := bytes.LastIndexByte(o.fresh, '\n') + 1
	if end == 0 && len(o.fresh) == maxNews {
		end = len(wholeRunes(o.fresh))
	}
	if o.skipped == 0 {
		return o.takeText(end)
	}
	return o.takeText(end) + o.skip(len(o.fresh))
}

// rest returns all that has not been told.
func (o *output) rest() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.skipped > 0 {
		end := bytes.LastIndexByte(o.fresh, '\n') + 1
		if end == 0 {
			end = len(wholeRunes(o.fresh))
		}
		return o.takeText(end) + o.skip(len(o.fresh))
	}
	return o.takeText(len(o.fresh))
}

func (o *output) takeText(n int) string {
	text := strings.ToValidUTF8(strings.TrimSuffix(string(o.fresh[:n]), "\n"), "\uFFFD")
	o.fresh = append(o.fresh[:0], o.fresh[n:]...)
	return text
}

// skip leaves out the first n of fresh and all that was skipped after it.
func (o *output) skip(n int) string {
	note := fmt.Sprintf("\n[%d bytes not shown]", n+o.skipped)
	o.fresh, o.skipped = o.fresh[:0], 0
	return note
}

// text is the last of the output, and before it what was cut.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	start := lastStart(o.tail)
	shown := o.tail[start:]
	all := strings.TrimRight(strings.ToValidUTF8(string(shown), "\uFFFD"), "\n")
	cut := o.size - len(shown)
	if cut == 0 {
		return all
	}
	if o.size == len(o.tail) {
		o.whole.write(o.tail)
	}
	return fmt.Sprintf("[the first %d of %d bytes are cut, %d of %d lines%s]\n%s",
		cut, o.size, o.lines-bytes.Count(shown, []byte("\n")), o.lines, o.whole.note(o.size), all)
}

// lastStart is where the part of b begins that is at most maxText bytes and
// maxLines lines long: at a line, or in a long line at a character.
func lastStart(b []byte) int {
	start, n := len(bytes.TrimSuffix(b, []byte("\n"))), 0
	for ; n < maxLines && start >= 0; n++ {
		start = bytes.LastIndexByte(b[:start], '\n')
	}
	start++
	if len(b)-start <= maxText {
		return start
	}
	start = len(b) - maxText
	if b[start-1] == '\n' {
		return start
	}
	if i := bytes.IndexByte(b[start:], '\n'); i >= 0 && i < maxText/2 {
		return start + i + 1
	}
	for start < len(b) && !utf8.RuneStart(b[start]) {
		start++
	}
	return start
}
