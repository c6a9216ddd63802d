package transcript

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"noused/internal/client/conversation"
)

// search is a text that is looked for in all that was said: in the lines of each
// block as it is unfolded.
//
// Blocks are searched a few at a time, those first that are nearest to where the
// user was. How many matches they have is kept in them.
type search struct {
	want    want
	number  int             // of the text; counts of other ones are old
	at      *match          // that is shown
	waiting bool            // at is the nearest one, as soon as that is known
	back    view            // in which the search began
	from    place           // the last line of that view
	opened  map[*block]fold // blocks that were folded, and how
}

// view is what was looked at.
type view struct {
	top    *block // nil if there was nothing
	at     place
	follow bool
}

// match is the n-th one in a piece of a block as it is unfolded.
type match struct {
	in       *block
	piece, n int
}

// count says how many matches the pieces of a block have.
type count struct {
	number int // of the text
	whole  bool
	pieces []int
	sum    int
}

// Find looks for a text and shows the match nearest to what was shown before the
// first text: in it, else above, else below. Where there is none, it shows that
// again. Capital letters matter if the text has one. [Transcript.FindMore] does
// the work.
func (t *Transcript) Find(text string) {
	if t.find == nil {
		t.beginFind()
	}
	s, before := t.find, t.find.number
	next := wantOf(text)
	if next.text == s.want.text {
		return
	}
	t.searches++
	s.number = t.searches
	if s.want.text != "" && next.within(s.want) {
		t.keepNone(before)
	}
	s.want, s.at, s.waiting = next, nil, true
	t.nearest()
}

func (t *Transcript) beginFind() {
	s := &search{opened: map[*block]fold{}}
	t.find = s
	if len(t.blocks) == 0 {
		return
	}
	t.clampTop()
	top := t.top
	if t.follow {
		top = t.endTop(t.height)
	}
	s.back, s.from = view{t.blocks[top.block], top, t.follow}, t.down(top, max(t.height-1, 0))
}

// keepNone has the blocks that have no match of the text before have none of one
// that begins with it.
func (t *Transcript) keepNone(before int) {
	for _, b := range t.blocks {
		if c := &b.found; c.number == before && c.whole && c.sum == 0 {
			c.number = t.find.number
		}
	}
}

// FindMore searches on for about that long, and a part of a message at least.
func (t *Transcript) FindMore(long time.Duration) {
	if t.find == nil {
		return
	}
	end := time.Now().Add(long)
	for b := range t.nearestFirst() {
		if t.wants(b) && !t.searchBlock(b, end) {
			break
		}
	}
	t.nearest()
}

// Finding tells whether there is more to be searched.
func (t *Transcript) Finding() bool {
	if t.find == nil || t.find.want.text == "" {
		return false
	}
	return slices.ContainsFunc(t.blocks, t.wants)
}

// Found is which match is shown, from 1 on, or 0, and how many there are in what
// was searched.
func (t *Transcript) Found() (at, of int) {
	if t.find == nil || t.find.want.text == "" {
		return 0, 0
	}
	for _, b := range t.blocks {
		c := &b.found
		if c.number != t.find.number {
			continue
		}
		if m := t.find.at; m != nil && m.in == b {
			at = min(of+c.before(m.piece)+m.n+1, of+c.sum)
		}
		of += c.sum
	}
	return at, of
}

// NextMatch shows the match above the one that is shown, or below it; the first
// and the last one are neighbours.
func (t *Transcript) NextMatch(up bool) {
	if t.find == nil {
		return
	}
	i := -1
	if t.find.at != nil {
		i = t.index(t.find.at.in)
	}
	if i < 0 {
		t.find.waiting = true // for what was said since
		t.nearest()
		return
	}
	here := *t.find.at
	t.searchBlock(here.in, time.Time{})
	if m := here.in.found.next(here, up); m != nil {
		t.goTo(*m)
		return
	}
	for k := range t.blocks {
		j := i + k + 1
		if up {
			j = i - k - 1
		}
		b := t.blocks[(j+len(t.blocks))%len(t.blocks)]
		if t.wants(b) {
			t.searchBlock(b, time.Time{})
		}
		if b.found.number == t.find.number && b.found.sum > 0 {
			t.goTo(b.found.end(b, !up))
			return
		}
	}
}

// EndFind ends the search: with back where it began, with what was folded then,
// else where it is.
func (t *Transcript) EndFind(back bool) {
	s := t.find
	if t.find = nil; s == nil || !back {
		return
	}
	t.refold(s, nil)
	t.goBack(s.back)
}

// refold folds again what was unfolded for a match, but for one block.
func (t *Transcript) refold(s *search, but *block) {
	for b, was := range s.opened {
		if b != but {
			b.turn(was)
			delete(s.opened, b)
		}
	}
}

