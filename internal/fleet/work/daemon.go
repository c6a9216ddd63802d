package work

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/fleet/job"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

const (
	maxSearched = 200 // sessions looked through for one that a job had before
	lastEntries = 8   // of a session, to find a run's last message
	allEntries  = 1000
)

// do runs one of the daemon's own commands.
func do[P protocol.Params, R protocol.Reply](ctx context.Context, mux *protocol.Mux, def protocol.Def[P, R], p P) (r R,
	err error,
) {
	payload, err := json.Marshal(p)
	if err != nil {
		return r, err
	}
	o := mux.Run(ctx, protocol.Command{ID: "job", Type: def.Name(), Payload: payload})
	if later := o.Later(); later != nil {
		o = later(ctx)
	}
	if err := o.Err(); err != nil {
		return r, err
	}
	reply := o.Encode(nil, "job")
	defer func() {
		if reply.Release != nil {
			reply.Release()
		}
	}()
	var envelope struct {
		Payload jsontext.Value `json:"payload"`
	}
	if err := json.Unmarshal(reply.Line(), &envelope); err != nil {
		return r, err
	}
	return r, json.Unmarshal(envelope.Payload, &r)
}

// later tells whether a refusal is none of the job's: it may go another time.
func later(err error) bool {
	var wire *protocol.Error
	if !errors.As(err, &wire) {
		return false
	}
	return wire.Reason() == protocol.ShuttingDown || wire.Reason() == protocol.TooManyPending
}

// patiently tries until the daemon takes it, or the task is over. What was begun is
// waited for: a cancelled job must not leave a run that nobody knows of.
func patiently[R any](t *task, try func() (R, error)) (r R, err error) {
	for t.ctx.Err() == nil {
		if r, err = try(); err == nil || !later(err) {
			return r, err
		}
		pause(t.ctx, retryPause)
	}
	return r, context.Cause(t.ctx)
}

// open finds or makes the session, and has the run begin.
func (t *task) open() error {
	if t.SessionID == "" && t.Again {
		if err := t.find(); err != nil {
			return err
		}
	}
	if t.SessionID == "" {
		if err := t.session(); err != nil {
			return err
		}
	}
	if t.Model != "" {
		p := protocol.SetModelParams{Scope: protocol.Scope{SessionID: t.SessionID}, Model: t.Model}
		if _, err := patiently(t, func() (protocol.ModelAccepted, error) {
			return do(t.w.ctx, t.w.o.Mux, protocol.SetModel, p)
		}); err != nil {
			return err
		}
	}
	wait := false
	p := protocol.PromptParams{
		Scope: protocol.Scope{SessionID: t.SessionID}, Text: t.Prompt, Wait: &wait,
		IdempotencyKey: t.ID, Approvals: protocol.ApprovalsDeny,
	}
	reply, err := patiently(t, func() (protocol.PromptReply, error) { return do(t.w.ctx, t.w.o.Mux, protocol.Prompt, p) })
	if err != nil {
		return err
	}
	t.RunID = reply.Accepted.RunID
	if !t.save() {
		return context.Cause(t.w.ctx)
	}
	t.w.o.Log.Info("job begun", zap.String("job", t.ID), zap.String("session_id", t.SessionID),
		zap.String("run_id", t.RunID))
	t.w.o.Audit(model.AuditEvent{
		Event: "fleet:job", Component: "fleet", Status: "ok", SessionID: t.SessionID,
		RequestID: t.ID,
	})
	t.announce()
	return nil
}

func (t *task) title() string { return "job " + t.ID }

// find looks for the session that was made before the daemon was killed.
func (t *task) find() error {
	most := maxSearched
	list, err := patiently(t, func() (protocol.Sessions, error) {
		return do(t.w.ctx, t.w.o.Mux, protocol.ListSessions, protocol.ListSessionsParams{Limit: &most})
	})
	if err != nil {
		return err
	}
	for _, s := range list.Sessions {
		if s.Title != t.title() || t.Workdir != "" && s.Workdir != t.Workdir {
			continue
		}
		if mine, err := t.made(s); err != nil || mine {
			t.SessionID = s.SessionID
			return err
		}
	}
	return nil
}

