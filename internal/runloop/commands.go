package runloop

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// Bind binds the handler of every command but ping, which needs no session. Call
// it once, before the mux runs a command.
func (h *Hub) Bind(mux *protocol.Mux) {
	protocol.Handle(mux, protocol.Prompt, h.prompt)
	protocol.Handle(mux, protocol.Steer,
		func(ctx context.Context, p protocol.SteerParams) (protocol.Answer[protocol.InputAccepted], error) {
			return h.queue(ctx, protocol.KindSteer, p)
		})
	protocol.Handle(mux, protocol.FollowUp,
		func(ctx context.Context, p protocol.FollowUpParams) (protocol.Answer[protocol.InputAccepted], error) {
			return h.queue(ctx, protocol.KindFollowUp, protocol.SteerParams(p))
		})
	protocol.HandleFunc(mux, protocol.Abort, func(ctx context.Context, p protocol.AbortParams) (protocol.AbortAccepted,
		error,
	) {
		return requestAs[protocol.AbortAccepted](ctx, h, p.SessionID, func(t ticket) input { return abortIn{t, p.RunID} })
	})
	protocol.HandleFunc(mux, protocol.SetActiveTools, h.setActiveTools)
	protocol.HandleFunc(mux, protocol.SetSteeringMode, h.setMode(protocol.SetSteeringMode.Name(), protocol.KindSteer))
	protocol.HandleFunc(mux, protocol.SetFollowUpMode, h.setMode(protocol.SetFollowUpMode.Name(), protocol.KindFollowUp))
	protocol.Handle(mux, protocol.SetModel, h.setModel)
	protocol.HandleFunc(mux, protocol.SetAgent, h.setAgent)
	protocol.Handle(mux, protocol.SetAgentOption, h.setAgentOption)
	protocol.HandleFunc(mux, protocol.GetState, h.stateSoon)
	protocol.Handle(mux, protocol.GetSystem, h.getSystem)
	protocol.HandleFunc(mux, protocol.GetMessages, h.getMessages)
	protocol.HandleFunc(mux, protocol.NewSession, h.newSession)
	protocol.HandleFunc(mux, protocol.SwitchSession, h.switchSession)
	protocol.HandleFunc(mux, protocol.BranchSession, h.branchSession)
	protocol.Handle(mux, protocol.ExtensionCommand, h.extensionCommand)
	protocol.Handle(mux, protocol.CallTool, h.callTool)
	protocol.Handle(mux, protocol.CompactSession, h.compactSession)
	protocol.HandleFunc(mux, protocol.SetLeaf, func(ctx context.Context, p protocol.SetLeafParams) (protocol.Leaf, error) {
		return requestAs[protocol.Leaf](ctx, h, p.SessionID, func(t ticket) input { return leafIn{t, p.LeafID} })
	})
	protocol.HandleFunc(mux, protocol.GetTree, h.getTree)
	protocol.Handle(mux, protocol.ListSessions, h.listSessions)
	protocol.HandleFunc(mux, protocol.DeleteSession, h.deleteSession)
	protocol.Handle(mux, protocol.SearchSessions, h.searchSessions)
	protocol.Handle(mux, protocol.GetUsage, h.getUsage)
	protocol.Handle(mux, protocol.ListTools, h.listTools)
	protocol.HandleFunc(mux, protocol.Withdraw, h.withdraw)
	protocol.HandleFunc(mux, protocol.SetTitle,
		func(ctx context.Context, p protocol.SetTitleParams) (protocol.TitleAccepted, error) {
			return requestAs[protocol.TitleAccepted](ctx, h, p.SessionID, func(t ticket) input { return titleIn{t, p.Title} })
		})
	protocol.Handle(mux, protocol.Expand, h.expand)
	protocol.Handle(mux, protocol.GetChanges, h.getChanges)
	protocol.Handle(mux, protocol.Rewind, h.rewind)
	protocol.Handle(mux, protocol.UndoRewind, h.undoRewind)
	protocol.HandleFunc(mux, protocol.Approve, h.approve)
	protocol.HandleFunc(mux, protocol.SetApprovalMode, h.setApprovalMode)
	protocol.HandleFunc(mux, protocol.MarkRead, func(ctx context.Context, p protocol.MarkReadParams) (protocol.MarkedRead,
		error,
	) {
		return requestAs[protocol.MarkedRead](ctx, h, p.SessionID, func(t ticket) input { return readIn{t} })
	})
}

