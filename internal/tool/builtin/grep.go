package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"noused/internal/format"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxMatches is how many lines grep shows.
	maxMatches = 500
	// maxGrepLine is how much of a line is searched, in bytes.
	maxGrepLine = 1 << 20
	// shownMatch is how much of a line grep shows, in characters, of which
	// shownBefore may come before the match.
	shownMatch, shownBefore = 400, 100
)

// grep shows the lines that a regular expression fits (tools.md §6), as
// path:line: text.
func grep(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Pattern *string `json:"pattern"`
		Path    string  `json:"path"`
		Glob    string  `json:"glob"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	pattern, err := word("pattern", a.Pattern)
	if err != nil {
		return "", err
	}
	re, err := compile(pattern)
	if err != nil {
		return "", err
	}
	var g *glob
	if a.Glob != "" {
		if g, err = newGlob("glob", a.Glob); err != nil {
			return "", err
		}
	}
	path := orHere(a.Path)
	abs := c.real(path)
	if err := c.concealed(path, abs); err != nil {
		return "", err
	}
	info, err := statReal(abs)
	if err != nil {
		return "", c.missing(path, err)
	}
	s := search{c: c, re: re, out: listing{most: maxMatches}}
	if !info.IsDir() {
		return s.single(path, abs, info)
	}
	w := walker{c: c, visit: func(rel string, e fs.DirEntry) error {
		if !e.Type().IsRegular() || g != nil && !g.fits(rel, false) {
			return nil
		}
		err := s.file(filepath.Join(path, rel), filepath.Join(abs, rel))
		if stopped := c.stopped(); stopped != nil {
			return stopped
		}
		if err != nil && !errors.Is(err, errNotText) {
			s.unread++
		}
		return nil
	}}
	note, err := w.walk(abs)
	if err != nil {
		return "", c.wrap(path, err)
	}
	return s.text(note), nil
}

// compile reads a regular expression. The fault says what is wrong and where.
func compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern)
	var s *syntax.Error
	switch {
	case err == nil:
		return re, nil
	case !errors.As(err, &s):
		return nil, wrong("pattern", "%v", err)
	}
	place := ""
	if i := strings.LastIndex(pattern, s.Expr); i >= 0 && s.Expr != "" && s.Expr != pattern {
		place = fmt.Sprintf(" at character %d", utf8.RuneCountInString(pattern[:i])+1)
	}
	return nil, wrong("pattern", "%s%s: %q is not a regular expression in RE2 syntax", s.Code, place, s.Expr)
}

// search is one grep under way.
type search struct {
	c      *call
	re     *regexp.Regexp
	out    listing
	unread int // files that could not be read
}

func (s *search) single(path, abs string, info fs.FileInfo) (string, error) {
	if err := regular(path, info); err != nil {
		return "", err
	}
	err := s.file(path, abs)
	switch {
	case errors.Is(err, errNotText):
		return "", fmt.Errorf("%s is binary and was not searched", path)
	case err != nil:
		return "", s.c.wrap(path, err)
	}
	return s.text(""), nil
}

// file searches one file. A binary one is errNotText.
func (s *search) file(path, abs string) error {
	f, err := openReal(abs, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	if head, _ := in.Peek(sniffed); bytes.IndexByte(head, 0) >= 0 {
		return errNotText
	}
	lines := newLines(in, maxGrepLine)
	for n := 1; ; n++ {
		line, size, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := s.c.stopped(); err != nil {
			return err
		}
		if at := s.re.FindIndex(line); at != nil {
			s.out.add(fmt.Sprintf("%s:%d: %s", show(path), n, around(line, at[0], size)))
		}
	}
}

// around is a line, or where it is long the part that a match begins in.
func around(line []byte, at, size int) string {
	before, after := "", ""
	if utf8.RuneCount(line[:at]) > shownMatch/2 {
		start := at
		for range shownBefore {
			_, n := utf8.DecodeLastRune(line[:start])
			start -= n
		}
		line, before = line[start:], "…"
		size -= start
	}
	end := 0
	for i := 0; i < shownMatch && end < len(line); i++ {
		_, n := utf8.DecodeRune(line[end:])
		end += n
	}
	if end < size {
		line, after = line[:end], "…"
	}
	return before + strings.ToValidUTF8(string(line), "\uFFFD") + after
}

func (s *search) text(note string) string {
	if s.unread > 0 {
		note = strings.TrimSpace(note + "\n" + fmt.Sprintf("[%s could not be read]", format.Count(s.unread, "file")))
	}
	if len(s.out.lines) == 0 {
		return strings.TrimSpace("[no line fits]\n" + note)
	}
	return s.out.text(note)
}
