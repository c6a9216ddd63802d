package runloop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// rules ask about every call, and keep what they are given.
type rules struct {
	mu    sync.Mutex
	kept  []string
	guard model.Verdict
}

func (r *rules) Judge(inv model.Invocation, _ string, answers [][]byte) model.Verdict {
	if len(answers) > 0 {
		return model.Verdict{Decision: model.Allow, Guarded: true}
	}
	return model.Verdict{
		Decision: model.Ask, Rule: "ask: t.x", Changes: true,
		Offer: &model.Offer{Pattern: "t.x …", Rule: []byte(`{"tool":"t.x"}`)},
	}
}

func (r *rules) Guard(context.Context, model.Invocation) model.Verdict { return r.guard }

func (r *rules) Preview(model.Invocation) string { return "+a" }

func (r *rules) Keep(rule []byte, _ time.Time, sessionID, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(r.kept, string(rule)+" "+sessionID)
	return nil
}

var nous = protocol.WithCaller(context.Background(), protocol.Caller{PID: 7, UID: 1000, Comm: func() string {
	return "nous"
}})

// asker is a hub whose questions wait for an hour.
func asker(t *testing.T, dir string, events *recorder, r *rules) *fixture {
	t.Helper()
	return newFixtureWith(t, session.OSDisk{}, dir, offline.Model{}, echoTool, events, func(o *Options) {
		o.Policy, o.ApprovalTimeout = r, time.Hour
	})
}

// asks starts a run in a new session and waits until it asks.
func (f *fixture) asks() (session string, asked protocol.Approval, run string) {
	f.t.Helper()
	return f.asksFor("!t.x")
}

// asksFor does that for a call.
func (f *fixture) asksFor(text string) (session string, asked protocol.Approval, run string) {
	f.t.Helper()
	id := f.session()
	requested := make(chan protocol.Approval, 1)
	f.events.mu.Lock()
	f.events.onEvent = func(ev protocol.Event) {
		if s, ok := ev.(protocol.Status); ok && s.Approval != nil && s.SessionID == id {
			requested <- *s.Approval
		}
	}
	f.events.mu.Unlock()
	a, err := f.start(id, text)
	if err != nil {
		f.t.Fatal(err)
	}
	return id, <-requested, a.RunID
}

func (f *fixture) waitsFor(id string) protocol.Wait {
	f.t.Helper()
	l, err := answered(f.listSessions(context.Background(), protocol.ListSessionsParams{}))
	if err != nil {
		f.t.Fatal(err)
	}
	i := slices.IndexFunc(l.Sessions, func(s protocol.SessionInfo) bool { return s.SessionID == id })
	return l.Sessions[i].WaitingFor
}

func reasonOf(err error) protocol.Reason {
	var e *protocol.Error
	errors.As(err, &e)
	if e == nil {
		return ""
	}
	return e.Reason()
}

// Clients find out who waits for what, in every session's state and in lists; a
// person answers from any connection, and a tool from none.
func TestApproveIsForPeople(t *testing.T) {
	kept := &rules{}
	f := asker(t, t.TempDir(), newRecorder(), kept)
	id, asked, run := f.asks()
	other := f.session()
	st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: other}})
	if err != nil || len(st.PendingApprovals) != 1 || st.PendingApprovals[0].SessionID != id ||
		st.PendingApprovals[0].RunID != run || st.PendingApprovals[0].ApprovalID != asked.ApprovalID || asked.Diff != "+a" {
		t.Fatalf("another session's state has %+v, %v; want the question of %s", st.PendingApprovals, err, id)
	}
	if got := f.waitsFor(id); got != protocol.WaitApproval {
		t.Errorf("the list says that it waits for %q", got)
	}
	tool := protocol.WithCaller(context.Background(), protocol.Caller{PID: 8, Descendant: true})
	for _, ctx := range []context.Context{tool, context.Background()} {
		_, err := f.approve(ctx, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"})
		_, modeErr := f.setApprovalMode(ctx, protocol.SetApprovalModeParams{Mode: "auto"})
		if reasonOf(err) != protocol.Forbidden || reasonOf(modeErr) != protocol.Forbidden {
			t.Errorf("got %v and %v, want both forbidden", err, modeErr)
		}
	}
	for _, wrong := range []string{"apr-1-ses-none", "apr-1", "7", "apr-1-../../x", "apr-2-" + id} {
		if _, err := f.approve(nous, protocol.ApproveParams{ApprovalID: wrong, Option: "once"}); reasonOf(err) !=
			protocol.NoSuchApproval {
			t.Errorf("%s: got %v, want no_such_approval", wrong, err)
		}
	}
	out, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "always"})
	if err != nil || out.Outcome != protocol.OutcomeAllowed {
		t.Fatal(out, err)
	}
	f.events.wait(run)
	if want := []string{`{"tool":"t.x"} ` + id}; !slices.Equal(kept.kept, want) {
		t.Errorf("kept %q, want %q", kept.kept, want)
	}
	if got := f.waitsFor(id); got != "" {
		t.Errorf("the list says that it waits for %q", got)
	}
	f.stop()
	f.events.done(t)
}

