package transcript

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"noused/internal/client/conversation"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// A note is of the moment, not of the conversation: what the client itself and
// the daemon say by the way. It is told apart from the conversation, which is
// the same on every screen, and goes away by itself.
type note struct {
	kind, text string
	since      time.Time
	retry      protocol.Warning // of a provider_retry: the text counts down to it
	summing    bool             // until the conversation is read again: the summary stands there then
}

// How long a note stays at most, and at least although keys are pressed.
const (
	noteStays    = 15 * time.Second
	troubleStays = time.Minute
	noteLeast    = 2 * time.Second
	maxKept      = 20       // notes
	maxNote      = 16 << 10 // bytes
)

// Notice keeps a note: kind is "error", "warning", "status" or "info". One that
// was the last already begins anew.
func (t *Transcript) Notice(kind, text string) {
	if len(text) > maxNote {
		text = format.Cut(text, maxNote) + " …"
	}
	n := note{kind: kind, text: text, since: t.now()}
	if last := len(t.notes) - 1; last >= 0 && t.notes[last].kind == kind && t.notes[last].text == text {
		t.notes[last] = n
		return
	}
	t.notes = append(t.notes, n)
	t.notes = t.notes[max(len(t.notes)-maxKept, 0):]
}

// Aside adds a text of the client's own to the conversation of this screen, and returns its
// key. It is there until the conversation is loaded anew.
func (t *Transcript) Aside(text string) (key string) { return t.talk.Aside(text) }

// Amend gives an Aside another text, where it stands. One that is not there any more is added
// again, unless the text is "". It returns the key that it has then.
func (t *Transcript) Amend(key, text string) string {
	if !t.talk.Amend(key, text) && text != "" {
		return t.talk.Aside(text)
	}
	return key
}

// retries keeps one note of the retries of a request, which counts down to the next.
func (t *Transcript) retries(w protocol.Warning, at time.Time) {
	if at.IsZero() {
		at = t.now()
	}
	t.dropRetry()
	t.notes = append(t.notes, note{kind: "warning", since: at, retry: w})
	t.notes = t.notes[max(len(t.notes)-maxKept, 0):]
}

// dropRetry lets the note of retries go: the model answers, or nothing is tried any more.
func (t *Transcript) dropRetry() {
	t.notes = slices.DeleteFunc(t.notes, func(n note) bool { return n.retry.Code != "" })
}

func (n note) ends() time.Time {
	if n.retry.Code != "" {
		return n.since.Add(time.Duration(n.retry.DelayMS)*time.Millisecond + troubleStays)
	}
	if n.kind == "error" || n.kind == "warning" {
		return n.since.Add(troubleStays)
	}
	return n.since.Add(noteStays)
}

// NotesEnd is when the next note goes away by itself, false where there is none.
func (t *Transcript) NotesEnd() (at time.Time, ok bool) {
	for _, n := range t.notes {
		if end := n.ends(); !ok || end.Before(at) {
			at, ok = end, true
		}
	}
	return at, ok
}

// DropNotes lets the notes go whose time is over: with a key pressed, those that
// could be read; all of them when the user does something.
func (t *Transcript) DropNotes(pressed, all bool) {
	now := t.now()
	kept := t.notes[:0]
	for _, n := range t.notes {
		if (!all || n.retry.Code != "") && now.Before(n.ends()) &&
			!(pressed && n.retry.Code == "" && now.Sub(n.since) >= noteLeast) {
			kept = append(kept, n)
		}
	}
	clear(t.notes[len(kept):])
	t.notes = kept
}

// Notes returns at most height lines: of the newest notes, and of a long one its
// beginning.
func (t *Transcript) Notes(height int) []string {
	var lines []string
	for i := len(t.notes) - 1; i >= 0; i-- {
		own := t.noteLines(t.notes[i])
		if room := height - len(lines); len(own) > room {
			if len(lines) > 0 || room <= 0 {
				break
			}
			own = append(own[:room-1], t.theme.Dim.Render(fmt.Sprintf("  … %d more lines", len(own)-room+1)))
		}
		lines = append(own, lines...)
	}
	return lines
}

func (t *Transcript) noteLines(n note) []string {
	mark, style := t.noteLook(n.kind)
	if n.retry.Code != "" {
		left := time.Duration(n.retry.DelayMS)*time.Millisecond - t.now().Sub(n.since)
		text := conversation.Retrying(n.retry, left)
		if _, why, ok := strings.Cut(n.retry.Message, ": "); ok { // before it stands what Retrying says
			text += ": " + cell.Line(why, maxHead)
		}
		return []string{style.Render(cell.Truncate(mark+text, t.look.Width))}
	}
	return styled(style, hanging(mark, trimBreak(n.text), t.look.Width))
}

func (t *Transcript) noteLook(kind string) (mark string, style lipgloss.Style) {
	switch kind {
	case "error":
		return "✗ ", t.theme.Error
	case "warning":
		return "! ", t.theme.Warn
	}
	return "• ", t.theme.Dim
}
