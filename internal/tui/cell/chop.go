package cell

import "github.com/charmbracelet/x/ansi"

// Chop breaks a line, which is not styled, into pieces of at most width cells,
// between characters: put together they are the line. A line of no characters is
// one piece.
func Chop(line string, width int) []string {
	if line == "" || width <= 0 {
		return []string{""}
	}
	var pieces []string
	from, used := 0, 0
	for at := 0; at < len(line); {
		cluster, w := ansi.FirstGraphemeCluster(line[at:], ansi.GraphemeWidth)
		if used+w > width && at > from {
			pieces = append(pieces, line[from:at])
			from, used = at, 0
		}
		at, used = at+len(cluster), used+w
	}
	return append(pieces, line[from:])
}
