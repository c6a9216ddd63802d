package approval

import (
	"strings"
	"testing"

	"noused/internal/protocol"
)

// A question of a child session says where it is.
func TestAQuestionOfAChildSaysWhereItIs(t *testing.T) {
	q := protocol.Approval{
		Kind: protocol.ApprovalTool, ToolName: "bash", Rule: "ask: bash",
		SessionPath: []string{"fix login", "", "run\n\x1b[2Jtests"},
	}
	got, want := WhyAsked(q), "in fix login › untitled › run"
	if !strings.HasPrefix(got, want) || strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("got %q, want %q and no control characters", got, want)
	}
	q.SessionPath = nil
	if got := WhyAsked(q); !strings.HasPrefix(got, "asks because") {
		t.Errorf("without a parent: %q", got)
	}
}
