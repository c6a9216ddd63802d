package builtin

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxEdit is the largest file that edit takes and leaves, in bytes, and
	// maxPlaces how often it replaces in one.
	maxEdit, maxPlaces = 64 << 20, 100_000
	// shownPlaces is how many line numbers an error has.
	shownPlaces = 10
	// compared bounds the search for a similar line: lines, and characters of
	// each.
	comparedLines, comparedText = 5000, 160
)

// edit replaces text in a file (tools.md §6).
func edit(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path       *string `json:"path"`
		Old        *string `json:"old_text"`
		New        *string `json:"new_text"`
		ReplaceAll bool    `json:"replace_all"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	path, err := word("path", a.Path)
	if err != nil {
		return "", err
	}
	before, err := word("old_text", a.Old)
	if err != nil {
		return "", err
	}
	after, err := text("new_text", a.New)
	if err != nil {
		return "", err
	}
	content, err := c.load(path)
	if err != nil {
		return "", err
	}
	ch, err := change(content, before, after, a.ReplaceAll)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if err := c.stopped(); err != nil {
		return "", err
	}
	if _, err := replace(path, c.resolve(path), []byte(ch.apply())); err != nil {
		return "", err
	}
	return fmt.Sprintf("edited %s, %s\n%s", path, many(len(ch.at), "place"), ch.diff()), nil
}

func (c *call) load(path string) (string, error) {
	f, info, err := c.open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var content strings.Builder
	if info.Size() <= maxEdit {
		if _, err := io.Copy(&content, io.LimitReader(f, maxEdit+1)); err != nil {
			return "", because(path, err)
		}
	}
	if size := max(info.Size(), int64(content.Len())); size > maxEdit {
		return "", fmt.Errorf("%s has %d bytes; edit takes files of at most %d", path, size, maxEdit)
	}
	return content.String(), nil
}

// edition is a replacement that is known to fit: text has before at each of
// these offsets, and no two overlap.
type edition struct {
	text, before, after string
	at                  []int
}

func (e *edition) apply() string {
	var out strings.Builder
	end := 0
	for _, at := range e.at {
		out.WriteString(e.text[end:at])
		out.WriteString(e.after)
		end = at + len(e.before)
	}
	out.WriteString(e.text[end:])
	return out.String()
}

// change finds where a replacement is to be made. An error says, for whoever
// wrote the old text, why it is not made. Where the file ends its lines with
// CR LF and the texts do not, they are taken as if they did.
func change(content, before, after string, all bool) (*edition, error) {
	if before == after {
		return nil, errors.New("old_text and new_text are the same")
	}
	e := &edition{text: content, before: before, after: after}
	bare := hasBareLF(before)
	switch {
	case !strings.Contains(content, before):
		crlf := withCRLF(before)
		if !bare || !strings.Contains(content, crlf) {
			return nil, notFound(content, before)
		}
		e.before, e.after = crlf, withCRLF(after)
	case !bare && mostlyCRLF(content):
		e.after = withCRLF(after)
	}
	if e.before == e.after {
		return nil, errors.New("old_text and new_text differ only in how lines end, which edit leaves as it is")
	}
	if !all {
		if places := occurrences(content, e.before); len(places) > 1 {
			return nil, ambiguous(content, places)
		}
	}
	for from := 0; ; {
		i := strings.Index(content[from:], e.before)
		if i < 0 {
			break
		}
		if len(e.at) == maxPlaces {
			return nil, fmt.Errorf("old_text is there more than %d times", maxPlaces)
		}
		e.at = append(e.at, from+i)
		from += i + len(e.before)
	}
	if size := len(content) + len(e.at)*(len(e.after)-len(e.before)); size > maxEdit {
		return nil, fmt.Errorf("the file would have %d bytes, and edit leaves at most %d", size, maxEdit)
	}
	return e, nil
}

// occurrences are the offsets of a text, those that overlap too, as each could
// be the one that was meant. One more than is shown is enough.
func occurrences(content, text string) (at []int) {
	for from := 0; len(at) <= shownPlaces; {
		i := strings.Index(content[from:], text)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
	}
	return at
}

func ambiguous(content string, places []int) error {
	var numbers []string
	for _, at := range places[:min(len(places), shownPlaces)] {
		numbers = append(numbers, fmt.Sprint(lineOf(content, at)))
	}
	list := strings.Join(numbers, ", ")
	if len(places) > shownPlaces {
		list += " and more"
	}
	return fmt.Errorf("old_text is there more than once, at lines %s; give more of the text around it, or set replace_all", list)
}

// notFound says where something similar is.
func notFound(content, before string) error {
	const failure = "old_text was not found"
	rows, want := strings.Split(content, "\n"), strings.Split(strings.Trim(before, "\r\n"), "\n")
	if n := looseMatch(rows, want); n > 0 {
		return fmt.Errorf("%s; line %d has it with other white space: %q", failure, n, clip(strings.TrimSuffix(rows[n-1], "\r"), comparedText))
	}
	first, skipped := "", 0
	for skipped = range want {
		if first = strings.TrimSpace(want[skipped]); first != "" {
			break
		}
	}
	if first == "" {
		return errors.New(failure)
	}
	n, far := nearest(rows, first)
	switch {
	case n == 0:
		return errors.New(failure)
	case far > 0:
		return fmt.Errorf("%s; the most similar line is %d: %q", failure, n, clip(strings.TrimSuffix(rows[n-1], "\r"), comparedText))
	}
	at := n
	for i := skipped; i < len(want) && at <= len(rows) && squeeze(want[i]) == squeeze(rows[at-1]); i++ {
		at++
	}
	if at > len(rows) {
		return fmt.Errorf("%s; it begins like line %d, but the file ends before it does", failure, n)
	}
	return fmt.Errorf("%s; it begins like line %d, but line %d is %q", failure, n, at, clip(strings.TrimSuffix(rows[at-1], "\r"), comparedText))
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
	want := []rune(clip(squeeze(text), comparedText))
	far = len(want)/3 + 1
	for i, row := range rows[:min(len(rows), comparedLines)] {
		got := []rune(clip(squeeze(row), comparedText))
		if d := distance(want, got, far-1); d < far {
			n, far = i+1, d
		}
		if far == 0 {
			break
		}
	}
	return n, far
}

func lineOf(content string, at int) int { return strings.Count(content[:at], "\n") + 1 }

func hasBareLF(s string) bool { return strings.Count(s, "\n") > strings.Count(s, "\r\n") }

func mostlyCRLF(s string) bool { return 2*strings.Count(s, "\r\n") > strings.Count(s, "\n") }

func withCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// clip is at most n characters of s.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := 0
	for at := range s {
		if i == n {
			return s[:at] + "…"
		}
		i++
	}
	return s
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
