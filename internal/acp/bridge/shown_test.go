package bridge

import (
	"strings"
	"testing"

	"noused/internal/protocol"
)

// An editor is shown every character of a command: in the title, and where that has
// only its beginning or numbers, in full.
func TestAnEditorIsShownWhatRuns(t *testing.T) {
	w := &window{}
	for _, c := range []struct{ command, title, content string }{
		{`ls -l`, "bash ls -l", "asks because it runs outside the sandbox: good⟨U+2028⟩x"},
		{`echo\rrm`, "bash echo⟨U+000D⟩rm", "asks because it runs outside the sandbox: good⟨U+2028⟩x\n```\necho⟨U+000D⟩rm\n```"},
		{
			"ls\\n```\\nrm", "bash ls⟨U+000A⟩```⟨U+000A⟩rm",
			"asks because it runs outside the sandbox: good⟨U+2028⟩x\n````\nls\n```\nrm\n````",
		},
		{
			strings.Repeat("x", 200) + ";rm", "bash " + strings.Repeat("x", 155) + " … 48 bytes more",
			"asks because it runs outside the sandbox: good⟨U+2028⟩x\n```\n" + strings.Repeat("x", 200) + ";rm\n```",
		},
	} {
		p := w.permission(protocol.Approval{
			Kind: protocol.ApprovalTool, ToolName: "bash", Arguments: []byte(`{"command":"` + c.command + `"}`),
			Rule: "ask: bash outside the sandbox", Reason: "good\u2028x",
		})
		if p.ToolCall.Title != c.title {
			t.Errorf("the title is %q, want %q", p.ToolCall.Title, c.title)
		}
		if got := *p.ToolCall.Content[len(p.ToolCall.Content)-1].Content.Text; got != c.content {
			t.Errorf("the content is %q, want %q", got, c.content)
		}
	}
}
