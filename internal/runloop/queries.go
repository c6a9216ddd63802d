package runloop

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/queue"
	"noused/internal/session"
)

// stateWait is how long get_state and list_tools wait for tools that have not yet
// said what they can do.
const stateWait = 100 * time.Millisecond

// listReaders is how many journals one list_sessions reads at a time.
const listReaders = 2

func (h *Hub) getState(ctx context.Context, p protocol.GetStateParams) (protocol.State, error) {
	id, err := h.sessionID(p.SessionID)
	if err != nil {
		return protocol.State{}, err
	}
	var st protocol.State
	var chosen bool
	var started []model.Job
	r, err := h.ask(ctx, id, func(t ticket) input {
		return queryIn{ticket: t, last: true, read: func(m *machine) (any, error) {
			st, chosen, started = m.state(), m.s.ToolsChosen, m.s.Jobs
			return nil, nil
		}}
	})
	if err != nil {
		return protocol.State{}, err
	}
	st.LastSeq = r.seq
	if !chosen {
		st.ActiveTools = []string{}
		for _, t := range h.env.tools(ctx, stateWait) {
			st.ActiveTools = append(st.ActiveTools, t.Name)
		}
	}
	st.Daemon, st.Workdir = h.env.Daemon, h.env.Workdir
	if h.env.Instructions != nil {
		_, st.SystemFiles, _ = h.env.Instructions.System("", st.Context.Window)
	}
	st.Runs = h.runs()
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
		RunState: m.runState(), SessionID: s.ID, Title: s.Title, LeafID: s.Leaf, SteeringMode: s.SteeringMode, FollowUpMode: s.FollowUpMode,
		PendingCounts: m.counts(), ActiveTools: append([]string{}, s.Tools...), SessionState: s.Patched(),
		Queued: protocol.QueuedTexts{Steer: []string{}, FollowUp: []string{}},
		Assets: []protocol.AssetInfo{}, Usage: *wireUsage(&s.Usage),
		Model: wireModel(m.model()), Context: protocol.ContextInfo{Tokens: s.Tokens(), Window: m.window()},
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
	if last := s.LastRun; last.RunID != "" {
		st.LastRun = &protocol.LastRun{RunID: last.RunID, StopReason: last.StopReason}
		if last.StopReason == "error" {
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
		out := protocol.Messages{SessionID: m.s.ID, LeafID: p.LeafID}
		if out.LeafID == "" {
			out.LeafID = m.s.Leaf
		}
		return out, nil
	})
	if err != nil {
		return out, err
	}
	if p.Limit != nil {
		path = path[max(0, len(path)-*p.Limit):]
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
		TurnKind: e.TurnKind, CreatedAt: e.CreatedAt.UTC(), Attachments: wireAttachments(dir, msg.Attachments),
	}
	switch msg.Role {
	case model.Assistant:
		out.ToolCalls, out.StopReason, out.Model = wireCalls(msg.ToolCalls), string(e.StopReason), e.Model
		out.Thinking = msg.Thinking
		out.Usage = wireUsage(e.Usage)
	case model.Tool:
		out.ToolCallID, out.ToolName, out.OK, out.Outputs = msg.ToolCallID, msg.ToolName, &msg.OK, e.Outputs
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
	type choice struct {
		chosen bool
		tools  []string
	}
	c, err := query(ctx, h, p.SessionID, func(m *machine) (choice, error) { return choice{m.s.ToolsChosen, m.s.Tools}, nil })
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Tools, error) {
		return toolsOf(h.env.tools(ctx, stateWait), c.chosen, c.tools), nil
	}
	return a, nil
}

// toolsOf tells of tools, and which of them are active.
func toolsOf(known []model.ToolInfo, chosen bool, active []string) protocol.Tools {
	out := protocol.Tools{Tools: []protocol.ToolInfo{}}
	for _, t := range known {
		params := rawValue(t.Params)
		if params == nil {
			params = jsontext.Value(`{"type":"object"}`)
		}
		out.Tools = append(out.Tools, protocol.ToolInfo{
			Name: t.Name, Description: t.Description, Protocol: t.Protocol, Healthy: t.Healthy, Problem: t.Problem,
			Active: !chosen || slices.Contains(active, t.Name), Params: params,
		})
	}
	return out
}

