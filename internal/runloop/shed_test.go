package runloop

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"noused/internal/protocol"
)

// isShed tells whether a session's loop has forgotten it, once nothing moves.
func (f *fixture) isShed(id string) bool {
	synctest.Wait()
	var l *loop
	f.Hub.readLifecycle(func(s *lifecycle) { l = s.open(id) })
	return l != nil && l.isShed.Load()
}

// reasonOrCode is an error's reason, or its code where it has none.
func reasonOrCode(err error) string {
	if r := reasonOf(err); r != "" {
		return string(r)
	}
	if err != nil {
		return cmp.Or(string(codeOf(err)), err.Error())
	}
	return ""
}

// meanwhile is what clients do with a session while it waits for an answer; want is
// why it is refused.
var meanwhile = map[string]struct {
	do   func(f *fixture, s protocol.Scope) error
	want string
}{
	"get_state": {func(f *fixture, s protocol.Scope) error {
		st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: s})
		if err == nil && (len(st.PendingApprovals) != 1 || len(st.PendingApprovals[0].Arguments) == 0 ||
			st.RunState != protocol.StateRunning) {
			err = fmt.Errorf("got %s, %+v", st.RunState, st.PendingApprovals)
		}
		return err
	}, ""},
	"get_messages": {func(f *fixture, s protocol.Scope) error {
		got, err := f.getMessages(context.Background(), protocol.GetMessagesParams{Scope: s})
		if err == nil && len(got.Messages) != 2 {
			err = fmt.Errorf("got %d messages", len(got.Messages))
		}
		return err
	}, ""},
	"set_title": {func(f *fixture, s protocol.Scope) error {
		_, err := requestAs[protocol.TitleAccepted](context.Background(), f.Hub, s.SessionID, func(t ticket) input {
			return titleIn{t, "x\"] = 1"}
		})
		return err
	}, ""},
	"set_leaf": {func(f *fixture, s protocol.Scope) error {
		_, err := requestAs[protocol.Leaf](context.Background(), f.Hub, s.SessionID, func(t ticket) input {
			return leafIn{t, "msg-1"}
		})
		return err
	}, "run_in_progress"},
	"delete_session": {func(f *fixture, s protocol.Scope) error {
		_, err := f.deleteSession(context.Background(), protocol.DeleteSessionParams{SessionID: s.SessionID})
		return err
	}, "run_in_progress"},
	"compact_session": {func(f *fixture, s protocol.Scope) error {
		a, err := f.compactSession(context.Background(), protocol.CompactSessionParams{Scope: s})
		if err == nil {
			_, err = a.Later(context.Background())
		}
		return err
	}, "run_in_progress"},
	"branch_session": {func(f *fixture, s protocol.Scope) error {
		b, err := f.branchSession(context.Background(), protocol.BranchSessionParams{SessionID: s.SessionID})
		if err != nil {
			return err
		}
		st, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: b.SessionID}})
		if err == nil && (st.RunState != protocol.StateIdle || len(st.PendingApprovals) != 1) {
			err = fmt.Errorf("the branch is %s and there are %d questions", st.RunState, len(st.PendingApprovals))
		}
		return err
	}, ""},
	"prompt": {func(f *fixture, s protocol.Scope) error {
		_, err := f.start(s.SessionID, "and?")
		return err
	}, "run_in_progress"},
	"a wrong option": {func(f *fixture, s protocol.Scope) error {
		_, err := f.approve(nous, protocol.ApproveParams{ApprovalID: "apr-1-" + s.SessionID, Option: "yes"})
		return err
	}, "invalid_payload"},
	"a tool's answer": {func(f *fixture, s protocol.Scope) error {
		tool := protocol.WithCaller(context.Background(), protocol.Caller{PID: 8, Descendant: true})
		_, err := f.approve(tool, protocol.ApproveParams{ApprovalID: "apr-1-" + s.SessionID, Option: "once"})
		return err
	}, "forbidden"},
}

// A session that waits takes no memory where there is no room for it, and nobody
// sees a difference: not who asks something meanwhile, not the prompt that waits for
// the run, and not the run. No question goes by such a command.
func TestSessionsThatWaitAreShed(t *testing.T) {
	for name, c := range meanwhile {
		for _, room := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, room %t", name, room), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := asker(t, t.TempDir(), newRecorder(), &rules{})
					if !room {
						f.env.waiting.Take(maxWaiting)
					}
					id, asked, run := f.asks()
					if got := f.isShed(id); got == room {
						t.Fatalf("shed: %t", got)
					}
					if got := reasonOrCode(c.do(f, protocol.Scope{SessionID: id})); got != c.want {
						t.Errorf("got %q, want %q", got, c.want)
					}
					if got := f.isShed(id); got == room {
						t.Errorf("shed afterwards: %t", got)
					}
					if f.waitsFor(id) != protocol.WaitApproval {
						t.Error("the list does not say that it waits")
					}
					if _, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"}); err != nil {
						t.Fatal(err)
					}
					f.events.wait(run)
					f.stop()
					f.events.done(t)
				})
			})
		}
	}
}

