package pick

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold is text for comparing. It has as many characters as the text.
func fold(text string) string { return strings.Map(unicode.ToLower, text) }

// Scores of a term, best first. Where it stands, or how far its characters are
// apart, takes off less than the next one is away.
const (
	scoreWhole  = 1000
	scorePrefix = 800
	scoreWord   = 600
	scoreWithin = 400
	scoreRest   = 200
	scoreApart  = 100
)

// score says how well every one of the terms fits a title or what else may be
// searched; 0: one does not. All are folded.
func score(terms []string, title, rest string) int {
	total := 0
	for _, term := range terms {
		s := scoreTerm(term, title, rest)
		if s == 0 {
			return 0
		}
		total += s
	}
	return total
}

func scoreTerm(term, title, rest string) int {
	if title == term {
		return scoreWhole
	}
	switch at, word := within(title, term); {
	case at == 0:
		return scorePrefix
	case word:
		return scoreWord - min(at, 100)
	case at > 0:
		return scoreWithin - min(at, 100)
	}
	if strings.Contains(rest, term) {
		return scoreRest
	}
	if at := apart(title, term); at != nil {
		return scoreApart - min(at[len(at)-1]-at[0], 99)
	}
	return 0
}

// within is where a term stands in a text, at the beginning of a word if it
// does so anywhere; -1: nowhere.
func within(text, term string) (at int, word bool) {
	first := -1
	for from := 0; ; {
		i := strings.Index(text[from:], term)
		if i < 0 {
			return first, false
		}
		i += from
		if first < 0 {
			first = i
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		if i == 0 || !unicode.IsLetter(before) && !unicode.IsDigit(before) {
			return i, true
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		from = i + size
	}
}

// apart is where the characters of a term stand in a text one after the other
// with others in between, counted in characters; nil: they do not, or so far
// apart that nobody would see the term in it.
func apart(text, term string) []int {
	want := []rune(term)
	if len(want) < 2 {
		return nil
	}
	have := []rune(text)
	found, end := 0, 0
	for ; end < len(have) && found < len(want); end++ {
		if have[end] == want[found] {
			found++
		}
	}
	if found < len(want) {
		return nil
	}
	// From its end backwards it is as short as it gets.
	at := make([]int, len(want))
	for i := end - 1; found > 0; i-- {
		if have[i] == want[found-1] {
			found--
			at[found] = i
		}
	}
	if at[len(at)-1]-at[0] >= 4*len(want) {
		return nil
	}
	return at
}

// marks tells which characters of a folded title the terms stand on.
func marks(terms []string, title string) map[int]bool {
	on := map[int]bool{}
	for _, term := range terms {
		if at, _ := within(title, term); at >= 0 {
			start := utf8.RuneCountInString(title[:at])
			for i := range utf8.RuneCountInString(term) {
				on[start+i] = true
			}
			continue
		}
		for _, i := range apart(title, term) {
			on[i] = true
		}
	}
	return on
}

// excerpt is the line of text, which is not folded, on which a term stands, cut
// so that the term is near its beginning; "" if it stands nowhere.
func excerpt(text, term string) string {
	const lead = 24
	for l := range strings.SplitSeq(text, "\n") {
		at := strings.Index(fold(l), term)
		if at < 0 {
			continue
		}
		characters := []rune(l)
		if before := utf8.RuneCountInString(fold(l)[:at]); before > lead {
			return "…" + string(characters[before-lead:])
		}
		return l
	}
	return ""
}
