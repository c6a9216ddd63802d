// Package plain is what nous shows without a screen: lines, tables and colours on a terminal or
// in a pipe, and what the things of a daemon look like in them.
//
// Its functions are pure, but for those of Printer, which belongs to one goroutine at a time. It
// refuses to ask a daemon anything, and to let a text of somebody else drive a terminal.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// CutLine is a line cut to a width.
func CutLine(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:max(width-1, 0)]) + "…"
	}
	return line
}

// Days is a duration as days, or less than one as hours.
func Days(d time.Duration) string {
	if days := int(d / (24 * time.Hour)); days > 0 {
		return strconv.Itoa(days) + "d"
	}
	return strconv.Itoa(max(0, int(d/time.Hour))) + "h"
}

// continued begins what is left of a line that is wider than the terminal. No line of
// an approval does.
const continued = "  ⤷ "

// Fold are the lines of a text in a width: what a terminal broke by itself would
// begin where the approval's own lines do.
func Fold(text string, width int) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		first := cell.Chop(line, width)[0]
		out.WriteString(first + "\n")
		if rest := line[len(first):]; rest != "" {
			for _, piece := range cell.Chop(rest, width-cell.Width(continued)) {
				out.WriteString(continued + piece + "\n")
			}
		}
	}
	return out.String()
}

func Stamp(at time.Time) string { return at.Local().Format(time.DateTime) }

// Lasting is a time in its two largest units.
func Lasting(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// OneLine is text without line breaks, cut to at most width runes.
func OneLine(text string, width int) string {
	text = text[:min(len(text), (width+1)*utf8.UTFMax*2)]
	return format.Fit(strings.Join(strings.Fields(plaintext.Clean(text)), " "), width)
}

// CodedLine is a message in one line of about width columns, with its code behind it.
func CodedLine[S ~string](code S, message string, width int) string {
	return protocol.Coded(OneLine(string(code), width), OneLine(message, width))
}

// FirstLines is text's first n lines and how many were left out.
func FirstLines(text string, n int) (head string, left int) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= n {
		return strings.Join(lines, "\n"), 0
	}
	return strings.Join(lines[:n], "\n"), len(lines) - n
}

// Cell is what a table has in a cell: one line.
func Cell(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(plaintext.Clean(text))
}

// Table aligns rows in columns two spaces apart; the last column is as long as
// it likes. The rows' cells become one line each.
func Table(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			row[i] = Cell(cell)
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

func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// AlignRight makes the cells of some columns end in the same place.
func AlignRight(rows [][]string, from, to int) [][]string {
	for i := from; i < to; i++ {
		width := 0
		for _, row := range rows {
			width = max(width, len(row[i]))
		}
		for _, row := range rows {
			row[i] = strings.Repeat(" ", width-len(row[i])) + row[i]
		}
	}
	return rows
}

const LineWidth = 100
