package approvals

import (
	"strings"
	"testing"

	"noused/internal/protocol"
)

// Line by line, too, nothing that somebody else says is a line of its own.
func TestLinesHideNothing(t *testing.T) {
	got := strings.Join(Lines(protocol.Approval{
		Kind: protocol.ApprovalTool, ToolName: "bash", Workdir: "/w\n\u202ex", Rule: "ask: bash", Reason: "r\nrule: none\r",
		Arguments: []byte(`{"command":"ls\tx \nonce: yes\u2028","reason":"r"}`),
		Options:   []protocol.ApprovalOption{{ID: "once\n", Decision: protocol.DecisionAllow}},
	}), "\n")
	want := strings.Join([]string{
		"Allow bash to run this?", "  characters that a terminal does not show are written as ⟨number⟩", "  ls⇥   x⟨U+0020⟩",
		"  once: yes⟨U+2028⟩", `  reason: r`,
		"reason: r⟨U+000A⟩rule: none⟨U+000D⟩", "folder: /w⟨U+000A⟩⟨U+202E⟩x", "why: \"bash\" says so", "once⟨U+000A⟩: allow",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
