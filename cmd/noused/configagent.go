package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/agent"
	"noused/internal/protocol"
)

// agentKeys are what a section [agent.NAME] may say.
var agentKeys = []fileKey{
	{"command", "array", "The program, found in PATH or absolute, and its arguments; no shell reads it. Default, for an " +
		"agent that noused knows: what its maker says."},
	{"env", "table", "Variables for the agent, beside those that every tool gets; {env.NAME} is the daemon's own NAME."},
	{"sandbox", "true or false", "Whether it runs in the sandbox of tools. Default: false."},
	{"writable", "array of paths", "What it may write to in the sandbox, beside the session's folder."},
	{"tools", "true or false", "Whether it is given noused's tools, and the MCP servers of mcp.json. Default: true."},
	{"resume", "continue or stop", "What happens to a run that a crash has cut. Default: continue."},
	{"idle_timeout", "time", "The longest silence in a turn, after which the agent is ended and started again. Default: " +
		"there is none."},
}

const maxAgentIdle = 7 * 24 * time.Hour

// agents are the sections [agent.NAME], and the agents that need none.
func (r *resolver) agents() (specs []agent.Spec) {
	v, from := r.file.find("agent")
	table := r.asTable(v, from)
	for _, known := range agent.Known {
		if _, has := table[known.Name]; !has {
			specs = append(specs, known)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		_, at := r.file.in("agent", name)
		if !providerName().MatchString(name) || name == protocol.OwnAgent {
			r.fail(at, "no agent can have this name: want small letters, digits, dots and dashes, and not noused")
		}
		specs = append(specs, r.agent(name))
	}
	return specs
}

// agent is a section [agent.NAME].
func (r *resolver) agent(name string) (s agent.Spec) {
	at := func(key string) (any, origin) { return r.file.in("agent", name, key) }
	if i := slices.IndexFunc(agent.Known, func(k agent.Spec) bool { return k.Name == name }); i >= 0 {
		s = agent.Known[i]
	}
	s.Name = name
	v, from := at("command")
	if v != nil {
		known := s
		s.Command = r.asTexts(v, from)
		if len(s.Command) == 0 || len(known.Command) == 0 || filepath.Base(s.Command[0]) != known.Command[0] {
			s.Install, s.SignIn, s.Credentials, s.OnlyThere = "", "", nil, false // another program
		}
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		r.fail(from, "is missing: want an array, the program and its arguments")
		s.Command = []string{name}
	} else if strings.Contains(s.Command[0], "/") {
		s.Command = slices.Clone(s.Command)
		s.Command[0] = r.absolute(s.Command[0], from)
	}
	v, from = at("env")
	for variable, value := range r.asTable(v, from) {
		text, ok := value.(string)
		if !ok {
			r.fail(from, "%s: want a string", variable)
		}
		if s.Env == nil {
			s.Env = map[string]string{}
		}
		s.Env[variable] = text
	}
	v, from = at("sandbox")
	if box, ok := v.(bool); ok {
		s.Sandbox = box
	} else if v != nil {
		r.fail(from, "got %v, want true or false", v)
	}
	v, from = at("tools")
	if give, ok := v.(bool); ok {
		s.NoTools = !give
	} else if v != nil {
		r.fail(from, "got %v, want true or false", v)
	}
	if v, from = at("writable"); v != nil {
		for _, path := range r.asTexts(v, from) {
			s.Writable = append(s.Writable, r.absolute(path, from))
		}
	}
	switch v, from = at("resume"); v {
	case nil, "continue":
	case "stop":
		s.Stop = true
	default:
		r.fail(from, "got %v, want continue or stop", v)
	}
	if v, from = at("idle_timeout"); v != nil {
		s.Idle = r.asDuration(v, from, maxAgentIdle, 0)
	}
	return s
}

// defaultAgent is default_agent, "" for the daemon's own loop.
func (r *resolver) defaultAgent(specs []agent.Spec) string {
	v, from := r.file.find("default_agent")
	name, _, _ := r.asText(v, from)
	if name == protocol.OwnAgent {
		return ""
	}
	if name != "" && !slices.ContainsFunc(specs, func(s agent.Spec) bool { return s.Name == name }) {
		r.fail(from, "there is no agent %q: it needs a section [agent.%s]", name, name)
	}
	return name
}
