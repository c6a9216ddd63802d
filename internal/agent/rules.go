package agent

import (
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/acp"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
)

// Judge says what the rules make of a call. What the agent has not asked about happens in
// any case, and is judged by nobody.
func (s *Session) Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	c := t.byID(inv.ID)
	if c == nil || c.ask == nil {
		return model.Verdict{}
	}
	asked := c.decide(s.agents.o().Rules().WithAnswers(answers), s.name, inv.Workdir)
	once := c.offers(acp.AllowOnce)
	if asked.Verdict == policy.Allow && !once { // a rule for one call does not choose the agent's always
		asked = policy.Decision{Verdict: policy.Ask, Rule: "ask: " + s.name + " cannot be allowed this call alone"}
	}
	d := policy.Mode(mode).Apply(asked)
	v := model.Verdict{Decision: string(d.Verdict), Rule: d.Rule, Pattern: d.Pattern, Why: d.Why}
	switch {
	case d.Verdict == policy.Deny && asked.Verdict == policy.Deny:
		v.Code, v.Why = model.Forbidden, "a rule denies it: "+d.Pattern
	case d.Verdict == policy.Deny:
		v.Code = model.Denied // the run loop says why nobody is asked
	case d.Verdict == policy.Ask:
		v.Always, v.NotOnce = c.always(s.name), !once
	}
	return v
}

// offers reports whether the agent takes an answer of that kind.
func (c *call) offers(kind string) bool {
	for _, o := range c.options {
		if o.Kind == kind {
			return true
		}
	}
	return false
}

// always is what the agent itself calls its way to be asked no more, "" for none.
func (c *call) always(name string) string {
	for _, o := range c.options {
		if o.Kind == acp.AllowAlways {
			return name + ": " + oneLine(o.Name)
		}
	}
	return ""
}

// decide holds the rules against a call. Each place that it is about must be allowed; what
// no rule covers asks.
func (c *call) decide(rules *policy.Set, agent, workdir string) policy.Decision {
	places := c.concerns()
	if len(places) == 0 {
		return policy.Decision{Verdict: policy.Ask, Rule: "ask: " + agent + " asks"}
	}
	whole := policy.Decision{}
	for _, tools := range places {
		best := policy.Decision{}
		for _, as := range tools {
			as.Workdir, as.Resolve = workdir, proc.Resolve
			d := rules.Decide(as)
			if d.Verdict == policy.Allow && d.Pattern == "" { // by default, which is for our own tools
				d = policy.Decision{Verdict: policy.Ask, Rule: "ask: " + agent + " asks"}
			}
			d.Offer, d.ForSession = nil, nil
			if best.Verdict == "" || rank(d) > rank(best) {
				best = d
			}
		}
		if whole.Verdict == "" || strictness[best.Verdict] > strictness[whole.Verdict] {
			whole = best
		}
	}
	return whole
}

var strictness = map[policy.Verdict]int{policy.Allow: 1, policy.Ask: 2, policy.Deny: 3}

// rank orders what the rules say of one place as several of our tools: a rule that denies,
// one that asks, one that allows, and no rule.
func rank(d policy.Decision) int {
	switch {
	case d.Verdict == policy.Deny:
		return 3
	case d.Verdict == policy.Ask && d.Pattern != "":
		return 2
	case d.Verdict == policy.Allow:
		return 1
	}
	return 0
}

// concerns are the places that a call is about, each as the calls of our tools that would
// do the same. None: nobody can tell.
func (c *call) concerns() (places [][]policy.Call) {
	// A title like "main.go" is no tool: what has a kind of ours is judged by it.
	known := slices.Contains([]string{"execute", "edit", "delete", "move", "read", "search", "fetch"}, c.kind)
	if name, ok := mcpName(c.name); ok && (!known || strings.Contains(c.name, "__")) {
		server, _, _ := strings.Cut(name, ".")
		return [][]policy.Call{{{Tool: name, Module: server, Kind: policy.MCP, Arguments: []byte(c.input)}}}
	}
	of := func(tool string, arguments any) policy.Call {
		text, _ := json.Marshal(arguments)
		return policy.Call{Tool: tool, Module: tool, Kind: policy.Builtin, Arguments: text}
	}
	type file struct {
		Path string `json:"path"`
	}
	switch c.kind {
	case "execute":
		line := commandOf(c.input)
		if line == "" {
			return nil
		}
		return [][]policy.Call{{of("bash", struct {
			Command string `json:"command"`
			Outside bool   `json:"outside_sandbox"`
		}{line, true})}}
	case "edit", "delete", "move":
		for _, at := range c.places {
			places = append(places, []policy.Call{of("edit", file{at.Path}), of("write", file{at.Path})})
		}
	case "read":
		for _, at := range c.places {
			places = append(places, []policy.Call{of("read", file{at.Path})})
		}
	case "search":
		for _, at := range c.places {
			places = append(places, []policy.Call{of("grep", file{at.Path}), of("find", file{at.Path})})
		}
	case "fetch":
		return [][]policy.Call{{{Tool: "web", Module: "web", Kind: "", Arguments: []byte(c.input)}}}
	}
	return places
}

// mcpName is the name of a tool of an MCP server as rules have it: mcp__S__T, S__T and S.T
// are S.T.
func mcpName(name string) (string, bool) {
	bare := strings.TrimPrefix(name, "mcp__")
	server, tool, ok := strings.Cut(bare, "__")
	if !ok {
		server, tool, ok = strings.Cut(bare, ".")
	}
	if !ok || server == "" || tool == "" || strings.ContainsAny(name, " \t/") {
		return "", false
	}
	return server + "." + tool, true
}

// commandOf is the command line of a call, "" where there is none. Of a shell that is given
// a script it is the script.
func commandOf(input []byte) string {
	var line struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	if json.Unmarshal(input, &line) == nil {
		if len(line.Args) > 0 {
			return "" // how they are quoted is not told
		}
		return line.Command
	}
	var list struct {
		Command []string `json:"command"`
	}
	if json.Unmarshal(input, &list) != nil || len(list.Command) == 0 {
		return ""
	}
	words := list.Command
	if shell := path.Base(words[0]); len(words) == 3 && (words[1] == "-c" || words[1] == "-lc") &&
		(shell == "bash" || shell == "sh" || shell == "zsh") {
		return words[2]
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