// requestAs sends one input to a session and returns its reply.
func requestAs[R any](ctx context.Context, h *Hub, sessionID string, in func(ticket) input) (r R, err error) {
	id, err := h.sessionID(sessionID)
	if err != nil {
		return r, err
	}
	reply, err := h.request(ctx, id, in)
	if err != nil {
		return r, err
	}
	return reply.value.(R), nil
}

// query reads a session on its loop.
func query[R any](ctx context.Context, h *Hub, sessionID string, read func(m *machine) (R, error)) (R, error) {
	return requestAs[R](ctx, h, sessionID, func(t ticket) input {
		return queryIn{ticket: t, read: func(m *machine) (any, error) { return read(m) }}
	})
}

// readSession reads a session without opening it: an open one on its loop, a closed one
// as its journal has it.
func readSession[R any](ctx context.Context, h *Hub, sessionID string, read func(m *machine) (R, error)) (R, error) {
	return readSessionEnd(ctx, h, sessionID, 0, read)
}

// readSessionEnd is readSession for who wants no more of a closed session than PeekEnd has.
func readSessionEnd[R any](ctx context.Context, h *Hub, sessionID string, last int,
	read func(m *machine) (R, error),
) (r R, err error) {
	id, err := h.sessionID(sessionID)
	if err != nil {
		return r, err
	}
	open := false
	if h.readLifecycle(func(s *lifecycle) { open = s.loops[id] != nil || s.taken[id] != nil }); open {
		return queryOrPeek(ctx, h, id, read)
	}
	return peek(ctx, h, id, last, read)
}

// queryOrPeek is query also for a session that can only be read.
func queryOrPeek[R any](ctx context.Context, h *Hub, id string, read func(m *machine) (R, error)) (R, error) {
	r, err := query(ctx, h, id, read)
	if errors.Is(err, session.ErrReadOnly) {
		return peek(ctx, h, id, 0, read)
	}
	return r, err
}

// peek reads a session as its journal has it, as PeekEnd does.
func peek[R any](ctx context.Context, h *Hub, id string, last int, read func(m *machine) (R, error)) (r R, err error) {
	s, err := h.env.Store.PeekEnd(ctx, id, last)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return r, notFound(id)
	case err != nil && ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil:
		return r, cannotOpen(err)
	}
	return read(&machine{s: s, ownModel: h.env.own, home: h.env.Workdir})
}