// listSessions answers at once where every session is open or known; else when the
// journals of the others have been read.
func (h *Hub) listSessions(_ context.Context, p protocol.ListSessionsParams) (a protocol.Answer[protocol.Sessions], err error) {
	limit := 50
	if p.Limit != nil {
		limit = *p.Limit
	}
	ids, err := h.env.Store.IDs()
	if err != nil {
		return a, err
	}
	if p.Before != "" {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id >= p.Before })
	}
	l := listing{hub: h, limit: limit, ids: ids}
	if a.Reply, err = l.list(h.known); err == nil {
		return a, nil
	}
	a.Later = func(ctx context.Context) (protocol.Sessions, error) { return l.read(ctx) }
	return a, nil
}

// listing is a list of sessions that is being made.
type listing struct {
	hub   *Hub
	limit int
	ids   []string
}

// errUnread says that a session's journal has to be read first.
var errUnread = errors.New("not read yet")

// list asks about the sessions one after the other, until there are enough.
// Those that are gone or cannot be read are passed over.
func (l listing) list(about func(id string) (protocol.SessionInfo, error)) (protocol.Sessions, error) {
	out := protocol.Sessions{Sessions: make([]protocol.SessionInfo, 0, min(l.limit, len(l.ids)))}
	for _, id := range l.ids {
		if len(out.Sessions) == l.limit {
			break
		}
		info, err := about(id)
		switch {
		case errors.Is(err, errUnread):
			return out, err
		case err == nil:
			out.Sessions = append(out.Sessions, info)
		case !gone(err):
			l.hub.env.Fault(id, err)
		}
	}
	return out, nil
}

// read reads the journals that it takes, a few at a time, and lists then.
func (l listing) read(ctx context.Context) (protocol.Sessions, error) {
	errs := make([]error, min(l.limit, len(l.ids)))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range listReaders {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(errs)); i = next.Add(1) - 1 {
				_, errs[i] = l.hub.sessionInfo(ctx, l.ids[i])
			}
		})
	}
	readers.Wait()
	if ctx.Err() != nil {
		return protocol.Sessions{}, context.Cause(ctx)
	}
	next.Store(0)
	return l.list(func(id string) (protocol.SessionInfo, error) {
		if i := next.Add(1) - 1; i < int64(len(errs)) && errs[i] != nil {
			return protocol.SessionInfo{}, errs[i]
		}
		return l.hub.sessionInfo(ctx, id)
	})
}

// sessionInfo tells of a session, reading its journal where it is neither open
// nor known.
func (h *Hub) sessionInfo(ctx context.Context, id string) (protocol.SessionInfo, error) {
	info, err := h.known(id)
	if errors.Is(err, errUnread) {
		var s session.Summary
		s, err = h.env.Store.Summary(ctx, id)
		info = summaryInfo(s)
	}
	return info, err
}

// known is what an open session has announced last, or what is known of a closed
// one; else errUnread. It waits for nobody's disk.
func (h *Hub) known(id string) (protocol.SessionInfo, error) {
	h.mu.Lock()
	l := h.loops[id]
	h.mu.Unlock()
	if l != nil && !l.hasEnded() {
		return *l.shown.Load(), nil
	}
	if s, ok := h.env.Store.Known(id); ok {
		return summaryInfo(s), nil
	}
	return protocol.SessionInfo{}, errUnread
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

func summaryInfo(s session.Summary) protocol.SessionInfo {
	state := "idle"
	if s.Running {
		state = "running"
	}
	return protocol.SessionInfo{
		SessionID: s.ID, Title: s.Title, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
		Messages: s.Messages, RunState: state, ParentID: s.ParentID, Usage: *wireUsage(&s.Usage),
	}
}

func info(s *session.State, runState string) protocol.SessionInfo {
	return protocol.SessionInfo{
		SessionID: s.ID, Title: s.Title, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(),
		Messages: s.Messages, RunState: runState, ParentID: s.ParentID, Usage: *wireUsage(&s.Usage),
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
