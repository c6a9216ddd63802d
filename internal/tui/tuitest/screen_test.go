package tuitest

import "testing"

// However the output is cut into pieces, the screen is the same.
func TestOutputInPieces(t *testing.T) {
	output := []byte(
		"\x1b[?2026h\x1b[1;38;5;75m\u2500\u2500\u4e2d\x1b[m\r\n\x1b[?2026l\x1b]2;title\x07\x1b[3Cx\x1b[2by\u2500\x1b[>4;1m\x1b[?u\u2500")
	whole := newScreen(20, 4, false)
	whole.write(output)
	for size := 1; size < len(output); size++ {
		pieces := newScreen(20, 4, false)
		for rest := output; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			pieces.write(rest[:min(size, len(rest))])
		}
		if got, want := pieces.styled(), whole.styled(); got != want {
			t.Errorf("in pieces of %d got\n%swant\n%s", size, got, want)
		}
	}
	if got, want := whole.text(), "\u2500\u2500\u4e2d\n   xxxy\u2500\u2500\n\n\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
