package pick

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"noused/internal/format"
	"noused/internal/tui/cell"
)

// How many bytes may be typed in a line.
const (
	maxLine    = 1 << 10  // that filters; what is beyond is cut
	maxComment = 16 << 10 // maxComments of them are a message

	// MaxText is for a text that is sent: as much as the history of the input keeps.
	MaxText = 64 << 10
)

// line is a line that is being typed. What moves and deletes does so by whole
// characters as they are seen.
type line struct {
	text string
	at   int // where the next character goes, in bytes

	most    int  // bytes of a text that is sent: what does not fit is refused, not cut; 0: it is a filter
	refused bool // what came last did not fit
}

// update takes a key or a paste and tells whether it was one for the line.
func (l *line) update(msg tea.Msg) bool {
	l.refused = false
	switch msg := msg.(type) {
	case tea.PasteMsg:
		l.insert(msg.Content)
		return true
	case tea.KeyPressMsg:
		if l.key(msg.Keystroke()) {
			return true
		}
		if msg.Text != "" {
			l.insert(msg.Text)
			return true
		}
	}
	return false
}

func (l *line) insert(text string) {
	most := cmp.Or(l.most, maxLine)
	short := format.Cut(text, most) // before it is cleaned: a paste may be of any size
	clean := strings.ReplaceAll(cell.Sanitize(short), "\n", " ")
	fits := format.Cut(clean, most-len(l.text))
	l.refused = l.most > 0 && (len(short) < len(text) || len(fits) < len(clean))
	if l.refused {
		return
	}
	l.text = l.text[:l.at] + fits + l.text[l.at:]
	l.at += len(fits)
}

// refusal says that what came last did not fit; "": it did.
func (l *line) refusal() string {
	if !l.refused {
		return ""
	}
	return fmt.Sprintf("too long: nothing was added, as at most %d KiB fit here", l.most>>10)
}

func (l *line) key(key string) bool {
	switch key {
	case "left", "ctrl+b":
		l.at = l.before()
	case "right", "ctrl+f":
		l.at = l.after()
	case "home", "ctrl+a":
		l.at = 0
	case "end", "ctrl+e":
		l.at = len(l.text)
	case "alt+left", "ctrl+left", "alt+b":
		l.at = l.wordBefore()
	case "alt+right", "ctrl+right", "alt+f":
		l.at = l.wordAfter()
	case "backspace", "ctrl+h", "shift+backspace":
		l.remove(l.before(), l.at)
	case "delete":
		l.remove(l.at, l.after())
	case "ctrl+w", "alt+backspace", "ctrl+backspace":
		l.remove(l.wordBefore(), l.at)
	case "alt+d", "alt+delete", "ctrl+delete":
		l.remove(l.at, l.wordAfter())
	case "ctrl+u":
		l.remove(0, l.at)
	case "ctrl+k":
		l.remove(l.at, len(l.text))
	default:
		return false
	}
	return true
}

func (l *line) remove(from, to int) {
	l.text = l.text[:from] + l.text[to:]
	l.at = from
}

// before is where the character before the cursor begins.
func (l *line) before() int {
	at := 0
	for next := 0; next < l.at; {
		at = next
		next = l.next(at)
	}
	return at
}

func (l *line) after() int {
	if l.at == len(l.text) {
		return l.at
	}
	return l.next(l.at)
}

func (l *line) next(at int) int {
	cluster, _ := ansi.FirstGraphemeCluster(l.text[at:], ansi.GraphemeWidth)
	return at + max(len(cluster), 1)
}

func (l *line) wordBefore() int {
	head := strings.TrimRightFunc(l.text[:l.at], unicode.IsSpace)
	return strings.LastIndexFunc(head, unicode.IsSpace) + 1
}

func (l *line) wordAfter() int {
	tail := l.text[l.at:]
	word := strings.TrimLeftFunc(tail, unicode.IsSpace)
	if i := strings.IndexFunc(word, unicode.IsSpace); i >= 0 {
		word = word[i:]
	} else {
		word = ""
	}
	return len(l.text) - len(word)
}

// view is the line in exactly width cells, with the column of the cursor, which
// is always among them.
func (l *line) view(width int) (text string, column int) {
	if width <= 0 {
		return "", 0
	}
	head := cell.TruncateLeft(l.text[:l.at], width-1)
	return cell.Fit(head+l.text[l.at:], width), cell.Width(head)
}
