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

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/highlight"
)

// Bounds of what a tool's block keeps and shows.
const (
	maxLive   = 64 << 10 // bytes of output kept while it runs: the last
	maxResult = 1 << 20  // bytes of a result: the first half and the last
	maxNotes  = 200
	liveLines = 4  // shown while it runs and is folded
	preview   = 5  // shown of a result that is folded
	diffShown = 12 // shown of a diff that is folded
	notesSeen = 4  // shown of the notes while folded
	maxHead   = 4 << 10
)

// toolCall is a call of a tool and what came of it.
type toolCall struct {
	name    string
	args    jsontext.Value
	state   callState
	live    []byte // the end of what it has written
	cut     bool   // it wrote more
	notes   []string
	result  string
	outputs map[string]string
	err     *protocol.ToolError
}

type callState uint8

const (
	waiting callState = iota
	running
	succeeded
	failed
	skipped
	lost // it has no result and gets none
)

func (s callState) over() bool { return s >= succeeded }

func (s callState) String() string {
	return [...]string{"waiting", "running", "done", "failed", "skipped", "no result"}[s]
}

func (s callState) symbol() string { return [...]string{"·", "⟳", "✓", "✗", "⤼", "?"}[s] }

func (c *toolCall) inherit(was *toolCall) {
	if was.state.over() { // else its events are told again
		c.live, c.cut, c.notes = was.live, was.cut, was.notes
	}
	if c.err == nil {
		c.err = was.err
	}
	if was.state == skipped && c.state == failed || !c.state.over() && was.state == running {
		c.state = was.state
	}
	if len(c.args) == 0 {
		c.args = was.args
	}
}

// bounded is a text of at most maxResult bytes, with a note on what is missing.
func bounded(text string) string {
	if len(text) <= maxResult {
		return text
	}
	left := len(text) - maxResult
	return format.Cut(text, maxResult/2) +
		fmt.Sprintf("\n[%d bytes are not shown here; `nous messages --full` prints them]\n", left) +
		format.CutStart(text, maxResult/2)
}

// note keeps a line that is shown whatever is folded.
func (c *toolCall) note(text string) {
	if len(c.notes) < maxNotes {
		c.notes = append(c.notes, cell.Line(text, 1000))
	}
}

// update takes what a running tool says: the text, and the tool's own event,
// which is narratoria's (§4) or a log of gevals.
func (c *toolCall) update(delta string, raw jsontext.Value) {
	var ev struct {
		Type      string         `json:"type"`
		AssetID   string         `json:"assetId"`
		Kind      string         `json:"kind"`
		MediaType string         `json:"mediaType"`
		Path      string         `json:"path"`
		Event     string         `json:"event"`
		Payload   jsontext.Value `json:"payload"`
		ErrorCode string         `json:"errorCode"`
		Message   string         `json:"errorMessage"`
	}
	if len(raw) > 0 {
		if json.Unmarshal(raw, &ev) != nil {
			ev.Type = ""
		}
	}
	switch ev.Type {
	case "asset":
		c.note(strings.TrimSpace(fmt.Sprintf("asset %s: %s, %s, %s", ev.AssetID, ev.Kind, ev.MediaType, ev.Path)))
	case "ui_event":
		c.note(strings.TrimSpace("ui event " + ev.Event + " " + string(ev.Payload)))
	case "error":
		c.note("error " + coded(ev.ErrorCode, ev.Message))
	case "state_patch":
		if delta != "" {
			c.note(delta)
		}
	default:
		c.write(delta)
	}
}

// write keeps the end of a tool's output. A delta is whole lines.
func (c *toolCall) write(text string) {
	if text == "" {
		return
	}
	if len(text) > maxLive {
		text, c.cut = text[len(text)-maxLive:], true
	}
	if len(c.live)+len(text) > 2*maxLive { // seldom, so that it costs little each time
		c.live, c.cut = append(c.live[:0], c.live[len(c.live)-maxLive/2:]...), true
	}
	c.live = append(c.live, text...)
	if !strings.HasSuffix(text, "\n") {
		c.live = append(c.live, '\n')
	}
}

