package runloop

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/queue"
	"noused/internal/session"
)

// stateWait is how long get_state waits for tools that have not yet said what
// they can do.
const stateWait = 100 * time.Millisecond

// Bind binds every command but ping, which needs no session.
func (h *Hub) Bind(mux *protocol.Mux) {
	protocol.Handle(mux, protocol.Prompt, h.prompt)
	protocol.Handle(mux, protocol.Steer, func(ctx context.Context, p protocol.SteerParams) (protocol.Answer[protocol.InputAccepted], error) {
		return h.queue(ctx, queue.Steer, p)
	})
	protocol.Handle(mux, protocol.FollowUp, func(ctx context.Context, p protocol.FollowUpParams) (protocol.Answer[protocol.InputAccepted], error) {
		return h.queue(ctx, queue.FollowUp, protocol.SteerParams(p))
	})
	protocol.HandleFunc(mux, protocol.Abort, func(ctx context.Context, p protocol.AbortParams) (protocol.AbortAccepted, error) {
		return ask[protocol.AbortAccepted](ctx, h, p.SessionID, func(t ticket) input { return abortIn{t, p.RunID} })
	})
	protocol.HandleFunc(mux, protocol.SetActiveTools, h.setActiveTools)
	protocol.HandleFunc(mux, protocol.SetSteeringMode, h.setMode(protocol.SetSteeringMode.Name(), queue.Steer))
	protocol.HandleFunc(mux, protocol.SetFollowUpMode, h.setMode(protocol.SetFollowUpMode.Name(), queue.FollowUp))
	protocol.HandleFunc(mux, protocol.SetModel, h.setModel)
	protocol.HandleFunc(mux, protocol.GetState, h.getState)
	protocol.HandleFunc(mux, protocol.GetMessages, h.getMessages)
	protocol.HandleFunc(mux, protocol.NewSession, h.newSession)
	protocol.HandleFunc(mux, protocol.SwitchSession, h.switchSession)
	protocol.HandleFunc(mux, protocol.BranchSession, h.branchSession)
	protocol.Handle(mux, protocol.ExtensionCommand, h.extensionCommand)
	protocol.Handle(mux, protocol.CompactSession, h.compactSession)
	protocol.HandleFunc(mux, protocol.SetLeaf, func(ctx context.Context, p protocol.SetLeafParams) (protocol.Leaf, error) {
		return ask[protocol.Leaf](ctx, h, p.SessionID, func(t ticket) input { return leafIn{t, p.LeafID} })
	})
	protocol.HandleFunc(mux, protocol.GetTree, h.getTree)
	protocol.HandleFunc(mux, protocol.ListSessions, h.listSessions)
	protocol.HandleFunc(mux, protocol.DeleteSession, h.deleteSession)
	protocol.Handle(mux, protocol.SearchSessions, h.searchSessions)
	protocol.HandleFunc(mux, protocol.ListTools, h.listTools)
}

// ask sends one input to a session and returns its reply.
func ask[R any](ctx context.Context, h *Hub, sessionID string, in func(ticket) input) (r R, err error) {
	id, err := h.sessionID(sessionID)
	if err != nil {
		return r, err
	}
	reply, err := h.ask(ctx, id, in)
	if err != nil {
		return r, err
	}
	return reply.value.(R), nil
}

// query reads a session on its loop.
func query[R any](ctx context.Context, h *Hub, sessionID string, read func(m *machine) (R, error)) (R, error) {
	return ask[R](ctx, h, sessionID, func(t ticket) input {
		return queryIn{ticket: t, read: func(m *machine) (any, error) { return read(m) }}
	})
}