// turn folds or unfolds a block, which has the same matches then.
func (b *block) turn(to fold) {
	found := b.found
	b.fold = to
	b.dirty()
	b.found = found
}

func (t *Transcript) goBack(to view) {
	if i := t.index(to.top); i >= 0 && !to.follow {
		t.top, t.follow = place{i, to.at.piece, to.at.line}, false
		return
	}
	t.follow = true
}

// findAgain goes on with a search after everything was loaded anew.
func (t *Transcript) findAgain() {
	if t.find == nil {
		return
	}
	s := t.find
	now := func(b *block) *block {
		if b == nil {
			return nil
		}
		return t.known[b.Key]
	}
	s.back.top = now(s.back.top)
	if s.at != nil {
		if s.at.in = now(s.at.in); s.at.in == nil {
			s.at = nil
		}
	}
	opened := map[*block]fold{}
	for b, was := range s.opened {
		if b := now(b); b != nil {
			opened[b] = was
		}
	}
	s.opened = opened
}

// nearestFirst are the blocks upwards from where the search began, then
// downwards.
func (t *Transcript) nearestFirst() iter.Seq2[*block, int] {
	return func(yield func(*block, int) bool) {
		from := min(t.find.from.block, len(t.blocks)-1)
		for i := from; i >= 0; i-- {
			if !yield(t.blocks[i], i) {
				return
			}
		}
		for i := from + 1; i < len(t.blocks); i++ {
			if !yield(t.blocks[i], i) {
				return
			}
		}
	}
}

// wants tells whether a block has still to be searched. What is folded and still
// changes has to be once it does no more.
func (t *Transcript) wants(b *block) bool {
	if b.found.whole && b.found.number == t.find.number || b.Kind == conversation.RunEnd {
		return false
	}
	return !t.hides(b) || !b.Live && (b.Call == nil || b.Call.State != conversation.Running)
}

// hides tells whether a block is folded.
func (t *Transcript) hides(b *block) bool { return b.foldable() && !t.isOpen(b) }

// searchBlock searches a block until a time, a piece of it at least, and tells whether
// there was time for all of it. The zero time is no end.
func (t *Transcript) searchBlock(b *block, end time.Time) bool {
	c := &b.found
	if c.number != t.find.number {
		*c = count{number: t.find.number}
	}
	var all []piece
	if len(c.pieces) > 0 || t.mayHold(b) {
		all = t.unfoldedPieces(b)
	}
	for i := len(c.pieces); i < len(all) && !c.whole; i++ {
		p := all[i]
		if p.lang = ""; p.lines == nil && t.mayMatch(b, &p) { // its colours are no matter
			p.lines = t.render(b, &p)
		}
		n := len(t.matches(b, &p))
		c.pieces = append(c.pieces, n)
		c.sum += n
		if i+1 < len(all) && !end.IsZero() && !time.Now().Before(end) {
			return false
		}
	}
	if c.whole = true; c.sum == 0 && !b.Live {
		c.pieces = nil
	}
	return end.IsZero() || time.Now().Before(end)
}

// grown keeps the counts of the pieces that stay.
func (c *count) grown(kept int) {
	c.whole = false
	for len(c.pieces) > kept {
		last := len(c.pieces) - 1
		c.sum -= c.pieces[last]
		c.pieces = c.pieces[:last]
	}
}

// before counts the matches before a piece.
func (c *count) before(piece int) (n int) {
	for _, k := range c.pieces[:min(piece, len(c.pieces))] {
		n += k
	}
	return n
}

// next is the match after another one of the same block, or before it; nil if
// there is none.
func (c *count) next(m match, up bool) *match {
	step := 1
	if up {
		step = -1
	}
	m.n += step
	for m.piece < 0 || m.piece >= len(c.pieces) || m.n < 0 || m.n >= c.pieces[m.piece] {
		m.piece += step
		if m.piece < 0 || m.piece >= len(c.pieces) {
			return nil
		}
		if m.n = 0; up {
			m.n = c.pieces[m.piece] - 1
		}
	}
	return &m
}

// end is the first match or the last one of a block that has some.
func (c *count) end(b *block, first bool) match {
	m := match{b, -1, 0}
	if !first {
		m.piece = len(c.pieces)
	}
	return *c.next(m, !first)
}

// unfoldedPieces are the pieces of a block when it is not folded.
func (t *Transcript) unfoldedPieces(b *block) []piece {
	if !t.hides(b) {
		if !b.laid {
			t.lay(b)
		}
		return b.pieces
	}
	fold, laid, pieces, kept, from := b.fold, b.laid, b.pieces, b.kept, b.from
	b.fold, b.pieces, b.kept, b.from = opened, nil, 0, 0
	t.lay(b)
	all := b.pieces
	b.fold, b.laid, b.pieces, b.kept, b.from = fold, laid, pieces, kept, from
	return all
}

