package anthropic

import (
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// thinking is how a model is told to think: "adaptive", as much as it needs,
// "enabled" for so many tokens at most, or "disabled".
type thinking struct {
	Type   string `json:"type"`
	Budget int    `json:"budget_tokens,omitzero"`
}

type outputConfig struct {
	Effort string        `json:"effort,omitzero"`
	Format *outputFormat `json:"format,omitzero"`
}

// outputFormat is what the answer has to be like.
type outputFormat struct {
	Type   string         `json:"type"`
	Schema jsontext.Value `json:"schema"`
}

// budgets are the tokens that a level is for a model that counts them.
var budgets = map[string]int{
	"minimal": 1024, "low": 4096, "medium": 12_000, "high": 24_000, "xhigh": 31_000,
	"max": 31_000,
}

const minBudget = 1024

// think says how much the model may think and say. What it thinks counts as
// said: where nothing is configured it gets room for both.
func (r *request) think(e model.Effort, limit int64) {
	budget := 0
	if e.Form == "budget" && e.Level != model.NoEffort && r.mayThink() {
		budget = budgets[e.Level]
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = DefaultMaxOutputTokens + budget
		if limit > 0 {
			r.MaxTokens = int(min(int64(r.MaxTokens), limit))
		}
	}
	budget = min(budget, r.MaxTokens/4*3)
	switch {
	case e.Level == "":
	case e.Level == model.NoEffort:
		r.Thinking = &thinking{Type: "disabled"}
	case e.Form != "budget":
		r.Thinking, r.OutputConfig = &thinking{Type: "adaptive"}, &outputConfig{Effort: e.Said()}
	case budget >= minBudget:
		r.Thinking = &thinking{"enabled", budget}
	}
}

// mayThink reports whether the conversation lets the model think: in the middle
// of a turn a message that calls tools has to begin with thinking, and one of
// another model's, or from before it was told to think, does not.
func (r *request) mayThink() bool {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		m := r.Messages[i]
		switch {
		case m.Role == "user" && len(m.Content) > 0 && m.Content[0].Type != "tool_result":
			return true
		case m.Role == "assistant" && (m.Content[0].Type == "text" || m.Content[0].Type == "tool_use"):
			return false
		}
	}
	return true
}