func (h *Hub) prompt(ctx context.Context, p protocol.PromptParams) (a protocol.Answer[protocol.PromptReply], err error) {
	wait := p.Wait == nil || *p.Wait
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	send := func(ctx context.Context) (*sent, error) {
		images, err := h.keep(ctx, id, p.Attachments, p.IdempotencyKey, func(m *machine) error {
			if run := m.s.Run; run != nil && p.StreamingBehavior == "" {
				return runInProgress(m.s.ID, run.ID)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		p.Attachments = nil // may be long, and may have to wait
		return h.send(ctx, id, func(t ticket) input { return promptIn{t, p, wait, images} })
	}
	if h.orchestrated() {
		next := h.asking.take(id)
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
	if wait {
		a.Later = func(ctx context.Context) (protocol.PromptReply, error) { return h.promptReply(ctx, id, s, true) }
		return a, nil
	}
	a.Reply, err = h.promptReply(ctx, id, s, false)
	return a, err
}

// promptReply waits for a prompt's acceptance, and with wait for its run's end.
func (h *Hub) promptReply(ctx context.Context, id string, s *sent, wait bool) (reply protocol.PromptReply, err error) {
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
		return reply, res.err
	}
	return protocol.PromptReply{Result: &protocol.PromptResult{
		Output: res.output, Events: res.events, EventsTruncated: res.truncated,
		SessionID: id, RunID: res.runID,
	}}, nil
}

func (h *Hub) queue(ctx context.Context, kind queue.Kind, p protocol.SteerParams) (a protocol.Answer[protocol.InputAccepted], err error) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	enqueue := func(ctx context.Context) (protocol.InputAccepted, error) {
		images, err := h.keep(ctx, id, p.Attachments, p.IdempotencyKey, func(m *machine) error {
			if m.s.Run == nil && p.IfIdle != "prompt" {
				return noActiveRun(m.s.ID)
			}
			return nil
		})
		if err != nil {
			return protocol.InputAccepted{}, err
		}
		p.Attachments = nil // may be long, and may have to wait
		r, err := ask[protocol.PromptAccepted](ctx, h, id, func(t ticket) input { return queueIn{t, kind, p, images} })
		return protocol.InputAccepted(r), err
	}
	if !h.orchestrated() {
		a.Reply, err = enqueue(ctx)
		return a, err
	}
	next := h.asking.take(id)
	a.Later = func(ctx context.Context) (r protocol.InputAccepted, err error) {
		err = next(ctx, func() error {
			if p.Text, err = h.beforeTurn(ctx, id, p.Text, p.IdempotencyKey); err == nil {
				r, err = enqueue(ctx)
			}
			return err
		})
		return r, err
	}
	return a, nil
}

func (h *Hub) orchestrated() bool { return h.env.Modules != nil && h.env.Modules.Orchestrated() }

// beforeTurn asks the orchestrators about a text before it is accepted, so that
// what is accepted is what will be delivered. A text that was accepted under
// its key before is not shown to them again.
func (h *Hub) beforeTurn(ctx context.Context, id, text, key string) (string, error) {
	type view struct {
		patched  jsontext.Value
		answered bool
	}
	v, err := query(ctx, h, id, func(m *machine) (view, error) {
		_, answered := m.s.Key(key, m.now)
		return view{m.s.Patched, answered && key != ""}, nil
	})
	if err != nil || v.answered {
		return text, err
	}
	out, err := h.env.Modules.BeforeTurn(ctx, id, text, []byte(v.patched))
	if err != nil {
		return "", protocol.Rejectf(protocol.RejectedByHook, "%v", err)
	}
	return out, nil
}

func (h *Hub) setActiveTools(ctx context.Context, p protocol.SetActiveToolsParams) (protocol.ToolsAccepted, error) {
	var known []model.ToolInfo
	if len(p.Tools) > 0 {
		known = h.env.Tools.List(ctx)
	}
	operations, unknown := resolveTools(known, p.Tools)
	if unknown != "" {
		return protocol.ToolsAccepted{}, protocol.Rejectf(protocol.ToolNotRegistered, "tools: there is no tool %.80q", unknown)
	}
	return ask[protocol.ToolsAccepted](ctx, h, p.SessionID, func(t ticket) input { return toolsIn{t, operations, len(operations)} })
}

func (h *Hub) setMode(command string, kind queue.Kind) func(context.Context, protocol.SetModeParams) (protocol.ModeAccepted, error) {
	return func(ctx context.Context, p protocol.SetModeParams) (protocol.ModeAccepted, error) {
		return ask[protocol.ModeAccepted](ctx, h, p.SessionID, func(t ticket) input { return modeIn{t, command, kind, p.Mode} })
	}
}

// ownModel is the name by which set_model takes the choice back.
const ownModel = "default"

func (h *Hub) setModel(ctx context.Context, p protocol.SetModelParams) (protocol.ModelAccepted, error) {
	var choice model.Choice
	switch {
	case p.Model == ownModel && (p.BaseURL != "" || p.ContextWindow != 0):
		return protocol.ModelAccepted{}, protocol.Errorf(protocol.InvalidPayload, "model: the daemon's own model is as it is configured: it takes no base_url and no context_window")
	case p.Model == ownModel:
	case h.env.Models == nil:
		return protocol.ModelAccepted{}, protocol.Errorf(protocol.InvalidPayload, "model: this daemon has one model only")
	default:
		var err error
		if choice, err = h.env.Models.Choose(p.Model, p.BaseURL); err != nil {
			return protocol.ModelAccepted{}, protocol.Errorf(protocol.InvalidPayload, "model: %v", err)
		}
		choice.ContextWindow = cmp.Or(p.ContextWindow, choice.ContextWindow)
	}
	return ask[protocol.ModelAccepted](ctx, h, p.SessionID, func(t ticket) input { return modelIn{t, choice} })
}

func (h *Hub) getState(ctx context.Context, p protocol.GetStateParams) (protocol.State, error) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return protocol.State{}, err
	}
	var st protocol.State
	var chosen bool
	r, err := h.ask(ctx, id, func(t ticket) input {
		return queryIn{ticket: t, last: true, read: func(m *machine) (any, error) {
			st, chosen = m.state(), m.s.ToolsChosen
			return nil, nil
		}}
	})
	if err != nil {
		return protocol.State{}, err
	}
	st.LastSeq = r.seq
	if !chosen {
		ctx, cancel := context.WithTimeout(ctx, stateWait)
		defer cancel()
		st.ActiveTools = []string{}
		for _, t := range h.env.Tools.List(ctx) {
			st.ActiveTools = append(st.ActiveTools, t.Name)
		}
	}
	st.Daemon, st.Workdir = h.env.Daemon, h.env.Workdir
	if h.env.System != nil {
		_, st.SystemFiles = h.env.System()
	}
	st.Runs = h.runs()
	return st, nil
}

