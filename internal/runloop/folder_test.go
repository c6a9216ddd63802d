package runloop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (f *fixture) info(id string) protocol.SessionInfo {
	f.t.Helper()
	list, err := answered(f.listSessions(context.Background(), protocol.ListSessionsParams{}))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, info := range list.Sessions {
		if info.SessionID == id {
			return info
		}
	}
	f.t.Fatalf("session %s is not in the list", id)
	return protocol.SessionInfo{}
}

// dirs makes a folder and a symlink to it, and returns both.
func dirs(t *testing.T) (folder, link string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder, link = filepath.Join(top, "project"), filepath.Join(top, "link")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Symlink("project", link)); err != nil {
		t.Fatal(err)
	}
	return folder, link
}

// A session keeps the folder that it was made for, symlinks resolved, over a
// restart; a branch has its parent's, and lists can be asked for one folder.
func TestASessionHasAFolder(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	folder, link := dirs(t)
	made, err := f.newSession(ctx, protocol.NewSessionParams{Workdir: link})
	if err != nil {
		t.Fatal(err)
	}
	branch, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: made.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	moved, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: made.SessionID, Workdir: other})
	if err != nil {
		t.Fatal(err)
	}
	plain := f.session()
	f.put("ses-old", said("m1", "", model.User, "hello")) // as older daemons made them
	home, err := filepath.EvalSymlinks(".")
	if err == nil {
		home, err = filepath.Abs(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		made.SessionID: folder, branch.SessionID: folder, moved.SessionID: other, plain: home,
		"ses-old": home,
	}
	check := func(when string) {
		t.Helper()
		for id, workdir := range want {
			st, err := f.getState(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
			if err != nil || st.Workdir != workdir || f.info(id).Workdir != workdir {
				t.Errorf("%s: session %s is in %s, list_sessions says %s; want %s (%v)", when, id, st.Workdir, f.info(id).Workdir,
					workdir, err)
			}
		}
		for _, asked := range []string{folder, link, folder + "/"} {
			one := 2
			list, err := answered(f.listSessions(ctx, protocol.ListSessionsParams{Workdir: asked, Limit: &one}))
			if err != nil || len(list.Sessions) != 2 {
				t.Errorf("%s: in %s are %d sessions, %v; want 2", when, asked, len(list.Sessions), err)
			}
		}
		if list, err := answered(f.listSessions(ctx, protocol.ListSessionsParams{Workdir: home})); err != nil ||
			len(list.Sessions) != 2 {
			t.Errorf("%s: in the daemon's folder are %d sessions, %v; want 2", when, len(list.Sessions), err)
		}
	}
	check("open")
	f.stop()
	f = newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	check("after a restart")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if st, err := f.getState(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: made.SessionID}}); err != nil ||
		st.Workdir != folder {
		t.Errorf("its folder is gone: got %q, %v", st.Workdir, err)
	}
}

// Sessions of older daemons live in the daemon's folder, links resolved as in all
// others: a link in its path is none that somebody has put in the folder's place.
func TestAnOldSessionInALinkedFolder(t *testing.T) {
	folder, link := dirs(t)
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newRecorder(), func(o *Options) {
		o.Workdir = link
	})
	f.put("ses-old", said("m1", "", model.User, "hello"))
	scope := protocol.Scope{SessionID: "ses-old"}
	branch, err := f.branchSession(context.Background(), protocol.BranchSessionParams{SessionID: "ses-old"})
	if err != nil {
		t.Fatal(err)
	}
	for _, scope := range []protocol.Scope{scope, {SessionID: branch.SessionID}} {
		st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: scope})
		if err != nil || st.Workdir != folder || f.info(scope.SessionID).Workdir != folder {
			t.Errorf("%s lives in %s, in the list %s, want %s; %v", scope.SessionID, st.Workdir, f.info(scope.SessionID).Workdir,
				folder, err)
		}
	}
}

