package terminal

import (
	"bytes"
	"io"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// margins is a terminal that scrolls as a whole whenever bubbletea draws it from
// scratch, as it does after each change of its size. To move lines, bubbletea's
// renderer makes a part of the screen the one that scrolls, and then the whole
// of it, by the number of rows that it knows. A terminal that has more by then
// would keep that part (as in charmbracelet/x, issue 974), its rows below out of
// reach, and everything drawn from then on would be in the wrong place: see
// scrolln in ultraviolet's terminal_renderer_hardscroll.go, the same in the
// newest version, 6b8d4baf91b4.
type margins struct{ term.File }

const (
	cleared      = ansi.CursorHomePosition + ansi.EraseEntireScreen // by the renderer alone
	resetMargins = "\x1b[r"                                         // and the cursor to the first column of the first row
)

// Write is term.File.Write. The renderer writes each frame at once.
func (m margins) Write(p []byte) (int, error) {
	whole := p
	if bytes.Contains(p, []byte(cleared)) {
		whole = bytes.ReplaceAll(p, []byte(cleared), []byte(resetMargins+cleared))
	}
	if n, err := m.File.Write(whole); err != nil {
		return min(n, len(p)), err
	}
	return len(p), nil
}

// Output writes to a terminal so that it always scrolls as a whole, and to anything else as it is.
func Output(out io.Writer) io.Writer {
	if f, ok := out.(term.File); ok {
		return margins{f}
	}
	return out
}