func (h *Hub) runs() []protocol.RunInfo {
	runs := []protocol.RunInfo{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.loops {
		if info := l.run.Load(); info != nil && !l.hasEnded() {
			runs = append(runs, *info)
		}
	}
	slices.SortFunc(runs, func(a, b protocol.RunInfo) int { return cmp.Compare(a.SessionID, b.SessionID) })
	return runs
}

// state is the session's own part of get_state.
func (m *machine) state() protocol.State {
	s := m.s
	st := protocol.State{
		RunState: m.runState(), SessionID: s.ID, Title: s.Title, SteeringMode: s.SteeringMode, FollowUpMode: s.FollowUpMode,
		PendingCounts: m.counts(), ActiveTools: append([]string{}, s.Tools...), SessionState: s.Patched,
		Queued: protocol.QueuedTexts{Steer: []string{}, FollowUp: []string{}},
		Assets: []protocol.AssetInfo{}, Usage: protocol.Usage(s.Usage),
		Model: wireModel(m.model()), Context: protocol.ContextInfo{Tokens: s.Tokens(), Window: m.model().ContextWindow},
	}
	if s.Run != nil {
		st.RunID = s.Run.ID
	}
	for _, in := range s.Pending {
		switch kindOf(in) {
		case queue.Steer:
			st.Queued.Steer = append(st.Queued.Steer, in.Text)
		case queue.FollowUp:
			st.Queued.FollowUp = append(st.Queued.FollowUp, in.Text)
		}
	}
	for _, a := range s.Assets {
		st.Assets = append(st.Assets, protocol.AssetInfo{
			AssetID: a.ID, Kind: a.Kind, MediaType: a.MediaType, Path: a.Path, Tool: a.Tool, Supported: a.Supported, Metadata: rawValue(a.Metadata),
		})
	}
	if m.phase == streaming && m.msg.started {
		st.Partial = &protocol.Partial{MessageID: m.msg.id, Text: m.msg.text.String()}
	}
	return st
}

func (h *Hub) getMessages(ctx context.Context, p protocol.GetMessagesParams) (out protocol.Messages, err error) {
	var path []*session.Entry
	out, err = query(ctx, h, p.SessionID, func(m *machine) (protocol.Messages, error) {
		var ok bool
		if path, ok = m.s.Path(p.LeafID); !ok {
			return protocol.Messages{}, unknownLeaf(m.s.ID, p.LeafID)
		}
		out := protocol.Messages{SessionID: m.s.ID, LeafID: p.LeafID}
		if out.LeafID == "" {
			out.LeafID = m.s.Leaf
		}
		return out, nil
	})
	if err != nil {
		return out, err
	}
	dir := h.env.Store.FilesDir(out.SessionID)
	encode := func(e *session.Entry) ([]byte, error) {
		return json.Marshal(wireEntry(dir, e), jsontext.AllowInvalidUTF8(true))
	}
	out.Messages = make([]jsontext.Value, len(path))
	for i, e := range path {
		text, err := e.Encoded(encode)
		if err != nil {
			return out, wrap(out.SessionID, err)
		}
		out.Messages[i] = text
	}
	return out, nil
}

// wireEntry is an entry as get_messages shows it; dir has the session's images.
func wireEntry(dir string, e *session.Entry) any {
	if c := e.Compaction; c != nil {
		return protocol.CompactionEntry{
			Type: "compaction", ID: e.ID, ParentID: e.ParentID, Summary: c.Summary, FirstKeptEntryID: c.FirstKeptEntryID, CreatedAt: e.CreatedAt.UTC(),
		}
	}
	msg := e.Message
	out := protocol.Message{
		Type: "message", ID: e.ID, ParentID: e.ParentID, Role: string(msg.Role), Text: msg.Text, RunID: e.RunID,
		TurnKind: e.TurnKind, CreatedAt: e.CreatedAt.UTC(), Attachments: wireAttachments(dir, msg.Attachments),
	}
	switch msg.Role {
	case model.Assistant:
		out.ToolCalls, out.StopReason, out.Model = wireCalls(msg.ToolCalls), string(e.StopReason), e.Model
		out.Thinking = msg.Thinking
		out.Usage = (*protocol.Usage)(e.Usage)
	case model.Tool:
		out.ToolCallID, out.ToolName, out.OK, out.Outputs = msg.ToolCallID, msg.ToolName, &msg.OK, e.Outputs
	}
	return out
}

func (h *Hub) getTree(ctx context.Context, p protocol.GetTreeParams) (protocol.Tree, error) {
	var entries []*session.Entry
	out, err := query(ctx, h, p.SessionID, func(m *machine) (protocol.Tree, error) {
		entries = m.s.Entries()
		return protocol.Tree{SessionID: m.s.ID, LeafID: m.s.Leaf}, nil
	})
	if err != nil {
		return out, err
	}
	out.Nodes = make([]protocol.Node, len(entries))
	for i, e := range entries {
		out.Nodes[i] = protocol.Node{ID: e.ID, ParentID: e.ParentID, Role: string(e.Message.Role), Snippet: snippet(e.Message)}
		if e.Compaction != nil {
			out.Nodes[i].Role, out.Nodes[i].Snippet = "compaction", session.FirstLine(e.Compaction.Summary, snippetSize)
		}
	}
	return out, nil
}

func (h *Hub) newSession(_ context.Context, p protocol.NewSessionParams) (protocol.Session, error) {
	id := h.env.NewID("ses-")
	return protocol.Session{SessionID: id, Active: true}, h.create(id, h.fresh(id, p.Title, ""))
}

func (h *Hub) switchSession(_ context.Context, p protocol.SwitchSessionParams) (protocol.Session, error) {
	h.choosing.Lock()
	defer h.choosing.Unlock()
	if !h.env.Store.Exists(p.SessionID) {
		return protocol.Session{}, notFound(p.SessionID)
	}
	if err := h.env.Store.SetActive(p.SessionID, h.env.Now()); err != nil {
		return protocol.Session{}, &protocol.Error{Code: protocol.SessionError, Message: "the active session cannot be changed", Cause: err.Error()}
	}
	return protocol.Session{SessionID: p.SessionID, Active: true}, nil
}

// branchSession copies the path to a leaf, so that either session may be
// changed or deleted without a thought for the other.
func (h *Hub) branchSession(ctx context.Context, p protocol.BranchSessionParams) (protocol.Branch, error) {
	parent, id := p.Parent(), h.env.NewID("ses-")
	facts, err := query(ctx, h, parent, func(m *machine) ([]session.Record, error) {
		chain, ok := m.s.Chain(p.LeafID)
		if !ok {
			return nil, unknownLeaf(m.s.ID, p.LeafID)
		}
		return append(h.fresh(id, m.s.Title, parent), copied(m.s, chain)...), nil
	})
	if err != nil {
		return protocol.Branch{}, err
	}
	if err := h.create(id, facts); err != nil {
		return protocol.Branch{}, err
	}
	h.env.Audit(model.AuditEvent{
		Event: "session:fork", Component: "session", SessionID: id, Data: []byte(`{"parent_id":"` + parent + `"}`),
	})
	return protocol.Branch{SessionID: id, ParentID: parent, Active: true}, nil
}

// copied are the facts that make a session's chain and settings again.
func copied(s *session.State, chain []*session.Entry) []session.Record {
	var facts []session.Record
	for _, e := range chain {
		if e.Compaction != nil {
			facts = append(facts, session.Record{At: e.CreatedAt, Fact: *e.Compaction})
			continue
		}
		facts = append(facts, session.Record{At: e.CreatedAt, Fact: e.MessageAdded})
	}
	add := func(f session.Fact) { facts = append(facts, session.Record{At: s.UpdatedAt, Fact: f}) }
	add(session.ModeSet{Kind: string(queue.Steer), Mode: s.SteeringMode})
	add(session.ModeSet{Kind: string(queue.FollowUp), Mode: s.FollowUpMode})
	if s.ToolsChosen {
		add(session.ToolsSet{Tools: s.Tools})
	}
	if s.Model != (model.Choice{}) {
		add(session.ModelSet{Model: s.Model})
	}
	add(session.Patched{Patch: s.Patched})
	for _, a := range s.Assets {
		add(session.AssetAdded{Asset: a})
	}
	return facts
}

func (h *Hub) compactSession(ctx context.Context, p protocol.CompactSessionParams) (a protocol.Answer[protocol.Compaction], err error) {
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

func (h *Hub) extensionCommand(_ context.Context, p protocol.ExtensionCommandParams) (a protocol.Answer[protocol.ExtensionResult], err error) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.ExtensionResult, error) { return h.runExtension(ctx, id, p) }
	return a, nil
}

