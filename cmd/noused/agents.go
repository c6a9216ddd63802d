package main

import (
	"context"
	"os"

	"noused/internal/agent"
	"noused/internal/buildinfo"
	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/tool"
	"noused/internal/tool/registry"
)

// hostedAgents are the agents as the run loop has them.
type hostedAgents struct{ *agent.Agents }

// Open returns the agent of a session.
func (a hostedAgents) Open(sessionID, name, workdir string, tell func(context.Context, model.AgentNews)) runloop.Agent {
	return a.Agents.Open(sessionID, name, workdir, tell)
}

// openAgents makes the agents of the configuration known. It starts none.
func openAgents(cfg Config, tools *registry.Registry, rules *rules) *agent.Agents {
	return agent.New(agent.Options{
		Specs: cfg.Agents, Default: cfg.DefaultAgent, Version: buildinfo.Version(), Rules: rules.Set, NewID: newID,
		Start: func(ctx context.Context, s agent.Spec, c proc.Command) (*proc.Process, error) {
			if !s.Sandbox {
				c.Env = tool.EnvironWith(os.Environ(), s.Env)
				return tools.Start(ctx, c)
			}
			c.Env = tool.EnvironWith(nil, s.Env)
			return tools.StartConfined(ctx, proc.Sandbox{Name: s.Name, Workdir: c.Dir, Write: s.Writable, Cache: true}, c)
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

// listAgents answers list_agents.
func listAgents(agents *agent.Agents) protocol.Agents {
	out := protocol.Agents{Agents: []protocol.AgentInfo{}}
	for _, s := range agents.List() {
		info := protocol.AgentInfo{
			Name: s.Name, Command: s.Command, Install: s.Install, SignIn: s.SignIn, Sandboxed: s.Sandbox,
		}
		path, err := s.Path()
		if info.Path, info.Found = path, err == nil; err != nil {
			info.Problem = err.Error()
		}
		out.Agents = append(out.Agents, info)
	}
	return out
}
