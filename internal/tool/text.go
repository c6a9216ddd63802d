package tool

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Bounds of what a model is given, and of what is kept of the rest.
const (
	DefaultMaxText  = 50 << 10
	DefaultMaxLines = 2000
	maxKept         = 16 << 20
	maxKeptFiles    = 256
	keptPrefix      = "result-"
)

// keeper bounds the text of results and keeps what is too long in files, of
// which the oldest go first. Its directory is private to the user.
type keeper struct {
	dir             string
	maxText, maxRow int
	mu              *sync.Mutex // one writer prunes at a time
}

func newKeeper(dir string, maxText, maxLines int) keeper {
	if dir == "" {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("noused-%d", os.Getuid()))
	}
	return keeper{dir, cmp.Or(maxText, DefaultMaxText), cmp.Or(maxLines, DefaultMaxLines), new(sync.Mutex)}
}

// bound makes a result's text valid UTF-8 of bounded length. The error's
// message is bounded with it, as it says the same.
func (k keeper) bound(r model.ToolResult) model.ToolResult {
	r.Text = strings.ToValidUTF8(r.Text, "\uFFFD")
	if r.Error != nil {
		e := *r.Error
		e.Message, _ = k.cut(strings.ToValidUTF8(e.Message, "\uFFFD"))
		r.Error = &e
	}
	head, whole := k.cut(r.Text)
	if whole {
		return r
	}
	where := "the rest is lost"
	if file, err := k.write(r.Text); err != nil {
		where += ": " + err.Error()
	} else if where = "the whole text is in " + file; len(r.Text) > maxKept {
		where = fmt.Sprintf("the first %d bytes are in %s", maxKept, file)
	}
	r.Text = fmt.Sprintf("%s\n\n[cut after %d of %d bytes, %d of %d lines; %s]",
		head, len(head), len(r.Text), lines(head), lines(r.Text), where)
	return r
}

// cut returns the start of text within the bounds, at a line's end where one
// is not far, and whether that is all of it.
func (k keeper) cut(text string) (string, bool) {
	end := 0
	for row := 0; row < k.maxRow && end < len(text); row++ {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			end = len(text)
			break
		}
		end += i + 1
	}
	if end <= k.maxText {
		return text[:end], end == len(text)
	}
	end = k.maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if i := strings.LastIndexByte(text[:end], '\n'); i > end/2 {
		end = i + 1
	}
	return text[:end], false
}

func lines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

func (k keeper) write(text string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return "", err
	}
	k.prune()
	f, err := os.CreateTemp(k.dir, keptPrefix+"*.txt")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text[:min(len(text), maxKept)])
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// prune makes room for one more file.
func (k keeper) prune() {
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return
	}
	var kept []os.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), keptPrefix) {
			kept = append(kept, info)
		}
	}
	slices.SortFunc(kept, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept[:max(0, len(kept)-maxKeptFiles+1)] {
		os.Remove(filepath.Join(k.dir, info.Name()))
	}
}

// Text reads a JSON string. False: v is something else.
func Text(v jsontext.Value) (s string, ok bool) {
	if v.Kind() != '"' {
		return "", false
	}
	return s, jsonx.Unmarshal(v, &s) == nil
}

// Shorten is a value from a tool as an error message quotes it.
func Shorten(v jsontext.Value) string {
	const most = 120
	switch {
	case v == nil:
		return "absent"
	case len(v) > most:
		return strings.ToValidUTF8(string(v[:most]), "") + "…"
	}
	return string(v)
}
