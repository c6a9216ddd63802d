// Package format writes counts, sizes, times and shortened texts as people read them, for
// the daemon, the client and the screen alike.
//
// Every function is pure and may be called from any goroutine. The package knows nothing
// of terminals: what makes a text harmless is internal/plaintext, how wide it is
// internal/tui/cell.
package format

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Count is a number of things, whose plural ends in s: "1 turn", "3 turns".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Size is a size in bytes: "1 byte", "17 bytes", "1.5 KiB".
func Size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return Count(int(bytes), "byte")
}

// Short is a number in at most five characters up to a thousand million: "999", "11.2k",
// "1.5M".
func Short(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 1000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1000_000)
}

// Age says how long before now something was: "just now", "3 min ago", "2 h ago",
// "5 days ago", and from four weeks on the date. It is "" for the zero time.
func Age(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	case d < 28*24*time.Hour:
		return Count(int(d/(24*time.Hour)), "day") + " ago"
	}
	return t.In(now.Location()).Format(time.DateOnly)
}

// ShortAge is Age in at most four characters: "now", "3m", "2h", "5d", "20w".
func ShortAge(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 100*24*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	default:
		return fmt.Sprintf("%dw", min(d/(7*24*time.Hour), 999))
	}
}

// Elapsed is a time that runs, in whole seconds, minutes or hours: "5s", "3m02s", "2h05m".
func Elapsed(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
}

// Cut is the beginning of a text in at most so many bytes, without a part of a character
// and without what is no UTF-8.
func Cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), max(most, 0))], "")
}

// CutStart is the end of a text in at most so many bytes, as Cut is its beginning.
func CutStart(text string, most int) string {
	return strings.ToValidUTF8(text[max(0, len(text)-max(most, 0)):], "")
}

// Clip is Cut with "…" behind it where something is left out.
func Clip(text string, most int) string {
	if len(text) <= most {
		return Cut(text, most)
	}
	return Cut(text, most) + "…"
}

// Fit is a text in at most so many characters, the last of which is "…" where something is
// left out.
func Fit(text string, most int) string {
	if len(text) <= most || utf8.RuneCountInString(text) <= most {
		return text
	}
	left := max(most-1, 0)
	for i := range text {
		if left == 0 {
			return text[:i] + "…"
		}
		left--
	}
	return text
}

// Line is a text on one line: what a terminal obeys or does not show, and space of any kind,
// is one space, and what is no UTF-8 is U+FFFD.
func Line(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}), " ")
}

// Indent is a text with something before each of its lines.
func Indent(text, by string) string {
	return by + strings.ReplaceAll(text, "\n", "\n"+by)
}
