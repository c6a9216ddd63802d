package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"noused/internal/protocol"
)

// readText joins the arguments, or reads standard input when they are "-" or
// when there are none and it is no terminal.
func (a *app) readText(args []string) (string, error) {
	if len(args) > 0 && !(len(args) == 1 && args[0] == "-") {
		return checkText(strings.Join(args, " "))
	}
	if len(args) == 0 && isTerminal(a.in) {
		return "", usagef("no text: give it as arguments or on standard input")
	}
	data, err := io.ReadAll(io.LimitReader(a.in, protocol.DefaultMaxLine+1))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(data) > protocol.DefaultMaxLine {
		return "", usagef("the text on standard input is longer than %d bytes", protocol.DefaultMaxLine)
	}
	return checkText(strings.TrimRight(string(data), "\r\n"))
}

func checkText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", &usageError{errors.New("the text is not valid UTF-8")}
	}
	if text == "" {
		return "", &usageError{errors.New("the text is empty")}
	}
	return text, nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// style colours text, or leaves it alone.
type style struct{ terminal, colour bool }

func styleFor(w io.Writer) style {
	terminal := isTerminal(w)
	return style{terminal, terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string  { return s.paint("1", text) }
func (s style) dim(text string) string   { return s.paint("2", text) }
func (s style) red(text string) string   { return s.paint("31", text) }
func (s style) green(text string) string { return s.paint("32", text) }

// escapes are the terminal sequences tools and models like to send.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(\x07|\x1b\\\\)?|\x1b[@-Z\\\\^_]")

// clean takes out what would let somebody else's text drive the terminal.
func clean(text string) string {
	if strings.IndexFunc(text, forbidden) < 0 {
		return text
	}
	text = escapes.ReplaceAllString(text, "")
	return strings.Map(func(r rune) rune {
		if forbidden(r) {
			return -1
		}
		return r
	}, text)
}

// forbidden are control characters, and those that reorder a line.
func forbidden(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// oneLine is text without line breaks, cut to at most width runes.
func oneLine(text string, width int) string {
	const perRune = utf8.UTFMax
	if cut := (width + 1) * perRune * 2; len(text) > cut {
		text = text[:cut]
	}
	text = strings.Join(strings.Fields(clean(strings.ToValidUTF8(text, ""))), " ")
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// firstLines is text's first n lines and how many were left out.
func firstLines(text string, n int) (head string, left int) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= n {
		return strings.Join(lines, "\n"), 0
	}
	return strings.Join(lines[:n], "\n"), len(lines) - n
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(text, "\n", "\n"+by)
}

// table aligns rows in columns two spaces apart; the last column is as long as
// it likes.
func table(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		lines[n] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// printTable prints rows under a header.
func (a *app) printTable(header []string, rows [][]string) {
	for i, line := range table(append([][]string{header}, rows...)) {
		if i == 0 {
			line = a.outStyle.dim(line)
		}
		a.println(line)
	}
}

// printPairs prints aligned key: value lines.
func (a *app) printPairs(pairs [][2]string) {
	rows := make([][]string, len(pairs))
	for i, p := range pairs {
		rows[i] = []string{p[0] + ":", p[1]}
	}
	for _, line := range table(rows) {
		a.println(line)
	}
}
