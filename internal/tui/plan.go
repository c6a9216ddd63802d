package tui

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tui/cell"
)

// Bounds of a plan on the screen.
const (
	maxPlan     = 100 // steps that are kept
	maxPlanText = 500 // bytes of one
	planRows    = 12  // that are shown unfolded
)

// step is one of what an agent has to do, as session_state.plan has it.
type step struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// plan is what the session's agent has written down for itself.
type plan struct {
	steps    []step
	unfolded bool
}

// read takes the plan of a session's state; what is no plan is none.
func (p *plan) read(state jsontext.Value) {
	var s struct {
		Plan []step `json:"plan"`
	}
	p.steps = nil
	if !bytes.Contains(state, []byte(`"plan"`)) || json.Unmarshal(state, &s) != nil {
		return
	}
	for _, step := range s.Plan[:min(len(s.Plan), maxPlan)] {
		if step.Content = cell.Line(step.Content, maxPlanText); step.Content != "" {
			p.steps = append(p.steps, step)
		}
	}
}

// changesPlan reports that a tool's event may have brought another plan.
func changesPlan(update jsontext.Value) bool { return bytes.Contains(update, []byte(`"state_patch"`)) }

// planLines are the plan in at most height lines: folded, how far it is and what is being
// done. One that is done is not shown once the run is over.
func (m *model) planLines(height int) []string {
	done, now := 0, -1
	for i, s := range m.plan.steps {
		switch {
		case s.Status == "completed":
			done++
		case now < 0 || s.Status == "in_progress" && m.plan.steps[now].Status != "in_progress":
			now = i
		}
	}
	if height <= 0 || len(m.plan.steps) == 0 || now < 0 && !m.running() {
		return nil
	}
	text := fmt.Sprintf("plan %d/%d", done, len(m.plan.steps))
	if now >= 0 && !m.plan.unfolded {
		text += " · " + m.plan.steps[now].Content
	}
	hint := "  " + m.keyed("plan", map[bool]string{false: "unfolds it", true: "folds it"}[m.plan.unfolded])
	text = cell.Truncate(text, max(m.width-cell.Width(hint), m.width/2))
	lines := []string{m.theme.Accent.Render(text) + m.theme.Dim.Render(hint)}
	if !m.plan.unfolded {
		return lines
	}
	room := min(height-1, planRows)
	from := max(0, min(max(now, 0)-room/2, len(m.plan.steps)-room))
	for _, s := range m.plan.steps[from:min(from+room, len(m.plan.steps))] {
		switch s.Status {
		case "completed":
			lines = append(lines, m.theme.Dim.Render("  ✓ "+s.Content))
		case "in_progress":
			lines = append(lines, "  ▸ "+s.Content)
		default:
			lines = append(lines, "  ○ "+s.Content)
		}
	}
	return slices.Clip(lines)
}
