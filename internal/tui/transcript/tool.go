package transcript

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/conversation"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/highlight"
)

// Bounds of what a tool's block keeps and shows.
const (
	liveLines = 4  // shown while it runs and is folded
	preview   = 5  // shown of a result that is folded
	diffShown = 12 // shown of a diff that is folded, about
	maxAdded  = 60 // of a new file that is written and folded, at most
	notesSeen = 4  // shown of the notes while folded
	maxHead   = 4 << 10
)

func symbol(s conversation.CallState) string {
	return [...]string{"·", "⟳", "✓", "✗", "⤼", "?"}[s]
}

// base is the tool's bare name.
func baseName(c *conversation.Call) string {
	name := c.Name[strings.LastIndexByte(c.Name, '.')+1:]
	if i := strings.LastIndex(name, "__"); i >= 0 {
		name = name[i+2:]
	}
	return name
}

// argument is one member of a call's arguments. Text is a string's own.
type argument struct {
	name, text string
	quoted     bool // it is a string
}

func argumentsOf(c *conversation.Call) (list []argument, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(c.Arguments))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, false
		}
		a := argument{name: name.String()}
		v, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		if a.quoted = v.Kind() == '"'; a.quoted {
			if json.Unmarshal(v, &a.text) != nil {
				return nil, false
			}
		} else {
			a.text = string(v)
		}
		list = append(list, a)
	}
	return list, true
}

func get(list []argument, name string) (string, bool) {
	for _, a := range list {
		if a.name == name && a.quoted {
			return a.text, true
		}
	}
	return "", false
}

