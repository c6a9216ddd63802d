package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"noused/internal/format"
	"noused/internal/plaintext"
)

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

// The looks that a text may have on a terminal.
const (
	asBold  = "1"
	asDim   = "2"
	asRed   = "31"
	asGreen = "32"
)

func (s style) paint(look, text string) string {
	if !s.colour || text == "" || look == "" {
		return text
	}
	return "\x1b[" + look + "m" + text + "\x1b[0m"
}

// span is a piece of a line, and its look.
type span struct{ text, look string }

// fit is text as it goes to standard output: without what would let somebody
// else's text drive the terminal, unless --raw asks for it.
func (a *app) fit(text string) string {
	if a.raw {
		return text
	}
	return plaintext.Text(text)
}

func (a *app) print(text string) { io.WriteString(a.out, a.fit(text)) }

func (a *app) println(text string) { a.printSpans(span{text: text}) }

func (a *app) printSpans(spans ...span) {
	var line strings.Builder
	for _, s := range spans {
		line.WriteString(a.outStyle.paint(s.look, a.fit(s.text)))
	}
	io.WriteString(a.out, line.String()+"\n")
}

// printJSON prints a JSON text of equal value on a line of its own.
func (a *app) printJSON(value []byte) {
	a.out.Write(plaintext.JSON(value))
	io.WriteString(a.out, "\n")
}

// rawFlag is for commands that print whole texts.
func (a *app) rawFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.raw, "raw", false, "print texts as they are, with what could drive a terminal")
}

// oneLine is text without line breaks, cut to at most width runes.
func oneLine(text string, width int) string {
	text = text[:min(len(text), (width+1)*utf8.UTFMax*2)]
	return format.Fit(strings.Join(strings.Fields(plaintext.Clean(text)), " "), width)
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

// cellText is what a table has in a cell: one line.
func cellText(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(plaintext.Clean(text))
}

// table aligns rows in columns two spaces apart; the last column is as long as
// it likes. The rows' cells become one line each.
func table(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			row[i] = cellText(cell)
			cell = row[i]
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
		look := ""
		if i == 0 {
			look = asDim
		}
		a.printSpans(span{line, look})
	}
}

// printPairs prints aligned key: value lines; a value may go over several.
func (a *app) printPairs(pairs [][2]string) {
	keys := make([][]string, len(pairs))
	for i, p := range pairs {
		keys[i] = []string{p[0] + ":", "|"}
	}
	for i, line := range table(keys) {
		a.println(strings.TrimRight(strings.TrimSuffix(line, "|")+pairs[i][1], " "))
	}
}
