package transcript

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"noused/internal/client/conversation"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// A call of the tool agent is one block: what its child session is to do, what it does now, what it has
// used. The shell says what the child does, as it does of the sessions of the board.

const maxChildren = 1024 // of which something is kept

// Child is what is known of the child session that a call works in.
type Child struct {
	ID      string
	Working bool
	Ended   protocol.StopReason // of its run, though the call may not say so yet, or ever; "" goes on
	Began   time.Time           // its run
	Doing   string              // its call, or what it waits for; "" is nothing
	Said    string              // the last line of what it said
	Usage   protocol.Usage
	Asks    bool // it waits for a person
	Gone    bool // it was deleted
}

func (c Child) is(other Child) bool {
	cost, others := c.Usage.Cost, other.Usage.Cost
	c.Usage.Cost, other.Usage.Cost = nil, nil
	return c == other && (cost == nil) == (others == nil) && (cost == nil || *cost == *others)
}

// Delegation is a call of the tool agent.
type Delegation struct {
	CallID, Child string // Child is "" where no child is known
	Over          bool
}

func isAgent(b *block) bool {
	return b.Kind == conversation.Tool && b.Call.Name == conversation.AgentTool
}

func callID(b *block) string { return strings.TrimPrefix(b.Key, "k:") }

// Delegations are the calls of the tool agent, in their order.
func (t *Transcript) Delegations() []Delegation {
	if t.delegated == t.changes {
		return t.delegations
	}
	t.delegated, t.delegations = t.changes, nil
	for _, b := range t.blocks {
		if isAgent(b) {
			t.delegations = append(t.delegations, Delegation{callID(b), t.childOf(b).ID, b.Call.State.Over()})
		}
	}
	return t.delegations
}

// SetChild says what is known of a call's child now.
func (t *Transcript) SetChild(call string, c Child) {
	if t.children[call].is(c) {
		return
	}
	if t.children == nil || len(t.children) >= maxChildren {
		t.children = map[string]Child{}
	}
	t.children[call] = c
	t.changes++
	if b := t.known["k:"+call]; b != nil {
		b.dirty()
	}
}

// childOf is what is known of a block's child.
func (t *Transcript) childOf(b *block) Child {
	c := t.children[callID(b)]
	if c.ID = cmp.Or(c.ID, b.Call.Child); c.ID == "" {
		list, _ := argumentsOf(b.Call)
		c.ID, _ = get(list, "session_id")
	}
	return c
}

// FocusedChild is the child session of the block in focus, "" where it has none; gone: it was deleted.
func (t *Transcript) FocusedChild() (id string, gone bool) {
	switch {
	case t.focus != nil && t.focus.Reported != nil:
		id = t.focus.Reported.Child
		for _, c := range t.children {
			gone = gone || c.ID == id && c.Gone
		}
	case t.focus != nil && isAgent(t.focus):
		c := t.childOf(t.focus)
		id, gone = c.ID, c.Gone
	}
	return id, gone
}

// FocusChildAt puts the focus on the block with a child session that is in a row of the last view;
// false: there is none.
func (t *Transcript) FocusChildAt(row int) bool {
	t.clampTop()
	rows := 0
	for at, ok := t.top, len(t.blocks) > 0 && row < t.height; ok && rows <= row; at, ok = t.nextPiece(at) {
		rows += max(len(t.piece(at).lines)-at.line, 0)
		if b := t.blocks[at.block]; rows > row && (isAgent(b) || b.Reported != nil) {
			t.focus = b
			return true
		}
	}
	return false
}

// reportWords say of which child a report is, and how that ended.
func reportWords(b *block) []string {
	words := []string{cell.Line(cmp.Or(b.Reported.Title, b.Reported.Child), maxHead)}
	if b.Reported.Reason != "" {
		words = append(words, string(b.Reported.Reason))
	}
	return words
}

// reportHead is the first line of a report.
func (t *Transcript) reportHead(b *block, width int) string {
	sign, mark, words := "✓", t.theme.OK, reportWords(b)
	if b.Reported.Reason != protocol.StopCompleted {
		sign, mark = "!", t.theme.Warn
	}
	line := mark.Render(sign) + " " + t.theme.Tool.Render(conversation.AgentTool)
	tail := strings.Join(append(words[1:], "in the background"), ", ")
	line += "  " + cell.Truncate(words[0], max(width-cell.Width(line)-cell.Width(tail)-4, 4))
	return cell.Truncate(line+"  "+t.theme.Dim.Render(tail), width)
}

