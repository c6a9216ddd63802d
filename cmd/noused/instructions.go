package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/instructions"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/tool/builtin"
)

// openInstructions finds what models are told before a conversation.
func openInstructions(cfg Config) (*instructions.Instructions, error) {
	o := instructions.Options{
		Workdir: cfg.Workdir, Home: cfg.Home, ConfigDir: cfg.ConfigDir, Scratch: filepath.Join(cfg.StateDir, "git"),
		Extra:  cfg.Model.System,
		Getenv: os.Getenv, Hidden: func(workdir, path string) bool { return hidden(cfg).HidesFrom(workdir, path) },
	}
	if cfg.BuiltinTools {
		files, err := builtin.Descriptor(selfPath, cfg.Workdir, os.Environ())
		if err != nil {
			return nil, err
		}
		o.Writable = func(workdir string) []string { return files.In(workdir).Writable() }
	}
	return instructions.New(o)
}

// instructionsAdapter gives the run loop the instructions of a folder, as it asks for them.
type instructionsAdapter struct {
	of     *instructions.Instructions
	models *liveModels
}

func (s instructionsAdapter) Environment(ctx context.Context, workdir string) string {
	return s.of.In(workdir).Environment(ctx)
}

func (s instructionsAdapter) System(workdir, environment string, window int64) (text string, files, problems []string) {
	return s.of.In(workdir).System(environment, window)
}

func (s instructionsAdapter) Expand(workdir, text string) (string, bool, error) {
	return s.of.In(workdir).Expand(text)
}

func (s instructionsAdapter) Named(workdir, name string) (*model.NamedAgent, error) {
	a, err := s.of.In(workdir).NamedAgent(name)
	if err != nil {
		return nil, err
	}
	out := &model.NamedAgent{
		Name: a.Name, Text: a.Text, AllTools: a.AllTools, Tools: a.Tools, Effort: a.Effort,
	}
	if a.Agent != protocol.OwnAgent {
		out.Agent = a.Agent
	}
	if a.Small {
		out.Model = s.models.Small()
	}
	switch {
	case out.Agent != "":
		out.Model = model.Choice{Name: a.Model} // its efforts are its own, too
	case a.Effort != "" && !slices.Contains(protocol.Efforts, a.Effort):
		return nil, fmt.Errorf("%s: effort: there is no level %.40q, only %s", a.Path, a.Effort,
			strings.Join(protocol.Efforts, ", "))
	case a.Model != "":
		if out.Model, err = s.models.Choose(a.Model, "", ""); err != nil {
			return nil, fmt.Errorf("%s: model: %w", a.Path, err)
		}
	}
	return out, nil
}

func (s instructionsAdapter) ListNamed(workdir string) string {
	agents, _ := s.of.In(workdir).Named()
	var b strings.Builder
	for _, a := range agents {
		fmt.Fprintf(&b, "\n- %s: %s", a.Name, cmp.Or(a.Description, "see "+a.Path))
	}
	return b.String()
}

// skills answers list_skills.
type skills struct {
	from    *instructions.Instructions
	workdir func(ctx context.Context, sessionID, folder string) (string, error)
}

func (s skills) handle(ctx context.Context, p protocol.ListSkillsParams) (a protocol.Answer[protocol.Skills],
	err error,
) {
	workdir, err := s.workdir(ctx, p.SessionID, p.Workdir)
	if err != nil {
		return a, err
	}
	s.from = s.from.In(workdir)
	return protocol.Answer[protocol.Skills]{Later: func(context.Context) (protocol.Skills, error) {
		if p.Name != "" {
			return s.one(p.Name)
		}
		found, problems := s.from.Skills()
		out := protocol.Skills{Skills: []protocol.Skill{}, LeftOut: append([]string{}, problems...)}
		for _, k := range found {
			out.Skills = append(out.Skills, protocol.Skill{Name: k.Name, Description: k.Description, Path: k.Path})
		}
		commands, problems := s.from.Commands()
		out.LeftOut = append(out.LeftOut, problems...)
		for _, c := range commands {
			out.Commands = append(out.Commands, protocol.FileCommand{Name: c.Name, Description: c.Description, Path: c.Path})
		}
		named, problems := s.from.Named()
		out.LeftOut = append(out.LeftOut, problems...)
		for _, a := range named {
			out.Named = append(out.Named, protocol.NamedAgent{
				Name: a.Name, Description: a.Description, Path: a.Path, Tools: a.Tools, Model: a.Model, Agent: a.Agent,
			})
		}
		return out, nil
	}}, nil
}

// one is the skill of that name, with its text.
func (s skills) one(name string) (protocol.Skills, error) {
	k, text, err := s.from.Skill(name)
	switch {
	case errors.Is(err, instructions.ErrNoSkill):
		return protocol.Skills{}, protocol.Errorf(protocol.InvalidPayload, "name: there is no skill %.80q; %s", name,
			s.names())
	case err != nil:
		return protocol.Skills{}, protocol.Errorf(protocol.InvalidPayload, "name: %v", err)
	}
	return protocol.Skills{
		Skills:  []protocol.Skill{{Name: k.Name, Description: k.Description, Path: k.Path, Text: text}},
		LeftOut: []string{},
	}, nil
}

// names says which skills there are.
func (s skills) names() string {
	found, _ := s.from.Skills()
	if len(found) == 0 {
		return "there are none"
	}
	const most = 20
	var names []string
	for _, k := range found[:min(len(found), most)] {
		names = append(names, k.Name)
	}
	if len(found) > most {
		names = append(names, "and others")
	}
	return "there are " + strings.Join(names, ", ")
}
