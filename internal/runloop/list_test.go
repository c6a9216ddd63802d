package runloop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// A list reads what it does not know beside the connection's other commands, and
// each journal once; a session that is open it does not read at all.
func TestAListReadsAJournalOnceAndHoldsNobodyUp(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	mux, ctx := f.mux(), context.Background()
	for i := range 5 {
		f.put(fmt.Sprint("ses-", i), said("m1", "", model.User, "one"))
	}
	first := f.run(mux, "list_sessions", protocol.ListSessionsParams{}).Later()
	if first == nil {
		t.Fatal("the journals are read on the connection's own goroutine")
	}
	if err := first(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if f.run(mux, "list_sessions", protocol.ListSessionsParams{}).Later() != nil {
		t.Error("journals that have not changed are read again")
	}
	a, err := f.start("ses-3", "two")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	list, err := f.listSessions(ctx, protocol.ListSessionsParams{})
	if err != nil || list.Later != nil {
		t.Fatalf("a session that is open is read: %v", err)
	}
	for _, s := range list.Reply.Sessions {
		if want := map[bool]int{true: 3, false: 1}[s.SessionID == "ses-3"]; s.Messages != want {
			t.Errorf("%s: got %d messages, want %d", s.SessionID, s.Messages, want)
		}
	}
	f.evict(time.Now().Add(time.Hour))
	again, err := answered(f.listSessions(ctx, protocol.ListSessionsParams{}))
	if err != nil || fmt.Sprint(again.Sessions) != fmt.Sprint(list.Reply.Sessions) {
		t.Errorf("closed, they are %+v, %v\nopen, they were %+v", again.Sessions, err, list.Reply.Sessions)
	}
}

// A session that takes long to open, as its journal is long, costs nobody else
// anything: no other session, no list, no stop.
func TestOpeningASessionHoldsNoOtherUp(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	id := f.session()
	f.put("ses-long", said("m1", "", model.User, "one"))
	opened := make(chan struct{})
	f.mu.Lock()
	f.state.taken["ses-long"] = opened // somebody reads its journal
	f.mu.Unlock()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	if list, err := answered(f.listSessions(ctx, protocol.ListSessionsParams{})); err != nil || len(list.Sessions) != 2 {
		t.Errorf("got %v, %v", list.Sessions, err)
	}
	leaving, leave := context.WithCancelCause(ctx)
	gone := errors.New("gone")
	leave(gone)
	if _, _, err := f.acquire(leaving, "ses-long"); !errors.Is(err, gone) {
		t.Errorf("who is gone still waits: %v", err)
	}
	f.stop() // a drain, too
	close(opened)
}

// Looking at a session, or branching from it, does not open it: nothing is
// announced and nothing is kept of it.
func TestLookingAtASessionDoesNotOpenIt(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	f.put("ses-1", said("m1", "", model.User, "one"), said("m2", "m1", model.Assistant, "two"),
		said("m3", "m2", model.User, "three"))
	ctx, scope, limit := context.Background(), protocol.Scope{SessionID: "ses-1"}, 2
	all, err := f.getMessages(ctx, protocol.GetMessagesParams{Scope: scope})
	if err != nil || len(all.Messages) != 3 || all.LeafID != "m3" {
		t.Errorf("got %s, %v", all.Messages, err)
	}
	newest, err := f.getMessages(ctx, protocol.GetMessagesParams{Scope: scope, Limit: &limit})
	if err != nil || fmt.Sprintf("%s", newest.Messages) != fmt.Sprintf("%s", all.Messages[1:]) {
		t.Errorf("the newest 2 are %s, %v", newest.Messages, err)
	}
	if tree, err := f.getTree(ctx, protocol.GetTreeParams{Scope: scope}); err != nil || len(tree.Nodes) != 3 {
		t.Errorf("got %v, %v", tree, err)
	}
	if _, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: "ses-1"}); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	if f.state.loops["ses-1"] != nil {
		t.Error("the session was opened")
	}
	f.mu.Unlock()
	if _, err := f.getState(ctx, protocol.GetStateParams{Scope: scope}); err != nil { // which opens it
		t.Fatal(err)
	}
	open, err := f.getMessages(ctx, protocol.GetMessagesParams{Scope: scope})
	if err != nil || fmt.Sprintf("%s", open.Messages) != fmt.Sprintf("%s", all.Messages) {
		t.Errorf("open, it has %s, %v", open.Messages, err)
	}
}

// A page of a folder's sessions reads no more journals than it takes, and none twice:
// each page of very many would otherwise read them all.
func TestAPageOfAFolderReadsNoMoreThanItTakes(t *testing.T) {
	here := t.TempDir()
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newRecorder(), func(o *Options) {
		o.Workdir = here
	})
	const all = 30
	for i := range all {
		f.put(fmt.Sprintf("ses-%02d", i), said("m1", "", model.User, "one"))
	}
	known := func() (n int) {
		for i := range all {
			if _, ok := f.Known(fmt.Sprintf("ses-%02d", i)); ok {
				n++
			}
		}
		return n
	}
	limit, before := 2, ""
	for page := 1; page <= 3; page++ {
		list, err := answered(f.listSessions(context.Background(), protocol.ListSessionsParams{
			Limit: &limit, Workdir: here,
			Before: before,
		}))
		if err != nil || len(list.Sessions) != limit {
			t.Fatalf("page %d: got %+v %v", page, list, err)
		}
		before = list.Sessions[limit-1].SessionID
		if n := known(); n > page*(limit+listReaders) {
			t.Errorf("after page %d of %d sessions %d journals have been read", page, limit, n)
		}
	}
	list, err := answered(f.listSessions(context.Background(), protocol.ListSessionsParams{
		Limit:   &limit,
		Workdir: t.TempDir(),
	}))
	if err != nil || len(list.Sessions) != 0 || known() != all {
		t.Errorf("another folder: got %+v %v, and %d journals read", list, err, known())
	}
}

// Who looks at the tools before there is a session makes none.
func TestToLookAtToolsMakesNoSession(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	tools, err := answered(f.listTools(ctx, protocol.ListToolsParams{}))
	if err != nil || len(tools.Tools) == 0 {
		t.Fatalf("got %+v, %v", tools, err)
	}
	if ids, err := f.store.IDs(); err != nil || len(ids) > 0 {
		t.Errorf("there are %d sessions, %v", len(ids), err)
	}
}
