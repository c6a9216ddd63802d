package runloop

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// stateWait is how long get_state and list_tools wait for tools that have not yet
// said what they can do.
const stateWait = 100 * time.Millisecond

// stateSoon is getState, but a moment after a start it waits until what sessions ask
// is known.
func (h *Hub) stateSoon(ctx context.Context, p protocol.GetStateParams) (protocol.State, error) {
	if p.Daemon {
		return h.daemonState(), nil
	}
	h.awaitTakenUp(ctx)
	return h.getState(ctx, p)
}

func (h *Hub) getState(ctx context.Context, p protocol.GetStateParams) (protocol.State, error) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return protocol.State{}, err
	}
	var st protocol.State
	var set toolset
	var started []model.Job
	var asks *protocol.Approval
	r, err := h.ask(ctx, id, func(t ticket) input {
		return queryIn{ticket: t, last: true, read: func(m *machine) (any, error) {
			st, set, started, asks = m.state(), m.toolset(), m.s.Jobs, m.pendingQuestion()
			return nil, nil
		}}
	})
	if err != nil {
		return protocol.State{}, err
	}
	st.LastSeq = r.seq
	if set.any() {
		listed := h.env.tools(ctx, set.from, stateWait)
		st.Context.Tools = set.offer(listed).tokens()
		if set.all {
			st.ActiveTools = []string{}
			for _, t := range listed {
				st.ActiveTools = append(st.ActiveTools, t.Name)
			}
		}
	}
	st.Daemon = h.env.Daemon
	if h.env.Instructions != nil {
		_, st.SystemFiles, _ = h.env.Instructions.System(st.Workdir, "", st.Context.Window)
	}
	st.Runs = h.runs(false)
	st.ApprovalsIncomplete = !h.haveTakenUp() // asked before the list is made
	st.PendingApprovals = h.pendingApprovals(id, asks)
	st.Jobs = jobs(started, h.env.Tools.Jobs(id))
	return st, nil
}

// jobs are those that a session remembers and those that are known. One that is
// not known any more was stopped with its daemon.
func jobs(started, known []model.Job) []protocol.JobInfo {
	out := []protocol.JobInfo{}
	for _, j := range started {
		if !slices.ContainsFunc(known, func(k model.Job) bool { return k.ID == j.ID }) {
			j.Status = model.JobStopped
			out = append(out, protocol.JobInfo(j))
		}
	}
	for _, j := range known {
		out = append(out, protocol.JobInfo(j))
	}
	return out
}

// runs are the active runs; in full, with what their sessions show of them.
func (h *Hub) runs(full bool) []protocol.RunInfo {
	runs := []protocol.RunInfo{}
	h.look(func(s *lifecycle) {
		for _, l := range s.loops {
			info := l.run.Load()
			if info == nil || l.hasEnded() {
				continue
			}
			runs = append(runs, *info)
			if shown := l.shown.Load(); full && shown != nil {
				run := &runs[len(runs)-1]
				run.Title, run.WaitingFor, run.Working = shown.Title, shown.WaitingFor, shown.Working
			}
		}
	})
	slices.SortFunc(runs, func(a, b protocol.RunInfo) int { return cmp.Compare(a.SessionID, b.SessionID) })
	return runs
}

// state is the session's own part of get_state.
func (m *machine) state() protocol.State {
	s := m.s
	st := protocol.State{
		RunState: m.runState(), SessionID: s.ID, Title: s.Title, Workdir: m.workdir(), LeafID: s.Leaf, SteeringMode: s.SteeringMode, FollowUpMode: s.FollowUpMode,
		PendingCounts: m.counts(), ActiveTools: append([]string{}, s.Tools...), SessionState: s.Patched(),
		Queued: m.queued(),
		Assets: []protocol.AssetInfo{}, Usage: *wireUsage(&s.Usage),
		Model: wireModel(m.model()), Context: protocol.ContextInfo{Tokens: s.Tokens(), Window: m.window()}, ApprovalMode: s.ApprovalMode,
	}
	if s.Run != nil {
		st.RunID = s.Run.ID
		if run := s.Run; run.TurnOpen {
			st.Turn = &protocol.TurnInfo{TurnID: turnID(run.Turn), Kind: run.Kind, InputIDs: run.Inputs}
		}
	}
	for _, a := range s.Assets {
		st.Assets = append(st.Assets, protocol.AssetInfo{
			AssetID: a.ID, Kind: a.Kind, MediaType: a.MediaType, Path: a.Path, Tool: a.Tool, Supported: a.Supported, Metadata: rawValue(a.Metadata),
		})
	}
	if last := s.LastRun; last.RunID != "" {
		st.LastRun = &protocol.LastRun{RunID: last.RunID, StopReason: last.StopReason}
		if last.StopReason == protocol.StopError {
			st.LastRun.Error = &protocol.RunError{Code: last.Code, Message: last.Error}
		}
	}
	if m.phase == streaming && m.msg.started {
		st.Partial = &protocol.Partial{MessageID: m.msg.id, Text: m.msg.text.String()}
	}
	return st
}

