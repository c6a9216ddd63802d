package bridge

import (
	"context"
	"slices"
	"time"

	"noused/internal/acp"
	"noused/internal/protocol"
)

// listed is how many sessions a page has.
const listed = 50

func (b *bridge) newSession(r *acp.Request) {
	p, wrong := acp.Decode[acp.NewParams](r.Params)
	if wrong != nil {
		r.Fail(wrong)
		return
	}
	b.wg.Go(func() {
		params := protocol.NewSessionParams{Workdir: *p.CWD, Activate: new(bool), Agent: b.Agent}
		params.MCPServers = serversOf(*p.MCPServers)
		made, err := request(b.ctx, b, protocol.NewSession, params)
		if err != nil {
			r.Fail(renamed(renamed(b.explain(err), "workdir", "cwd"), "mcp_servers", "mcpServers"))
			return
		}
		b.mu.Lock()
		b.made = append(b.made, made.SessionID)
		b.mu.Unlock()
		b.open(made.SessionID, opening{request: r, made: made.SessionID, agents: b.agents()})
	})
}

// tidyTime is how long an editor that ends waits for its empty sessions to be removed.
const tidyTime = 2 * time.Second

// keep has a session stay that was made here: something was chosen for it.
func (b *bridge) keep(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = slices.DeleteFunc(b.made, func(made string) bool { return made == id })
}

// tidy removes the sessions that were made here and that nobody has used: nothing was said
// or chosen there, and it has no title. Where no daemon runs they stay.
func (b *bridge) tidy() {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	b.Start = nil
	for _, id := range b.made {
		s, err := requestOnce(ctx, b, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		if err == nil && s.SessionID == id && s.LeafID == "" && s.Title == "" && s.RunState == protocol.StateIdle {
			_, err = requestOnce(ctx, b, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: id})
		}
		if err != nil {
			b.Log("session %s: not removed though it may be empty: %v", id, err)
		}
	}
}

// renamed has an error name the field as the client calls it.
func renamed(err *acp.Error, ours, theirs string) *acp.Error {
	if err.Code == acp.InvalidParams && len(err.Message) > len(ours) && err.Message[:len(ours)] == ours {
		err.Message = theirs + err.Message[len(ours):]
	}
	return err
}

// serversOf are the editor's servers as a session has them for itself: who starts
// the agent trusts them. A session that is opened again keeps its own.
func serversOf(list []acp.MCPServer) (out []protocol.MCPServer) {
	for _, s := range list {
		one := protocol.MCPServer{Name: *s.Name, Args: s.Args, Env: mapOf(s.Env), Headers: mapOf(s.Headers)}
		if s.Type == "http" {
			one.URL = *s.URL
		} else {
			one.Command = *s.Command
		}
		out = append(out, one)
	}
	return out
}

func mapOf(pairs []acp.Pair) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, p := range pairs {
		out[p.Name] = p.Value
	}
	return out
}

func (b *bridge) loadSession(r *acp.Request) {
	p, err := acp.Decode[acp.LoadParams](r.Params)
	if err != nil {
		r.Fail(err)
		return
	}
	b.enter(*p.SessionID, opening{request: r, replay: true})
}

func (b *bridge) resumeSession(r *acp.Request) {
	p, err := acp.Decode[acp.ResumeParams](r.Params)
	if err != nil {
		r.Fail(err)
		return
	}
	b.enter(*p.SessionID, opening{request: r})
}

// enter opens a session that is there already.
func (b *bridge) enter(id string, o opening) {
	b.wg.Go(func() {
		if b.window(id) == nil { // to follow one that is not there would make another one
			_, err := request(b.ctx, b, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
			if err != nil {
				o.request.Fail(b.explain(err))
				return
			}
		}
		o.agents = b.agents()
		b.open(id, o)
	})
}

// open has a window of a session, made if there is none, answer o.
func (b *bridge) open(id string, o opening) {
	b.mu.Lock()
	w := b.windows[id]
	if w == nil {
		w = b.newWindow(id)
		b.windows[id] = w
	}
	b.mu.Unlock()
	if !w.post(func() { w.open(o) }) {
		o.request.Fail(unknown(id))
	}
}

// window is that of an open session, nil if it is not open.
func (b *bridge) window(id string) *window {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.windows[id]
}

func (b *bridge) all() (list []*window) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.windows {
		list = append(list, w)
	}
	return list
}

func (b *bridge) drop(w *window) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.windows[w.id] == w {
		delete(b.windows, w.id)
	}
}

func unknown(id string) *acp.Error {
	return acp.Errorf(acp.ResourceNotFound,
		"sessionId: the session %.80q is not open here; session/load and session/resume open one", id)
}

// inWindow has the window of the session that a request names take it in.
func inWindow(do func(*window, *acp.Request)) func(*bridge, *acp.Request) {
	return func(b *bridge, r *acp.Request) {
		p, err := acp.Decode[acp.SessionParams](r.Params)
		if err != nil {
			r.Fail(err)
			return
		}
		w := b.window(*p.SessionID)
		if w == nil || !w.post(func() { do(w, r) }) {
			r.Fail(unknown(*p.SessionID))
		}
	}
}

func (b *bridge) listSessions(r *acp.Request) {
	p, err := acp.Decode[acp.ListParams](r.Params)
	if err != nil {
		r.Fail(err)
		return
	}
	limit := listed
	params := protocol.ListSessionsParams{Limit: &limit}
	if p.CWD != nil {
		params.Workdir = *p.CWD
	}
	if p.Cursor != nil {
		params.Before = *p.Cursor
	}
	b.later(r, func(ctx context.Context) (any, error) {
		page, err := request(ctx, b, protocol.ListSessions, params)
		if err != nil {
			return nil, renamed(renamed(b.explain(err), "workdir", "cwd"), "before", "cursor")
		}
		out := acp.ListResult{Sessions: []acp.SessionInfo{}}
		for _, s := range page.Sessions {
			out.Sessions = append(out.Sessions, acp.SessionInfo{
				SessionID: s.SessionID, CWD: s.Workdir, Title: s.Title, UpdatedAt: s.UpdatedAt.UTC().Format(time.RFC3339),
			})
		}
		if len(page.Sessions) == listed {
			out.NextCursor = page.Sessions[listed-1].SessionID
		}
		return out, nil
	})
}

func (b *bridge) deleteSession(r *acp.Request) {
	p, wrong := acp.Decode[acp.SessionParams](r.Params)
	if wrong != nil {
		r.Fail(wrong)
		return
	}
	b.later(r, func(ctx context.Context) (any, error) {
		_, err := requestOnce(ctx, b, protocol.DeleteSession, protocol.DeleteSessionParams{SessionID: *p.SessionID})
		if w := b.window(*p.SessionID); err == nil && w != nil {
			w.post(func() { w.gone(errDeleted) })
		}
		return struct{}{}, err
	})
}

var errDeleted = &acp.Error{Code: acp.ResourceNotFound, Message: "sessionId: the session was deleted"}
