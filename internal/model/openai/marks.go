package openai

import (
	"slices"
	"strings"

	"noused/internal/model/wire"
)

// marks reports that a server hands Anthropic's cache marks on: its own models
// keep nothing of a request that has none.
func marks(c *wire.Client) bool {
	return c.Host() == "openrouter.ai" && strings.HasPrefix(c.Options().Model, "anthropic/")
}

// mark marks what the next request begins with too: the system prompt, and what
// the user's side said last and before that. A mark is a member of a part, so
// texts that may be marked are parts, marked or not: requests begin alike.
func (r *request) mark() {
	left := 2
	for i := range slices.Backward(r.Messages) {
		m := &r.Messages[i]
		text, ok := m.Content.(string)
		if m.Role == "assistant" || ok && strings.TrimSpace(text) == "" {
			continue
		}
		if ok {
			m.Content = []part{{Type: "text", Text: text}}
		}
		parts := m.Content.([]part) // never empty
		if last := &parts[len(parts)-1]; last.Type == "text" && (m.Role == "system" || left > 0) {
			last.CacheControl = &cacheControl{"ephemeral"}
			left--
		}
	}
}
