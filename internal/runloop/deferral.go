package runloop

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"noused/internal/model"
	"noused/internal/session"
)

const (
	mcp         = "mcp" // protocol of the tools that may be deferred
	maxOffered  = 40    // definitions of theirs that a model learns of
	toolPercent = 10    // of the window is what they take at most
	noWindow    = 128_000
	toolTokens  = 12 // of a definition beside its texts
	maxServers  = 1 << 10
)

// toolset is what a session lets a model call, and how the model learns of it.
type toolset struct {
	from     model.Scope // the session's
	all      bool
	active   []string // with all unset: these alone
	window   int64    // of the model, in tokens
	deferred session.ToolsDeferred
	turn     string // that a request is made in
	leaf     bool   // the session has no children
}

// any reports that there may be tools to learn of.
func (s toolset) any() bool { return s.all || len(s.active) > 0 }

// offer is what a request has of tools. When the definitions of MCP tools would
// take too much of the window, or are too many, they are deferred: the model finds
// them with one more tool, and calls them (mcp.md §3).
type offer struct {
	tools    []model.ToolSpec
	deferred []string              // names of those that may be called and are not told
	now      session.ToolsDeferred // as it is to be from here on
	servers  []string              // whose tools may be called, of MCP servers
}

// offer decides anew with every list, but never that tools which were deferred are
// reported again: what is sent is the same from one request to the next.
func (s toolset) offer(listed []model.ToolInfo) offer {
	callable := s.callable(listed)
	theirs := slices.DeleteFunc(slices.Clone(callable), func(t model.ToolInfo) bool { return t.Protocol != mcp })
	out := offer{now: s.deferred}
	for _, t := range theirs {
		if !slices.Contains(out.servers, t.Module) {
			out.servers = append(out.servers, t.Module)
		}
	}
	if s.deferred.Search == "" && len(theirs) <= maxOffered && definitions(theirs) <= share(s.window) {
		for _, t := range callable {
			out.tools = append(out.tools, t.ToolSpec)
		}
		return out
	}
	out.now.Search = searchName(s.deferred.Search, listed)
	for _, name := range out.servers {
		if !slices.Contains(out.now.Servers, name) {
			out.now.Servers = append(slices.Clip(out.now.Servers), name)
		}
	}
	found := map[string]model.ToolSpec{}
	for _, t := range callable {
		if t.Protocol != mcp {
			out.tools = append(out.tools, t.ToolSpec)
			continue
		}
		if slices.Contains(s.deferred.Offered, t.Name) {
			found[t.Name] = t.ToolSpec
		} else {
			out.deferred = append(out.deferred, t.Name)
		}
	}
	if s.all || len(theirs) > 0 {
		out.tools = append(out.tools, searchSpec(out.now))
	}
	for _, name := range s.deferred.Offered {
		if spec, ok := found[name]; ok {
			out.tools = append(out.tools, spec)
		}
	}
	return out
}

// callable are the healthy tools among the active ones.
func (s toolset) callable(listed []model.ToolInfo) []model.ToolInfo {
	active := map[string]bool{}
	for _, name := range s.active {
		active[name] = true
	}
	return slices.DeleteFunc(slices.Clone(listed), func(t model.ToolInfo) bool {
		return !t.Healthy || !s.all && !active[t.Name] || s.leaf && t.Delegates
	})
}

// share is how many tokens definitions of MCP tools may take in a window. One that
// is not known counts as that of most models.
func share(window int64) int64 {
	if window == 0 {
		window = noWindow
	}
	return window * toolPercent / 100
}

// definitions estimates what tools take in a request, in tokens.
func definitions(tools []model.ToolInfo) (n int64) {
	for _, t := range tools {
		n += definition(t.ToolSpec)
	}
	return n
}

func definition(t model.ToolSpec) int64 {
	return toolTokens + int64(len(t.Name)+len(t.Description)+len(t.Params)+3)/4
}

// tokens is what the tools of a request take.
func (o offer) tokens() (n int64) {
	for _, t := range o.tools {
		n += definition(t)
	}
	return n
}

// searchName is what the tool that finds others is called. It gives way to a module
// of the user's that may have a tool of that name.
func searchName(before string, listed []model.ToolInfo) string {
	taken := func(name string) bool {
		module, _, _ := strings.Cut(name, ".")
		return slices.ContainsFunc(listed, func(t model.ToolInfo) bool { return t.Module == module || t.Name == name })
	}
	if before != "" && !taken(before) {
		return before
	}
	name := "tools.search"
	for i := 2; taken(name); i++ {
		name = fmt.Sprintf("tools%d.search", i)
	}
	return name
}

