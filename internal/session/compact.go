package session

import (
	"fmt"
	"slices"
	"strings"

	"noused/internal/model"
)

// Cut says where to compact: everything older than about keep tokens, cut at a
// turn's start. It returns the first entry to keep and the older messages.
// False: nothing is older than the newest turn.
func (s *State) Cut(keep int64) (firstKept string, older []model.Message, ok bool) {
	entries := s.path.entries
	keep = min(keep, s.path.estimated/2)
	at, size := -1, int64(0)
	for i, e := range slices.Backward(entries) {
		if e.Compaction != nil {
			break
		}
		size += Tokens([]model.Message{e.Message})
		// A turn that came to nothing leaves a user message alone: the next one starts
		// another turn all the same.
		starts := e.Message.Role == model.User && (i == 0 || entries[i-1].Message.Role != model.User || entries[i-1].RunID != e.RunID || e.Message.Opens)
		if starts && (at < 0 || size <= keep) {
			at = i
		}
	}
	if at < 1 || at == 1 && entries[0].Compaction != nil {
		return "", nil, false
	}
	var before path
	for _, e := range entries[:at] {
		before.add(e)
	}
	return entries[at].ID, before.messages, true
}

// After is what Estimated would be after a compaction that keeps what begins
// with firstKept.
func (s *State) After(firstKept, summary string) int64 {
	n := Tokens([]model.Message{{Text: summary}})
	for _, e := range slices.Backward(s.path.entries) {
		n += Tokens([]model.Message{e.Message})
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
		if n := len(m.Text); n > limit {
			m.Text = strings.ToValidUTF8(m.Text[:limit*2/3], "") + fmt.Sprintf("\n[… %d bytes left out …]\n", n-limit) +
				strings.ToValidUTF8(m.Text[n-limit/3:], "")
		}
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
