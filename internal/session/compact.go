package session

import (
	"fmt"
	"slices"
	"sort"

	"noused/internal/format"
	"noused/internal/model"
)

// Cut says where to compact: everything older than about keep tokens, cut at a
// turn's start, or where the newest turn alone is longer, at one of its steps. It
// returns the first entry to keep and the older messages. False: nothing is
// older than the newest step.
func (s *State) Cut(keep int64) (firstKept string, older Conversation, ok bool) {
	entries := s.path.entries
	keep = min(keep, s.path.estimated/2)
	turn, step, size := -1, -1, int64(0)
	for i, e := range slices.Backward(entries) {
		if e.IsCompaction() {
			break
		}
		size += e.tokens
		switch {
		case opens(entries, i):
			if turn < 0 || size <= keep {
				turn = i
			}
		case e.Role == model.Assistant && turn < 0 && (step < 0 || size <= keep):
			step = i
		}
	}
	at := turn
	if s.older(turn) < 1 || s.longer(turn, keep) && step > turn {
		at = step
	}
	if s.older(at) < 1 {
		return "", older, false
	}
	older.entries = entries[:at:at]
	var before path
	for _, e := range older.entries {
		before.add(e)
	}
	if !before.shed {
		older.messages, older.whole = before.whole(), true
	}
	return entries[at].ID, older, true
}

// opens reports whether an entry starts a turn. A turn that came to nothing
// leaves a user message alone: the next one starts another turn all the same.
func opens(entries []*Entry, i int) bool {
	e := entries[i]
	return e.Role == model.User && (i == 0 || entries[i-1].Role != model.User || entries[i-1].RunID != e.RunID || e.opens)
}

// older is how many entries before that one are not in a summary yet.
func (s *State) older(at int) int {
	if at > 0 && s.path.entries[0].IsCompaction() {
		return at - 1
	}
	return at
}

// longer reports whether what begins with that entry has more tokens.
func (s *State) longer(at int, keep int64) bool {
	size := int64(0)
	for _, e := range s.path.entries[at:] {
		size += e.tokens
	}
	return size > keep
}

// Squeeze returns the messages with the results of tools cut, where all of it is
// more than so many tokens: of the longest only the beginning and the end stay.
// What is handed in stays as it is.
func Squeeze(messages []model.Message, most int64) []model.Message {
	if Tokens(messages) <= most {
		return messages
	}
	long := 0
	for _, m := range messages {
		if m.Role == model.Tool {
			long = max(long, len(m.Text))
		}
	}
	limit := sort.Search(long, func(n int) bool { return Tokens(squeezed(messages, n+1)) > most })
	return squeezed(messages, max(limit, minResult))
}

// minResult is what stays of a tool's result in any case, in bytes.
const minResult = 200

func squeezed(messages []model.Message, limit int) []model.Message {
	out := slices.Clone(messages)
	for i := range out {
		if out[i].Role == model.Tool {
			out[i].Text = ends(out[i].Text, limit)
		}
	}
	return out
}

// ends is a text's beginning and end, of so many bytes together.
func ends(text string, limit int) string {
	n := len(text)
	if n <= limit {
		return text
	}
	return format.Cut(text, limit*2/3) + fmt.Sprintf("\n[… %d bytes left out …]\n", n-limit) +
		format.CutStart(text, limit/3)
}

// After is what Estimated would be after a compaction that keeps what begins
// with firstKept.
func (s *State) After(firstKept, summary string) int64 {
	n := Tokens([]model.Message{{Text: summary}})
	for _, e := range slices.Backward(s.path.entries) {
		n += e.tokens
		if e.ID == firstKept {
			break
		}
	}
	return n
}

// Fit returns what a summary is to be made from, in at most about so many
// tokens: of the longest texts only the beginning and the end stay, of results
// and arguments at most what a summary minds. Images are only named in it. What
// is handed in stays as it is.
func Fit(messages []model.Message, most int64) []model.Message {
	// the longest texts that may stay whole, by halving
	short, long := 64, maxResult
	for _, m := range messages {
		long = max(long, len(m.Text))
		for _, c := range m.ToolCalls {
			long = max(long, len(c.Arguments))
		}
	}
	if whole := shortened(messages, long); textTokens(whole) <= most {
		return whole
	}
	for long-short > 64 {
		half := (short + long) / 2
		if textTokens(shortened(messages, half)) <= most {
			short = half
		} else {
			long = half
		}
	}
	return shortened(messages, short)
}

// textTokens is Tokens without the images.
func textTokens(messages []model.Message) int64 {
	n := Tokens(messages)
	for _, m := range messages {
		n -= (imageTokens - messageTokens) * int64(len(m.Attachments))
	}
	return n
}

// What a summary minds of a tool's result and of a call's arguments, in bytes.
const maxResult, maxArguments = 4 << 10, 1 << 10

func shortened(messages []model.Message, most int) []model.Message {
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		limit := most
		if m.Role == model.Tool {
			limit = min(most, maxResult)
		}
		m.Text = ends(m.Text, limit)
		m.Maker, m.Blocks = "", nil // may not be changed, and a summary can do without
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for j, c := range m.ToolCalls {
			if n := len(c.Arguments); n > min(most, maxArguments) {
				m.ToolCalls[j].Arguments = fmt.Appendf(nil, `{"left_out":"%d bytes"}`, n)
			}
		}
	}
	return out
}

// Tokens estimates the size of the context: the conversation's, and what is in a
// request beside it.
func (s *State) Tokens() int64 { return s.path.estimated + s.path.fixed }

// Estimated is the size of the conversation, at four bytes a token.
func (s *State) Estimated() int64 { return s.path.estimated }

// Fixed is what a request has beside the conversation, the system prompt and the
// tools: by how much the provider counted more, when it counted last.
func (s *State) Fixed() int64 { return s.path.fixed }

// messageTokens is what a message costs beside its texts, about.
const messageTokens = 4

// imageTokens is about what an image costs: those that are larger are made
// smaller by the provider.
const imageTokens = 1600
