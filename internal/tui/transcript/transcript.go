// Package transcript is a conversation on the screen: it shows the lines of the
// entries that a view of some height looks at.
//
// Nothing is rendered that is not looked at, and what is rendered is kept until
// it is far away, so that a long session costs no more than a short one. A text
// that streams in is rendered in parts; only the last part is ever rendered
// again, at most once for each view (part, in split.go, bounds it).
//
// Concurrency: a Transcript belongs to one goroutine.
//
// It refuses to talk to the daemon, to read keys, to draw outside its lines, and
// to let anything of a message or a tool reach the terminal that is not text.
package transcript

import (
	"slices"
	"strings"
	"time"

	"noused/internal/client/conversation"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// Look is how a transcript is drawn. Plain, for screen readers, has words in
// the place of symbols and of colours; it rules over Dark and Color. Without
// Color nothing has a style but what was looked for and found.
type Look struct {
	Width              int // in cells; less than 1 counts as 1
	Dark, Color, Plain bool
}

// maxCached bounds what is kept.
const maxCached = 20_000 // rendered lines

// Transcript is one session's conversation. Make it with [New].
type Transcript struct {
	look  Look
	theme theme.Theme
	md    *markdown
	now   func() time.Time

	talk   *conversation.Conversation
	blocks []*block          // of its entries
	known  map[string]*block // by the key of its entry
	notes  []note

	top    place // the first line of the view, unless it follows
	follow bool  // the view shows the end
	height int   // of the last view
	bottom int   // the last block that it shows
	stamp  int   // counts views
	cached []cachedPiece
	lines  int // in cached
	moving bool

	focus    *block
	unfolded bool // what is not folded or unfolded by itself

	children    map[string]Child // of calls, by their ids
	delegations []Delegation     // as they were at the change delegated
	changes     int
	delegated   int

	find     *search // nil: nothing is looked for
	searches int     // numbers the texts that are
}

// place is a line: of a piece, of a block.
type place struct{ block, piece, line int }

type cachedPiece struct {
	b *block
	i int
}

// New returns an empty transcript.
func New(look Look) *Transcript {
	t := &Transcript{now: time.Now, follow: true}
	t.talk = conversation.New((*folding)(t))
	t.setLook(look)
	return t
}

// Clear forgets everything: the next Load is of another session, which may have
// the same runs and calls and another end of them.
func (t *Transcript) Clear() {
	t.talk.Clear()
	t.notes, t.find, t.children = nil, nil, nil
}

func (t *Transcript) clear() {
	t.blocks, t.known = nil, map[string]*block{}
	t.changes++
	t.cached, t.lines, t.focus = nil, 0, nil
	t.top, t.follow = place{}, true
}

// SetLook changes how everything is drawn. What is at the top of the view stays
// there, to the part of a block; a view of the end stays at the end.
func (t *Transcript) SetLook(look Look) {
	if look.Width = max(look.Width, 1); look == t.look {
		return
	}
	t.setLook(look)
}

func (t *Transcript) setLook(look Look) {
	look.Width = max(look.Width, 1)
	t.look = look
	t.md = newMarkdown(look)
	t.theme = theme.Theme{}
	if look.Color && !look.Plain {
		t.theme = theme.New(look.Dark, true)
	}
	t.forget()
}

// forget drops all that was rendered.
func (t *Transcript) forget() {
	for _, b := range t.blocks {
		b.dirty()
	}
	t.cached, t.lines = nil, 0
}

// gutter is the width of the column that shows the focus.
func (t *Transcript) gutter() int {
	if t.look.Plain || t.look.Width < 20 {
		return 0
	}
	return 2
}

func (t *Transcript) width() int { return t.look.Width - t.gutter() }

// View returns exactly height lines of at most the look's width. Only what it
// shows is rendered.
func (t *Transcript) View(height int) []string {
	height = max(height, 0)
	t.height = height
	t.stamp++
	t.moving = false
	out := make([]string, 0, height)
	if height == 0 {
		return out
	}
	if t.clampTop(); !t.follow && t.below(t.top, height) < height {
		t.follow = true
	}
	if t.follow {
		t.top = t.endTop(height)
		t.follow = t.find == nil || t.find.at == nil // what was found stays where it is
	}
	for at, ok := t.top, len(t.blocks) > 0; ok && len(out) < height; at, ok = t.nextPiece(at) {
		b := t.blocks[at.block]
		mark := t.mark(b)
		p := t.piece(at)
		t.bottom = at.block
		for _, line := range t.lit(b, at.piece, p)[min(at.line, len(p.lines)):] {
			if len(out) == height {
				break
			}
			out = append(out, t.finish(mark, line))
		}
		if p.moving {
			t.moving = true
		}
	}
	for len(out) < height {
		out = append(out, "")
	}
	t.prune()
	return out
}

// mark is what stands in the gutter of a block's lines.
func (t *Transcript) mark(b *block) string {
	switch {
	case t.gutter() == 0:
		return ""
	case b == t.focus:
		return t.theme.Accent.Render("▎") + " "
	}
	return "  "
}

func (t *Transcript) finish(mark, line string) string {
	if line == "" && strings.TrimSpace(mark) == "" {
		return ""
	}
	return cell.Truncate(mark+line, t.look.Width)
}

// piece returns the piece at a place, rendered.
func (t *Transcript) piece(at place) *piece {
	b := t.blocks[at.block]
	if !b.laid {
		t.lay(b)
	}
	p := &b.pieces[at.piece]
	if p.lines == nil || p.moving && p.stamp != t.stamp { // once a view
		if p.lines == nil {
			t.cached = append(t.cached, cachedPiece{b, at.piece})
		} else {
			t.lines -= len(p.lines) + 1
		}
		p.lines = t.render(b, p)
		if p.lines == nil {
			p.lines = []string{}
		}
		if len(p.lines) > 0 && (p.gap || at.piece == 0 && t.gap(at.block)) {
			p.lines = append([]string{""}, p.lines...)
		}
		t.lines += len(p.lines) + 1
	}
	p.stamp = t.stamp
	return p
}

// gap tells whether a blank line stands before a block.
func (t *Transcript) gap(i int) bool {
	if i == 0 {
		return false
	}
	a, b := t.blocks[i-1].Kind, t.blocks[i].Kind
	return a != b || a != conversation.Tool && a != conversation.Aside
}

// nextPiece is the beginning of the piece after a place.
func (t *Transcript) nextPiece(at place) (place, bool) {
	b := t.blocks[at.block]
	if !b.laid {
		t.lay(b)
	}
	if at.piece+1 < len(b.pieces) {
		return place{at.block, at.piece + 1, 0}, true
	}
	if at.block+1 < len(t.blocks) {
		return place{at.block + 1, 0, 0}, true
	}
	return at, false
}

// prevPiece is the beginning of the piece before a place's.
func (t *Transcript) prevPiece(at place) (place, bool) {
	if at.piece > 0 {
		return place{at.block, at.piece - 1, 0}, true
	}
	if at.block == 0 {
		return at, false
	}
	b := t.blocks[at.block-1]
	if !b.laid {
		t.lay(b)
	}
	return place{at.block - 1, len(b.pieces) - 1, 0}, true
}

// clampTop keeps the top within what is there, after the blocks have changed.
func (t *Transcript) clampTop() {
	if len(t.blocks) == 0 {
		t.top, t.follow = place{}, true
		return
	}
	if t.top.block >= len(t.blocks) {
		t.top = place{len(t.blocks) - 1, 0, 0}
	}
	b := t.blocks[t.top.block]
	if !b.laid {
		t.lay(b)
	}
	if t.top.piece >= len(b.pieces) {
		t.top.piece, t.top.line = len(b.pieces)-1, 0
	}
	t.top.line = min(t.top.line, max(len(t.piece(t.top).lines)-1, 0))
}

// below counts the lines from a place on, up to enough.
func (t *Transcript) below(at place, enough int) int {
	n := 0
	for ok := len(t.blocks) > 0; ok && n < enough; at, ok = t.nextPiece(at) {
		n += len(t.piece(at).lines) - at.line
	}
	return n
}

// endTop is the place from which on height lines are left, or the beginning.
func (t *Transcript) endTop(height int) place {
	if len(t.blocks) == 0 {
		return place{}
	}
	last := t.blocks[len(t.blocks)-1]
	if !last.laid {
		t.lay(last)
	}
	at := place{len(t.blocks) - 1, len(last.pieces) - 1, 0}
	at.line = len(t.piece(at).lines)
	return t.up(at, height)
}

// up is the place some lines before another, or the beginning.
func (t *Transcript) up(at place, lines int) place {
	for {
		if at.line >= lines {
			at.line -= lines
			return at
		}
		lines -= at.line
		before, ok := t.prevPiece(at)
		if at = before; !ok {
			at.line = 0
			return at
		}
		at.line = len(t.piece(at).lines)
	}
}

// down is the place some lines after another, or the last line.
func (t *Transcript) down(at place, lines int) place {
	for {
		here := len(t.piece(at).lines)
		if at.line+lines < here {
			at.line += lines
			return at
		}
		next, ok := t.nextPiece(at)
		if !ok {
			at.line = max(here-1, 0)
			return at
		}
		lines -= here - at.line
		at = next
	}
}

// Scroll moves the view by lines, towards the end when they are positive. What
// reaches the end stays there as more comes.
func (t *Transcript) Scroll(lines int) {
	if len(t.blocks) == 0 || lines == 0 || lines > 0 && t.follow {
		return
	}
	t.clampTop()
	if t.follow {
		t.top = t.endTop(t.height)
	}
	if lines > 0 {
		t.top = t.down(t.top, lines)
		t.follow = t.below(t.top, t.height+1) <= t.height
		return
	}
	if top := t.up(t.top, -lines); top != t.top {
		t.top, t.follow = top, false
	}
}

// Page scrolls by whole views less two lines.
func (t *Transcript) Page(n int) { t.Scroll(n * max(t.height-2, 1)) }

// Top shows the beginning.
func (t *Transcript) Top() {
	t.top, t.follow = place{}, false
	t.follow = t.below(t.top, t.height+1) <= t.height
}

// End shows the end and stays there as more comes.
func (t *Transcript) End() { t.follow = true }

// Empty tells whether there is no conversation yet.
func (t *Transcript) Empty() bool { return len(t.blocks) == 0 }

// AtEnd tells whether the view shows the end, and follows it.
func (t *Transcript) AtEnd() bool { return t.follow }

// Position is how much of the blocks lies above the view, in percent; 100 at the
// end. It is exact in blocks, not in lines: most of them were never rendered.
func (t *Transcript) Position() (percent int) {
	if t.follow || len(t.blocks) == 0 {
		return 100
	}
	at := float64(t.top.block)
	if b := t.blocks[min(t.top.block, len(t.blocks)-1)]; len(b.pieces) > 0 {
		at += float64(t.top.piece) / float64(len(b.pieces))
	}
	return min(int(100*at/float64(len(t.blocks))), 99)
}

// Animating tells whether the last view has a spinner or a running duration on
// it, and looks different a moment later.
func (t *Transcript) Animating() bool { return t.moving }

// prune forgets what the last view did not need once too much is kept.
func (t *Transcript) prune() {
	if t.lines <= maxCached {
		return
	}
	kept := t.cached[:0]
	t.lines = 0
	for _, c := range t.cached {
		if c.i >= len(c.b.pieces) || c.b.pieces[c.i].lines == nil {
			continue
		}
		p := &c.b.pieces[c.i]
		if p.stamp == t.stamp {
			kept = append(kept, c)
			t.lines += len(p.lines) + 1
			continue
		}
		p.lines = nil
	}
	clear(t.cached[len(kept):])
	t.cached = kept
}

// Failed is why the model's provider failed the run that the conversation ends with, nil where it
// did not, and the text that the run had nothing for: nil where the model had begun its work.
func (t *Transcript) Failed() (said *conversation.Entry, why *protocol.RunError) {
	for _, e := range slices.Backward(t.talk.Entries()) {
		switch {
		case e.Kind == conversation.Aside:
		case why == nil:
			if e.Kind != conversation.RunEnd || e.End.Err == nil ||
				e.End.Err.Code != protocol.ProviderError && e.End.Err.Code != protocol.KeyRefused {
				return nil, nil
			}
			why = e.End.Err
		case e.Kind == conversation.User:
			return e, why
		case e.Kind != conversation.Thinking && (e.Kind != conversation.Assistant || e.StopReason != protocol.StopError):
			return nil, why
		}
	}
	return nil, why
}
