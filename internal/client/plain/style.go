package plain

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// WidthOf is how wide the terminal is that is written to.
func WidthOf(w io.Writer) int {
	width, _ := SizeOf(w)
	return width
}

func SizeOf(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col), max(int(size.Row), 4)
		}
	}
	return 80, 24
}

func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// HideInput keeps a terminal from showing what is written, until show is called. What was
// written before stays readable.
func HideInput(terminal *os.File) (show func() error, err error) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	hidden.Lflag |= unix.ICANON | unix.ISIG
	hidden.Iflag |= unix.ICRNL
	return func() error { return unix.IoctlSetTermios(fd, unix.TCSETS, before) },
		unix.IoctlSetTermios(fd, unix.TCSETS, &hidden)
}

// Style colours text, or leaves it alone.
type Style struct{ Terminal, Colour bool }

func StyleFor(w io.Writer) Style {
	terminal := IsTerminal(w)
	return Style{terminal, terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// The looks that a text may have on a terminal.
const (
	Bold  = "1"
	Dim   = "2"
	Red   = "31"
	Green = "32"
)

func (s Style) Paint(look, text string) string {
	if !s.Colour || text == "" || look == "" {
		return text
	}
	return "\x1b[" + look + "m" + text + "\x1b[0m"
}

// Span is a piece of a line, and its look.
type Span struct{ Text, Look string }
