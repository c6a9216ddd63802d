package plain

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/conversation"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

func Usage(u *protocol.Usage) string {
	text := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
	if u.CachedTokens > 0 {
		text += fmt.Sprintf(", %d cached", u.CachedTokens)
	}
	return text
}

// Tips lists the entries that nothing follows.
func Tips(tree protocol.Tree) (tips []string) {
	parents := make(map[string]bool, len(tree.Nodes))
	for _, n := range tree.Nodes {
		parents[n.ParentID] = true
	}
	for _, n := range tree.Nodes {
		if !parents[n.ID] {
			tips = append(tips, n.ID)
		}
	}
	return tips
}

// Money is a cost with its currency.
func Money(c *protocol.Cost) string { return fmt.Sprintf("%.4f %s", c.Amount, c.Currency) }

// Cost is what was used, and what it cost where prices are known.
func Cost(u protocol.Usage) string {
	text := Usage(&u)
	if u.Cost != nil {
		text += ", " + Money(u.Cost)
	}
	return text
}

// ShortResult is how many lines of a tool's result a transcript shows.
const ShortResult = 5

// Image is an image in one line: "image shot.png, image/png, 120 KiB".
func Image(a protocol.Attachment) string {
	text := "image"
	if name := OneLine(a.Name, LineWidth); name != "" {
		text += " " + name
	}
	return text + ", " + Cell(a.MediaType) + ", " + format.Size(a.Size)
}

// TreeRow is an entry of a session's tree as it is listed.
type TreeRow struct {
	ID, Role, Snippet string
	Depth             int
	Leaf              bool
}

// TreeRows lists a tree from its roots to its tips, a branch after the other. It
// is indented where the tree branches, not at every entry: a long conversation
// without branches stays one column.
func TreeRows(r protocol.Tree) []TreeRow {
	known := make(map[string]bool, len(r.Nodes))
	children := make(map[string][]protocol.Node)
	for _, n := range r.Nodes { // a parent comes before its children: a daemon can send no circle
		if n.ID == "" || known[n.ID] {
			continue
		}
		parent := n.ParentID
		if !known[parent] {
			parent = ""
		}
		known[n.ID] = true
		children[parent] = append(children[parent], n)
	}
	type visit struct {
		node  protocol.Node
		depth int
	}
	var stack []visit
	push := func(parent string, depth int) {
		kids := children[parent]
		if parent != "" && len(kids) > 1 {
			depth++
		}
		for i := len(kids) - 1; i >= 0; i-- {
			stack = append(stack, visit{kids[i], depth})
		}
	}
	push("", 0)
	var rows []TreeRow
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		rows = append(rows, TreeRow{v.node.ID, v.node.Role, v.node.Snippet, v.depth, v.node.ID == r.LeafID})
		push(v.node.ID, v.depth)
	}
	return rows
}

// Folders names each folder once, in the order of the list.
func Folders(list []protocol.SessionInfo) (folders []string) {
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s.Workdir] {
			folders = append(folders, s.Workdir)
		}
		seen[s.Workdir] = true
	}
	return folders
}

// SessionLines is a table of sessions, a line of at most width cells for each, of which the
// titles take what the others leave. Ages are as of now. The short ids stand last.
func SessionLines(list []protocol.SessionInfo, active string, now time.Time, width int) []Span {
	rows := [][]string{{"", "STATE", "UPDATED", "MESSAGES", ""}}
	for _, s := range list {
		mark := ""
		if s.SessionID == active {
			mark = "*"
		}
		rows = append(rows, []string{mark, StateWord(s), format.Age(s.UpdatedAt, now), strconv.Itoa(s.Messages), ""})
	}
	AlignRight(rows, 3, 4)
	titles, widest := []string{"TITLE"}, minTitle
	for _, s := range list {
		titles = append(titles, Title(s.Title))
		widest = max(widest, cell.Width(titles[len(titles)-1]))
	}
	lines := make([]Span, len(rows))
	for i, text := range Table(rows) {
		id := "SESSION"
		if i > 0 {
			id = Tail(list[i-1].SessionID)
		}
		room := max(width-cell.Width(text)-4-tailLength, minTitle)
		lines[i].Text = text + "  " + cell.Fit(titles[i], min(room, widest)) + "  " + id
	}
	lines[0].Look = Dim
	return lines
}