// inBackground tells whether a call was over before its child.
func inBackground(list []argument) bool {
	return slices.ContainsFunc(list, func(a argument) bool { return a.name == "background" && a.text == "true" })
}

// task is what a child is for, on one line.
func task(list []argument) string {
	text, _ := get(list, "description")
	if text == "" {
		text, _ = get(list, "prompt")
	}
	if name, _ := get(list, "agent"); name != "" {
		text += " · " + name
	}
	return cell.Line(text, maxHead)
}

// endedAlone tells whether a child's run has ended, and its call does not say how.
func (c Child) endedAlone(b *block) bool {
	return c.Ended != "" && (b.Call.State == conversation.Waiting ||
		b.Call.State == conversation.Lost && c.Ended != protocol.StopCompleted) // a later run may have completed
}

// state is how far a call is: as far as its child. Calls that run at the same time are told one after the other.
func (t *Transcript) state(b *block) conversation.CallState {
	if isAgent(b) {
		switch c := t.childOf(b); {
		case c.Working:
			return conversation.Running
		case c.endedAlone(b) && c.Ended == protocol.StopCompleted:
			return conversation.Succeeded
		case c.endedAlone(b):
			return conversation.Failed
		}
	}
	return b.Call.State
}

// layAgent adds what stands under the first line of a call of the tool agent that is folded.
func (t *Transcript) layAgent(b *block, list []argument, add func(style, string)) {
	switch c := t.childOf(b); {
	case c.Working:
		add(asCut, cell.Line(strings.Trim(c.Doing+" · "+c.Said, " ·"), maxHead))
	case b.Call.State == conversation.Failed:
		t.layFailure(b.Call, add)
	case b.Call.State == conversation.Waiting, b.Call.State.Over() && inBackground(list):
		add(asCut, cell.Line(c.Said, maxHead))
	}
}

// agentFacts are what the first line of a call of the tool agent says at its end.
func (t *Transcript) agentFacts(b *block) []string {
	list, _ := argumentsOf(b.Call)
	c, background := t.childOf(b), inBackground(list)
	var facts []string
	switch {
	case c.Asks:
		facts = append(facts, "asks")
	case c.endedAlone(b):
		if c.Ended != protocol.StopCompleted {
			facts = append(facts, string(c.Ended))
		}
	case b.Call.State == conversation.Skipped, b.Call.State == conversation.Lost,
		t.state(b) == conversation.Waiting:
		facts = append(facts, b.Call.State.String())
	}
	switch began := b.Began; {
	case t.state(b) == conversation.Running:
		if !c.Began.IsZero() {
			began = c.Began
		}
		if !began.IsZero() {
			facts = append(facts, duration(t.now().Sub(began)))
		}
	case b.Timed && !background:
		facts = append(facts, duration(b.Took))
	}
	if background {
		facts = append(facts, "in the background")
	}
	facts = append(facts, used(c.Usage)...)
	if c.Gone {
		facts = append(facts, "deleted")
	}
	return facts
}

// used is what a run or a session has used.
func used(u protocol.Usage) (parts []string) {
	if u.InputTokens+u.OutputTokens > 0 {
		parts = append(parts, format.Short(u.InputTokens)+" in", format.Short(u.OutputTokens)+" out")
	}
	if u.Cost != nil && u.Cost.Amount > 0 {
		parts = append(parts, Price(*u.Cost))
	}
	return parts
}

// Mark is a place in a conversation, to come back to.
type Mark struct {
	looked, focus string // keys of blocks
	at            place
	follow        bool
	unfolded      bool
	folds         map[string]fold
}

// Mark is where the view is, and what is folded.
func (t *Transcript) Mark() Mark {
	m := Mark{at: t.top, follow: t.follow, unfolded: t.unfolded, folds: map[string]fold{}}
	if t.top.block < len(t.blocks) {
		m.looked = t.blocks[t.top.block].Key
	}
	if t.focus != nil {
		m.focus = t.focus.Key
	}
	for _, b := range t.blocks {
		if b.fold != asAll {
			m.folds[b.Key] = b.fold
		}
	}
	return m
}

// Return goes to a place of the same conversation, which may have been loaded anew.
func (t *Transcript) Return(m Mark) {
	t.unfolded, t.focus, t.follow = m.unfolded, t.known[m.focus], m.follow
	for i, b := range t.blocks {
		b.fold = m.folds[b.Key]
		b.dirty()
		if b.Key == m.looked && !m.follow {
			t.top = place{i, m.at.piece, m.at.line}
		}
	}
}