func (h *Hub) getMessages(ctx context.Context, p protocol.GetMessagesParams) (out protocol.Messages, err error) {
	var path []*session.Entry
	out, err = look(ctx, h, p.SessionID, func(m *machine) (protocol.Messages, error) {
		var ok bool
		if path, ok = m.s.Path(p.LeafID); !ok {
			return protocol.Messages{}, unknownLeaf(m.s.ID, p.LeafID)
		}
		if p.Limit != nil {
			path = path[max(0, len(path)-*p.Limit):]
		}
		out := protocol.Messages{SessionID: m.s.ID, LeafID: p.LeafID, Runs: endedRuns(m.s, path)}
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
	out.Release = func() {} // the session has them, and keeps them
	return out, nil
}

// endedRuns are the runs of a path that have ended, in its order.
func endedRuns(s *session.State, path []*session.Entry) (runs []protocol.EndedRun) {
	last := ""
	for _, e := range path {
		if e.RunID == "" || e.RunID == last {
			continue
		}
		last = e.RunID
		if run, ok := s.Ended(e.RunID); ok {
			runs = append(runs, wireEnded(run))
		}
	}
	return runs
}

func wireEnded(run session.Ended) protocol.EndedRun {
	out := protocol.EndedRun{
		RunID: run.RunID, StopReason: run.StopReason, Turns: run.Turns, Usage: *wireUsage(&run.Usage), DurationMS: run.Took.Milliseconds(),
	}
	if run.StopReason == protocol.StopError {
		out.Error = &protocol.RunError{Code: run.Code, Message: run.Error}
	}
	return out
}

// wireEntry is an entry as get_messages shows it; dir has the session's images.
func wireEntry(dir string, e *session.Entry) any {
	if c := e.Compaction; c != nil {
		return protocol.CompactionEntry{
			Type: "compaction", ID: e.ID, ParentID: e.ParentID, Role: string(model.Assistant), Text: c.Summary, Summary: c.Summary, FirstKeptEntryID: c.FirstKeptEntryID, CreatedAt: e.CreatedAt.UTC(),
		}
	}
	msg := e.Message
	out := protocol.Message{
		Type: "message", ID: e.ID, ParentID: e.ParentID, Role: string(msg.Role), Text: msg.Text, RunID: e.RunID,
		TurnKind: e.TurnKind, CreatedAt: e.CreatedAt.UTC(), Attachments: wireAttachments(dir, msg.Attachments), InputID: e.InputID,
	}
	switch msg.Role {
	case model.Assistant:
		out.ToolCalls, out.StopReason, out.Model = wireCalls(msg.ToolCalls), protocol.StopReason(e.StopReason), e.Model
		out.Thinking = msg.Thinking
		out.Usage = wireUsage(e.Usage)
	case model.Tool:
		out.ToolCallID, out.ToolName, out.OK, out.Outputs = msg.ToolCallID, msg.ToolName, &msg.OK, e.Outputs
		out.DurationMS = e.DurationMS
	}
	return out
}

func (h *Hub) getTree(ctx context.Context, p protocol.GetTreeParams) (protocol.Tree, error) {
	var entries []*session.Entry
	out, err := look(ctx, h, p.SessionID, func(m *machine) (protocol.Tree, error) {
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

func (h *Hub) listTools(ctx context.Context, p protocol.ListToolsParams) (a protocol.Answer[protocol.Tools], err error) {
	if p.Daemon {
		a.Later = func(ctx context.Context) (protocol.Tools, error) { return h.daemonTools(ctx), nil }
		return a, nil
	}
	type choice struct {
		chosen bool
		tools  []string
		from   model.Scope
	}
	c, err := query(ctx, h, p.SessionID, func(m *machine) (choice, error) {
		return choice{m.s.ToolsChosen, m.s.Tools, m.scope()}, nil
	})
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Tools, error) {
		return h.toolsFrom(ctx, c.from, stateWait, c.chosen, c.tools), nil
	}
	return a, nil
}

// toolsFrom tells of the tools and servers that are seen from there.
func (h *Hub) toolsFrom(ctx context.Context, from model.Scope, wait time.Duration, chosen bool, active []string) protocol.Tools {
	out := toolsOf(h.env.tools(ctx, from, wait), chosen, active)
	for _, s := range h.env.Tools.Servers(from) {
		out.Servers = append(out.Servers, protocol.ServerInfo{Name: s.Name, State: s.State, Message: s.Message, Workdir: s.Workdir, Tools: s.Tools, Prompts: wirePrompts(s.Prompts)})
	}
	return out
}

// toolsOf tells of tools, and which of them are active.
func toolsOf(known []model.ToolInfo, chosen bool, active []string) protocol.Tools {
	out := protocol.Tools{Tools: []protocol.ToolInfo{}, Servers: []protocol.ServerInfo{}}
	for _, t := range known {
		params := rawValue(t.Params)
		if params == nil {
			params = jsontext.Value(`{"type":"object"}`)
		}
		out.Tools = append(out.Tools, protocol.ToolInfo{
			Name: t.Name, Description: t.Description, Protocol: t.Protocol, Healthy: t.Healthy, Problem: t.Problem,
			Active: !chosen || slices.Contains(active, t.Name), ReadOnly: t.ReadOnly, Unheard: t.Unheard, Params: params,
		})
	}
	return out
}

// wireUsage is a usage as the wire has it; nil stays nil.
func wireUsage(u *model.Usage) *protocol.Usage {
	if u == nil {
		return nil
	}
	out := protocol.Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedTokens: u.CachedTokens, CacheWriteTokens: u.CacheWriteTokens,
		ReasoningTokens: u.ReasoningTokens,
	}
	if u.Cost > 0 {
		out.Cost = &protocol.Cost{Amount: float64(u.Cost) / nano, Currency: "USD"}
	}
	return &out
}

// nano is how many of a usage's cost one dollar is.
const nano = 1e9

// snippetSize is the most a tree shows of an entry, in characters.
const snippetSize = 80

// snippet is what a tree shows of a message.
func snippet(m model.Message) string {
	if m.Text != "" || len(m.ToolCalls) == 0 {
		return session.FirstLine(m.Text, snippetSize)
	}
	return "→ " + m.ToolCalls[0].Name
}