// minTitle is how many cells a title has in a table however narrow that is to be.
const minTitle = 12

// Title is a session's title in a line, without the marks of Markdown.
func Title(text string) string { return format.Unmarked(OneLine(text, 4*LineWidth)) }

// Run is a run: what it left in a session, on all branches.
type Run struct {
	SessionID string           `json:"session_id"`
	RunID     string           `json:"run_id"`
	Messages  []jsontext.Value `json:"messages"`
}

// RunSum is what the messages of a run say together.
type RunSum struct {
	Began, ended time.Time
	Models       []string
	Tools        []string // each once, with how often it was called
	Usage        protocol.Usage
	End          string
}

func (s RunSum) Took() time.Duration { return s.ended.Sub(s.Began).Round(time.Millisecond) }

func SumUp(r Run) (s RunSum, err error) {
	var calls []string
	for _, entry := range r.Messages {
		var m protocol.Message
		if err := json.Unmarshal(entry, &m, jsontext.AllowInvalidUTF8(true)); err != nil {
			return s, fmt.Errorf("decode message: %w", err)
		}
		if s.Began.IsZero() {
			s.Began = m.CreatedAt
		}
		s.ended, s.End = m.CreatedAt, "not known"
		if m.Role == "assistant" {
			if s.End = string(m.StopReason); m.StopReason == protocol.StopEnd {
				s.End = string(protocol.StopCompleted)
			}
		}
		if m.Model != "" && !slices.Contains(s.Models, m.Model) {
			s.Models = append(s.Models, m.Model)
		}
		for _, call := range m.ToolCalls {
			calls = append(calls, call.Name)
		}
		addUsage(&s.Usage, m.Usage)
	}
	s.Tools = counted(calls)
	return s, nil
}

// counted is a list with each word once: "read × 2".
func counted(words []string) (once []string) {
	slices.Sort(words)
	for len(words) > 0 {
		n := 1
		for n < len(words) && words[n] == words[0] {
			n++
		}
		word := words[0]
		if n > 1 {
			word = fmt.Sprintf("%s × %d", word, n)
		}
		once, words = append(once, word), words[n:]
	}
	return once
}

func addUsage(sum, u *protocol.Usage) {
	if u == nil {
		return
	}
	sum.InputTokens += u.InputTokens
	sum.OutputTokens += u.OutputTokens
	sum.CachedTokens += u.CachedTokens
	if u.Cost != nil {
		if sum.Cost == nil {
			sum.Cost = &protocol.Cost{Currency: u.Cost.Currency}
		}
		sum.Cost.Amount += u.Cost.Amount
	}
}

// Entry are an entry of a conversation: without full, of a long one the beginning, without
// raw nothing that could drive a terminal.
func Entry(entry jsontext.Value, full, raw bool) ([][]Span, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(entry, &kind); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	if kind.Type == "compaction" {
		var c protocol.CompactionEntry
		if err := json.Unmarshal(entry, &c); err != nil {
			return nil, fmt.Errorf("decode compaction: %w", err)
		}
		return [][]Span{
			headLine(conversation.Summarised(c.TokensBefore, c.TokensAfter), c.CreatedAt, c.ID),
			{{Text: format.Indent(fitted(c.Summary, raw), "  ")}},
		}, nil
	}
	var m protocol.Message
	if err := json.Unmarshal(entry, &m); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	return messageLines(m, full, raw), nil
}

func fitted(text string, raw bool) string {
	if raw {
		return text
	}
	return plaintext.Text(text)
}

