package runloop

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// withJob is a world in which one session has a job that runs.
type withJob struct {
	tools
	session *atomic.Pointer[string]
}

func (w withJob) Jobs(id string) []model.Job {
	if of := w.session.Load(); of != nil && *of == id {
		return []model.Job{{ID: "job-1", Status: model.JobRunning}}
	}
	return nil
}

// keeper is a fixture whose clock can be set forward.
func keeper(t *testing.T, m Model) (f *fixture, later *atomic.Int64, job *atomic.Pointer[string]) {
	t.Helper()
	later, job = new(atomic.Int64), new(atomic.Pointer[string])
	f = newFixtureWith(t, session.OSDisk{}, t.TempDir(), m, echoTool, newRecorder(), func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		o.Tools = withJob{echoTool, job}
	})
	return f, later, job
}

// prune removes once nothing moves.
func (f *fixture) prune(keep Keep, dry bool) (gone []string) {
	f.t.Helper()
	synctest.Wait()
	err := f.PruneSessions(context.Background(), keep, dry, func(s protocol.PrunedSession) {
		gone = append(gone, s.SessionID)
	})
	if err != nil {
		f.t.Error(err)
	}
	return gone
}

// writtenAt is the time as files have it, which no bubble stops.
func (f *fixture) writtenAt() time.Time {
	f.t.Helper()
	info, err := os.Stat(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	return info.ModTime()
}

func (f *fixture) listed() (ids []string) {
	f.t.Helper()
	a, err := f.listSessions(context.Background(), protocol.ListSessionsParams{})
	if err == nil && a.Later != nil {
		a.Reply, err = a.Later(context.Background())
	}
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range a.Reply.Sessions {
		ids = append(ids, s.SessionID)
	}
	slices.Sort(ids)
	return ids
}

// What runs, is compacted, used, has a job, or is the active session stays, however
// old it is. What was dry is what is removed then.
func TestPruneSparesWhatIsInUse(t *testing.T) { synctest.Test(t, pruneSparesWhatIsInUse) }

func pruneSparesWhatIsInUse(t *testing.T) {
	m := held{make(chan struct{}), make(chan struct{})}
	f, later, job := keeper(t, m)
	ctx := context.Background()
	disk := f.writtenAt()
	open, closed, running, used, jobs := f.session(), f.session(), f.session(), f.session(), f.session()
	active := f.session()
	job.Store(&jobs)
	synctest.Wait()
	f.evict(time.Now().Add(time.Hour)) // all are closed,
	for _, id := range []string{open, running} {
		if _, err := f.getState(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}}); err != nil { // but some
			t.Fatal(err)
		}
	}
	a, err := f.start(running, "go")
	if err != nil {
		t.Fatal(err)
	}
	<-m.enter
	_, release, err := f.acquire(ctx, used)
	if err != nil {
		t.Fatal(err)
	}
	later.Store(int64(time.Until(disk) + 100*24*time.Hour))
	keep := Keep{Older: 90 * 24 * time.Hour}
	want := []string{open, closed}
	if got := f.prune(Keep{Older: 101 * 24 * time.Hour}, false); len(got) > 0 {
		t.Errorf("removed before it is old: %v", got)
	}
	for _, dry := range []bool{true, false} {
		got := f.prune(keep, dry)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("dry %t: got %v, want %v", dry, got, want)
		}
	}
	if got, want := f.listed(), []string{running, used, jobs, active}; !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	for _, id := range want {
		if _, err := f.start(id, "again"); codeOf(err) != protocol.SessionNotFound {
			t.Errorf("a prompt to what is gone: %v", err)
		}
		if left := f.files(id); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	release()
	close(m.leave)
	f.events.wait(a.RunID)
	if got := f.prune(keep, false); !slices.Contains(got, used) {
		t.Errorf("once it is used no more: %v", got)
	}
}

// A question waits for as long as it likes.
func TestPruneSparesWhatWaits(t *testing.T) { synctest.Test(t, pruneSparesWhatWaits) }