func TestAFolderThatCannotBeUsedIsRefused(t *testing.T) {
	state := t.TempDir()
	f := newFixture(t, state, offline.Model{}, echoTool, newRecorder())
	top := t.TempDir()
	if err := os.Symlink(state, filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	file, locked := filepath.Join(top, "file"), filepath.Join(top, "locked")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(locked, 0o600),
		os.Symlink("loop", filepath.Join(top, "loop"))); err != nil {
		t.Fatal(err)
	}
	bad := []string{
		file, filepath.Join(top, "gone"), filepath.Join(file, "below"), filepath.Join(top, "loop"),
		"/" + strings.Repeat("x", 5000), "/a\x00b",
		state, filepath.Join(state, "sessions"), filepath.Join(top, "link", "sessions"),
	} // tools would write in the journals
	if os.Geteuid() != 0 { // who may enter everything
		bad = append(bad, locked)
	}
	id := f.session()
	for _, path := range bad {
		_, err := f.newSession(context.Background(), protocol.NewSessionParams{Workdir: path})
		_, err2 := f.branchSession(context.Background(), protocol.BranchSessionParams{SessionID: id, Workdir: path})
		for _, err := range []error{err, err2} {
			var wire *protocol.Error
			if !errors.As(err, &wire) || wire.Code != protocol.InvalidPayload || !strings.HasPrefix(wire.Message, "workdir: ") {
				t.Errorf("%.80q: got %v, want invalid_payload: workdir: …", path, err)
			}
		}
	}
	if ids, err := f.store.IDs(); err != nil || len(ids) != 1 {
		t.Errorf("%d sessions were made, %v", len(ids)-1, err)
	}
}

func TestASessionMadeAsideLeavesTheActiveOneAlone(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	active := f.session()
	made, err := f.newSession(ctx, protocol.NewSessionParams{Activate: no})
	if err != nil || made.Active {
		t.Errorf("got %+v, %v", made, err)
	}
	branch, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: made.SessionID, Activate: no})
	if err != nil || branch.Active {
		t.Errorf("got %+v, %v", branch, err)
	}
	for _, when := range []string{"at once", "after a restart"} {
		if st, err := f.getState(ctx, protocol.GetStateParams{}); err != nil || st.SessionID != active {
			t.Errorf("%s: the active session is %s, %v; want %s", when, st.SessionID, err, active)
		}
		f.stop()
		f = newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	}
}

// A session is unread from the end of a run on until somebody says that he has
// seen it, over restarts; that changes nothing else of it.
func TestUnread(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	id := f.session()
	expect := func(when string, unread bool) {
		t.Helper()
		for _, how := range []string{"open", "closed", "after a restart"} {
			if got := f.info(id); got.Unread != unread {
				t.Errorf("%s, %s: unread is %t", when, how, got.Unread)
			}
			switch how {
			case "open":
				f.evict(f.env.Now().Add(idleTime))
			case "closed":
				f.stop()
				f = newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
			}
		}
	}
	expect("new", false)
	for range 2 {
		a, err := f.start(id, "one\ntwo")
		if err != nil {
			t.Fatal(err)
		}
		f.events.wait(a.RunID)
		expect("its run has ended", true)
		before := f.info(id)
		if before.LastStopReason != "completed" || before.LastText != "two" {
			t.Errorf("got %+v", before)
		}
		for range 2 {
			if r, err := requestAs[protocol.MarkedRead](ctx, f.Hub, id, func(t ticket) input {
				return readIn{t}
			}); err != nil || r.Command != "mark_read" {
				t.Fatal(r, err)
			}
		}
		expect("it has been read", false)
		if after := f.info(id); !after.UpdatedAt.Equal(before.UpdatedAt) || after.LastStopReason != "completed" {
			t.Errorf("reading it made of it %+v", after)
		}
	}
	f.put("ses-old", said("m1", "", model.User, "hi"), session.RunStarted{RunID: "run-1"},
		session.RunEnded{RunID: "run-1", StopReason: "error"})
	if f.info("ses-old").Unread {
		t.Error("what an older daemon left is unread")
	}
}

