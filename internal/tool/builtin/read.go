package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // for their sizes
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// sniffed is how much of a file is looked at to tell what it is.
	sniffed = 8 << 10
	// maxLineText is how much of a line read shows, in characters.
	maxLineText = 2000
)

// read shows a text file, or a part of it (tools.md §6).
func read(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path   *string `json:"path"`
		Offset *count  `json:"offset"`
		Limit  *count  `json:"limit"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	path, err := word("path", a.Path)
	if err != nil {
		return "", err
	}
	first, limit := 1, maxLines
	if a.Offset != nil {
		first = int(*a.Offset)
	}
	if a.Limit != nil {
		limit = min(limit, int(*a.Limit))
	}
	f, info, err := c.open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, sniffed)
	head, err := in.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", because(path, err)
	}
	kind := http.DetectContentType(head)
	if strings.HasPrefix(kind, "image/") && !strings.HasPrefix(kind, "image/svg") {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return "", because(path, err)
		}
		return c.picture(path, kind, info.Size(), f), nil
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return "", notText(path, kind, info.Size())
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3)
	}
	page, err := c.page(newLines(in, 4*maxLineText), first, limit)
	switch {
	case errors.Is(err, errNotText):
		return "", notText(path, kind, info.Size())
	case err != nil:
		return "", because(path, err)
	}
	return page, nil
}

// maxPicture is the largest image that is shown, in bytes: what the daemon keeps.
const maxPicture = 5 << 20

// picture tells what words can say of an image, and has it shown.
func (c *call) picture(path, kind string, size int64, r io.Reader) string {
	text := fmt.Sprintf("%s is an image: %s, %d bytes", path, kind, size)
	if cfg, _, err := image.DecodeConfig(r); err == nil {
		text += fmt.Sprintf(", %d x %d pixels", cfg.Width, cfg.Height)
	}
	switch {
	case !slices.Contains(pictures, kind):
		text += "; it is not shown: only " + strings.Join(pictures, ", ") + " are"
	case size > maxPicture:
		text += fmt.Sprintf("; it is not shown: it has more than %d bytes", maxPicture)
	default:
		c.images = append(c.images, c.real(path))
	}
	return text
}

var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

var errNotText = errors.New("not UTF-8 text")

func notText(path, kind string, size int64) error {
	if kind == "text/plain; charset=utf-8" { // what is guessed for any text without NUL
		kind = "text/plain in an unknown encoding"
	}
	return fmt.Errorf("%s is not UTF-8 text but %s (%d bytes)", path, kind, size)
}

// page shows up to limit lines from the given one on, numbered, and says what
// it leaves out.
func (c *call) page(in *lines, first, limit int) (string, error) {
	var out strings.Builder
	n := 0
	for {
		line, size, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if err := c.stopped(); err != nil {
			return "", err
		}
		if n++; n < first {
			continue
		}
		row, err := shownLine(n, line, size)
		if err != nil {
			return "", err
		}
		if n >= first+limit || out.Len()+len(row) > maxText {
			fmt.Fprintf(&out, "\n[lines %d to %d; the file goes on: read it with offset %d]", first, n-1, n)
			return out.String(), nil
		}
		out.WriteString(row)
	}
	switch {
	case n == 0:
		return "[the file is empty]", nil
	case n < first:
		return "", fmt.Errorf("offset %d is past the end: the file has %d lines", first, n)
	}
	return out.String(), nil
}

// shownLine is line number n as read shows it. size is that of the whole line.
func shownLine(n int, line []byte, size int) (string, error) {
	cut := size > len(line)
	if cut {
		line = wholeRunes(line)
	}
	if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
		return "", errNotText
	}
	if utf8.RuneCount(line) > maxLineText {
		end := 0
		for range maxLineText {
			_, size := utf8.DecodeRune(line[end:])
			end += size
		}
		line, cut = line[:end], true
	}
	if cut {
		return fmt.Sprintf("%6d\t%s… [cut; the line has %d bytes]\n", n, line, size), nil
	}
	return fmt.Sprintf("%6d\t%s\n", n, line), nil
}

// wholeRunes leaves out a character that b ends in the middle of.
func wholeRunes(b []byte) []byte {
	for i := 1; i <= min(len(b), utf8.UTFMax); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// lines reads lines of any length and keeps a bounded part of each.
type lines struct {
	in   *bufio.Reader
	keep int
	buf  []byte
}

func newLines(in *bufio.Reader, keep int) *lines { return &lines{in: in, keep: keep} }

// next returns the first bytes of the next line, without its end, and how many
// bytes all of it has. They are valid until the following call. It returns
// io.EOF after the last line.
func (l *lines) next() (line []byte, size int, err error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		size += len(part)
		l.buf = append(l.buf, part[:min(len(part), l.keep+2-len(l.buf))]...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && size > 0:
		case err != nil:
			return nil, 0, err
		}
		if size == len(l.buf) {
			l.buf = bytes.TrimSuffix(bytes.TrimSuffix(l.buf, []byte("\n")), []byte("\r"))
			size = len(l.buf)
		}
		return l.buf[:min(len(l.buf), l.keep)], size, nil
	}
}
