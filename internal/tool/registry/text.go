package registry

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"noused/internal/model"
	"noused/internal/tool"
)

// Bounds of what a model is given, and of what is kept of the rest.
const (
	minText      = 1 << 10 // however small a model's window is
	maxKept      = 16 << 20
	maxKeptFiles = 256
	maxKeptSize  = 256 << 20
)

// keeper bounds the text of results and keeps what is too long in files, of
// which the oldest go first.
type keeper struct {
	files           tool.Outputs
	maxText, maxRow int
	mu              *sync.Mutex // one writer makes room at a time
}

func newKeeper(dir string, maxText, maxLines int) keeper {
	return keeper{
		tool.OpenOutputs(dir), cmp.Or(maxText, tool.DefaultMaxText), cmp.Or(maxLines, tool.DefaultMaxLines),
		new(sync.Mutex),
	}
}

// bound makes a result's text valid UTF-8 of bounded length: at most most bytes,
// where that is given and less than it is for all. Of what is longer the
// beginning and the end stay. The error's message is bounded with it, as it says
// the same.
func (k keeper) bound(r model.ToolResult, session string, most int) model.ToolResult {
	if most > 0 {
		k.maxText = min(k.maxText, max(most, minText))
	}
	if r.Error != nil {
		e := *r.Error
		if text := strings.ToValidUTF8(e.Message, "\uFFFD"); !k.fits(text) {
			head, tail := k.ends(text)
			e.Message = head + "\n[…]\n" + tail
		} else {
			e.Message = text
		}
		r.Error = &e
	}
	r.Text = strings.ToValidUTF8(r.Text, "\uFFFD")
	if !k.fits(r.Text) {
		r.Text = k.shorten(r.Text, session)
	}
	return r
}

// shorten is the beginning and the end of a text, with what was left out and
// where it is between them.
func (k keeper) shorten(text, session string) string {
	head, tail := k.ends(text)
	where := "the rest is lost"
	if file, err := k.write(text, session); err != nil {
		where += ": " + err.Error()
	} else if where = "the whole text is in " + file; len(text) > maxKept {
		where = fmt.Sprintf("the first %d bytes are in %s", maxKept, file)
	}
	left := fmt.Sprintf("%d of %d bytes", len(text)-len(head)-len(tail), len(text))
	if n := lines(text) - lines(head) - lines(tail); n > 0 {
		left += fmt.Sprintf(", %d of %d lines", n, lines(text))
	}
	if !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return fmt.Sprintf("%s\n[… %s left out here; %s …]\n\n%s", head, left, where, tail)
}

// fits reports that a text is within the bounds.
func (k keeper) fits(text string) bool { return len(text) <= k.maxText && lines(text) <= k.maxRow }

// ends are two thirds of the bounds of the beginning of a text and one of its
// end, at a line's end where one is not far.
func (k keeper) ends(text string) (head, tail string) {
	size, rows := (k.maxText+2)/3, (k.maxRow+2)/3
	head = beginning(text, k.maxText-size, k.maxRow-rows)
	return head, ending(text[len(head):], size, rows)
}

func beginning(text string, size, rows int) string {
	end := 0
	for row := 0; row < rows && end < len(text); row++ {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			end = len(text)
			break
		}
		end += i + 1
	}
	if end <= size {
		return text[:end]
	}
	end = size
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if i := strings.LastIndexByte(text[:end], '\n'); i > end/2 {
		end = i + 1
	}
	return text[:end]
}

func ending(text string, size, rows int) string {
	start := len(strings.TrimSuffix(text, "\n"))
	for row := 0; row < rows && start > 0; row++ {
		start = strings.LastIndexByte(text[:start], '\n')
	}
	start = max(start+1, 0)
	if len(text)-start <= size {
		return text[start:]
	}
	start = len(text) - size
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	if i := strings.IndexByte(text[start:], '\n'); i >= 0 && i < size/2 {
		start += i + 1
	}
	return text[start:]
}

func lines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

func (k keeper) write(text, session string) (string, error) {
	f, err := k.create(k.files.NewName(session, tool.KeptResult, ".txt"))
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text[:min(len(text), maxKept)])
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// create makes a file that was named, and room for it.
func (k keeper) create(path string) (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files.Trim(tool.KeptResult, maxKeptFiles-1, maxKeptSize-maxKept, nil)
	return k.files.Create(filepath.Base(filepath.Dir(path)), filepath.Base(path))
}

// keeping is the file of what a call prints, which it tells piece by piece where that is too
// much for its result. The call names the file there. It is for one goroutine.
type keeping struct {
	keep keeper
	path string
	file *os.File // nil: nothing was told yet
	size int
	err  error
}

// add takes what was told next.
func (k *keeping) add(b []byte) {
	if b = b[:min(len(b), maxKept-k.size)]; len(b) == 0 || k.path == "" || k.err != nil {
		return
	}
	if k.file == nil {
		if k.file, k.err = k.keep.create(k.path); k.err != nil {
			return
		}
	}
	n, err := k.file.Write(b)
	k.size, k.err = k.size+n, err
}

// end closes the file, and says in the result where not all is in it.
func (k *keeping) end(r *model.ToolResult) {
	if k.file != nil {
		if err := k.file.Close(); k.err == nil {
			k.err = err
		}
	}
	if k.err == nil {
		return
	}
	note := fmt.Sprintf("\n[not all that was cut could be kept: %v]", k.err)
	r.Text += note
	if r.Error != nil {
		e := *r.Error
		e.Message += note
		r.Error = &e
	}
}