// mayMatch tells whether a piece is looked at. What the transcript says by itself
// is not, nor what changes with the clock.
func (t *Transcript) mayMatch(b *block, p *piece) bool {
	switch {
	case t.find == nil || t.find.want.text == "" || p.moving || p.as == asHint || b.Kind == conversation.RunEnd:
		return false
	case p.as == asHead:
		return b.Kind == conversation.Tool
	}
	return t.find.want.mayBeIn(p.text, p.as == asMarkdown)
}

// mayHold tells, without looking at its pieces, whether a block may have a match.
func (t *Transcript) mayHold(b *block) bool {
	w := &t.find.want
	if w.text == "" {
		return false
	}
	for _, a := range b.Attachments {
		if w.mayBeIn(attachedWords(a), false) {
			return true
		}
	}
	c := b.Call
	if c == nil {
		return b.Kind != conversation.User && b.Kind != conversation.Assistant && b.Kind != conversation.Thinking ||
			b.TurnKind != "" || b.StopReason != "" || w.mayBeIn(b.Text.String(), b.Kind == conversation.Assistant)
	}
	return c.Err != nil || len(c.Outputs)+len(c.Notes)+len(c.Output) > 0 || bytes.IndexByte(c.Arguments, '\\') >= 0 ||
		w.mayBeIn(c.Name, false) || w.mayBeIn(string(c.Arguments), false) || w.mayBeIn(c.Result, false)
}

// matches are those in the lines of a piece.
func (t *Transcript) matches(b *block, p *piece) []hit {
	if !t.mayMatch(b, p) {
		return nil
	}
	return t.find.want.in(p.lines, t.width())
}

// nearest shows the match that is nearest to where the search began, as soon as
// it is known which one that is.
func (t *Transcript) nearest() {
	s := t.find
	if !s.waiting {
		return
	}
	for b, i := range t.nearestFirst() {
		if s.want.text == "" {
			break
		}
		if t.wants(b) {
			return
		}
		if b.found.number != s.number || b.found.sum == 0 {
			continue
		}
		m := b.found.end(b, i > s.from.block)
		if i == s.from.block {
			m = t.lastSeen(m)
		}
		t.goBack(s.back) // what a shorter text has shown meanwhile is no matter
		t.goTo(m)
		return
	}
	s.waiting = false
	t.goBack(s.back)
}

// lastSeen is the last match that is not below the view in which the search
// began, for the last one of the last block in it; else the first one.
func (t *Transcript) lastSeen(m match) match {
	if t.hides(m.in) {
		return m
	}
	for {
		at := t.placeOf(m)
		if at.piece < t.find.from.piece || at.piece == t.find.from.piece && at.line <= t.find.from.line {
			return m
		}
		before := m.in.found.next(m, true)
		if before == nil {
			return m
		}
		m = *before
	}
}

// placeOf is the line where a match begins, in a block that is not folded.
func (t *Transcript) placeOf(m match) place {
	at := place{t.index(m.in), m.piece, 0}
	if at.piece = min(at.piece, len(t.unfoldedPieces(m.in))-1); at.piece < 0 {
		return place{at.block, 0, 0}
	}
	if hits := t.matches(m.in, t.piece(at)); m.n < len(hits) {
		at.line = hits[m.n][0].line
	}
	return at
}

// goTo shows a match, and unfolds what it stands in.
func (t *Transcript) goTo(m match) {
	s := t.find
	s.at, s.waiting = &m, false
	t.refold(s, m.in)
	if t.hides(m.in) && m.piece >= m.in.headLen() {
		s.opened[m.in] = m.in.fold
		m.in.turn(opened)
	}
	t.showLine(t.placeOf(m))
}

// showLine scrolls to a line unless it is in the view.
func (t *Transcript) showLine(to place) {
	t.clampTop()
	if t.follow {
		t.top = t.endTop(t.height)
	}
	t.follow = false
	rows := 0
	for at, ok := t.top, !before(to, t.top); ok && rows < t.height; at, ok = t.nextPiece(at) {
		if at.block == to.block && at.piece == to.piece {
			if rows+to.line-at.line < t.height {
				return
			}
			break
		}
		rows += len(t.piece(at).lines) - at.line
	}
	t.top = t.up(to, t.height/3)
}

func before(a, b place) bool {
	if a.block != b.block {
		return a.block < b.block
	}
	if a.piece != b.piece {
		return a.piece < b.piece
	}
	return a.line < b.line
}
