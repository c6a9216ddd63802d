package runloop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
)

func (f *fixture) remove(id string) error {
	r, err := f.deleteSession(context.Background(), protocol.DeleteSessionParams{SessionID: id})
	if err == nil && r.SessionID != id {
		f.t.Errorf("deleted %q, want %q", r.SessionID, id)
	}
	return err
}

func (f *fixture) files(id string) []string {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "sessions", id+"*"))
	if err != nil {
		f.t.Fatal(err)
	}
	return files
}

func codeOf(err error) protocol.Code {
	var wire *protocol.Error
	if errors.As(err, &wire) {
		return wire.Code
	}
	return ""
}

func TestDeletedSessionsAreGoneForGood(t *testing.T) {
	dir, events := t.TempDir(), newRecorder()
	f := newFixture(t, dir, offline.Model{}, echoTool, events)
	ctx := context.Background()
	parent := f.session()
	a, err := f.start(parent, "hello")
	if err != nil {
		t.Fatal(err)
	}
	events.wait(a.RunID)
	b, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: parent})
	if err != nil {
		t.Fatal(err)
	}
	other := f.session()
	for _, id := range []string{other, parent} { // the active one, and one that is open
		if err := f.remove(id); err != nil {
			t.Fatal(err)
		}
		if err := f.remove(id); codeOf(err) != protocol.SessionNotFound {
			t.Errorf("once more: got %v, want session_not_found", err)
		}
		if left := f.files(id); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if n := strings.Count(strings.Join(*f.audited.Load(), " "), "session:end"); n != 2 {
		t.Errorf("the audit learned of %d ends, want 2", n)
	}
	for range 2 { // as it is, and after a restart
		for name, err := range map[string]error{
			"get_messages":   second(f.getMessages(ctx, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: parent}})),
			"prompt":         second(f.start(parent, "hello")),
			"switch_session": second(f.switchSession(ctx, protocol.SwitchSessionParams{SessionID: parent})),
			"branch_session": second(f.branchSession(ctx, protocol.BranchSessionParams{SessionID: parent})),
			"delete_session": f.remove(parent),
		} {
			if codeOf(err) != protocol.SessionNotFound {
				t.Errorf("%s: got %v, want session_not_found", name, err)
			}
		}
		st, err := f.getState(ctx, protocol.GetStateParams{})
		if err != nil || st.SessionID != b.SessionID {
			t.Errorf("the active session: got %q, %v; want the branch %s", st.SessionID, err, b.SessionID)
		}
		got, err := f.getMessages(ctx, protocol.GetMessagesParams{})
		if err != nil || len(got.Messages) != 2 {
			t.Errorf("the branch: got %d messages, %v; want 2", len(got.Messages), err)
		}
		list, err := answered(f.listSessions(ctx, protocol.ListSessionsParams{}))
		if err != nil || len(list.Sessions) != 1 {
			t.Errorf("the list: got %v, %v; want the branch only", list.Sessions, err)
		}
		f.stop()
		f = newFixture(t, dir, offline.Model{}, echoTool, events)
	}
	if err := f.remove(b.SessionID); err != nil {
		t.Fatal(err)
	}
	st, err := f.getState(ctx, protocol.GetStateParams{}) // makes a session
	if err != nil || st.SessionID == b.SessionID || !slices.Equal(f.files(""), f.files(st.SessionID)) {
		t.Errorf("got session %q, %v and files %v; want a new one", st.SessionID, err, f.files(""))
	}
}

func TestDeleteRefusesWhatIsAtWork(t *testing.T) {
	m := held{make(chan struct{}), make(chan struct{})}
	f := newFixture(t, t.TempDir(), m, echoTool, newRecorder())
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	f.put("ses-compacting", said("m1", "", model.User, "one"), said("m2", "m1", model.Assistant, "one"),
		said("m3", "m2", model.User, "two"))
	compacted, err := f.compactSession(context.Background(),
		protocol.CompactSessionParams{Scope: protocol.Scope{SessionID: "ses-compacting"}})
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	for _, id := range []string{id, "ses-compacting"} {
		if err := f.remove(id); codeOf(err) != protocol.CommandRejected || !strings.Contains(err.Error(), "run_in_progress") {
			t.Errorf("got %v, want run_in_progress", err)
		}
		if len(f.files(id)) != 1 {
			t.Error("the session's file is gone")
		}
	}
	close(m.leave)
	f.events.wait(a.RunID)
	if _, err := compacted.Later(context.Background()); err != nil {
		t.Error(err)
	}
	for _, id := range []string{id, "ses-compacting"} {
		if err := f.remove(id); err != nil {
			t.Error(err)
		}
	}
}