// Nothing keeps what a shed session had in memory.
func TestAShedSessionIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := asker(t, t.TempDir(), newRecorder(), &rules{})
		f.env.waiting.Take(maxWaiting)
		id := f.session()
		var l *loop
		f.Hub.readLifecycle(func(s *lifecycle) { l = s.open(id) })
		synctest.Wait()
		had := weak.Make(l.m.s)
		a, err := f.start(id, "!t.x")
		if err != nil {
			t.Fatal(err)
		}
		if !f.isShed(id) {
			t.Fatal("it is not shed")
		}
		if runtime.GC(); had.Value() != nil {
			t.Error("it is in memory")
		}
		f.abort(id)
		f.events.wait(a.RunID)
		f.stop()
		f.events.done(t)
	})
}

// What a turn has changed is in no journal before that is recorded: until then a session that waits stays in memory,
// whatever room there is. A stop dropped the record, and said nothing (found by a review).
func TestASessionIsNotShedWhileItsTurnIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := asker(t, t.TempDir(), newRecorder(), &rules{})
		f.env.waiting.Take(maxWaiting)
		id := f.session()
		var l *loop
		f.Hub.readLifecycle(func(s *lifecycle) { l = s.open(id) })
		synctest.Wait()
		l.m.late.gen = 1
		a, err := f.start(id, "!t.x")
		if err != nil {
			t.Fatal(err)
		}
		if f.isShed(id) {
			t.Error("it is shed while a turn is recorded")
		}
		l.m.late.gen = 0
		p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}}
		if _, err := f.getState(context.Background(), p); err != nil {
			t.Fatal(err)
		}
		if !f.isShed(id) {
			t.Error("it is not shed afterwards")
		}
		if _, err := requestAs[protocol.AbortAccepted](context.Background(), f.Hub, id, func(to ticket) input {
			return abortIn{to, ""}
		}); err != nil {
			t.Fatal(err)
		}
		f.events.wait(a.RunID)
		f.stop()
		f.events.done(t)
	})
}

// What ends a question ends that of a shed session: each call is made once after a
// yes, and never else. A prompt that waits gets its result.
func TestAShedSessionGoesOn(t *testing.T) {
	for name, end := range map[string]func(f *fixture, id, approval string) error{
		"abort": func(f *fixture, id, _ string) error {
			_, err := requestAs[protocol.AbortAccepted](context.Background(), f.Hub, id, func(t ticket) input {
				return abortIn{t, ""}
			})
			return err
		},
		"steer": func(f *fixture, id, _ string) error {
			_, err := answered(f.queue(context.Background(), protocol.KindSteer,
				protocol.SteerParams{Scope: protocol.Scope{SessionID: id}, Text: "no"}))
			return err
		},
		"timeout": func(*fixture, string, string) error {
			time.Sleep(2 * time.Hour)
			return nil
		},
		"yes": func(f *fixture, _, approval string) error {
			_, err := f.approve(nous, protocol.ApproveParams{ApprovalID: approval, Option: "session"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := asker(t, t.TempDir(), newRecorder(), &rules{})
				f.env.waiting.Take(maxWaiting)
				id, made := f.session(), 0
				f.events.mu.Lock()
				f.events.onEvent = func(ev protocol.Event) {
					if end, ok := ev.(protocol.ToolEnd); ok && end.OK {
						made++
					}
				}
				f.events.mu.Unlock()
				a, err := f.prompt(context.Background(), protocol.PromptParams{Scope: protocol.Scope{SessionID: id}, Text: "!t.x"})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					r, err := a.Later(context.Background())
					if err == nil && r.Result == nil {
						err = fmt.Errorf("got %+v", r)
					}
					ended <- err
				}()
				if !f.isShed(id) {
					t.Fatal("it is not shed")
				}
				if err := end(f, id, "apr-1-"+id); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil && name != "abort" {
					t.Errorf("the prompt got %v", err)
				}
				f.stop()
				f.events.done(t)
				if made != map[string]int{"yes": 1}[name] {
					t.Errorf("the call was made %d times", made)
				}
			})
		})
	}
}

// Shed sessions do not hold up a stop, and wait on after it.
func TestShedSessionsAreThereAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, events := t.TempDir(), newRecorder()
		f := asker(t, dir, events, &rules{})
		f.env.waiting.Take(maxWaiting)
		id, asked, run := f.asks()
		if !f.isShed(id) {
			t.Fatal("it is not shed")
		}
		began := time.Now()
		f.stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("the stop took %v", took)
		}
		f = asker(t, dir, events, &rules{})
		f.env.waiting.Take(maxWaiting)
		synctest.Wait()
		if _, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"}); err != nil {
			t.Fatal(err)
		}
		events.wait(run)
		f.stop()
		events.done(t)
	})
}

// A journal that cannot be read when its question is answered is an error of that
// session's, and what is mended goes on.
func TestAShedSessionWhoseJournalIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := asker(t, dir, newRecorder(), &rules{})
		f.env.waiting.Take(maxWaiting)
		id, asked, run := f.asks()
		if !f.isShed(id) {
			t.Fatal("it is not shed")
		}
		path := filepath.Join(dir, "sessions", id+".jsonl")
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"}); err == nil {
			t.Error("it is accepted")
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
		if _, err := f.approve(nous, protocol.ApproveParams{ApprovalID: asked.ApprovalID, Option: "once"}); err != nil {
			t.Fatal(err)
		}
		f.events.wait(run)
		f.stop()
	})
}
