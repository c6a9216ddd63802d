package bridge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/acp"
	"noused/internal/protocol"
)

// An approval that is put away without an answer, and without session/cancel, is a no to
// that call where the turn is the editor's own: the run goes on. A turn of another client's
// is for that one to decide about.
func TestAnApprovalThatIsPutAway(t *testing.T) {
	d := startDaemon(t, "[policy]\nask = [\"write\"]\n")
	e, other := newEditor(t, d.Socket), newEditor(t, d.Socket)
	s := e.open(d.Dir)
	other.must(acp.SessionResume, `{"sessionId":"`+s+`","cwd":"/"}`)
	away := func(e *editor, from int) {
		m, _ := e.await(from, "the approval", func(m message) bool { return m.Method == acp.RequestPermission })
		e.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"outcome":{"outcome":"cancelled"}}}`)
	}
	id := e.prompt(s, `!write {"path":"a.txt","content":"x"}`)
	away(other, 0)
	other.log.await(t, "waits for another client")
	if open := stateOf(t, d.Socket, s).PendingApprovals; len(open) != 1 {
		t.Errorf("who only looks on has answered: %+v", open)
	}
	away(e, 0)
	if got := e.stop(id); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	e.awaitUpdate(s, 0, "why it was not done", func(u update) bool {
		return u.Status == acp.Failed && strings.Contains(string(u.RawOutput), "put away in the editor without an answer")
	})
	if _, err := os.Stat(filepath.Join(d.Dir, "a.txt")); err == nil {
		t.Error("the file was written")
	}
	if got := stateOf(t, d.Socket, s).RunState; got != protocol.StateIdle {
		t.Errorf("the session is %s, want idle", got)
	}
}