// made tells whether a session of that title is the job's: nothing was said there, or the
// job's prompt. Anyone may call a session so, and what was allowed there is not
// allowed to the job.
func (t *task) made(s protocol.SessionInfo) (bool, error) {
	if s.Messages == 0 {
		return true, nil
	}
	most := allEntries
	m, err := patiently(t, func() (protocol.Messages, error) {
		return do(t.w.ctx, t.w.o.Mux, protocol.GetMessages,
			protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: s.SessionID}, Limit: &most})
	})
	return slices.ContainsFunc(m.Messages, func(entry jsontext.Value) bool {
		var said protocol.Message
		return json.Unmarshal(entry, &said) == nil && said.Role == "user" && said.Text == t.Prompt
	}), err
}

// session makes the session.
func (t *task) session() error {
	activate, dir := false, t.Workdir
	undo := func() {}
	if t.Repo != "" {
		tree, err := worktree.Add(t.ctx, t.w.o.Git, t.Repo, t.w.o.Trees, "", t.title())
		if err != nil {
			return protocol.Errorf(protocol.InvalidPayload, "repo: %v", err)
		}
		dir = tree.Dir
		undo = func() { _ = tree.TakeBack(t.ctx) }
	}
	p := protocol.NewSessionParams{Title: t.title(), Workdir: dir, Activate: &activate}
	made, err := patiently(t, func() (protocol.Session, error) { return do(t.w.ctx, t.w.o.Mux, protocol.NewSession, p) })
	if err != nil {
		undo()
		return err
	}
	t.SessionID, t.Folder = made.SessionID, dir
	if !t.save() {
		return context.Cause(t.w.ctx)
	}
	return nil
}

// follow waits for the run's end, and aborts it if it is to be.
func (t *task) follow() (end job.End, err error) {
	stop := t.ctx.Done()
	for {
		end, over, err := t.runEnd(lastEntries)
		if err == nil && !over && !t.runs() { // much may have been said there since
			end, over, err = t.runEnd(allEntries)
			if err == nil && !over && !t.runs() {
				err = protocol.Errorf(protocol.SessionError, "its session has no run %s any more", t.RunID)
			}
		}
		switch {
		case over:
			return end, nil
		case err != nil && later(err):
			pause(t.w.ctx, retryPause)
			continue
		case err != nil:
			return t.failed(err)
		}
		select {
		case <-t.ended:
		case <-stop:
			if err := t.abandon(); err != errCancelled {
				return end, err
			}
			t.abort()
			stop = nil
		case <-t.w.ctx.Done():
			return end, t.w.ctx.Err()
		}
	}
}

// abort ends the run. One that has ended already is as good.
func (t *task) abort() {
	p := protocol.AbortParams{Scope: protocol.Scope{SessionID: t.SessionID}, RunID: t.RunID}
	if _, err := do(t.w.ctx, t.w.o.Mux, protocol.Abort, p); err != nil {
		t.w.o.Log.Debug("the run of a job is not aborted", zap.String("job", t.ID), zap.Error(err))
	}
}

// runs tells whether the run goes on. It does, if that cannot be told.
func (t *task) runs() bool {
	state, err := do(t.w.ctx, t.w.o.Mux, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: t.SessionID}})
	return err != nil || state.RunID == t.RunID
}

// runEnd tells whether the run has ended, and how.
func (t *task) runEnd(most int) (end job.End, over bool, err error) {
	m, err := do(t.w.ctx, t.w.o.Mux, protocol.GetMessages,
		protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: t.SessionID}, Limit: &most})
	if err != nil {
		return end, false, err
	}
	end = job.End{ID: t.ID, Host: t.w.o.Name, SessionID: t.SessionID, RunID: t.RunID}
	for _, run := range m.Runs {
		if run.RunID == t.RunID {
			over, end.StopReason, end.Error = true, run.StopReason, run.Error
			end.Usage, err = json.Marshal(run.Usage)
		}
	}
	for _, entry := range m.Messages {
		var said protocol.Message
		if json.Unmarshal(entry, &said) == nil && said.RunID == t.RunID && said.Role == "assistant" {
			end.Output = said.Text
		}
	}
	return end, over, err
}