func messageLines(m protocol.Message, full, raw bool) (all [][]Span) {
	width, lines := LineWidth, ShortResult
	if full {
		width, lines = 1<<20, 1<<20
	}
	who := m.Role
	if m.Role == "user" && m.TurnKind != "" && m.TurnKind != protocol.KindPrompt {
		who += " (" + KindWord(m.TurnKind) + ")"
	}
	if m.Role == "tool" {
		who += " " + m.ToolName
		if m.OK != nil && !*m.OK {
			who += " failed"
		}
	}
	if m.StopReason == protocol.StopAborted || m.StopReason == protocol.StopError || m.StopReason == protocol.StopLength {
		who += " (" + string(m.StopReason) + ")"
	}
	head := headLine(who, m.CreatedAt, m.ID)
	if m.Role == "user" && m.TurnKind == protocol.KindPrompt && m.RunID != "" { // where a run begins
		head[1].Text += "  " + Cell(shortRun(m.RunID))
	}
	all = append(all, head)
	text, left := fitted(m.Text, raw), 0
	if m.Role == "tool" {
		text, left = FirstLines(text, lines)
	}
	if text != "" {
		all = append(all, []Span{{Text: format.Indent(text, "  ")}})
	}
	if left > 0 {
		all = append(all, []Span{{Text: "  … " + format.Count(left, "more line"), Look: Dim}})
	}
	for _, image := range m.Attachments {
		all = append(all, []Span{{Text: "  [" + Image(image) + "]", Look: Dim}})
	}
	for _, call := range m.ToolCalls {
		all = append(all, []Span{{Text: "  → " + call.Name + " " + OneLine(string(call.Arguments), width), Look: Dim}})
	}
	return all
}

// shortRun is the beginning of a run's id, to the millisecond in which it began. Commands that
// take a run's id take it.
func shortRun(id string) string { return id[:min(len(id), len("run-00000000-0000"))] }

func headLine(who string, at time.Time, id string) []Span {
	when := ""
	if !at.IsZero() {
		when = "  " + at.Local().Format(time.DateTime)
	}
	return []Span{{Text: Cell(who), Look: Bold}, {Text: when + "  " + Cell(id), Look: Dim}}
}

func UsageCells(u protocol.UsageSum) []string {
	cost := "-"
	if u.Cost != nil {
		cost = Money(u.Cost)
	}
	return []string{
		strconv.FormatInt(u.InputTokens, 10), strconv.FormatInt(u.CachedTokens, 10),
		strconv.FormatInt(u.OutputTokens, 10), cost,
	}
}

// Entry prints an entry of a session.
func (p *Printer) Entry(entry jsontext.Value, full bool) error {
	lines, err := Entry(entry, full, p.Raw)
	p.Lines(lines)
	return err
}

// Run prints what a run was and what was said in it; state is its session's.
func (p *Printer) Run(r Run, state protocol.State, full bool) error {
	sum, err := SumUp(r)
	if err != nil {
		return err
	}
	end := sum.End
	switch last := state.LastRun; {
	case state.RunID == r.RunID:
		end = string(state.RunState)
	case last != nil && last.RunID == r.RunID:
		end = string(last.StopReason)
		if last.Error != nil {
			end += ": " + protocol.Coded(last.Error.Code, last.Error.Message)
		}
	}
	p.Pairs([][2]string{
		{"run", r.RunID},
		{"session", strings.TrimSpace(r.SessionID + " " + OneLine(state.Title, 60))},
		{"began", Stamp(sum.Began)},
		{"took", sum.Took().String()},
		{"result", OneLine(end, 2*LineWidth)},
		{"models", OneLine(strings.Join(sum.Models, ", "), LineWidth)},
		{"tools", OneLine(cmp.Or(strings.Join(sum.Tools, ", "), "none"), 2*LineWidth)},
		{"usage", Cost(sum.Usage)},
	})
	for _, entry := range r.Messages {
		p.Println("")
		if err := p.Entry(entry, full); err != nil {
			return err
		}
	}
	return nil
}

// Whole prints an entry whole, and where it is.
func (p *Printer) Whole(session string, entry jsontext.Value) error {
	if p.JSON {
		p.JSONLine(entry)
		return nil
	}
	if err := p.Entry(entry, true); err != nil {
		return err
	}
	var m protocol.Message
	if err := json.Unmarshal(entry, &m, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	if m.Thinking != "" {
		p.Println("  thinking:")
		p.Println(format.Indent(p.Fit(m.Thinking), "    "))
	}
	where := []string{session}
	for _, more := range []string{m.RunID, m.Model, string(m.StopReason)} {
		if more != "" {
			where = append(where, OneLine(more, LineWidth))
		}
	}
	if m.Usage != nil {
		where = append(where, Cost(*m.Usage))
	}
	p.Spans(Span{Text: strings.Join(where, " · "), Look: Dim})
	return nil
}
