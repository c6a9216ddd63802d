package tui

import (
	"strings"
	"testing"
)

// What an agent has written down to do stands above the input, in a line that a key unfolds.
func TestThePlanIsAboveTheInput(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("go on")
	h.press("alt+enter")
	h.write(`!todo {"items":[{"content":"read it","status":"completed"},{"content":"write it","status":"in_progress"},` +
		`{"content":"test it","status":"pending"}]}`)
	h.press("enter")
	h.until("plan", func() bool { return strings.Contains(h.screen(), "plan 1/3 · write it") })
	h.until("end of the run", func() bool { return !h.running() && len(h.unsent) == 0 })
	h.sees("plan 1/3 · write it")
	h.press("alt+t")
	h.sees("✓ read it", "▸ write it", "○ test it")
	h.press("alt+t")
	if strings.Contains(h.screen(), "○ test it") {
		t.Errorf("the plan is not folded:\n%s", h.screen())
	}
	h.write("go on")
	h.press("alt+enter")
	h.write(`!todo {"items":[{"content":"all of it","status":"completed"}]}`)
	h.press("enter")
	h.until("end of the run", func() bool { return !h.running() && len(h.unsent) == 0 && len(h.plan.steps) == 1 })
	if strings.Contains(h.screen(), "plan 1/1") {
		t.Errorf("a plan that is done is still shown:\n%s", h.screen())
	}
}
