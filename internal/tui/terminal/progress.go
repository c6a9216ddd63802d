package terminal

import (
	"strconv"
	"strings"
)

// ShowsProgress tells whether the terminal is one of those that draw a progress bar for
// OSC 9;4. To others the sequence is a notification, so it is sent to none that is not known;
// within tmux or screen the variables may be those of another terminal.
func ShowsProgress(getenv func(string) string) bool {
	if getenv("TMUX") != "" || getenv("STY") != "" || getenv("TERM") == "dumb" {
		return false
	}
	switch getenv("TERM_PROGRAM") {
	case "ghostty":
		return from(getenv("TERM_PROGRAM_VERSION"), 1, 2)
	case "WezTerm":
		return true
	case "iTerm.app":
		return from(getenv("TERM_PROGRAM_VERSION"), 3, 7) || hasFeature(getenv("TERM_FEATURES"), "P")
	}
	return getenv("WT_SESSION") != "" || getenv("ConEmuANSI") == "ON" || from(getenv("PTYXIS_VERSION"), 48, 0)
}

// from tells whether a version is not older than this one.
func from(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(first)
	y, _ := strconv.Atoi(second) // none is 0
	return err == nil && (x > major || x == major && y >= minor)
}

// hasFeature looks for a code in a list of codes, each a capital and what follows it.
func hasFeature(codes, code string) bool {
	for i := range codes {
		if 'A' <= codes[i] && codes[i] <= 'Z' && strings.TrimRight(next(codes[i:]), "0123456789") == code {
			return true
		}
	}
	return false
}

// next is the first code of a list.
func next(codes string) string {
	end := strings.IndexFunc(codes[1:], func(r rune) bool { return 'A' <= r && r <= 'Z' })
	if end < 0 {
		return codes
	}
	return codes[:end+1]
}