// searchSpec is the definition of that tool. It differs only with what was
// journaled.
func searchSpec(d session.ToolsDeferred) model.ToolSpec {
	servers := ""
	for i, name := range d.Servers {
		if len(servers)+len(name) > maxServers {
			servers += fmt.Sprintf(" and %d more", len(d.Servers)-i)
			break
		}
		servers += strings.Repeat(", ", min(i, 1)) + name
	}
	return model.ToolSpec{
		Name: d.Search,
		Description: "Finds tools that are not listed here, by words for what they do. These servers have such tools: " +
			servers +
			". At most 5 that fit best are shown with their arguments. From then on they can be called like any other tool.",
		Params: []byte(
			`{"type":"object","properties":{"query":{"type":"string","description":"a few words: what the tool does, to what, perhaps the server's name"}},"required":["query"],"additionalProperties":false}`),
	}
}

// deferredIn has the journal say what a request defers, before the request is sent.
type deferredIn struct {
	ticket ticket
	gen    int
	now    session.ToolsDeferred
}

func (in deferredIn) step(m *machine) {
	if in.gen == m.gen {
		m.record(in.now)
	}
	m.reply(in.ticket, nil)
}

// offer decides what a request has of all tools, and has the journal say so where
// that is new.
func (l *loop) offer(ctx context.Context, gen int, s toolset) (offer, error) {
	listed := l.env.tools(ctx, s.from, offerWait)
	if err := l.tellSilent(ctx, gen, listed); err != nil {
		return offer{}, err
	}
	listed = l.inTurn(s, listed)
	l.withNames(s.from.Workdir, listed)
	o := s.offer(listed)
	if o.now.Search == s.deferred.Search && len(o.now.Servers) == len(s.deferred.Servers) {
		return o, nil
	}
	c := newCall()
	if err := l.post(ctx, deferredIn{c, gen, o.now}); err != nil {
		return o, err
	}
	_, err := l.await(ctx, c.reply)
	return o, err
}

// turnServers are the MCP servers that had tools when a turn began.
type turnServers struct {
	turn    string
	servers []string
}

// inTurn leaves out the tools of MCP servers that have become ready since the turn
// began: they are offered from the next one on, so that the requests of a turn begin
// with the same bytes.
func (l *loop) inTurn(s toolset, listed []model.ToolInfo) []model.ToolInfo {
	began := l.servers.Load()
	if began == nil || began.turn != s.turn {
		began = &turnServers{turn: s.turn}
		for _, t := range listed {
			if t.Protocol == mcp && t.Healthy && !slices.Contains(began.servers, t.Module) {
				began.servers = append(began.servers, t.Module)
			}
		}
		l.servers.Store(began)
	}
	return slices.DeleteFunc(slices.Clone(listed), func(t model.ToolInfo) bool {
		return t.Protocol == mcp && !slices.Contains(began.servers, t.Module) && !slices.Contains(s.deferred.Offered, t.Name)
	})
}

// toolset is what the session lets its model call.
func (m *machine) toolset() toolset {
	s := toolset{from: m.scope(), all: !m.s.ToolsChosen, active: m.s.Tools, window: m.window(), deferred: m.s.Deferred}
	s.leaf = m.hosted() || m.s.Depth() >= m.bounds.Depth
	run := m.s.Run
	if run == nil {
		return s
	}
	s.turn = fmt.Sprint(run.ID, " ", run.Turn)
	if as := run.Terms.As; as != nil && !as.AllTools {
		s.active = as.Tools
		if !s.all {
			s.active = slices.DeleteFunc(slices.Clone(m.s.Tools), func(name string) bool { return !as.May(name) })
		}
		s.all = false
	}
	return s
}

// searches reports that a call is one of the tool that finds others.
func (m *machine) searches(call model.ToolCall) bool {
	return m.s.Deferred.Search != "" && model.Means(call.Name, m.s.Deferred.Search)
}

// foundIn are the tools that are offered from here on, as a search has found some.
type foundIn struct {
	gen   int
	found []string
}

func (in foundIn) step(m *machine) {
	d := m.s.Deferred
	if in.gen != m.gen || d.Search == "" || len(in.found) == 0 || slices.Equal(d.Offered, in.found) {
		return
	}
	d.Offered = in.found
	m.record(d)
}
