package export

import (
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/buildinfo"
	"noused/internal/protocol"
)

// Trajectories of Harbor (ATIF-v1.4): what each person and model said, with the calls and
// their results, and what it took.
type (
	trajectory struct {
		Version      string       `json:"schema_version"`
		SessionID    string       `json:"session_id"`
		Agent        atifAgent    `json:"agent"`
		Steps        []atifStep   `json:"steps"`
		FinalMetrics *atifTotals  `json:"final_metrics,omitzero"`
		Extra        *atifSession `json:"extra,omitzero"`
	}
	atifAgent struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Model   string `json:"model_name,omitzero"`
	}
	atifSession struct {
		Title string `json:"title"`
	}
	atifStep struct {
		ID          int              `json:"step_id"`
		At          string           `json:"timestamp,omitzero"`
		Source      string           `json:"source"`
		Model       string           `json:"model_name,omitzero"`
		Message     string           `json:"message"`
		Reasoning   string           `json:"reasoning_content,omitzero"`
		Calls       []atifCall       `json:"tool_calls,omitempty"`
		Observation *atifObservation `json:"observation,omitzero"`
		Metrics     *atifMetrics     `json:"metrics,omitzero"`
	}
	atifCall struct {
		ID        string         `json:"tool_call_id"`
		Name      string         `json:"function_name"`
		Arguments jsontext.Value `json:"arguments"`
	}
	atifObservation struct {
		Results []atifResult `json:"results"`
	}
	atifResult struct {
		CallID  string `json:"source_call_id,omitzero"`
		Content string `json:"content"`
	}
	atifMetrics struct {
		Prompt     int64    `json:"prompt_tokens"`
		Completion int64    `json:"completion_tokens"`
		Cached     int64    `json:"cached_tokens,omitzero"`
		Cost       *float64 `json:"cost_usd,omitzero"`
	}
	atifTotals struct {
		Prompt     int64    `json:"total_prompt_tokens"`
		Completion int64    `json:"total_completion_tokens"`
		Cached     int64    `json:"total_cached_tokens,omitzero"`
		Cost       *float64 `json:"total_cost_usd,omitzero"`
		Steps      int      `json:"total_steps"`
	}
)

const atifVersion = "ATIF-v1.4"

// ATIF writes the conversation as a trajectory. One without a text is none.
func ATIF(w io.Writer, doc *Document) error {
	t := trajectory{
		Version: atifVersion, SessionID: doc.SessionID,
		Agent: atifAgent{Name: "noused", Version: buildinfo.Version()},
	}
	if doc.Title != "" {
		t.Extra = &atifSession{doc.Title}
	}
	for _, entry := range doc.Messages {
		if err := t.add(entry); err != nil {
			return err
		}
	}
	if len(t.Steps) == 0 {
		return fmt.Errorf("session %s has no message yet, and a trajectory has at least one step", doc.SessionID)
	}
	t.FinalMetrics = &atifTotals{
		Prompt: doc.Usage.InputTokens, Completion: doc.Usage.OutputTokens, Cached: doc.Usage.CachedTokens,
		Cost: dollarsOf(doc.Usage.Cost), Steps: len(t.Steps),
	}
	return encode(w, t, jsontext.WithIndent("  "))
}

// add takes an entry in. A summary stands as a step of the system's, as it stands for what
// was said before.
func (t *trajectory) add(entry jsontext.Value) error {
	var m protocol.Message
	if err := json.Unmarshal(entry, &m, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	step := atifStep{ID: len(t.Steps) + 1, Source: "user", Message: m.Text}
	if !m.CreatedAt.IsZero() {
		step.At = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	switch {
	case m.Type == "compaction":
		var c protocol.CompactionEntry
		if err := json.Unmarshal(entry, &c, jsontext.AllowInvalidUTF8(true)); err != nil {
			return fmt.Errorf("decode compaction: %w", err)
		}
		step.Source, step.Message = "system", c.Summary
	case m.Role == "tool":
		t.observe(m)
		return nil
	case m.Role == "assistant":
		step.agent(m)
		if m.Model != "" {
			t.Agent.Model = m.Model
		}
	}
	t.Steps = append(t.Steps, step)
	return nil
}

// agent fills in what only the agent's steps have.
func (s *atifStep) agent(m protocol.Message) {
	s.Source, s.Model, s.Reasoning = "agent", m.Model, m.Thinking
	for _, c := range m.ToolCalls {
		arguments := c.Arguments
		if arguments.Kind() != jsontext.KindBeginObject { // what the model wrote is no object
			written, _ := json.Marshal(map[string]jsontext.Value{"not_an_object": arguments})
			arguments = written
		}
		s.Calls = append(s.Calls, atifCall{c.ID, c.Name, arguments})
	}
	if u := m.Usage; u != nil {
		s.Metrics = &atifMetrics{u.InputTokens, u.OutputTokens, u.CachedTokens, dollarsOf(u.Cost)}
	}
}

// observe puts a result beside the call that it is of.
func (t *trajectory) observe(m protocol.Message) {
	for i := len(t.Steps) - 1; i >= 0; i-- {
		for _, c := range t.Steps[i].Calls {
			if c.ID != m.ToolCallID {
				continue
			}
			if t.Steps[i].Observation == nil {
				t.Steps[i].Observation = &atifObservation{}
			}
			seen := t.Steps[i].Observation
			seen.Results = append(seen.Results, atifResult{m.ToolCallID, m.Text})
			return
		}
	}
}

func dollarsOf(c *protocol.Cost) *float64 {
	if c == nil {
		return nil
	}
	return &c.Amount
}