// A title that somebody gave is the session's in every place, and stays.
func TestATitleCanBeChanged(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	ctx := context.Background()
	id := f.session()
	a, err := f.start(id, "a lantern")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	r, err := requestAs[protocol.TitleAccepted](ctx, f.Hub, id, func(t ticket) input { return titleIn{t, "Light"} })
	if err != nil || r != (protocol.TitleAccepted{Command: "set_title", Title: "Light"}) {
		t.Fatal(r, err)
	}
	for _, when := range []string{"at once", "after a restart"} {
		st, err := f.getState(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil || st.Title != "Light" || f.info(id).Title != "Light" {
			t.Errorf("%s: it is called %q, in a list %q, %v", when, st.Title, f.info(id).Title, err)
		}
		found, err := answered(f.searchSessions(ctx, protocol.SearchSessionsParams{Text: "lantern"}))
		if err != nil || len(found.Matches) == 0 || found.Matches[0].Title != "Light" {
			t.Errorf("%s: found is %+v, %v", when, found.Matches, err)
		}
		f.stop()
		f = newFixture(t, dir, offline.Model{}, echoTool, newRecorder())
	}
	branch, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: id})
	if err != nil || f.info(branch.SessionID).Title != "Light" {
		t.Errorf("a branch is called %q, %v", f.info(branch.SessionID).Title, err)
	}
}

// Everybody hears of a title, and that a session has been read; of what is so
// already, nobody.
func TestTitlesAndReadingAreTold(t *testing.T) {
	w := newWorld(t)
	w.prompt("hello")
	w.finish()
	from := len(w.events)
	for range 2 {
		w.step(titleIn{w.client("title"), "Light"})
		w.step(readIn{w.client("read")})
	}
	var got []string
	for _, ev := range w.events[from:] {
		s := ev.(protocol.Status)
		got = append(got, string(s.Code)+" "+s.Title)
		if s.SessionID != "ses-1" || s.RunID != "" {
			t.Errorf("it learns of %+v", s.Ref)
		}
	}
	if want := []string{"title_set Light", "marked_read "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A list says of each session what it is doing, so that nobody has to ask one
// after the other.
func TestAListSaysWhatASessionIsDoing(t *testing.T) {
	calling, leave := make(chan struct{}), make(chan struct{})
	f := newFixture(t, t.TempDir(), offline.Model{},
		func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			close(calling)
			<-leave
			return model.ToolResult{OK: true, Text: "done"}
		}, newRecorder())
	id := f.session()
	if got := f.info(id); got.Working != nil || got.LastStopReason != "" || got.WaitingFor != "" ||
		got.Model.Name != offline.Name {
		t.Errorf("new: got %+v", got)
	}
	a, err := f.start(id, "look\n!t.x")
	if err != nil {
		t.Fatal(err)
	}
	<-calling
	got := f.info(id)
	if w := got.Working; w == nil || w.RunID != a.RunID || w.ToolName != "t.x" || w.StartedAt.IsZero() ||
		w.Since.Before(w.StartedAt) {
		t.Errorf("while a tool runs: got %+v", w)
	}
	close(leave)
	f.events.wait(a.RunID)
	if got := f.info(id); got.Working != nil || got.LastStopReason != "completed" {
		t.Errorf("after its run: got %+v", got)
	}
}

// Branches of one session are told apart in a list by what was said in each of them.
func TestBranchesAreListedByTheirOwnWords(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	ctx, parent := context.Background(), f.session()
	say := func(id, text string) {
		t.Helper()
		run, err := f.start(id, text)
		if err != nil {
			t.Fatal(err)
		}
		f.events.wait(run.RunID)
	}
	say(parent, "mend the parser")
	want := map[string]string{parent: "mend the parser"}
	for _, text := range []string{"with a table", "by hand"} {
		b, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: parent})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.info(b.SessionID).Title; got != "mend the parser" {
			t.Errorf("before anything is said in it the branch is called %q", got)
		}
		say(b.SessionID, text)
		want[b.SessionID] = text
	}
	for id, title := range want {
		if got := f.info(id).Title; got != title {
			t.Errorf("got %q, want %q", got, title)
		}
	}
}
