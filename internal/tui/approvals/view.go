package approvals

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"noused/internal/client/approval"
	"noused/internal/plaintext"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

// continued begins a line that the screen has broken: it is none of what runs.
const continued = "⤷ "

// roomy is the width from which on there is room for more words.
const roomy = 60

// headRoom is what the first line has beside the title and the key: marks and spaces.
const headRoom = 6

// layout is an approval in lines of a width. The lines to scroll in are the first
// of these where there is room for the others below them, the last where there is
// for none.
type layout struct {
	width          int
	call           []string // what would be done
	known          []string // that and what is known of it
	all            []string // and what the answers stand for
	facts, options []string
}

// Height is how many lines an approval takes that is shown whole in a width.
func (p *Panel) Height(width int) int {
	if p.ID() == "" {
		return 0
	}
	p.lay(width)
	if p.writes() {
		return 3 + len(p.lines(p.filling.fieldLines(), width))
	}
	return 1 + len(p.laid.all)
}

// View is the approval in at most height lines of at most width cells: what is
// asked, then, in what room there is, what would be done, what is known of it, and
// the answers with their keys. Key is the one that gives it the keys; "" where its own
// keys answer without.
func (p *Panel) View(width, height int, key string) []string {
	p.cursor.on = false
	if p.ID() == "" || height <= 0 || width <= 0 {
		return nil
	}
	p.lay(width)
	body, below := p.parts(width, height-1)
	p.page = max(height-1-len(below), 0)
	p.offset = max(min(p.offset, len(body)-p.page), 0)
	shown := body[p.offset:min(p.offset+p.page, len(body))]
	where := ""
	if len(shown) < len(body) {
		where = fmt.Sprintf("%d–%d/%d", p.offset+1, p.offset+len(shown), len(body))
		if width >= roomy {
			where = "lines " + strings.Replace(where, "/", " of ", 1)
		}
	}
	lines := append([]string{p.head(width, where, key)}, shown...)
	if (p.why != nil || p.writes()) && len(below) > 0 {
		p.cursor.y = len(lines) + len(below) - 1
	}
	return append(lines, below...)
}

// parts are the lines to scroll in, and those that stay below them. What has no
// room below is among the lines to scroll in, so that nothing is cut.
func (p *Panel) parts(width, height int) (body, below []string) {
	l := p.laid
	switch {
	case p.writes():
		return p.formParts(width, height)
	case p.why != nil:
		if problem := p.why.Refusal(); problem != "" && height > 1 {
			below = append(below, p.theme.Warn.Render(cell.Truncate("  "+problem, width)))
		}
		return l.all, append(below, p.reasonLine(width))
	case min(len(l.call), 3)+len(l.facts)+len(l.options) <= height:
		return l.call, slices.Concat(l.facts, l.options)
	case min(len(l.known), 3)+len(l.options) <= height:
		return l.known, l.options
	}
	keys := p.keyLines(width)
	return l.all, keys[:min(len(keys), max(height-1, 0))]
}

// head is the first line: what is asked, where one is in it, and the key that
// leads to it or from it.
func (p *Panel) head(width int, where, key string) string {
	name := plaintext.RevealLine(approval.Title(p.asked))
	style, line := p.theme.Warn, p.theme.Border
	hint := cmp.Or(key, p.choiceKeys()) + " to answer"
	if width < roomy {
		hint = key
	}
	switch {
	case p.sent:
		hint = "answering …"
	case p.focused:
		hint, line = "Esc", p.theme.Accent
		if width >= roomy {
			hint = "Esc goes back"
		}
	}
	if p.writes() {
		where = fmt.Sprintf("field %d of %d", p.filling.at+1, len(p.filling.form.Fields))
	}
	if where != "" {
		hint = strings.TrimSuffix(where+" · "+hint, " · ")
	}
	if where == "" && !p.focused && !p.sent && cell.Width(name)+cell.Width(hint)+headRoom > width {
		hint = key
	}
	if hint != "" {
		hint = " " + hint
	}
	hint = cell.Truncate(hint, width/2+width/6)
	name = cell.Truncate("? "+cell.Line(name, 4*width)+" ", max(width-cell.Width(hint)-1, 0))
	rule := strings.Repeat("─", max(width-cell.Width(name)-cell.Width(hint), 0))
	return style.Bold(true).Render(name) + line.Render(rule) + p.theme.Text.Render(hint)
}

