package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"noused/internal/acp"
	"noused/internal/agent"
	"noused/internal/buildinfo"
	"noused/internal/mcpfile"
	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/server"
	"noused/internal/tool"
	"noused/internal/trust"
)

// hostedAgents are the agents as the run loop has them.
type hostedAgents struct{ *agent.Agents }

// Open returns the agent of a session.
func (a hostedAgents) Open(sessionID, name, workdir string,
	tell func(context.Context, model.AgentNews) error,
) runloop.Agent {
	return a.Agents.Open(sessionID, name, workdir, tell)
}

// openAgents makes the agents of the configuration known. It starts none.
func (d *Daemon) openAgents() *agent.Agents {
	cfg, tools := d.cfg, d.tools
	return agent.New(agent.Options{
		Specs: cfg.Agents, Default: cfg.DefaultAgent, Version: buildinfo.Version(), Rules: d.rules.Set, NewID: newID,
		Servers: d.agentServers,
		Start: func(ctx context.Context, s agent.Spec, c proc.Command) (agent.Process, error) {
			if !s.Sandbox {
				c.Env = tool.EnvironWith(trust.Environ(os.Environ()), s.Env)
				return tools.Start(ctx, c)
			}
			c.Env = tool.EnvironWith(nil, s.Env)
			write := s.Writable
			if d.forAgents != nil && !s.NoTools {
				write = append(slices.Clip(write), d.forAgents.Commands.Addr().String(), d.forAgents.Events.Addr().String())
			}
			trust.Writable(append(slices.Clip(write), c.Dir)...)
			return tools.StartConfined(ctx, proc.Sandbox{Name: s.Name, Workdir: c.Dir, Write: write, Cache: true}, c)
		},
	})
}

// modelsOf answers list_models for a session: with what its agent offers, or as for none.
func (d *Daemon) modelsOf(ctx context.Context, own catalog, p protocol.ListModelsParams) (
	a protocol.Answer[protocol.Models], err error,
) {
	a.Later = func(ctx context.Context) (protocol.Models, error) {
		models, hosted, err := d.hub.AgentModels(ctx, p.SessionID)
		if err != nil || hosted {
			return models, err
		}
		answer, err := own.handle(ctx, p)
		if err != nil || answer.Later == nil {
			return answer.Reply, err
		}
		return answer.Later(ctx)
	}
	return a, nil
}

// openAgentSockets listens where hosted agents reach their tools. Without these they have none.
func (d *Daemon) openAgentSockets() {
	path := protocol.AgentSocket(d.sockets.Commands.Addr().String())
	s, err := server.ListenAgents(path, server.Kept{
		Commands: inherited["agent-commands"], Events: inherited["agent-events"],
	}, d.tokens.is)
	if err != nil {
		d.log.Warn("hosted agents get none of noused's tools", zap.Error(err))
		return
	}
	d.forAgents = s
	d.atClose(s.Close)
}

// serveAgents adds what serves the sockets for agents until ctx ends.
func (d *Daemon) serveAgents(ctx context.Context, add func(func() error), lines server.Lines) {
	if d.forAgents == nil {
		return
	}
	add(func() error { return server.ServeCommands(ctx, d.forAgents.Commands, d.agentMux, lines, d.log) })
	add(func() error { return server.ServeEvents(ctx, d.forAgents.Events, d.events, d.readers, lines, d.log) })
}

// agentServers are the MCP servers that a hosted agent is given: ours, with the token of the
// session, and of the user's own those that it can start as noused would.
func (d *Daemon) agentServers(sessionID, workdir string, http bool) (entries []acp.ServerEntry, own []string) {
	path, err := clientProgram()
	switch {
	case d.forAgents == nil:
	case err != nil:
		d.log.Warn("hosted agents get none of noused's tools: nous is neither beside noused nor in PATH", zap.Error(err))
	default:
		entries = append(entries, acp.ServerEntry{
			Name: agent.ServerName, Command: path,
			Args: []string{"--socket", d.forAgents.Commands.Addr().String(), "mcp", "serve", "--session", sessionID},
			Env:  []acp.Pair{{Name: protocol.TokenVariable, Value: d.tokens.of(sessionID)}},
		})
	}
	for _, s := range d.userServers(workdir) {
		e, ok := entryOf(s, http)
		if ok && s.Name != agent.ServerName {
			entries, own = append(entries, e), append(own, s.Name)
		}
	}
	return entries, own
}

// clientProgram is where nous is: beside this program, or in PATH.
func clientProgram() (string, error) {
	if real, err := filepath.EvalSymlinks(program()); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(real), "nous")); err == nil {
			return beside, nil
		}
	}
	path, err := trust.LookPath("nous", os.Getenv("PATH"))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return path, err
}

// userServers are those of the user's mcp.json, and of the folder's where the user trusts
// it. What is wrong with a file the daemon says where it reads it for itself.
func (d *Daemon) userServers(workdir string) (all []mcpfile.Server) {
	if f, err := mcpfile.Read(filepath.Join(d.cfg.ConfigDir, mcpfile.Name)); err == nil {
		all = f.Servers
	}
	text, err := mcpfile.ReadProject(workdir)
	if err != nil {
		return all
	}
	if trusted, err := mcpfile.Trusted(d.cfg.ConfigDir, workdir, mcpfile.Hash(text)); err != nil || !trusted {
		return all
	}
	if f, err := mcpfile.Parse(mcpfile.Project(workdir), text); err == nil {
		for _, s := range f.Servers {
			if !slices.ContainsFunc(all, func(o mcpfile.Server) bool { return o.Name == s.Name }) {
				all = append(all, s)
			}
		}
	}
	return all
}

// entryOf is a server as an agent is given it. False: it has something that only noused holds
// to, or the agent cannot reach it; noused's own server has its tools.
func entryOf(s mcpfile.Server, http bool) (e acp.ServerEntry, ok bool) {
	if s.Disabled || s.Sandbox != "" || s.Trust != "" || len(s.Tools) > 0 || s.Cwd != "" || s.URL != "" && !http {
		return e, false
	}
	s, err := s.Expand(os.LookupEnv)
	if err != nil {
		return e, false
	}
	e = acp.ServerEntry{Name: s.Name, Command: s.Command, Args: s.Args, Env: pairs(s.Env)}
	if s.URL != "" {
		return acp.ServerEntry{Type: "http", Name: s.Name, URL: s.URL, Headers: pairs(s.Headers)}, true
	}
	return e, true
}

func pairs(of map[string]string) (list []acp.Pair) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, acp.Pair{Name: name, Value: of[name]})
	}
	return list
}

// listAgents answers list_agents.
func listAgents(agents *agent.Agents) protocol.Agents {
	out := protocol.Agents{Agents: []protocol.AgentInfo{}}
	for _, s := range agents.List() {
		info := protocol.AgentInfo{
			Name: s.Name, Command: s.Command, Install: s.Install, SignIn: s.SignIn, Sandboxed: s.Sandbox,
			Default: s.Name == agents.Default(),
		}
		path, err := s.Path()
		if info.Path, info.Found = path, err == nil; err != nil {
			info.Problem = err.Error()
		}
		if yes, known := s.SignedIn(tool.EnvironWith(os.Environ(), s.Env)); known {
			info.SignedIn = &yes
		}
		out.Agents = append(out.Agents, info)
	}
	return out
}