func (h *Hub) runExtension(ctx context.Context, id string, p protocol.ExtensionCommandParams) (protocol.ExtensionResult, error) {
	known := slices.ContainsFunc(h.env.Tools.List(ctx), func(t model.ToolInfo) bool {
		// A module that cannot say what it has says why when it is called.
		return means(p.Name, t.Name) || !t.Healthy && t.Name == t.Module && strings.HasPrefix(p.Name, t.Module+".")
	})
	if !known {
		return protocol.ExtensionResult{}, protocol.Rejectf(protocol.ExtensionNotFound, "name: there is no operation %.80q", p.Name)
	}
	inv := model.Invocation{
		ToolCall:  model.ToolCall{ID: h.env.NewID("call-"), Name: p.Name, Arguments: []byte(p.Payload)},
		SessionID: id, Phase: p.Phase,
	}
	if len(inv.Arguments) == 0 || p.Payload.Kind() == jsontext.KindNull {
		inv.Arguments = []byte("{}")
	}
	if inv.Phase == "" {
		inv.Phase = "setup"
	}
	type texts struct{ prompt, output string }
	last, err := query(ctx, h, id, func(m *machine) (texts, error) {
		prompt, output := m.s.LastTexts()
		return texts{prompt, output}, nil
	})
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	inv.Prompt, inv.Output = last.prompt, last.output
	_, release, err := h.acquire(id) // it stays open meanwhile
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	defer release()
	var lost error
	res := h.env.callTool(ctx, id, inv, func(u model.ToolUpdate) {
		if len(u.Patch) > 0 || u.Asset != nil || u.Warning != "" {
			if _, err := h.ask(ctx, id, func(t ticket) input { return sideUpdateIn{t, u} }); err != nil {
				lost = err
			}
		}
	})
	if lost != nil && ctx.Err() == nil {
		res = model.Failed("internal", "the session could not keep what the tool reported: "+lost.Error())
	}
	return protocol.ExtensionResult{
		OK: res.OK, Result: res.Text, Outputs: res.Outputs, Value: rawValue(res.Value), Error: wireToolError(res.Error),
	}, nil
}

