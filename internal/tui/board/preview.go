package board

import (
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Bounds of what is kept of conversations for previews.
const (
	maxPreviews     = 32
	maxPreviewLines = 60
	maxPreviewText  = 4 << 10 // bytes of one message
)

// PreviewMessages is how many of the newest messages a preview needs.
const PreviewMessages = 12

// previews are the ends of conversations, by session.
type previews struct {
	lines map[ID][]string
	asked ID   // the session asked about last
	room  bool // the last View had room for one
}

// NeedsPreview is the session whose messages are on the screen and were not yet
// asked for; the shell answers, at any time, with SetPreview. To be called after
// View.
func (b *Board) NeedsPreview() (id ID, ok bool) {
	p := &b.previews
	if b.selected == nil || !p.room {
		return ID{}, false
	}
	id = b.selected.id
	if _, known := p.lines[id]; known || id == p.asked {
		return ID{}, false
	}
	p.asked = id
	return id, true
}

// SetPreview gives a session the messages that get_messages has of it, or says
// why there are none.
func (b *Board) SetPreview(id ID, all protocol.Messages, problem string) {
	p := &b.previews
	if p.asked == id {
		p.asked = ID{}
	}
	if len(p.lines) >= maxPreviews || p.lines == nil {
		p.lines = map[ID][]string{}
	}
	p.lines[id] = end(all)
	if problem != "" {
		p.lines[id] = []string{cell.Line(problem, maxText)}
	}
}

// end are the last lines of a conversation, without what tools said.
func end(all protocol.Messages) []string {
	var said [][]string
	count := 0
	for i := len(all.Messages) - 1; i >= 0 && count < maxPreviewLines; i-- {
		var m protocol.Message
		if json.Unmarshal(all.Messages[i], &m) != nil || m.Role == "tool" || strings.TrimSpace(m.Text) == "" {
			continue
		}
		text := m.Text[max(len(m.Text)-maxPreviewText, 0):]
		var lines []string
		for line := range strings.SplitSeq(cell.Sanitize(strings.TrimSpace(text)), "\n") {
			if strings.TrimSpace(line) != "" {
				lines = append(lines, line)
			}
		}
		mark := "  "
		if m.Role == "user" {
			mark = "› "
		}
		for n, line := range lines {
			lines[n] = mark + line
			mark = "  "
		}
		said = append(said, lines)
		count += len(lines)
	}
	lines := make([]string, 0, count)
	for i := len(said) - 1; i >= 0; i-- {
		lines = append(lines, said[i]...)
	}
	return lines[max(len(lines)-maxPreviewLines, 0):]
}

// stale tells whether an event changes what a preview shows.
func (p *previews) stale(ev protocol.Event) bool {
	switch ev.(type) {
	case protocol.MessageEnd, protocol.AgentEnd:
		return true
	}
	return false
}

func (p *previews) forget(id ID) {
	delete(p.lines, id)
	if p.asked == id {
		p.asked = ID{} // the answer that is on its way is of before
	}
}

// changed forgets the preview of a session that is another one than was known.
func (p *previews) changed(r *row, now protocol.SessionInfo) {
	if !r.info.UpdatedAt.Equal(now.UpdatedAt) || r.info.Messages != now.Messages {
		p.forget(r.id)
	}
}