// base is the tool's bare name.
func (c *toolCall) base() string {
	name := c.name[strings.LastIndexByte(c.name, '.')+1:]
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

func (c *toolCall) arguments() (list []argument, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(c.args))
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
func (c *toolCall) salient() string {
	list, ok := c.arguments()
	if !ok {
		if s := string(c.args); s != "null" {
			return cell.Line(s, maxHead)
		}
		return ""
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
	return cell.Line(string(c.args), maxHead)
}

// layTool adds what stands under a call's first line.
func (t *Transcript) layTool(b *block) {
	c := b.tool
	list, ok := c.arguments()
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
		long := body{plain: true}
		long.add(text)
		parts, rest, ok := long.cut()
		for _, p := range parts {
			add(as, p.text)
		}
		if ok {
			add(as, rest.text)
		}
	}
	diff, isDiff := c.diff(list)
	if path, ok := get(list, "path"); ok && isDiff {
		defer t.name(b, highlight.OfFile(path))
	}
	if open {
		c.layArguments(list, ok, isDiff, add, whole)
	}
	switch {
	case isDiff && open:
		whole(asDiff, diff)
	case isDiff:
		t.short(asDiff, diff, diffShown, false, add)
	}
	switch {
	case c.state == running && !open:
		add(asCut, lastLines(string(c.live[max(0, len(c.live)-maxHead):]), liveLines))
	case open:
		c.layOutput(isDiff, add, whole)
	case c.state == failed:
		t.layFailure(c, add)
	case c.state == succeeded && !isDiff && c.base() != "read":
		t.short(asCut, c.result, preview, c.base() == "bash", add)
	}
	if c.state.over() && !open { // who comes now does not know them
		return
	}
	for i, n := range c.notes {
		if !open && i == notesSeen {
			add(asHint, "… "+format.Count(len(c.notes)-i, "more note"))
			break
		}
		add(asNote, n)
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
func (t *Transcript) layFailure(c *toolCall, add func(style, string)) {
	text := c.result
	if text == "" && c.err != nil {
		text = coded(c.err.Code, c.err.Message)
	}
	isCommand := c.base() == "bash"
	if isCommand {
		status, output, _ := strings.Cut(text, "\n")
		add(asFailure, cell.Line(status, maxHead))
		text = output
	}
	t.short(asFailure, text, preview, isCommand, add)
}

func (c *toolCall) layArguments(list []argument, ok, isDiff bool, add, whole func(style, string)) {
	if !ok {
		if s := string(c.args); s != "null" {
			whole(asOutput, s)
		}
		return
	}
	for _, a := range list {
		switch {
		case isDiff && (a.name == "old_text" || a.name == "new_text" || a.name == "edits" || a.name == "content"):
		case strings.Contains(a.text, "\n"):
			add(asHint, cell.Line(a.name, 100)+":")
			whole(asOutput, bounded(a.text))
		default:
			whole(asOutput, cell.Line(a.name, 100)+": "+bounded(a.text))
		}
	}
}

func (c *toolCall) layOutput(isDiff bool, add, whole func(style, string)) {
	live := strings.TrimRight(string(c.live), "\n")
	if last := live[strings.LastIndexByte(live, '\n')+1:]; live != "" && (!c.state.over() || !strings.Contains(c.result, last)) {
		if c.cut {
			add(asHint, "… the beginning of the output is not kept")
		}
		whole(asOutput, live)
	}
	if c.err != nil {
		whole(asFailure, coded(c.err.Code, c.err.Message))
		if len(c.err.Details) > 0 {
			whole(asOutput, "details: "+bounded(string(c.err.Details)))
		}
	}
	if text := strings.TrimRight(c.result, "\n"); text != "" && !c.saysError(text) && !(isDiff && c.state == succeeded) {
		whole(asOutput, text)
	}
	for _, name := range slices.Sorted(maps.Keys(c.outputs)) {
		whole(asOutput, cell.Line(name, 100)+" = "+bounded(c.outputs[name]))
	}
}

// saysError tells whether a text is the call's error and no more.
func (c *toolCall) saysError(text string) bool {
	return c.err != nil && (text == c.err.Message || text == coded(c.err.Code, c.err.Message))
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
	c := b.tool
	mark := map[callState]lipgloss.Style{
		running: t.theme.Accent, succeeded: t.theme.OK, failed: t.theme.Error, skipped: t.theme.Warn, lost: t.theme.Warn,
	}[c.state]
	symbol := c.state.symbol()
	if c.state == running {
		symbol = t.spinner()
	}
	tail := strings.Join(t.toolFacts(b), ", ")
	line := mark.Render(symbol) + " " + t.theme.Tool.Render(cell.Line(c.name, 200))
	room := width - cell.Width(line) - 2
	if tail != "" {
		room -= cell.Width(tail) + 2
	}
	if arg := c.salient(); arg != "" && room > 3 {
		line += "  " + cell.Truncate(arg, room)
	}
	if tail != "" {
		line += "  " + t.theme.Dim.Render(tail)
	}
	return cell.Truncate(line, width)
}

// toolFacts are what a call's first line says at its end.
func (t *Transcript) toolFacts(b *block) []string {
	c := b.tool
	var facts []string
	switch {
	case c.state == running && !b.began.IsZero():
		facts = append(facts, duration(t.now().Sub(b.began)))
	case c.state == skipped, c.state == lost, c.state == waiting:
		facts = append(facts, c.state.String())
	case b.timed:
		facts = append(facts, duration(b.took))
	}
	if c.state == succeeded && c.base() == "read" && c.result != "" {
		facts = append(facts, format.Count(strings.Count(strings.TrimRight(c.result, "\n"), "\n")+1, "line"))
	}
	return facts
}

func (t *Transcript) plainTool(b *block) string {
	c := b.tool
	s := "tool " + cell.Line(c.name, 200) + ": " + c.state.String()
	for _, f := range t.toolFacts(b) {
		if f != c.state.String() {
			s += ", " + f
		}
	}
	if arg := c.salient(); arg != "" {
		s += ": " + arg
	}
	return s
}

func (t *Transcript) noteStyle(b *block) lipgloss.Style {
	switch {
	case b.kind == notice && b.label == "warning":
		return t.theme.Warn
	case b.kind == notice:
		return t.theme.Dim
	}
	return t.theme.Accent
}

func (t *Transcript) notePrefix(b *block, p *piece) string {
	switch {
	case b.kind != notice:
		return "  ◆ "
	case !p.first:
		return "  "
	case b.label == "warning":
		return "! "
	}
	return "• "
}

func (t *Transcript) failurePrefix(b *block, p *piece) string {
	if b.kind == notice && p.first {
		return "✗ "
	}
	return "  "
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
