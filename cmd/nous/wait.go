package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/client/follow"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/client/runs"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) waitCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "wait [SESSION…]",
		Short: "Wait until sessions are idle, or one of them waits for you",
		Long: `Wait until sessions are idle and their child sessions in the background have ended,
or one of all these waits for an approval, which is printed then, with exit status 8:
nous approve and nous deny answer it. Exit status 4 says that a run waits for a model,
5 that --timeout has passed. Without SESSION it waits for the one of this folder.
Ctrl-C ends the waiting and leaves the runs alone.`,
		Example: `  nous prompt --async run the tests && nous wait
  nous wait ses-0198c5f2 ses-0198c5f3`,
		ValidArgsFunction: a.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if cmd.Flags().Changed("timeout") {
				if limit <= 0 {
					return cmdline.Errorf("--timeout %s: want more than nothing", limit)
				}
				limited, cancel := context.WithTimeoutCause(ctx, limit, runs.ErrTimeUp)
				defer cancel()
				ctx = limited
			}
			ids, err := a.sessionsToWaitFor(ctx, args)
			if err == nil {
				err = a.wait(ctx, ids)
			}
			if err != nil && !errors.As(err, new(*quietExit)) && errors.Is(context.Cause(ctx), runs.ErrTimeUp) {
				a.Complain(fmt.Sprintf("--timeout: still busy after %s; what runs goes on", limit))
				return &quietExit{exitSpent}
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "wait for a `time` at most, as in 90s or 10m")
	return cmd
}

func (a *app) sessionsToWaitFor(ctx context.Context, args []string) (ids []string, err error) {
	if len(args) == 0 {
		scope, err := a.scope(ctx, needOne)
		return []string{scope.SessionID}, err
	}
	for _, name := range args {
		id, err := lookup.SessionID(ctx, a.daemonSender(), name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// wait looks at each session until it is idle: now, whenever an event may have changed
// that, and after events that were missed.
func (a *app) wait(ctx context.Context, ids []string) error {
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	events, err := a.subscribe(keys.Soft, protocol.SubscribeParams{})
	if err != nil {
		return interruptedExit(err)
	}
	defer events.Close()
	look := true
	for {
		if look {
			busy, err := a.busyOf(keys.Soft, ids)
			switch {
			case errors.Is(err, client.ErrLost), isNoDaemon(err):
				if _, err = events.Reconnect(keys.Soft, err); err != nil {
					return interruptedExit(err)
				}
				continue
			case err != nil || len(busy) == 0:
				return interruptedExit(err)
			}
			ids = busy
		}
		update, err := events.Next(keys.Soft, 0)
		if err != nil {
			return interruptedExit(err)
		}
		look = mayChange(update, ids)
	}
}

// mayChange reports whether a session that is waited for may be idle now, or wait itself.
func mayChange(update follow.Update, ids []string) bool {
	line, ok := update.(follow.Line)
	if !ok {
		return true
	}
	if line.Err != nil || line.Event.Event == nil {
		return false
	}
	ev := line.Event.Event
	waits := func(s protocol.Status) bool {
		return s.Code == protocol.StatusApprovalRequested || s.Code == protocol.StatusModelMissing
	}
	if id := ev.Where().SessionID; id != "" && !slices.Contains(ids, id) && !slices.Contains(ids, "") {
		status, is := ev.(protocol.Status)
		return is && waits(status) // it may be a child's
	}
	switch ev := ev.(type) {
	case protocol.AgentEnd:
		return true
	case protocol.Status:
		return waits(ev) || ev.Code == protocol.StatusSessionDeleted
	}
	return false
}

// busyOf are those of the sessions that work, or have children in the background that do. The error is a *quietExit
// where one waits.
func (a *app) busyOf(ctx context.Context, ids []string) (busy []string, err error) {
	states := map[string]protocol.State{}
	stateOf := func(id string) (protocol.State, error) {
		if s, known := states[id]; known {
			return s, nil
		}
		s, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		if err == nil {
			states[id] = s
		}
		return s, err
	}
	for _, id := range ids {
		state, err := stateOf(id)
		if err != nil {
			return nil, err
		}
		for _, one := range state.PendingApprovals {
			if below, err := runs.IsBelow(one.SessionID, state.SessionID, stateOf); err != nil {
				return nil, err
			} else if below {
				a.printWaits(one)
				return nil, &quietExit{exitWaits}
			}
		}
		hears := len(state.Background) > 0 && state.ReadOnly == "" // else nobody tells it the ends
		if state.RunState != protocol.StateIdle || hears {
			busy = append(busy, state.SessionID)
		}
	}
	if len(busy) == 0 {
		return nil, nil
	}
	return busy, a.modelsMissing(ctx, busy, stateOf)
}

// modelsMissing is a *quietExit where a run of a session, or of a child below it, waits for a model.
func (a *app) modelsMissing(ctx context.Context, busy []string, stateOf func(id string) (protocol.State, error)) error {
	state, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{Daemon: true})
	if err != nil {
		return err
	}
	for _, run := range state.Runs {
		if run.WaitingFor != protocol.WaitModel {
			continue
		}
		for _, id := range busy {
			if below, err := runs.IsBelow(run.SessionID, id, stateOf); err != nil {
				return err
			} else if below {
				a.Complain("session " + run.SessionID + " waits for a model: nous setup, or nous set-model")
				return &quietExit{exitNoModel}
			}
		}
	}
	return nil
}

// printWaits prints the approval that a session waits for.
func (a *app) printWaits(one protocol.Approval) {
	if a.JSON {
		if line, err := json.Marshal(one); err == nil {
			a.JSONLine(line)
		}
		return
	}
	a.Println(one.ApprovalID + "  " + approval.Summary(one, plain.LineWidth))
	a.Notef("nous approve ID says yes, nous deny ID no")
}
