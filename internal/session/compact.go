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
	at, size := -1, int64(0)
	for i, e := range slices.Backward(entries) {
		if e.Compaction != nil {
			break
		}
		size += Tokens([]model.Message{e.Message})
		starts := e.Message.Role == model.User && (i == 0 || entries[i-1].Message.Role != model.User)
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

// After is what Tokens would be after a compaction that keeps what begins with
// firstKept.
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

// Fit returns messages in at most about so many tokens: of the longest texts
// only the beginning and the end stay. What is handed in stays as it is.
func Fit(messages []model.Message, most int64) []model.Message {
	if Tokens(messages) <= most {
		return messages
	}
	// the longest texts that may stay whole, by halving
	short, long := 64, 0
	for _, m := range messages {
		long = max(long, len(m.Text))
		for _, c := range m.ToolCalls {
			long = max(long, len(c.Arguments))
		}
	}
	for long-short > 64 {
		half := (short + long) / 2
		if Tokens(shortened(messages, half)) <= most {
			short = half
		} else {
			long = half
		}
	}
	return shortened(messages, short)
}

func shortened(messages []model.Message, most int) []model.Message {
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		if n := len(m.Text); n > most {
			m.Text = strings.ToValidUTF8(m.Text[:most*2/3], "") + fmt.Sprintf("\n[… %d bytes left out …]\n", n-most) +
				strings.ToValidUTF8(m.Text[n-most/3:], "")
		}
		m.ThinkingBlocks = nil // may not be changed, and a summary can do without
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for j, c := range m.ToolCalls {
			if n := len(c.Arguments); n > most {
				m.ToolCalls[j].Arguments = fmt.Appendf(nil, `{"left_out":"%d bytes"}`, n)
			}
		}
	}
	return out
}

// Tokens estimates the size of the context: four bytes a token, or what the
// provider counted for the latest message that it did count and what came after,
// whichever is more.
func (s *State) Tokens() int64 { return max(s.path.estimated, s.path.counted) }

// messageTokens is what a message costs beside its texts, about.
const messageTokens = 4

// imageTokens is about what an image costs: those that are larger are made
// smaller by the provider.
const imageTokens = 1600
