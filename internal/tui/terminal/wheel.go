package terminal

import (
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
}

// Read is os.File.Read.
func (w wheeled) Read(p []byte) (int, error) {
	n, err := w.File.Read(p)
	if w.arrows.Load() {
		n = asWheel(p[:n])
	}
	return n, err
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
		return wheeled{f, arrows}
	}
	return in
}