// Of many answers at once one counts.
func TestOneOfManyAnswersCounts(t *testing.T) {
	f := asker(t, t.TempDir(), newRecorder(), &rules{})
	for range 20 {
		_, asked, run := f.asks()
		outcomes := make(chan protocol.ApprovalOutcome, 10)
		var clients sync.WaitGroup
		for n := range cap(outcomes) {
			clients.Go(func() {
				out, err := f.approve(nous, protocol.ApproveParams{
					ApprovalID: asked.ApprovalID,
					Option:     []string{"once", "deny"}[n%2],
				})
				if err != nil && reasonOf(err) != protocol.ApprovalResolved {
					t.Error(err)
				}
				if err == nil {
					outcomes <- out.Outcome
				}
			})
		}
		clients.Wait()
		close(outcomes)
		first := <-outcomes
		for other := range outcomes {
			if other != first {
				t.Errorf("one client was told %s, and another %s", first, other)
			}
		}
		f.events.wait(run)
	}
	f.stop()
	f.events.done(t)
}

// A question waits over a restart, in the list too before its session is open
// again; with a timeout it ends then, counted from when it was asked.
func TestAQuestionWaitsOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, events := t.TempDir(), newRecorder()
		f := asker(t, dir, events, &rules{})
		id, asked, run := f.asks()
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		f.stop()

		f = asker(t, dir, events, &rules{})
		if got := f.waitsFor(id); got != protocol.WaitApproval {
			t.Errorf("after the restart the list says that it waits for %q", got)
		}
		synctest.Wait()
		began := time.Now()
		events.wait(run)
		if waited := time.Since(began); waited != 20*time.Minute {
			t.Errorf("it waited for %v more, want the rest of the hour", waited)
		}
		_, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"})
		if reasonOf(err) != protocol.ApprovalResolved {
			t.Errorf("an answer after that gets %v, want approval_resolved", err)
		}
		f.stop()
		events.done(t)
	})
}

// However much the questions of other sessions have to say, a state stays short: a
// client gets it, and finds the question of its own session in full there.
func TestLongQuestionsLeaveRoomForTheState(t *testing.T) {
	f := asker(t, t.TempDir(), newRecorder(), &rules{})
	long := `!t.x {"a":"` + strings.Repeat("x", maxQuestions/2) + `"}`
	var ids []string
	for range 5 {
		id, _, _ := f.asksFor(long)
		ids = append(ids, id)
	}
	for _, own := range []string{ids[0], ids[4]} {
		st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: own}})
		if err != nil || len(st.PendingApprovals) != len(ids) {
			t.Fatalf("got %d questions, %v; want %d", len(st.PendingApprovals), err, len(ids))
		}
		size := 0
		for _, q := range st.PendingApprovals {
			if whole := len(q.Arguments) > maxQuestions/2 && q.Diff != ""; q.Shortened == whole || q.SessionID == own && !whole {
				t.Errorf("question of %s: shortened %t with %d bytes of arguments", q.SessionID, q.Shortened, len(q.Arguments))
			}
			if q.SessionID != own {
				size += len(q.Arguments) + len(q.Diff)
			}
		}
		if size > maxQuestions {
			t.Errorf("other sessions' questions take %d bytes, more than %d", size, maxQuestions)
		}
	}
}
