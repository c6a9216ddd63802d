package terminal

import (
	"bytes"
	"io"
	"os"
	"slices"
	"sync/atomic"
)

// Selects tells whether the terminal lets the user select text with Shift held
// while a program has the mouse. Apple's wants another key, and the console of
// Linux has none.
func Selects(getenv func(string) string) bool {
	return getenv("TERM") != "linux" && getenv("TERM_PROGRAM") != "Apple_Terminal"
}

// wheeled is a terminal whose wheel, while the mouse is the terminal's own, is
// arrow keys: many have it so on the screen that nous uses (DECSET 1007). A
// terminal writes the keys of one step at once, more quickly than anybody
// presses them; what was read together and is nothing but such keys becomes
// reports of a wheel.
type wheeled struct {
	*os.File
	arrows *atomic.Bool
	cut    []byte // the beginning of a sequence whose end has not been read
}

// Read is os.File.Read, but nothing of a sequence of a terminal comes before all of it: it may
// have read nothing then, without an error.
func (w *wheeled) Read(p []byte) (int, error) {
	n := copy(p, w.cut)
	w.cut = w.cut[n:]
	more, err := w.File.Read(p[n:])
	n += more
	if w.arrows.Load() {
		n = asWheel(p[:n])
	}
	if err == nil {
		whole := n - unfinished(p[:n])
		w.cut, n = append([]byte(nil), p[whole:n]...), whole
	}
	return n, err
}

const (
	// longestSequence is how much of one is waited for, in bytes.
	longestSequence = 64
	// burst is how much nobody presses at once: more is to come where it ends within a
	// sequence.
	burst = 1 << 10
)

// unfinished is how many bytes at the end of what was read begin a control sequence (ECMA-48,
// 5.4) that has a parameter and no end. The library would take it for keys that were pressed,
// 50 ms later. A lone Escape, or one with a bracket, is a key.
func unfinished(read []byte) int {
	at := bytes.LastIndexByte(read, '\x1b')
	if at < 0 || len(read)-at > longestSequence {
		return 0
	}
	switch tail := read[at+1:]; {
	case len(tail) == 0, len(tail) == 1 && tail[0] == '[':
		if len(read) < burst {
			return 0
		}
	case tail[0] != '[' || bytes.ContainsFunc(tail[1:], func(r rune) bool { return r < ' ' || r > '?' }):
		return 0
	}
	return len(read) - at
}

// The keys that a wheel may be, in both modes of a keyboard, and the shorter form
// of the reports of one: button 64 or 65 at the first cell.
var (
	arrowUp, arrowDown = []string{"\x1b[A", "\x1bOA"}, []string{"\x1b[B", "\x1bOB"}
	wheelUp, wheelDown = "\x1b[M`!!", "\x1b[Ma!!"
)

// asWheel writes the steps of a wheel over two arrow keys or more, if that is
// all that was read, and returns their length, which is no greater.
func asWheel(read []byte) int {
	const size = 3 // bytes of a key
	down, keys := 0, len(read)/size
	for key := range slices.Chunk(read, size) {
		switch text := string(key); {
		case text == arrowUp[0] || text == arrowUp[1]:
			down--
		case text == arrowDown[0] || text == arrowDown[1]:
			down++
		default:
			return len(read)
		}
	}
	report := wheelDown
	if down < 0 {
		report, down = wheelUp, -down
	}
	if keys < 2 || down == 0 {
		return len(read)
	}
	n := 0
	for range max((down+1)/WheelLines, 1) {
		n += copy(read[n:], report)
	}
	return n
}

// WheelLines is how far one step of the wheel scrolls.
const WheelLines = 3

// Input reads a terminal, or what it is given, whose wheel is arrow keys while arrows holds.
func Input(in io.Reader, arrows *atomic.Bool) io.Reader {
	if in == nil {
		in = os.Stdin
	}
	if f, ok := in.(*os.File); ok {
		return &wheeled{File: f, arrows: arrows}
	}
	return in
}
