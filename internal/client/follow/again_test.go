package follow

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// What may do harm twice is not sent again once its answer is lost, and what takes as long as what it does is waited
// for; the clients in other languages have the same lists.
func TestWhatIsSentAgainAndWaitedFor(t *testing.T) {
	lists := map[string]string{}
	for _, file := range []string{"python/noused/_async.py", "typescript/link.js"} {
		text, err := os.ReadFile("../../../clients/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b(ONCE|LATE) = [(\[]([^)\]]*)[)\]]`).FindAllStringSubmatch(string(text), -1) {
			lists[file+" "+m[1]] = m[2]
		}
	}
	if len(lists) != 4 {
		t.Fatalf("got the lists %v", lists)
	}
	for _, c := range []struct {
		name        string
		params      protocol.Params
		again, late bool
		says        bool // in words of their own, there: it is not in a list
	}{
		{name: "extension_command", params: protocol.ExtensionCommandParams{}, late: true},
		{name: "call_tool", params: protocol.CallToolParams{}, late: true},
		{name: "compact_session", params: protocol.CompactSessionParams{}, late: true},
		{name: "shutdown", params: protocol.ShutdownParams{}},
		{name: "delete_session", params: protocol.DeleteSessionParams{}},
		{name: "withdraw", params: protocol.WithdrawParams{}},
		{name: "branch_session", params: protocol.BranchSessionParams{}},
		{name: "undo_rewind", params: protocol.UndoRewindParams{}, late: true, says: true},
		{name: "undo_rewind", params: protocol.UndoRewindParams{DryRun: true}, again: true, late: true},
		{name: "rewind", params: protocol.RewindParams{}, late: true, says: true},
		{name: "rewind", params: protocol.RewindParams{DryRun: true}, again: true, late: true},
		{name: "abort", params: protocol.AbortParams{}, says: true},
		{name: "abort", params: protocol.AbortParams{RunID: "run-1"}, again: true},
		{name: "prune", params: protocol.PruneParams{}, again: true, late: true},
		{name: "get_changes", params: protocol.GetChangesParams{}, again: true, late: true},
		{name: "get_state", params: protocol.GetStateParams{}, again: true},
		{name: "approve", params: protocol.ApproveParams{}, again: true},
	} {
		if got := isResent(c.params, client.ErrLost); got != c.again {
			t.Errorf("%s %+v is sent again: %t", c.name, c.params, got)
		}
		if got := client.AnsweredLate(c.params); got != c.late {
			t.Errorf("%s is waited for: %t", c.name, got)
		}
		for name, list := range lists {
			want := c.late
			if strings.HasSuffix(name, "ONCE") {
				want = !c.again && !c.says
			}
			if got := strings.Contains(list, `"`+c.name+`"`); got != want {
				t.Errorf("%s has %s: %t", name, c.name, got)
			}
		}
	}
}