func (h *Hub) prompt(ctx context.Context, p protocol.PromptParams) (a protocol.Answer[protocol.PromptReply],
	err error,
) {
	wait := p.Wait == nil || *p.Wait
	if err := schemaFits(p.OutputSchema); err != nil {
		return a, err
	}
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	send := func(ctx context.Context) (*sent, error) {
		images, err := h.keepImages(ctx, id, p.Attachments, p.IdempotencyKey, func(m *machine) error {
			if run := m.s.Run; run != nil && p.StreamingBehavior == "" {
				return runInProgress(m.s.ID, run.ID)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		as, err := h.namedAgent(ctx, id, p.As)
		if err != nil {
			return nil, err
		}
		p.Attachments = nil // may be long, and may have to wait
		return h.send(ctx, id, func(t ticket) input { return promptIn{t, p, wait, images, as} })
	}
	if h.orchestrated() {
		next := h.asking.enqueue(id)
		a.Later = func(ctx context.Context) (r protocol.PromptReply, err error) {
			var s *sent
			if err = next(ctx, func() error {
				if p.Text, err = h.beforeTurn(ctx, id, p.Text, p.IdempotencyKey); err == nil {
					s, err = send(ctx)
				}
				return err
			}); err != nil {
				return r, err
			}
			return h.promptReply(ctx, id, s, wait)
		}
		return a, nil
	}
	s, err := send(ctx)
	if err != nil {
		return a, err
	}
	if wait || s.isPostponed(ctx) {
		a.Later = func(ctx context.Context) (protocol.PromptReply, error) { return h.promptReply(ctx, id, s, wait) }
		return a, nil
	}
	a.Reply, err = h.promptReply(ctx, id, s, false)
	return a, err
}

// promptReply waits for a prompt's acceptance, and with wait for its run's end.
func (h *Hub) promptReply(ctx context.Context, id string, s *sent, wait bool) (reply protocol.PromptReply, err error) {
	defer func() { s.leave() }() // of the latest call
	r, err := h.first(ctx, id, s)
	if err != nil {
		return reply, err
	}
	if !wait {
		accepted := r.value.(protocol.PromptAccepted)
		return protocol.PromptReply{Accepted: &accepted}, nil
	}
	if r, err = s.loop.outcome(ctx, s.ended); err != nil {
		return reply, err
	}
	res := r.value.(result)
	if res.err != nil {
		res.release()
		return reply, res.err
	}
	return protocol.PromptReply{Result: &protocol.PromptResult{
		Output: res.output, Events: res.events, EventsTruncated: res.truncated,
		SessionID: id, RunID: res.runID, Release: res.release,
	}}, nil
}

func (h *Hub) queue(ctx context.Context, kind protocol.Kind, p protocol.SteerParams) (
	a protocol.Answer[protocol.InputAccepted], err error,
) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	enqueue := func(ctx context.Context) (*sent, error) {
		images, err := h.keepImages(ctx, id, p.Attachments, p.IdempotencyKey, func(m *machine) error {
			if m.s.Run == nil && p.IfIdle != protocol.KindPrompt {
				return noActiveRun(m.s.ID)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		p.Attachments = nil // may be long, and may have to wait
		return h.send(ctx, id, func(t ticket) input { return queueIn{t, kind, p, images} })
	}
	if h.orchestrated() {
		next := h.asking.enqueue(id)
		a.Later = func(ctx context.Context) (r protocol.InputAccepted, err error) {
			err = next(ctx, func() error {
				var s *sent
				if p.Text, err = h.beforeTurn(ctx, id, p.Text, p.IdempotencyKey); err == nil {
					s, err = enqueue(ctx)
				}
				if err == nil {
					r, err = h.inputReply(ctx, id, s)
				}
				return err
			})
			return r, err
		}
		return a, nil
	}
	s, err := enqueue(ctx)
	if err != nil {
		return a, err
	}
	reply := func(ctx context.Context) (protocol.InputAccepted, error) { return h.inputReply(ctx, id, s) }
	if s.isPostponed(ctx) {
		a.Later = reply
		return a, nil
	}
	a.Reply, err = reply(ctx)
	return a, err
}

// inputReply waits until a text is accepted.
func (h *Hub) inputReply(ctx context.Context, id string, s *sent) (protocol.InputAccepted, error) {
	r, err := h.first(ctx, id, s)
	if err != nil {
		return protocol.InputAccepted{}, err
	}
	return protocol.InputAccepted(r.value.(protocol.PromptAccepted)), nil
}

func (h *Hub) orchestrated() bool { return h.env.Modules != nil && h.env.Modules.Orchestrated() }

// beforeTurn asks the orchestrators about a text before it is accepted, so that
// what is accepted is what will be delivered. A text that was accepted under
// its key before is not shown to them again.
func (h *Hub) beforeTurn(ctx context.Context, id, text, key string) (string, error) {
	type view struct {
		patched  jsontext.Value
		workdir  string
		answered bool
	}
	v, err := query(ctx, h, id, func(m *machine) (view, error) {
		_, answered := m.s.Key(key, m.now)
		return view{m.s.Patched(), m.workdir(), answered && key != ""}, nil
	})
	if err != nil || v.answered {
		return text, err
	}
	out, err := h.env.Modules.BeforeTurn(ctx, id, v.workdir, text, []byte(v.patched))
	if err != nil {
		return "", protocol.Rejectf(protocol.RejectedByHook, "%v", err)
	}
	return out, nil
}

func (h *Hub) setActiveTools(ctx context.Context, p protocol.SetActiveToolsParams) (protocol.ToolsAccepted, error) {
	from, err := query(ctx, h, p.SessionID, scope)
	if err != nil {
		return protocol.ToolsAccepted{}, err
	}
	operations, unknown := resolveTools(nil, p.Tools)
	for _, wait := range []time.Duration{0, chooseWait} { // for tools that have not yet said what they can do
		if unknown != "" {
			operations, unknown = resolveTools(h.env.tools(ctx, from, wait), p.Tools)
		}
	}
	if unknown != "" {
		return protocol.ToolsAccepted{}, protocol.Rejectf(protocol.ToolNotRegistered, "tools: there is no tool %.80q",
			unknown)
	}
	if err := h.toolsOfParent(ctx, p.SessionID, operations); err != nil {
		return protocol.ToolsAccepted{}, err
	}
	return requestAs[protocol.ToolsAccepted](ctx, h, p.SessionID, func(t ticket) input {
		return toolsIn{t, operations, len(operations)}
	})
}

func (h *Hub) setMode(command string, kind protocol.Kind) func(context.Context, protocol.SetModeParams) (
	protocol.ModeAccepted, error) {
	return func(ctx context.Context, p protocol.SetModeParams) (protocol.ModeAccepted, error) {
		return requestAs[protocol.ModeAccepted](ctx, h, p.SessionID, func(t ticket) input {
			return modeIn{t, command, kind, p.Mode}
		})
	}
}

// ownModel is the name by which set_model takes the choice back.
const ownModel = "default"

func (h *Hub) setModel(ctx context.Context, p protocol.SetModelParams) (a protocol.Answer[protocol.ModelAccepted],
	err error,
) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	v, err := h.agentView(ctx, id)
	if err != nil {
		return a, err
	}
	if v.name == "" {
		a.Reply, err = h.setOwnModel(ctx, id, p)
		return a, err
	}
	if err = v.hosted(); err != nil {
		return a, err
	}
	if p.BaseURL != "" || p.ContextWindow != 0 {
		return a, protocol.Errorf(protocol.InvalidPayload, "base_url: %s asks its own server: it takes no base_url and no "+
			"context_window", v.name)
	}
	a.Later = func(ctx context.Context) (protocol.ModelAccepted, error) { return h.setAgentModel(ctx, id, v, p) }
	return a, nil
}

// setOwnModel is set_model in a session of the daemon's own loop.
func (h *Hub) setOwnModel(ctx context.Context, id string, p protocol.SetModelParams) (protocol.ModelAccepted, error) {
	var choice model.Choice
	switch {
	case p.Model == ownModel && (p.BaseURL != "" || p.ContextWindow != 0):
		return protocol.ModelAccepted{}, protocol.Errorf(protocol.InvalidPayload,
			"model: the daemon's own model is as it is configured: it takes no base_url and no context_window")
	case p.Model == ownModel && p.Effort == "":
	case h.env.Models == nil:
		return protocol.ModelAccepted{}, protocol.Errorf(protocol.InvalidPayload, "model: this daemon has one model only")
	default:
		var err error
		name := p.Model
		if name == ownModel {
			name = ""
		}
		if choice, err = h.env.Models.Choose(name, p.BaseURL, p.Effort); err != nil {
			field := "model"
			if errors.Is(err, model.ErrEffort) {
				field = "effort"
			}
			return protocol.ModelAccepted{}, protocol.Errorf(protocol.InvalidPayload, "%s: %v", field, err)
		}
		choice.ContextWindow = p.ContextWindow
	}
	return requestAs[protocol.ModelAccepted](ctx, h, id, func(t ticket) input { return modelIn{t, choice} })
}

func (h *Hub) compactSession(ctx context.Context, p protocol.CompactSessionParams) (
	a protocol.Answer[protocol.Compaction], err error,
) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	s, err := h.send(ctx, id, func(t ticket) input { return compactIn{t, p.Instruction} })
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Compaction, error) {
		r, err := h.first(ctx, id, s)
		if err != nil {
			return protocol.Compaction{}, wrap(id, err)
		}
		return r.value.(protocol.Compaction), nil
	}
	return a, nil
}
