package session

import (
	"cmp"
	"fmt"
	"slices"

	"noused/internal/model"
)

func (s *State) add(e *Entry) error {
	if e.ParentID != "" && s.entries[e.ParentID] == nil {
		return fmt.Errorf("entry %s hangs below unknown entry %q", e.ID, e.ParentID)
	}
	if s.entries[e.ID] != nil {
		return fmt.Errorf("entry %s is there already", e.ID)
	}
	s.entries[e.ID] = e
	s.order = append(s.order, e)
	if e.ParentID == s.Leaf && e.Compaction == nil {
		s.path.add(e)
	} else {
		s.path = s.pathTo(e.ID)
	}
	s.Leaf = e.ID
	return nil
}

// Path returns the entries from the root to leaf ("" is the session's own), a
// compaction standing for what it summarises. False: no such entry.
func (s *State) Path(leaf string) ([]*Entry, bool) {
	if leaf == "" || leaf == s.Leaf {
		return s.path.entries[:len(s.path.entries):len(s.path.entries)], true
	}
	if s.entries[leaf] == nil {
		return nil, false
	}
	return s.pathTo(leaf).entries, true
}

// History returns the path to the leaf as a model is to read it: every tool
// call answered, in the order of the calls. It is valid for as long as its
// caller wants and must not be changed.
//
// An answer at the end that broke off is left out: it is to be given anew.
func (s *State) History() []model.Message {
	h := s.path.history
	if s.path.broken {
		h.messages = h.messages[:len(h.messages)-1]
	}
	return h.whole()
}

// Chain returns every entry from the root to leaf ("" is the session's own), as
// they were made, with nothing summarised. False: no such entry.
func (s *State) Chain(leaf string) ([]*Entry, bool) {
	if leaf == "" {
		leaf = s.Leaf
	}
	if leaf != "" && s.entries[leaf] == nil {
		return nil, false
	}
	var chain []*Entry
	for e := s.entries[leaf]; e != nil; e = s.entries[e.ParentID] {
		chain = append(chain, e)
	}
	slices.Reverse(chain)
	return chain, true
}

// LastTexts are the last user text and the last assistant text of the path.
func (s *State) LastTexts() (prompt, output string) {
	for _, e := range slices.Backward(s.path.entries) {
		switch e.Message.Role {
		case model.User:
			return e.Message.Text, output
		case model.Assistant:
			if output == "" {
				output = e.Message.Text
			}
		}
	}
	return "", output
}

// path is a root-to-leaf view of the tree: as entries, and as messages with
// dangling tool calls answered. It grows in place while the leaf does; views
// handed out are cut at their length, so growth never shows in them.
type path struct {
	entries   []*Entry
	estimated int64 // tokens
	fixed     int64 // tokens
	broken    bool  // the last message is an answer that broke off
	history
}

// history is a conversation in which every tool call is answered, in order. It
// is the one place that sees to that: whoever sends a conversation to a model
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
	var compaction *Compacted
	for e := s.entries[leaf]; e != nil; e = s.entries[e.ParentID] {
		if e.Compaction == nil {
			chain = append(chain, e)
		} else if compaction == nil {
			compaction = e.Compaction
			chain = append(chain, e)
		}
		if compaction != nil && e.ID == compaction.FirstKeptEntryID {
			break
		}
	}
	slices.Reverse(chain)
	var p path
	if compaction != nil {
		i := slices.IndexFunc(chain, func(e *Entry) bool { return e.Compaction != nil })
		p.add(chain[i])
		for _, e := range chain[:i] {
			p.add(e)
		}
		p.fixed = compaction.FixedTokens // what was counted for them was so with more before them
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
