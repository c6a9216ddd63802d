package builtin

import (
	"errors"
	"fmt"
	"strings"

	"noused/internal/format"
)

const (
	// compared bounds the search for a similar line: lines, and characters of
	// each.
	comparedLines, comparedText = 5000, 160
	// nearLines is how many lines are shown of what is similar.
	nearLines = 12
)

// notFound says where something similar is, and shows the lines that are there.
func notFound(content, before string) error {
	const failure = "old_text was not found"
	rows, want := strings.Split(content, "\n"), strings.Split(strings.Trim(before, "\r\n"), "\n")
	why, line := nearMiss(rows, want)
	if why == "" {
		return errors.New(failure)
	}
	return fmt.Errorf("%s; %s\n%s", failure, why, numbered(rows, line, len(want)))
}

// nearMiss says in words how the wanted lines differ from those that are most
// like them, and with which line these begin. It is "" where nothing is alike.
func nearMiss(rows, want []string) (why string, line int) {
	if n := looseMatch(rows, want); n > 0 {
		return fmt.Sprintf("line %d has it with other white space: %s", n, quoted(rows[n-1])), n
	}
	first, skipped := "", 0
	for skipped = range want {
		if first = strings.TrimSpace(want[skipped]); first != "" {
			break
		}
	}
	if first == "" {
		return "", 0
	}
	n, far := nearest(rows, first)
	switch {
	case n == 0:
		return "", 0
	case far > 0:
		return fmt.Sprintf("the most similar line is %d: %s", n, quoted(rows[n-1])), n
	}
	at := n
	for i := skipped; i < len(want) && at <= len(rows) && squeeze(want[i]) == squeeze(rows[at-1]); i++ {
		at++
	}
	if at > len(rows) {
		return fmt.Sprintf("it begins like line %d, but the file ends before it does", n), n
	}
	return fmt.Sprintf("it begins like line %d, but line %d is %s", n, at, quoted(rows[at-1])), n
}

func quoted(row string) string {
	return fmt.Sprintf("%q", format.Fit(strings.TrimSuffix(row, "\r"), comparedText))
}

// numbered are n lines from the given one on, some of them where that is many, as
// read shows them.
func numbered(rows []string, line, n int) string {
	out := "the file has there:"
	rows = rows[line-1:]
	for i, row := range rows[:min(len(rows), n, nearLines)] {
		out += fmt.Sprintf("\n%6d\t%s", line+i, format.Fit(strings.TrimSuffix(row, "\r"), comparedText))
	}
	return out
}

// looseMatch returns the number of the line where the wanted lines are, white
// space aside, or 0.
func looseMatch(rows, want []string) int {
	loose := make([]string, len(want))
	for i, w := range want {
		loose[i] = squeeze(w)
	}
	if strings.Join(loose, "") == "" {
		return 0
	}
	for n := range rows {
		if len(rows)-n < len(want) {
			break
		}
		fits := true
		for i := 0; i < len(want) && fits; i++ {
			fits = squeeze(rows[n+i]) == loose[i]
		}
		if fits {
			return n + 1
		}
	}
	return 0
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// nearest returns the number of the line most similar to text and how far it
// is from it, or 0.
func nearest(rows []string, text string) (n, far int) {
	want := []rune(format.Fit(squeeze(text), comparedText))
	far = len(want)/3 + 1
	for i, row := range rows[:min(len(rows), comparedLines)] {
		got := []rune(format.Fit(squeeze(row), comparedText))
		if d := distance(want, got, far-1); d < far {
			n, far = i+1, d
		}
		if far == 0 {
			break
		}
	}
	return n, far
}