func (h *Hub) listTools(ctx context.Context, p protocol.ListToolsParams) (protocol.Tools, error) {
	type choice struct {
		chosen bool
		tools  []string
	}
	c, err := query(ctx, h, p.SessionID, func(m *machine) (choice, error) { return choice{m.s.ToolsChosen, m.s.Tools}, nil })
	if err != nil {
		return protocol.Tools{}, err
	}
	out := protocol.Tools{Tools: []protocol.ToolInfo{}}
	for _, t := range h.env.Tools.List(ctx) {
		params := rawValue(t.Params)
		if params == nil {
			params = jsontext.Value(`{"type":"object"}`)
		}
		out.Tools = append(out.Tools, protocol.ToolInfo{
			Name: t.Name, Description: t.Description, Protocol: t.Protocol, Healthy: t.Healthy, Problem: t.Problem,
			Active: !c.chosen || slices.Contains(c.tools, t.Name), Params: params,
		})
	}
	return out, nil
}

func (h *Hub) listSessions(ctx context.Context, p protocol.ListSessionsParams) (protocol.Sessions, error) {
	limit := 50
	if p.Limit != nil {
		limit = *p.Limit
	}
	out := protocol.Sessions{Sessions: []protocol.SessionInfo{}}
	ids, err := h.env.Store.IDs()
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		if p.Before != "" && id >= p.Before {
			continue
		}
		if len(out.Sessions) == limit {
			break
		}
		info, err := h.sessionInfo(ctx, id)
		if gone(err) {
			continue
		}
		if err != nil {
			h.env.Fault(id, err)
			continue
		}
		out.Sessions = append(out.Sessions, info)
	}
	return out, nil
}

// sessionInfo asks an open session's loop; of a closed one it reads the file.
func (h *Hub) sessionInfo(ctx context.Context, id string) (protocol.SessionInfo, error) {
	h.mu.Lock()
	open := h.loops[id] != nil
	h.mu.Unlock()
	if open {
		return query(ctx, h, id, func(m *machine) (protocol.SessionInfo, error) { return info(m.s, m.runState()), nil })
	}
	s, err := h.env.Store.Peek(id)
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	state := "idle"
	if s.Run != nil {
		state = "running"
	}
	return info(s, state), nil
}

func info(s *session.State, runState string) protocol.SessionInfo {
	return protocol.SessionInfo{
		SessionID: s.ID, Title: s.Title, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
		Messages: s.Messages, RunState: runState, ParentID: s.ParentID,
	}
}

// snippetSize is the most a tree shows of an entry, in characters.
const snippetSize = 80

// snippet is what a tree shows of a message.
func snippet(m model.Message) string {
	if m.Text != "" || len(m.ToolCalls) == 0 {
		return session.FirstLine(m.Text, snippetSize)
	}
	return "→ " + m.ToolCalls[0].Name
}
