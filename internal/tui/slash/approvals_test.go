package slash

import (
	"strings"
	"testing"

	"noused/internal/protocol"
)

// What waits is listed by the word that nous has for it, wherever it waits.
func TestApprovalsThatWaitAreListed(t *testing.T) {
	list := []protocol.Approval{
		{ApprovalID: "apr-1-ses-1", SessionID: "ses-1", ToolName: "bash", Arguments: []byte(`{"command":"git push"}`)},
		{ApprovalID: "apr-2-ses-9", SessionID: "ses-9", ToolName: "write", Arguments: []byte(`{"path":"a"}`)},
	}
	p := Place{State: protocol.State{SessionID: "ses-1", PendingApprovals: list}}
	if got, want := showApprovals(t.Context(), p, "").Info,
		"apr-1-ses-1  ses-1  bash git push\napr-2-ses-9  ses-9  write a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := showApprovals(t.Context(), p, "apr-2").Info; !strings.Contains(got, "Allow this write of a?") {
		t.Errorf("of one: %q", got)
	}
	if got := showApprovals(t.Context(), p, "apr-3"); got.Err == nil {
		t.Errorf("of none: got %+v, want an error", got)
	}
}
