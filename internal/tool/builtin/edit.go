package builtin

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"noused/internal/format"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxEdit is the largest file that edit takes and leaves, in bytes, and
	// maxPlaces how often it replaces in one.
	maxEdit, maxPlaces = 64 << 20, 100_000
	// maxEdits is how many edits one call makes.
	maxEdits = 100
	// shownPlaces is how many line numbers an error has.
	shownPlaces = 10
)

// replacement is one change of a file.
type replacement struct {
	Old        *string `json:"old_text"`
	New        *string `json:"new_text"`
	ReplaceAll bool    `json:"replace_all"`
}

// edit replaces text in a file, in one place or by several edits, all or none
// (tools.md §6).
func edit(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path *string `json:"path"`
		replacement
		Edits []replacement `json:"edits"`
		outside
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	path, err := word("path", a.Path)
	if err != nil {
		return "", err
	}
	list, err := wanted(a.replacement, a.Edits)
	if err != nil {
		return "", err
	}
	content, err := c.load(path)
	if err != nil {
		return "", err
	}
	content, told, err := changeAll(content, list, brief)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if err := c.stopped(); err != nil {
		return "", err
	}
	if _, err := c.replace(path, content, a.outside); err != nil {
		return "", err
	}
	return "edited " + path + ", " + told, nil
}

// wanted are the edits of a call: those of the list, or the one beside it.
func wanted(one replacement, list []replacement) ([]replacement, error) {
	single := one.Old != nil || one.New != nil || one.ReplaceAll
	switch {
	case single && len(list) > 0:
		return nil, wrong("edits", "give either edits, or old_text and new_text beside path")
	case !single && list != nil && len(list) == 0:
		return nil, wrong("edits", "empty")
	case len(list) > maxEdits:
		return nil, wrong("edits", "has %d elements, at most %d may be", len(list), maxEdits)
	case len(list) == 0:
		return []replacement{one}, one.check("")
	}
	for i, r := range list {
		if err := r.check(fmt.Sprintf("edits.%d.", i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (r replacement) check(at string) error {
	if _, err := word(at+"old_text", r.Old); err != nil {
		return err
	}
	_, err := text(at+"new_text", r.New)
	return err
}

// changeAll makes one edit after the other and returns what the file is then,
// and what to say of it. An error says which edit it was; none is made then.
func changeAll(content string, list []replacement, most detail) (after, told string, err error) {
	places, diffs := 0, ""
	for i, r := range list {
		e, err := change(content, *r.Old, *r.New, r.ReplaceAll)
		if err != nil && len(list) > 1 {
			err = fmt.Errorf("no edit was made: edit %d of %d: %w", i+1, len(list), err)
		}
		if err != nil {
			return "", "", err
		}
		places += len(e.at)
		if len(diffs) < maxText/2 {
			diffs += "\n" + e.diff(most)
		}
		content = e.apply()
	}
	if len(diffs) >= maxText/2 {
		diffs += "\n[and more]"
	}
	return content, format.Count(places, "place") + diffs, nil
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

// change finds where a replacement is to be made. An error says, for the caller who
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
	return fmt.Errorf("old_text is there more than once, at lines %s; give more of the text around it, or set "+
		"replace_all", list)
}

func lineOf(content string, at int) int { return strings.Count(content[:at], "\n") + 1 }

func hasBareLF(s string) bool { return strings.Count(s, "\n") > strings.Count(s, "\r\n") }

func mostlyCRLF(s string) bool { return 2*strings.Count(s, "\r\n") > strings.Count(s, "\n") }

func withCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}
