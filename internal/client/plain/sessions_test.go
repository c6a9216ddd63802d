package plain

import (
	"strings"
	"testing"
	"time"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// A list has a line for each session that fits into 80 columns, whatever it is called, and as
// much of a title as the width has room for; the short id stands last.
func TestASessionIsALineOf80Columns(t *testing.T) {
	now := time.Date(2026, 2, 12, 12, 0, 0, 0, time.UTC)
	list := []protocol.SessionInfo{
		{
			SessionID: "ses-0198c0de-0000-7000-8000-0000000000a1", Title: "mend **the** `parser`", Messages: 12,
			UpdatedAt: now.Add(-3 * time.Minute), RunState: protocol.StateIdle,
		},
		{
			SessionID: "ses-0198c0de-0000-7000-8000-0000000000a2", Title: strings.Repeat("日本語 and more ", 9), Messages: 140_000,
			UpdatedAt: now.Add(-27 * 24 * time.Hour), WaitingFor: protocol.WaitApproval,
		},
	}
	for _, width := range []int{80, 120, 300} {
		lines := SessionLines(list, list[0].SessionID, now, width)
		for i, line := range lines[1:] {
			if got := cell.Width(line.Text); got > width || !strings.HasSuffix(line.Text, "  "+Tail(list[i].SessionID)) {
				t.Errorf("%d cells in %d, want the short id at the end: %q", got, width, line.Text)
			}
		}
		if want := "*  idle       3 min ago"; !strings.HasPrefix(lines[1].Text, want) ||
			!strings.Contains(lines[1].Text, " 12  mend the parser ") {
			t.Errorf("got %q, want it to begin with %q", lines[1].Text, want)
		}
		if whole := strings.Contains(lines[2].Text, strings.TrimSpace(list[1].Title)); whole != (width == 300) {
			t.Errorf("in %d the title is whole: %t; %q", width, whole, lines[2].Text)
		}
	}
}
