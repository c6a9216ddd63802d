package buildinfo

import (
	"cmp"
	"strconv"
	"strings"
)

// Compared says what a daemon of some version is to this program: "older", "newer",
// "another" where nobody can tell, and "" where it is the same, or says none.
func Compared(daemon string) string { return compared(daemon, Version()) }

func compared(daemon, own string) string {
	if daemon == "" || daemon == own {
		return ""
	}
	theirs, ok := numbers(daemon)
	ours, too := numbers(own)
	if !ok || !too {
		return "another"
	}
	for i := range theirs {
		switch cmp.Compare(theirs[i], ours[i]) {
		case -1:
			return "older"
		case 1:
			return "newer"
		}
	}
	return "another"
}

// numbers are those of a version like v1.2.3, which may have more behind them.
func numbers(version string) (n [3]int, ok bool) {
	text, ok := strings.CutPrefix(version, "v")
	if !ok {
		return n, false
	}
	if i := strings.IndexAny(text, "-+"); i >= 0 {
		text = text[:i]
	}
	parts := strings.Split(text, ".")
	if len(parts) != len(n) {
		return n, false
	}
	for i, part := range parts {
		var err error
		if n[i], err = strconv.Atoi(part); err != nil || n[i] < 0 {
			return n, false
		}
	}
	return n, true
}
