package transcript

import (
	"fmt"
	"strings"
	"time"

	"noused/internal/client/conversation"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// block is an entry as it is drawn.
type block struct {
	*conversation.Entry
	body  body // the entry's text in parts
	words counter
	fold  fold

	// What follows is remade from what stands above.
	laid   bool
	pieces []piece
	kept   int // pieces that stay when the text grows
	from   int // parts of the body that are among them
	found  count
}

func newBlock(e *conversation.Entry) *block {
	plain := e.Kind == conversation.User || e.Kind == conversation.Thinking || e.Kind == conversation.Aside ||
		e.Kind == conversation.Unknown
	return &block{Entry: e, body: body{plain: plain, text: &e.Text}}
}

// counter counts the words of a text that grows.
type counter struct {
	seen, n int
	inside  bool // of a word
}

func (c *counter) in(text string) int {
	if len(text) < c.seen {
		*c = counter{}
	}
	for ; c.seen < len(text); c.seen++ {
		space := text[c.seen] <= ' '
		if !space && !c.inside {
			c.n++
		}
		c.inside = !space
	}
	return c.n
}

// fold is whether a block is folded.
type fold uint8

const (
	asAll  fold = iota // as the transcript's others are
	closed             // by hand
	opened
)

// piece is what is rendered at once: a part of a block.
type piece struct {
	as     style
	text   string
	lang   string
	gap    bool // a blank line stands before it
	first  bool // of the block's text
	moving bool // it looks different a moment later

	lines []string // rendered, nil if not
	stamp int      // the view that needed it last
}

// style is how a piece is drawn.
type style uint8

const (
	asMarkdown style = iota
	asCode
	asUser
	asThought
	asOutput // text of a tool
	asCut    // lines of it, cut at the width
	asDiff
	asHint // how much is not shown
	asNote
	asFailure
	asHead // the one line that says what a block is
)

// dirty forgets how the block was drawn.
func (b *block) dirty() { b.laid, b.pieces, b.kept, b.from, b.found = false, nil, 0, 0, count{} }

// grown says that the text has become longer.
func (b *block) grown() {
	b.laid = false
	b.found.grown(b.kept)
}

// foldable tells whether there is something to fold.
func (b *block) foldable() bool {
	return b.Kind == conversation.Thinking || b.Kind == conversation.Tool || b.Kind == conversation.Summary ||
		b.Kind == conversation.Unknown
}

func (t *Transcript) isOpen(b *block) bool {
	return b.fold == opened || b.fold == asAll && t.unfolded
}

// lay divides a block into pieces, without rendering any.
func (t *Transcript) lay(b *block) {
	b.laid = true
	if b.kept == 0 {
		b.pieces = t.head(b)
		b.kept = len(b.pieces)
	}
	b.pieces = b.pieces[:b.kept]
	switch {
	case b.Kind == conversation.RunEnd:
	case b.Kind == conversation.Tool:
		t.layTool(b)
	case !b.foldable() || t.isOpen(b):
		t.layBody(b)
	case b.Kind == conversation.Thinking && b.Live:
		b.pieces = append(b.pieces, piece{as: asCut, text: lastLines(b.Text.String(), liveLines)})
	}
	if len(b.pieces) == 0 {
		b.pieces = []piece{{as: asHint}}
	}
}

// layBody adds the parts of the text, those that are there already excepted.
func (t *Transcript) layBody(b *block) {
	done, rest, ok := b.body.cut()
	for ; b.from < len(done); b.from++ {
		b.pieces = append(b.pieces, t.pieceOf(b, done[b.from]))
	}
	b.kept = len(b.pieces)
	if ok {
		b.pieces = append(b.pieces, t.pieceOf(b, rest))
	}
	if b.Text.Over() {
		b.pieces = append(b.pieces, piece{as: asHint, text: fmt.Sprintf("the text is longer than the %d MiB shown here",
			conversation.MaxText>>20)})
	}
	if b.Kind == conversation.Assistant && !b.Live && remark(b.StopReason) != "" {
		p := piece{as: asHint, text: remark(b.StopReason), first: b.Text.Len() == 0}
		b.pieces = append(b.pieces, p)
	}
	for _, a := range b.Attachments {
		b.pieces = append(b.pieces, piece{as: asNote, text: attachedWords(a)})
	}
}

func attachedWords(a protocol.Attachment) string {
	name := a.Name
	if name == "" {
		name = a.Path
	}
	return fmt.Sprintf("attached: %s, %s, %s", name, a.MediaType, format.Size(a.Size))
}

// remark says why an answer is not whole, "" if it is.
func remark(stop protocol.StopReason) string {
	switch stop {
	case protocol.StopAborted:
		return "(aborted)"
	case protocol.StopError:
		return "(broke off)"
	case protocol.StopLength:
		return "(cut off at the length limit)"
	}
	return ""
}

func (t *Transcript) pieceOf(b *block, p part) piece {
	out := piece{text: p.text, lang: p.lang, first: b.from == 0 && len(b.pieces) == b.headLen()}
	out.gap = !p.joined && !out.first && !b.body.plain
	switch {
	case b.Kind == conversation.User:
		out.as = asUser
	case b.Kind == conversation.Thinking:
		out.as = asThought
	case b.Kind == conversation.Aside:
		out.as = asNote
	case p.code:
		out.as = asCode
	case p.plain || b.Kind == conversation.Unknown:
		out.as = asOutput
	}
	return out
}

// headLen is how many pieces stand before the text.
func (b *block) headLen() int {
	switch {
	case b.Kind == conversation.User && (b.TurnKind == "" || b.TurnKind == protocol.KindPrompt),
		b.Kind == conversation.Assistant, b.Kind == conversation.Aside:
		return 0
	}
	return 1
}

// head is the line that says what a block is, where the text does not.
func (t *Transcript) head(b *block) []piece {
	if b.headLen() == 0 {
		return nil
	}
	return []piece{{as: asHead, moving: b.Kind == conversation.Thinking && b.Live || b.Kind == conversation.Tool &&
		t.state(b) == conversation.Running}}
}

// render draws a piece.
func (t *Transcript) render(b *block, p *piece) []string {
	width := t.width()
	if t.look.Plain {
		return t.renderPlain(b, p, width)
	}
	inner := max(width-2, 1)
	switch p.as {
	case asMarkdown:
		return t.md.render(p.text, width)
	case asCode:
		return t.md.code(p.text, p.lang, width)
	case asUser:
		lines := indented("  ", styled(t.theme.User, wrap(trimBreak(p.text), inner)))
		if p.first && len(lines) > 0 && b.headLen() == 0 {
			lines[0] = t.theme.Accent.Render("❯") + " " + strings.TrimPrefix(lines[0], "  ")
		}
		for i, line := range lines {
			lines[i] = theme.Band(t.theme.UserOn, line, width)
		}
		return lines
	case asThought:
		return indented("  ", styled(t.theme.Thinking, wrap(trimBreak(p.text), inner)))
	case asOutput:
		return indented("  ", wrap(trimBreak(p.text), inner))
	case asCut:
		return indented("  ", styled(t.theme.Dim, cutLines(p.text, inner)))
	case asDiff:
		return indented("  ", t.diffLines(p.text, p.lang, inner))
	case asHint:
		if p.text == "" {
			return nil
		}
		return styled(t.theme.Dim, hanging("  ", p.text, width))
	case asNote:
		return styled(t.noteStyle(b), hanging(t.notePrefix(b, p), trimBreak(p.text), width))
	case asFailure:
		return styled(t.theme.Error, hanging("  ", trimBreak(p.text), width))
	}
	return t.headLines(b, width)
}

func (t *Transcript) headLines(b *block, width int) []string {
	switch b.Kind {
	case conversation.User:
		return []string{t.theme.Accent.Render("❯") + " " + t.theme.Dim.Render(kindWord(b.TurnKind))}
	case conversation.Report:
		return []string{t.reportHead(b, width)}
	case conversation.Thinking:
		if b.Live {
			return []string{t.theme.Thinking.Render(t.spinner() + " " + t.thoughtWords(b))}
		}
		return []string{t.theme.Thinking.Render(t.arrow(b) + " " + t.thoughtWords(b))}
	case conversation.Tool:
		return []string{t.toolHead(b, width)}
	case conversation.Summary:
		return []string{t.theme.Title.Render(t.arrow(b) + " " + conversation.Summarised(b.Before, b.After))}
	case conversation.RunEnd:
		return t.endLines(b.End, width)
	}
	return []string{t.theme.Warn.Render(t.arrow(b) + " an entry of a kind that this client does not know")}
}

func (t *Transcript) arrow(b *block) string {
	if t.isOpen(b) {
		return "▾"
	}
	return "▸"
}

func kindWord(kind protocol.Kind) string {
	switch kind {
	case protocol.KindSteer:
		return "steering"
	case protocol.KindFollowUp:
		return "follow-up"
	}
	return cell.Line(string(kind), 40)
}

func (t *Transcript) spinner() string {
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	return string(frames[t.now().UnixMilli()/100%int64(len(frames))])
}

// thoughtWords says how long was thought, and how much.
func (t *Transcript) thoughtWords(b *block) string {
	words := format.Count(b.words.in(b.Text.String()), "word")
	switch {
	case b.Live && !b.Began.IsZero():
		return fmt.Sprintf("thinking for %s, %s", duration(t.now().Sub(b.Began)), words)
	case b.Live:
		return "thinking, " + words
	}
	return "thought, " + words
}

// duration is a time as people say it.
func duration(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// endLines is the line under a run.
func (t *Transcript) endLines(e *conversation.Ending, width int) []string {
	var out []string
	switch {
	case e.Err != nil:
		out = styled(t.theme.Error, hanging("✗ ", "the run failed: "+trimBreak(protocol.Coded(e.Err.Code, e.Err.Message)),
			width))
	case e.Reason == protocol.StopError:
		out = []string{t.theme.Error.Render("✗ the run failed")}
	case e.Reason == protocol.StopAborted:
		out = []string{t.theme.Warn.Render("✗ the run was aborted")}
	}
	line := "── " + endStats(e)
	if endStats(e) != "" {
		line += " "
	}
	line = cell.Truncate(line, width)
	return append(out, t.theme.Border.Render(line+strings.Repeat("─", max(width-cell.Width(line), 0))))
}

func endStats(e *conversation.Ending) string {
	var parts []string
	if e.Took > 0 {
		parts = append(parts, duration(e.Took))
	}
	said := strings.Join(append(parts, used(e.Usage)...), " · ")
	switch calls := format.Count(e.Calls, "model call"); {
	case e.Calls == 0:
	case said == "":
		return calls
	default:
		said += " (" + calls + ")"
	}
	return said
}

// Price is what a run or a session cost, in as many digits as say something.
func Price(c protocol.Cost) string {
	switch {
	case c.Amount >= 0.1:
		return fmt.Sprintf("%.2f %s", c.Amount, cell.Line(c.Currency, 8))
	case c.Amount >= 0.0001:
		return fmt.Sprintf("%.4f %s", c.Amount, cell.Line(c.Currency, 8))
	}
	return "< 0.0001 " + cell.Line(c.Currency, 8)
}

// styled gives each line a style; a blank one needs none.
func styled(s interface{ Render(...string) string }, lines []string) []string {
	for i, line := range lines {
		if line != "" {
			lines[i] = s.Render(line)
		}
	}
	return lines
}

// hanging is a text after a mark; its other lines begin where it does.
func hanging(mark, text string, width int) []string {
	n := cell.Width(mark)
	lines := wrap(text, max(width-n, 1))
	for i := range lines {
		lines[i] = mark + lines[i]
		mark = strings.Repeat(" ", n)
	}
	return lines
}

func indented(by string, lines []string) []string {
	for i, line := range lines {
		if line != "" {
			lines[i] = by + line
		}
	}
	return lines
}

// trimBreak is a text sanitised and without the line break at its end.
func trimBreak(text string) string { return strings.TrimSuffix(cell.Sanitize(text), "\n") }

// cutLines are a text's lines, each cut where it is too wide.
func cutLines(text string, width int) []string {
	lines := strings.Split(trimBreak(text), "\n")
	for i, line := range lines {
		lines[i] = cell.Truncate(strings.TrimRight(line, " "), width)
	}
	return lines
}