// A run that a former daemon left unfinished is taken up, not thrown away.
func TestDeleteRefusesAnUnfinishedRun(t *testing.T) {
	m := held{make(chan struct{}), make(chan struct{})}
	dir, events := t.TempDir(), newRecorder()
	f := newFixture(t, dir, m, echoTool, events)
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	f.Drain(0)
	f.stop()
	f = newFixture(t, dir, m, echoTool, events)
	if err := f.remove(id); !strings.Contains(err.Error(), "run_in_progress") {
		t.Errorf("got %v, want run_in_progress", err)
	}
	<-m.enter
	close(m.leave)
	events.wait(a.RunID)
}

func TestDeleteOfWhatIsNoSession(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id := f.session()
	for _, id := range []string{
		"nowhere", "../lock", "..", "/etc/passwd", id + ".jsonl", id + "/../" + id, "a b",
		strings.Repeat("x", 1<<20),
	} {
		if err := f.remove(id); codeOf(err) != protocol.SessionNotFound || len(err.Error()) > 300 {
			t.Errorf("%.80q: got %.300v, want session_not_found", id, err)
		}
	}
	if len(f.files(id)) != 1 {
		t.Error("the session is gone")
	}
}

func TestDeleteThatFailsLeavesTheSession(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	id := f.session()
	blocked := filepath.Join(f.dir, "sessions", id+".deleted") // not even root moves a file there
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.remove(id); codeOf(err) != protocol.SessionError {
		t.Errorf("got %v, want session_error", err)
	}
	a, err := f.start(id, "hello")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	if err := f.remove(id); err != nil {
		t.Error(err)
	}
}

// Whatever is asked of a session while it is deleted is done before, or refused
// as to a session that is not there; nothing brings the file back.
func TestDeleteAmongOtherCommands(t *testing.T) {
	events := newRecorder()
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, events)
	ctx := context.Background()
	for range 50 {
		id := f.session()
		scope := protocol.Scope{SessionID: id}
		var clients sync.WaitGroup
		var mu sync.Mutex
		deleted := 0
		for range 2 {
			clients.Go(func() {
				for {
					err := f.remove(id)
					switch {
					case err == nil:
						mu.Lock()
						deleted++
						mu.Unlock()
						return
					case codeOf(err) == protocol.SessionNotFound:
						return
					case !strings.Contains(err.Error(), "run_in_progress"):
						t.Errorf("delete: %v", err)
						return
					}
				}
			})
		}
		for _, command := range []func() error{
			func() error { return second(f.getState(ctx, protocol.GetStateParams{Scope: scope})) },
			func() error { return second(f.getMessages(ctx, protocol.GetMessagesParams{Scope: scope})) },
			func() error { return second(f.switchSession(ctx, protocol.SwitchSessionParams{SessionID: id})) },
			func() error {
				return second(requestAs[protocol.ToolsAccepted](ctx, f.Hub, id, func(t ticket) input { return toolsIn{t, nil, 0} }))
			},
			func() error {
				a, err := f.start(id, "hello")
				if err == nil {
					events.wait(a.RunID)
				}
				return err
			},
		} {
			clients.Go(func() {
				for {
					err := command()
					if codeOf(err) == protocol.SessionNotFound {
						return
					}
					if err != nil && !strings.Contains(err.Error(), "run_in_progress") {
						t.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
		if left := f.files(id); deleted != 1 || len(left) > 0 {
			t.Fatalf("deleted %d times, left behind: %v", deleted, left)
		}
	}
	f.stop()
	events.done(t)
	if n := f.faults.Load(); n > 0 {
		t.Errorf("%d faults were reported", n)
	}
}