// salient is the argument that says most, on one line.
func salient(c *conversation.Call) string {
	list, ok := argumentsOf(c)
	if !ok {
		if s := string(c.Arguments); s != "null" {
			return cell.Line(s, maxHead)
		}
		return ""
	}
	if c.Name == conversation.AgentTool {
		return task(list)
	}
	if pattern, ok := get(list, "pattern"); ok {
		if path, ok := get(list, "path"); ok {
			return cell.Line(pattern+" in "+path, maxHead)
		}
		return cell.Line(pattern, maxHead)
	}
	for _, name := range []string{"command", "path", "file_path", "file", "query", "url", "goal", "name", "text"} {
		if v, ok := get(list, name); ok {
			return cell.Line(v, maxHead)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return cell.Line(string(c.Arguments), maxHead)
}

// layTool adds what stands under a call's first line.
func (t *Transcript) layTool(b *block) {
	c := b.Call
	list, ok := argumentsOf(c)
	open := t.isOpen(b)
	add := func(as style, text string) {
		if text != "" {
			b.pieces = append(b.pieces, piece{as: as, text: text})
		}
	}
	whole := func(as style, text string) {
		if text == "" {
			return
		}
		long := newBody(true)
		long.text.Add(text)
		parts, rest, ok := long.cut()
		for _, p := range parts {
			add(as, p.text)
		}
		if ok {
			add(as, rest.text)
		}
	}
	diff, isDiff := callDiff(c, list)
	if path, ok := get(list, "path"); ok && isDiff {
		defer t.name(b, highlight.OfFile(path))
	}
	if open {
		layArguments(c, list, ok, isDiff, add, whole)
	}
	switch {
	case isDiff && open:
		whole(asDiff, diff)
	case isDiff:
		shown, more := foldDiff(diff, diffShown)
		if added := strings.Count(shown, "\n") + 1; baseName(c) == "write" && added > maxAdded {
			shown, more = firstLines(shown, maxAdded), more+added-maxAdded
		}
		whole(asDiff, shown)
		if more > 0 {
			add(asHint, fmt.Sprintf("… %d more lines", more))
		}
	}
	switch {
	case isAgent(b) && !open:
		t.layAgent(b, list, add)
	case c.State == conversation.Running && !open:
		add(asCut, lastLines(string(c.Output[max(0, len(c.Output)-maxHead):]), liveLines))
	case open:
		layOutput(c, isDiff, add, whole)
	case c.State == conversation.Failed:
		t.layFailure(c, add)
	case c.State == conversation.Succeeded && !isDiff && baseName(c) != "read":
		t.short(asCut, c.Result, preview, baseName(c) == "bash", add)
	}
	if c.State.Over() && !open { // who comes now does not know them
		return
	}
	for i, n := range c.Notes {
		if !open && i == notesSeen {
			add(asHint, "… "+format.Count(len(c.Notes)-i, "more note"))
			break
		}
		add(asNote, cell.Line(n, 1000))
	}
}

// name says which language the diffs of a block are of.
func (t *Transcript) name(b *block, lang string) {
	for i := range b.pieces {
		if b.pieces[i].as == asDiff {
			b.pieces[i].lang = lang
		}
	}
}

// layFailure adds why a call failed. Of what a command has written the end says
// that, behind the line with its status.
func (t *Transcript) layFailure(c *conversation.Call, add func(style, string)) {
	text := c.Result
	if text == "" && c.Err != nil {
		text = protocol.Coded(c.Err.Code, c.Err.Message)
	}
	isCommand := baseName(c) == "bash"
	if isCommand {
		status, output, _ := strings.Cut(text, "\n")
		add(asFailure, cell.Line(status, maxHead))
		text = output
	}
	t.short(asFailure, text, preview, isCommand, add)
}

func layArguments(c *conversation.Call, list []argument, ok, isDiff bool, add, whole func(style, string)) {
	if !ok {
		if s := string(c.Arguments); s != "null" {
			whole(asOutput, s)
		}
		return
	}
	for _, a := range list {
		switch {
		case isDiff && (a.name == "old_text" || a.name == "new_text" || a.name == "edits" || a.name == "content"):
		case strings.Contains(a.text, "\n"):
			add(asHint, cell.Line(a.name, 100)+":")
			whole(asOutput, conversation.Bounded(a.text))
		default:
			whole(asOutput, cell.Line(a.name, 100)+": "+conversation.Bounded(a.text))
		}
	}
}

func layOutput(c *conversation.Call, isDiff bool, add, whole func(style, string)) {
	live := strings.TrimRight(string(c.Output), "\n")
	if last := live[strings.LastIndexByte(live, '\n')+1:]; live != "" &&
		(!c.State.Over() || !strings.Contains(c.Result, last)) {
		if c.Cut {
			add(asHint, "… the beginning of the output is not kept")
		}
		whole(asOutput, live)
	}
	if c.Err != nil {
		whole(asFailure, protocol.Coded(c.Err.Code, c.Err.Message))
		if len(c.Err.Details) > 0 {
			whole(asOutput, "details: "+conversation.Bounded(string(c.Err.Details)))
		}
	}
	if text := strings.TrimRight(c.Result, "\n"); text != "" && !saysError(c, text) &&
		!(isDiff && c.State == conversation.Succeeded) {
		whole(asOutput, text)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Outputs)) {
		whole(asOutput, cell.Line(name, 100)+" = "+conversation.Bounded(c.Outputs[name]))
	}
}

// saysError tells whether a text is the call's error and no more.
func saysError(c *conversation.Call, text string) bool {
	return c.Err != nil && (text == c.Err.Message || text == string(c.Err.Code)+": "+c.Err.Message)
}

// short adds the first or the last lines of a text, and says how many more there
// are.
func (t *Transcript) short(as style, text string, n int, last bool, add func(style, string)) {
	text = strings.TrimRight(text, "\r\n")
	if text == "" {
		return
	}
	more := strings.Count(text, "\n") + 1 - n
	shown := text
	switch {
	case more <= 1: // a line that says so is no shorter
		more = 0
	case last:
		shown = lastLines(text, n)
	default:
		shown = firstLines(text, n)
	}
	shown = format.Clip(shown, maxHead)
	hint := fmt.Sprintf("… %d more lines", more)
	if more > 0 && last {
		add(asHint, hint)
	}
	add(as, shown)
	if more > 0 && !last {
		add(asHint, hint)
	}
}

// toolHead is a call's first line.
func (t *Transcript) toolHead(b *block, width int) string {
	c := b.Call
	mark := map[conversation.CallState]lipgloss.Style{
		conversation.Running: t.theme.Accent, conversation.Succeeded: t.theme.OK, conversation.Failed: t.theme.Error,
		conversation.Skipped: t.theme.Warn, conversation.Lost: t.theme.Warn,
	}[t.state(b)]
	sign := symbol(t.state(b))
	if t.state(b) == conversation.Running {
		sign = t.spinner()
	}
	if isAgent(b) && t.childOf(b).Asks {
		sign, mark = "!", t.theme.Error
	}
	tail := strings.Join(t.toolFacts(b), ", ")
	line := mark.Render(sign) + " " + t.theme.Tool.Render(cell.Line(c.Name, 200))
	room := width - cell.Width(line) - 2
	if tail != "" {
		room -= cell.Width(tail) + 2
	}
	if arg := salient(c); arg != "" && room > 3 {
		line += "  " + cell.Truncate(arg, room)
	}
	if tail != "" {
		line += "  " + t.theme.Dim.Render(tail)
	}
	return cell.Truncate(line, width)
}

// toolFacts are what a call's first line says at its end.
func (t *Transcript) toolFacts(b *block) []string {
	c := b.Call
	if isAgent(b) {
		return t.agentFacts(b)
	}
	var facts []string
	switch {
	case c.State == conversation.Running && !b.Began.IsZero():
		facts = append(facts, duration(t.now().Sub(b.Began)))
	case c.State == conversation.Skipped, c.State == conversation.Lost, c.State == conversation.Waiting:
		facts = append(facts, c.State.String())
	case b.Timed:
		facts = append(facts, duration(b.Took))
	}
	if c.State == conversation.Succeeded && baseName(c) == "read" && c.Result != "" {
		facts = append(facts, format.Count(strings.Count(strings.TrimRight(c.Result, "\n"), "\n")+1, "line"))
	}
	return facts
}

func (t *Transcript) plainTool(b *block) string {
	c := b.Call
	s := "tool " + cell.Line(c.Name, 200) + ": " + t.state(b).String()
	for _, f := range t.toolFacts(b) {
		if f != t.state(b).String() {
			s += ", " + f
		}
	}
	if arg := salient(c); arg != "" {
		s += ": " + arg
	}
	return s
}

func (t *Transcript) noteStyle(b *block) lipgloss.Style {
	switch {
	case b.Kind == conversation.Aside:
		return t.theme.Dim
	}
	return t.theme.Accent
}

func (t *Transcript) notePrefix(b *block, p *piece) string {
	switch {
	case b.Kind != conversation.Aside:
		return "  ◆ "
	case !p.first:
		return "  "
	}
	return "• "
}

func firstLines(text string, n int) string {
	end := 0
	for range n {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			return text
		}
		end += i + 1
	}
	return text[:end-1]
}

// lastLines is the end of a text, of at most n lines and maxHead bytes.
func lastLines(text string, n int) string {
	text = strings.TrimRight(text, "\r\n")
	start := len(text)
	for range n {
		i := strings.LastIndexByte(text[:start], '\n')
		if start = max(i, 0); i < 0 {
			break
		}
	}
	return format.CutStart(strings.TrimPrefix(text[start:], "\n"), maxHead)
}
