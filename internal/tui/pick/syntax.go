package pick

import (
	"strings"

	"noused/internal/tui/highlight"
)

// Bounds of the code that has colours, in bytes.
const (
	maxHunkCode = 128 << 10 // of a hunk; a longer one has none
	maxCodeKept = 512 << 10 // whose pieces are known at the same time
)

// syntax knows the pieces of the code of the hunks that were drawn last.
type syntax struct {
	hunks map[hunk][][]highlight.Token
	kept  int // bytes of code
}

// hunk is one of a file's diff, by its first line.
type hunk struct{ file, first int }

// tokens are the pieces of a line that is there now, nil where it has no colours.
func (c *Changes) tokens(r changesRow) []highlight.Token {
	f := &c.files[r.file]
	mark := f.lines[r.line].mark
	if c.look.Syntax == nil || mark != '+' && mark != ' ' || highlight.OfFile(f.Path) == "" {
		return nil
	}
	at := hunk{r.file, r.line}
	for at.first > 0 && f.lines[at.first].mark != '@' {
		at.first--
	}
	lines, known := c.syntax.hunks[at]
	if !known {
		lines = c.syntax.scan(f, at)
	}
	if r.line-at.first >= len(lines) {
		return nil
	}
	return lines[r.line-at.first]
}

// scan reads a hunk as one text, without what was taken out, for a comment or a string may be
// longer than a line.
func (s *syntax) scan(f *changedFile, at hunk) [][]highlight.Token {
	var code strings.Builder
	for n, l := range f.lines[at.first:] {
		if n > 0 && l.mark == '@' || code.Len() > maxHunkCode {
			break
		}
		if l.mark == '+' || l.mark == ' ' {
			code.WriteString(l.shown())
		}
		code.WriteByte('\n')
	}
	if s.hunks == nil || s.kept > maxCodeKept {
		*s = syntax{hunks: map[hunk][][]highlight.Token{}}
	}
	s.hunks[at] = nil
	if code.Len() <= maxHunkCode {
		s.kept += code.Len()
		s.hunks[at] = highlight.Lines(code.String(), highlight.OfFile(f.Path))
	}
	return s.hunks[at]
}