func (p *Panel) reasonLine(width int) string {
	prompt, hint := "why not, for the model: ", "  Enter denies"
	if cell.Width(prompt)+cell.Width(hint) > width*2/3 {
		prompt, hint = "why not: ", ""
	}
	text, column := p.why.View(max(width-cell.Width(prompt)-cell.Width(hint), 1))
	p.cursor.x, p.cursor.on = cell.Width(prompt)+column, true
	return p.theme.Accent.Render(prompt) + text + p.theme.Dim.Render(hint)
}

// keyLines are the keys of the answers, where there is no room for what each
// stands for.
func (p *Panel) keyLines(width int) []string {
	var lines []string
	line := ""
	for _, c := range approval.Choices(p.asked) {
		name := c.Key + " " + label(c)
		switch next := line + " · " + name; {
		case line == "":
			line = name
		case cell.Width(next) <= width:
			line = next
		default:
			lines, line = append(lines, line), name
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	for i, l := range lines {
		lines[i] = p.keyStyle().Render(cell.Truncate(l, width))
	}
	return lines
}

// keyStyle is that of the keys, which do nothing before one has turned to them.
func (p *Panel) keyStyle() lipgloss.Style {
	if p.focused {
		return p.theme.Accent
	}
	return p.theme.Dim
}

func label(c approval.Choice) string {
	if c.Reason {
		return "reason"
	}
	return cell.Line(plaintext.RevealLine(c.Option.ID), 64)
}

// lay breaks the approval into lines, once for each width.
func (p *Panel) lay(width int) {
	if p.laid.width == width {
		return
	}
	l := layout{width: width}
	if p.problem != "" {
		l.facts = append(l.facts, hung(p.theme.Warn, cell.Fit("problem", 8), p.theme.Warn, p.problem, width, cell.Wrap)...)
	}
	content, behind := p.lines(content(p.asked), width), p.lines(behind(p.asked, p.whole), width)
	if title := plaintext.RevealLine(approval.Title(p.asked)); approval.Outside(p.asked) && cell.Width(title)+
		headRoom > width {
		content = append(hung(p.theme.Warn, "  ", p.theme.Warn, title, width, cell.Wrap), content...)
	}
	for _, f := range facts(p.asked) {
		value := plaintext.RevealLine(f.value)
		if f.name == "folder" && p.home != "" {
			if rest, ok := strings.CutPrefix(value, p.home+"/"); ok {
				value = "~/" + rest
			}
		}
		l.facts = append(l.facts, hung(p.theme.Dim, cell.Fit(f.name, 8), p.theme.Text, value, width, cell.Wrap)...)
	}
	for _, c := range approval.Choices(p.asked) {
		what := c.Does()
		l.options = append(l.options, hung(p.theme.Accent, "  "+c.Key+"  "+cell.Fit(label(c), 8)+"  ", p.theme.Text, what,
			width, cell.Chop)...)
	}
	l.call = slices.Concat(content, behind)
	l.known = slices.Concat(content, l.facts, behind)
	l.all = slices.Concat(content, l.facts, l.options, behind)
	p.laid = l
}

func (p *Panel) lines(all []text, width int) (lines []string) {
	for _, t := range all {
		lines = append(lines, p.broken(t, width)...)
	}
	return lines
}

// broken is a line of what would be done, in lines of a width.
func (p *Panel) broken(t text, width int) []string {
	style := map[kind]lipgloss.Style{
		plain: p.theme.Text, quiet: p.theme.Dim, added: p.theme.Added, removed: p.theme.Removed, warning: p.theme.Warn,
	}[t.kind]
	if t.kind == prose {
		return hung(style, "  ", style, t.line, width, cell.Wrap)
	}
	var lines []string
	band := map[kind]lipgloss.Style{added: p.theme.AddedOn, removed: p.theme.RemovedOn}[t.kind]
	inner := max(width-len("  "), 1)
	for i, piece := range cell.Chop(cell.Sanitize(t.line), inner) {
		before := "  "
		if i > 0 {
			before = p.theme.Dim.Render(continued)
		}
		lines = append(lines, before+theme.Band(band, style.Render(piece), inner))
	}
	return lines
}

// hung is a text behind a name; its other lines, where it breaks, stand under its
// first.
func hung(named lipgloss.Style, name string, as lipgloss.Style, text string, width int,
	breaks func(string, int) []string,
) []string {
	indent := min(cell.Width(name), width/2)
	name = cell.Truncate(name, indent)
	var lines []string
	for _, line := range breaks(cell.Sanitize(text), max(width-indent, 1)) {
		lines = append(lines, strings.Repeat(" ", indent)+as.Render(line))
	}
	lines[0] = named.Render(name) + strings.TrimPrefix(lines[0], strings.Repeat(" ", indent))
	return lines
}