func pruneSparesWhatWaits(t *testing.T) {
	f := asker(t, t.TempDir(), newRecorder(), &rules{})
	id, asked, run := f.asks()
	f.session() // is the active one
	if got := f.prune(Keep{Larger: 1}, false); len(got) > 0 {
		t.Errorf("removed %v", got)
	}
	if _, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"}); err != nil {
		t.Fatal(err)
	}
	f.events.wait(run)
	f.stop()
	f.events.done(t)
	if len(f.files(id)) != 1 {
		t.Error("its journal is gone")
	}
}

// Of sessions that are too large together those go that were used longest ago, and
// no more than have to. A branch does without its parent.
func TestPruneBySize(t *testing.T) { synctest.Test(t, pruneBySize) }

func pruneBySize(t *testing.T) {
	f, _, _ := keeper(t, offline.Model{})
	ctx := context.Background()
	say := func(id string) {
		a, err := f.start(id, strings.Repeat("word ", 500))
		if err != nil {
			t.Fatal(err)
		}
		f.events.wait(a.RunID)
	}
	parent, second := f.session(), f.session()
	say(parent)
	b, err := f.branchSession(ctx, protocol.BranchSessionParams{SessionID: parent})
	if err != nil {
		t.Fatal(err)
	}
	say(second)
	active := f.session()
	all, err := f.store.Footprints(ctx)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, p := range all {
		if p.ID != active { // that one cannot be removed
			total += p.Bytes
		}
	}
	if got := f.prune(Keep{Larger: total}, false); len(got) > 0 {
		t.Errorf("removed though it fits: %v", got)
	}
	if got := f.prune(Keep{Larger: total - 1}, false); !slices.Equal(got, []string{parent}) {
		t.Errorf("got %v, want the one that was used first", got)
	}
	say(b.SessionID)
	if got := f.prune(Keep{Larger: 1}, false); !slices.Equal(got, []string{second, b.SessionID}) {
		t.Errorf("got %v, want all but the active one, the oldest first", got)
	}
	if got := f.listed(); !slices.Equal(got, []string{active}) {
		t.Errorf("left: %v", got)
	}
}

// What cannot be removed takes nothing from the others: a journal that cannot be read,
// or the active session, may be larger than all may be together.
func TestPruneBySizeOfWhatCanBeRemoved(t *testing.T) { synctest.Test(t, pruneBySizeOfWhatCanBeRemoved) }

func pruneBySizeOfWhatCanBeRemoved(t *testing.T) {
	f, _, _ := keeper(t, offline.Model{})
	idle := []string{f.session(), f.session(), f.session()}
	f.session() // is the active one
	damaged := filepath.Join(f.dir, "sessions", "ses-damaged.jsonl")
	if err := os.WriteFile(damaged, bytes.Repeat([]byte("no record\n"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, id := range idle {
		info, err := os.Stat(f.files(id)[0])
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	for _, dry := range []bool{true, false} {
		if got := f.prune(Keep{Larger: size}, dry); len(got) > 0 {
			t.Errorf("dry %t: removed %v though these fit", dry, got)
		}
		if got := f.prune(Keep{Larger: size - 1}, dry); !slices.Equal(got, idle[:1]) {
			t.Errorf("dry %t: removed %v, want the first", dry, got)
		}
	}
	if _, err := os.Stat(damaged); err != nil {
		t.Error(err)
	}
}

// That nobody has looked at a session since its last run keeps nothing: of what runs by
// itself nobody ever looks at much.
func TestPruneRemovesWhatNobodyHasRead(t *testing.T) { synctest.Test(t, pruneRemovesWhatNobodyHasRead) }

func pruneRemovesWhatNobodyHasRead(t *testing.T) {
	f, _, _ := keeper(t, offline.Model{})
	id := f.session()
	a, err := f.start(id, "go")
	if err != nil {
		t.Fatal(err)
	}
	f.events.wait(a.RunID)
	f.session() // is the active one
	synctest.Wait()
	if s, err := f.store.Summary(context.Background(), id); err != nil || !s.Unread {
		t.Fatalf("got %+v %v, want one that is unread", s, err)
	}
	if got := f.prune(Keep{Larger: 1}, false); !slices.Equal(got, []string{id}) {
		t.Errorf("got %v, want %s", got, id)
	}
}
