package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/model"
)

// An agent is given our tools as an MCP server (nous mcp serve), which sends back what the
// agent calls. Such a call comes by Serve. It is told as a call of the turn, and the agent's
// own telling of it is left out, so that nobody sees it twice. Where the agent has asked
// about it first, that is the call that is told, and nobody is asked again.

// ServerName is what agents know the server by that has our tools.
const ServerName = "noused"

// maxServed is how many calls of our tools an agent may have under way.
const maxServed = 64

// serving is a call of a tool of ours that an agent waits for.
type serving struct {
	call   model.ToolCall
	ctx    context.Context // ends when nobody waits any more
	answer chan model.ToolResult
}

// reply answers once; what comes later nobody hears.
func (v *serving) reply(res model.ToolResult) {
	select {
	case v.answer <- res:
	default:
	}
}

// Serve has the turn make a call of a tool of ours, and waits for its result.
func (s *Session) Serve(ctx context.Context, call model.ToolCall) (model.ToolResult, error) {
	v := &serving{call, ctx, make(chan model.ToolResult, 1)}
	s.mu.Lock()
	t := s.turn
	switch {
	case t == nil || t.cut || s.closed:
		s.mu.Unlock()
		return model.ToolResult{}, fmt.Errorf("%s has no turn under way", s.name)
	case len(s.serves) >= maxServed:
		s.mu.Unlock()
		return model.ToolResult{}, fmt.Errorf("%s has %d calls of tools under way, and may have no more", s.name, maxServed)
	}
	s.serves[call.ID] = v
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.serves, call.ID)
	}()
	t.in.put(ctx, event{kind: wanted, serving: v, line: len(call.Arguments) + len(call.Name)}, 0)
	select {
	case res := <-v.answer:
		return res, nil
	case <-ctx.Done():
		return model.ToolResult{}, context.Cause(ctx)
	}
}

// give returns the MCP servers for the agent, and notes which it has itself.
func (s *Session) give(servers func(string, string, bool) ([]acp.ServerEntry, []string), http bool) []acp.ServerEntry {
	entries, own := servers(s.id, s.workdir, http)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = own
	return entries
}

// Own are the names of the MCP servers of the user's that the agent has itself.
func (s *Session) Own() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

// Serves reports whether Serve waits for that call.
func (s *Session) Serves(callID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serves[callID] != nil
}

// Answer gives a call's result to the Serve that waits for it, if any does.
func (s *Session) Answer(callID string, res model.ToolResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.serves[callID]; v != nil {
		v.reply(res)
	}
}

// dropServed answers all calls of our tools whose turn has ended. It is called under the
// session's lock.
func (s *Session) dropServed() {
	for _, v := range s.serves {
		v.reply(model.Failed("aborted", "the turn has ended"))
	}
}

// ours is what agents call a tool T of ours: mcp__noused__T, noused_T, noused.T.
var ours = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("^(?:mcp__|Tool: )?" + ServerName + `(?:__|[_./])([A-Za-z0-9_.-]+)$`)
})

// ourTool is the tool of ours that an agent's call by that name comes to, as agents write
// it; "" for none.
func ourTool(name string) string {
	return plainName(asWritten(name))
}

func asWritten(name string) string {
	if m := ours().FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// plainName is a tool's name in letters that all agents let pass.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' {
			return '_'
		}
		return r
	}, name)
}

// is reports whether a call of a tool of ours is one that was asked about, and allowed.
func (c *call) is(served *model.ToolCall) bool {
	named := asWritten(c.name)
	return c.allowed && (named == served.Name || named == plainName(served.Name)) && sameJSON(c.input, served.Arguments)
}

// sameJSON compares numbers as they are written: a float has not all of them.
func sameJSON(a, b []byte) bool {
	numbers := []jsontext.Options{jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)}
	x, y := jsontext.Value(a).Clone(), jsontext.Value(b).Clone()
	return errors.Join(x.Canonicalize(numbers...), y.Canonicalize(numbers...)) == nil && slices.Equal(x, y)
}

// tellServed says that a call of a tool of ours is told. The agent's own call for it, if it
// has begun one, is over.
func (t *turn) tellServed(tool string) {
	for _, c := range t.order {
		if !c.told && c.ask == nil && ourTool(c.name) == plainName(tool) {
			t.end(c)
			return
		}
	}
	if len(t.served) < maxServed {
		t.served = append(t.served, plainName(tool))
	}
}

// isServed takes note of an agent's call to a tool of ours which is told already.
func (t *turn) isServed(name string) bool {
	tool := ourTool(name)
	i := slices.Index(t.served, tool)
	if tool == "" || i < 0 {
		return false
	}
	t.served = slices.Delete(t.served, i, i+1)
	return true
}
