package openai

import (
	"strings"

	"noused/internal/model"
)

// effort is how a model is told how hard to think, each server in its own way.
type effort struct {
	ReasoningEffort string     `json:"reasoning_effort,omitzero"`
	Reasoning       *reasoning `json:"reasoning,omitzero"`
	Thinking        *thinking  `json:"thinking,omitzero"`
	EnableThinking  *bool      `json:"enable_thinking,omitzero"`
}

type reasoning struct {
	Effort  string `json:"effort,omitzero"`
	Enabled *bool  `json:"enabled,omitzero"`
}

type thinking struct {
	Type string `json:"type"`
}

// effortOf is an effort as its form has it.
func effortOf(e model.Effort) (out effort) {
	form, switchOnly := strings.CutSuffix(e.Form, "!")
	on := e.Level != model.NoEffort
	switch {
	case e.Level == "":
		return out
	case form == "openrouter":
		out.Reasoning = &reasoning{Effort: e.Said()}
		return out
	case form == "thinking":
		out.Thinking = &thinking{Type: "enabled"}
		if !on {
			out.Thinking.Type = "disabled"
		}
	case form == "qwen":
		out.EnableThinking = &on
	case form == "together":
		out.Reasoning = &reasoning{Enabled: &on}
	default:
		out.ReasoningEffort = e.Said()
		return out
	}
	if on && !switchOnly {
		out.ReasoningEffort = e.Said()
	}
	return out
}
