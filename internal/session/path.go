package session

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"weak"

	"noused/internal/model"
)

func (s *State) add(b *Body) error {
	parent := s.Entry(b.ParentID)
	if b.ParentID != "" && parent == nil {
		return fmt.Errorf("entry %s hangs below %.128q, which is not before it", b.ID, b.ParentID)
	}
	e := entryOf(b)
	e.parent, e.n = parent, len(s.order)
	if b.Compaction != nil {
		e.kept = s.Entry(b.Compaction.FirstKeptEntryID)
	}
	if n := len(s.order); n > 0 && s.order[n-1].RunID == e.RunID {
		e.RunID = s.order[n-1].RunID // one copy of it
	}
	for _, a := range b.Message.Attachments {
		if s.named == nil {
			s.named = map[string]model.Attachment{}
		}
		s.named[a.File] = a
	}
	s.order = append(s.order, e)
	s.hold(e)
	if b.ParentID == s.Leaf && b.Compaction == nil {
		s.path.add(e)
	} else {
		s.path = s.pathTo(e.ID)
	}
	s.Leaf = e.ID
	return nil
}

// upwards yields an entry, its parent, and so on to the root. It ends after as many as
// there are, whatever they say.
func (s *State) upwards(id string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		e := s.Entry(id)
		for range s.order {
			if e == nil || e.missing || !yield(e) {
				return
			}
			e = e.parent
		}
	}
}

// Path returns the entries from the root to leaf ("" is the session's own), a
// compaction standing for what it summarises. False: no such entry.
func (s *State) Path(leaf string) ([]*Entry, bool) {
	if leaf == "" || leaf == s.Leaf {
		return s.path.entries[:len(s.path.entries):len(s.path.entries)], true
	}
	if s.Entry(leaf) == nil {
		return nil, false
	}
	return s.pathTo(leaf).entries, true
}

// Conversation returns the path to the leaf as a model is to read it: every tool call
// answered, in the order of the calls. It is valid for as long as its caller wants.
//
// An answer at the end that broke off is left out, as often as it did: it is to be given
// anew.
func (s *State) Conversation() Conversation {
	entries := s.path.entries
	for n := len(entries); n > 0 && entries[n-1].ends(); n-- {
		entries = entries[:n-1]
	}
	entries = entries[:len(entries):len(entries)]
	if s.path.shed {
		return Conversation{entries: entries}
	}
	h := s.path.history
	if len(entries) < len(s.path.entries) {
		h.takeBack()
	}
	s.path.lent = &lent{h.whole()}
	return Conversation{entries: entries, messages: s.path.lent.messages, whole: true, lent: weak.Make(s.path.lent)}
}

// Chain returns every entry from the root to leaf ("" is the session's own), as
// they were made, with nothing summarised. False: no such entry.
func (s *State) Chain(leaf string) ([]*Entry, bool) {
	if leaf == "" {
		leaf = s.Leaf
	}
	if leaf != "" && s.Entry(leaf) == nil {
		return nil, false
	}
	chain := slices.Collect(s.upwards(leaf))
	slices.Reverse(chain)
	return chain, true
}

// LastTexts are the entries of the last user text and the last assistant text of the
// path, nil where there is none.
func (s *State) LastTexts() (prompt, output *Entry) {
	for _, e := range slices.Backward(s.path.entries) {
		switch {
		case e.IsCompaction():
		case e.Role == model.User:
			return e, output
		case e.Role == model.Assistant && output == nil && e.text:
			output = e
		}
	}
	return nil, output
}

// path is a root-to-leaf view of the tree: as entries, and as messages with
// dangling tool calls answered. It grows in place while the leaf does; views
// handed out are cut at their length, so growth never shows in them.
type path struct {
	entries   []*Entry
	estimated int64 // tokens
	fixed     int64 // tokens
	shed      bool  // not all of it is in memory, and there is no history
	lent      *lent // the newest Conversation's, until the path grows or is shed
	history
}

// lent is what a Conversation finds again while the session still has it in memory.
type lent struct{ messages []model.Message }

// history is a conversation in which every tool call is answered, in order. It
// is the one place that sees to that: code that sends a conversation to a model
// relies on it. A real provider refuses one with an unanswered call, for ever.
type history struct {
	messages []model.Message
	calls    []model.ToolCall // of the last assistant message
	open     []model.ToolCall // those of them without a result
}

// Answered returns messages as a model can read them: after each message with
// tool calls their results in the order of the calls, one for each, and no result
// without its call. What is handed in stays as it is.
func Answered(messages []model.Message) []model.Message {
	var h history
	for _, m := range messages {
		h.append(m)
	}
	return h.whole()
}

func (s *State) pathTo(leaf string) path {
	var chain []*Entry
	var compaction *Entry
	for e := range s.upwards(leaf) {
		if !e.IsCompaction() {
			chain = append(chain, e)
		} else if compaction == nil {
			compaction = e
			chain = append(chain, e)
		}
		if compaction != nil && e == compaction.kept {
			break
		}
	}
	slices.Reverse(chain)
	p := path{entries: slices.Grow([]*Entry(nil), len(chain))}
	if compaction != nil {
		i := slices.Index(chain, compaction)
		p.add(compaction)
		for _, e := range chain[:i] {
			p.add(e)
		}
		p.fixed = compaction.counted // what was counted for them was so with more before them
		chain = chain[i+1:]
	}
	for _, e := range chain {
		p.add(e)
	}
	return p
}

func (h *history) append(m model.Message) {
	switch m.Role {
	case model.Tool:
		i := slices.IndexFunc(h.open, func(c model.ToolCall) bool { return c.ID == m.ToolCallID })
		if i < 0 {
			return // the answer to a call that was taken away
		}
		h.open = slices.Delete(slices.Clone(h.open), i, i+1)
	case model.Assistant:
		h.answerOpen()
		if m.Text == "" && len(m.ToolCalls) == 0 {
			return
		}
		h.calls, h.open = m.ToolCalls, m.ToolCalls
	default:
		h.answerOpen()
	}
	h.messages = append(h.messages, m)
}

// takeBack takes away the last message, an assistant's, and its calls with it: those
// before it were answered when it came.
func (h *history) takeBack() {
	h.messages, h.calls, h.open = h.messages[:len(h.messages)-1], nil, nil
}

// whole are the messages with what the last calls lack. h is a copy: what it
// shares with the history that it is of does not change.
func (h history) whole() []model.Message {
	if len(h.open) > 0 {
		h.messages = slices.Clone(h.messages)
	}
	h.answerOpen()
	return h.messages[:len(h.messages):len(h.messages)]
}

// answerOpen gives a result to every call that has none, and puts the results
// into the order of the calls.
func (h *history) answerOpen() {
	for _, c := range h.open {
		h.messages = append(h.messages, model.Message{
			Role: model.Tool, ToolCallID: c.ID, ToolName: c.Name, Text: "no result: the call was not completed",
		})
	}
	behind := len(h.messages) - len(h.calls)
	place := func(m model.Message) int {
		return slices.IndexFunc(h.calls, func(c model.ToolCall) bool { return c.ID == m.ToolCallID })
	}
	inOrder := func(a, b model.Message) int { return cmp.Compare(place(a), place(b)) }
	if !slices.IsSortedFunc(h.messages[behind:], inOrder) {
		h.messages = slices.Clone(h.messages)
		slices.SortStableFunc(h.messages[behind:], inOrder)
	}
	h.calls, h.open = nil, nil
}
