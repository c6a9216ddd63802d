package runloop

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
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
	read := func(m *machine) (any, error) {
		st, set, started, asks = m.state(), m.toolset(), m.s.Jobs, m.pendingQuestion()
		return nil, nil
	}
	r, err := h.request(ctx, id, func(t ticket) input { return queryIn{ticket: t, last: true, read: read} })
	if errors.Is(err, session.ErrReadOnly) {
		_, err = peek(ctx, h, id, 0, read)
		r.seq, asks = h.env.Events.LastSeq(), nil
	}
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

// jobs are those that a session remembers and those that are known. One that is not known
// any more, and whose end was not kept, was stopped with its daemon.
func jobs(started, known []model.Job) []protocol.JobInfo {
	out := []protocol.JobInfo{}
	for _, j := range started {
		if !slices.ContainsFunc(known, func(k model.Job) bool { return k.ID == j.ID }) {
			j.Status = cmp.Or(j.Status, model.JobStopped)
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
	h.readLifecycle(func(s *lifecycle) {
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
		RunState: m.runState(), SessionID: s.ID, Title: s.Title, Workdir: m.workdir(), LeafID: s.Leaf,
		SteeringMode: s.SteeringMode, FollowUpMode: s.FollowUpMode,
		PendingCounts: m.counts(), ActiveTools: append([]string{}, s.Tools...), SessionState: s.Patched(),
		Queued: m.queued(),
		Assets: []protocol.AssetInfo{}, Usage: *wireUsage(&s.Usage),
		Model: wireModel(m.model(), m.ownModel()), Context: protocol.ContextInfo{Tokens: s.Tokens(), Window: m.window()},
		ApprovalMode: s.ApprovalMode, Agent: agentName(s.Agent), Parent: wireParent(s.Parent),
	}
	for _, c := range s.Background {
		st.Background = append(st.Background, protocol.ChildRun{SessionID: c.ChildID, RunID: c.ChildRunID})
	}
	if m.hosted() {
		st.Model, st.Context.Window = m.agentModel(), 0
		st.AgentCommands, st.AgentOptions = m.offerOf()
	}
	if s.ReadOnly != nil {
		st.ReadOnly = s.ReadOnly.Error()
	} else if s.Run != nil {
		st.RunID = s.Run.ID
		if as := s.Run.Terms.As; as != nil {
			st.As = as.Name
		}
		if run := s.Run; run.TurnOpen {
			st.Turn = &protocol.TurnInfo{TurnID: turnID(run.Turn), Kind: run.Kind, InputIDs: run.Inputs}
		}
	}
	for _, a := range s.Assets {
		st.Assets = append(st.Assets, protocol.AssetInfo{
			AssetID: a.ID, Kind: a.Kind, MediaType: a.MediaType, Path: a.Path, Tool: a.Tool, Supported: a.Supported,
			Metadata: rawValue(a.Metadata),
		})
	}
	if last := s.LastRun; last.RunID != "" {
		st.LastRun = &protocol.LastRun{RunID: last.RunID, StopReason: last.StopReason, As: last.As}
		if last.StopReason == protocol.StopError {
			st.LastRun.Error = &protocol.RunError{Code: last.Code, Message: last.Error}
		}
	}
	if m.phase == streaming && m.msg.started {
		st.Partial = &protocol.Partial{MessageID: m.msg.id, Text: m.msg.text.String()}
	}
	return st
}

// unread is why what a session says cannot be told.
func unread(ctx context.Context, id string, err error) error {
	var refusal *protocol.Error
	switch {
	case errors.As(err, &refusal):
		return err
	case errors.Is(err, session.ErrNotFound):
		return notFound(id)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &protocol.Error{
		Code: protocol.SessionError, Message: "the session's journal cannot be read",
		Cause: err.Error(),
	}
}

// maxRead bounds what is read from a journal for one get_messages, in bytes of JSON: as
// much as a line of another machine may have. A message may be longer, alone.
const maxRead = 64 << 20

// pageSize is how much one page has, in bytes of JSON. A message may be longer, alone.
const pageSize = 4 << 20

// errPageFull ends the reading of a page.
var errPageFull = errors.New("page full")

// maxUncounted is how much of that is counted nowhere, in bytes.
const maxUncounted = 4 << 10

func (h *Hub) getMessages(ctx context.Context, p protocol.GetMessagesParams) (out protocol.Messages, err error) {
	var path []*session.Entry
	var ended []*session.Ended
	open := false // the session stays in memory
	last := 0
	if p.Limit != nil && p.LeafID == "" && p.After == nil && !p.Whole {
		last = *p.Limit
	}
	out, err = readSessionEnd(ctx, h, p.SessionID, last, func(m *machine) (protocol.Messages, error) {
		open = m.s.Open()
		out, asked, err := m.messagesAsked(p)
		path, ended = asked, endedRuns(m.s, asked)
		return out, err
	})
	if err != nil {
		return out, err
	}
	dir := h.env.Store.FilesDir(out.SessionID)
	encode := func(b *session.Body) ([]byte, error) {
		return json.Marshal(wireEntry(dir, b), jsontext.AllowInvalidUTF8(true))
	}
	out.Messages = make([]jsontext.Value, 0, len(path))
	size, read, taken := 0, 0, 0
	give := sync.OnceFunc(func() { h.env.Held.Give(taken) })
	count := func(text []byte) error { // what the session does not have
		read += len(text)
		if more := h.env.Held.Clip(read) - taken; read > maxUncounted && more > 0 {
			if !h.env.Held.Take(more) {
				return protocol.Rejectf(protocol.TooManyPending,
					"there is no room for a reply of %d bytes and more now: others have taken it", read)
			}
			taken += more
		}
		return nil
	}
	err = h.env.Store.Bodies(ctx, out.SessionID, path, func(e *session.Entry, b *session.Body) error {
		text, err := b.Encoded(encode)
		if size += len(text); p.After != nil && size > pageSize && len(out.Messages) > 0 {
			return errPageFull
		}
		out.Messages = append(out.Messages, text)
		if err != nil || open && e.Body() != nil {
			return err
		}
		if read+len(text) > maxRead && len(out.Messages) > 1 {
			return protocol.Rejectf(protocol.TooManyPending,
				"limit: the messages have more than %d MiB together, the most that is read for one reply: ask for fewer",
				maxRead>>20)
		}
		return count(text)
	})
	if errors.Is(err, errPageFull) {
		err, out.More = nil, true
		ended = endedIn(ended, path[:len(out.Messages)])
	}
	for _, run := range ended {
		text, failed := run.Encoded(encodeEnded)
		if out.Encoded = append(out.Encoded, text); !open && failed == nil {
			failed = count(text)
		}
		if err = cmp.Or(err, failed); err != nil {
			break
		}
	}
	if err != nil {
		give()
		return out, unread(ctx, out.SessionID, err)
	}
	out.Release = give
	return out, nil
}

// messagesAsked is the part of a conversation that p asks for, and the reply without it.
func (m *machine) messagesAsked(p protocol.GetMessagesParams) (out protocol.Messages, path []*session.Entry,
	err error,
) {
	read := m.s.Path
	if p.Whole {
		read = m.s.Chain
	}
	path, ok := read(p.LeafID)
	if !ok {
		return out, nil, unknownLeaf(m.s.ID, p.LeafID)
	}
	out = protocol.Messages{SessionID: m.s.ID, LeafID: cmp.Or(p.LeafID, m.s.Leaf)}
	switch {
	case p.After != nil:
		if path, ok = behind(path, *p.After); !ok {
			return out, nil, protocol.Errorf(protocol.SessionError, "after: the conversation has no entry %.80q", *p.After)
		}
		if p.Limit != nil && *p.Limit < len(path) {
			path, out.More = path[:*p.Limit], true
		}
	case p.Limit != nil:
		path = path[max(0, len(path)-*p.Limit):]
	}
	return out, path, nil
}

// endedRuns are the runs of a path that have ended, in its order.
func endedRuns(s *session.State, path []*session.Entry) (runs []*session.Ended) {
	last := ""
	for _, e := range path {
		if e.RunID == "" || e.RunID == last {
			continue
		}
		last = e.RunID
		if run, ok := s.Ended(e.RunID); ok {
			runs = append(runs, run)
		}
	}
	return runs
}

// endedIn are those of the ended runs that a part of their path has entries of.
func endedIn(ended []*session.Ended, part []*session.Entry) []*session.Ended {
	has := make(map[string]bool, len(ended))
	for _, e := range part {
		has[e.RunID] = true
	}
	return slices.DeleteFunc(ended, func(run *session.Ended) bool { return !has[run.RunID] })
}

// behind are the entries of a path that come after one of them, and all of them after "".
func behind(path []*session.Entry, after string) ([]*session.Entry, bool) {
	if after == "" {
		return path, true
	}
	i := slices.IndexFunc(path, func(e *session.Entry) bool { return e.ID == after })
	return path[i+1:], i >= 0
}

func encodeEnded(run *session.Ended) ([]byte, error) {
	out := protocol.EndedRun{
		RunID: run.RunID, StopReason: run.StopReason, Turns: run.Turns, Usage: *wireUsage(&run.Usage),
		DurationMS: run.Took.Milliseconds(),
	}
	if run.StopReason == protocol.StopError {
		out.Error = &protocol.RunError{Code: run.Code, Message: run.Error}
	}
	return json.Marshal(out, jsontext.AllowInvalidUTF8(true))
}

// wireEntry is an entry as get_messages shows it; dir has the session's images.
func wireEntry(dir string, e *session.Body) any {
	if c := e.Compaction; c != nil {
		return protocol.CompactionEntry{
			Type: "compaction", ID: e.ID, ParentID: e.ParentID, Role: string(model.Assistant), Text: c.Summary,
			Summary: c.Summary, FirstKeptEntryID: c.FirstKeptEntryID, CreatedAt: e.CreatedAt.UTC(),
			RunID: c.RunID, TokensBefore: c.TokensBefore, TokensAfter: c.TokensAfter,
		}
	}
	msg := e.Message
	out := protocol.Message{
		Type: "message", ID: e.ID, ParentID: e.ParentID, Role: string(msg.Role), Text: msg.Text, RunID: e.RunID,
		TurnKind: e.TurnKind, CreatedAt: e.CreatedAt.UTC(), Attachments: wireAttachments(dir, msg.Attachments),
		InputID: e.InputID, Child: wireChild(e.Child),
	}
	switch msg.Role {
	case model.Assistant:
		out.ToolCalls, out.StopReason, out.Model = wireCalls(msg.ToolCalls), protocol.StopReason(e.StopReason), e.Model
		out.Thinking = msg.Thinking
		out.Usage = wireUsage(e.Usage)
	case model.Tool:
		out.ToolCallID, out.ToolName, out.OK, out.Outputs = msg.ToolCallID, msg.ToolName, &msg.OK, e.Outputs
		out.DurationMS, out.NotRun = e.DurationMS, e.NotRun
	}
	return out
}

func (h *Hub) getTree(ctx context.Context, p protocol.GetTreeParams) (protocol.Tree, error) {
	var entries []*session.Entry
	out, err := readSession(ctx, h, p.SessionID, func(m *machine) (protocol.Tree, error) {
		entries = m.s.Entries()
		return protocol.Tree{SessionID: m.s.ID, LeafID: m.s.Leaf}, nil
	})
	if err != nil {
		return out, err
	}
	out.Nodes = make([]protocol.Node, len(entries))
	for i, e := range entries {
		out.Nodes[i] = protocol.Node{ID: e.ID, ParentID: e.Parent(), Role: string(e.Role), Snippet: e.Snippet}
		if e.IsCompaction() {
			out.Nodes[i].Role = "compaction"
		}
	}
	return out, nil
}

func (h *Hub) listTools(ctx context.Context, p protocol.ListToolsParams) (a protocol.Answer[protocol.Tools],
	err error,
) {
	if p.Daemon {
		a.Later = func(ctx context.Context) (protocol.Tools, error) { return h.daemonTools(ctx), nil }
		return a, nil
	}
	if p.Callable || p.Token != "" {
		if err := h.mayCall(ctx, protocol.ListTools.Name(), p.SessionID, p.Token); err != nil {
			return a, err
		}
	}
	type choice struct {
		chosen bool
		tools  []string
		from   model.Scope
	}
	id := p.SessionID
	if id == "" {
		if id, err = h.active(); err != nil {
			return a, err
		}
	}
	if id == "" { // to look makes no session
		a.Later = func(ctx context.Context) (protocol.Tools, error) {
			return h.toolsFrom(ctx, model.Scope{Workdir: resolved(h.env.Workdir)}, stateWait, false, nil), nil
		}
		return a, nil
	}
	c, err := queryOrPeek(ctx, h, id, func(m *machine) (choice, error) {
		return choice{m.s.ToolsChosen, m.s.Tools, m.scope()}, nil
	})
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Tools, error) {
		out := h.toolsFrom(ctx, c.from, stateWait, c.chosen, c.tools)
		if p.Callable || p.Token != "" {
			return h.callable(ctx, id, out)
		}
		return out, nil
	}
	return a, nil
}

// toolsFrom reports the tools and servers that are seen from there.
func (h *Hub) toolsFrom(ctx context.Context, from model.Scope, wait time.Duration, chosen bool,
	active []string,
) protocol.Tools {
	started, cancel := context.WithTimeout(ctx, wait)
	h.env.Tools.Try(started, from)
	cancel()
	out := toolsOf(h.env.tools(ctx, from, wait), chosen, active)
	for _, s := range h.env.Tools.Servers(from) {
		out.Servers = append(out.Servers, protocol.ServerInfo{
			Name: s.Name, State: s.State, Message: s.Message,
			Workdir: s.Workdir, Tools: s.Tools, Prompts: wirePrompts(s.Prompts), LeftOut: s.LeftOut,
		})
	}
	return out
}

// anyParams stand for the params of an unknown tool.
var anyParams = []byte(`{"type":"object"}`)

// toolsOf reports tools, and which of them are active.
func toolsOf(known []model.ToolInfo, chosen bool, active []string) protocol.Tools {
	out := protocol.Tools{Tools: []protocol.ToolInfo{}, Servers: []protocol.ServerInfo{}}
	for _, t := range known {
		if len(t.Params) == 0 {
			t.Params = anyParams
		}
		out.Tools = append(out.Tools, protocol.ToolInfo{
			Name: t.Name, Description: t.Description, Protocol: t.Protocol, Healthy: t.Healthy, Problem: t.Problem,
			Active: !chosen || slices.Contains(active, t.Name), ReadOnly: t.ReadOnly, Unheard: t.Unheard,
			Params: jsontext.Value(t.Params),
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
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedTokens: u.CachedTokens,
		CacheWriteTokens: u.CacheWriteTokens,
		ReasoningTokens:  u.ReasoningTokens,
	}
	if u.Cost > 0 {
		out.Cost = &protocol.Cost{Amount: float64(u.Cost) / nano, Currency: "USD"}
	}
	return &out
}

// nano is how many of a usage's cost one dollar is.
const nano = 1e9
