package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"noused/internal/hook"
	"noused/internal/hookfile"
	"noused/internal/model"
	"noused/internal/regular"
	"noused/internal/tool"
	"noused/internal/tool/registry"
)

// hooks reads the tables [[hook]] of the file.
func (r *resolver) hooks() []hookfile.Hook {
	text, err := regular.Settings(r.used, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []hookfile.Hook
	if err == nil {
		list, err = hookfile.Read(r.used, text)
	}
	if err != nil && r.err == nil {
		r.err = err
	}
	return list
}

// openHooks makes the hooks, and has those of on_event hear of events.
func (d *Daemon) openHooks() {
	d.hooks = hook.New(hook.Options{
		ConfigDir: d.cfg.ConfigDir, Home: d.cfg.Home, Start: d.tools.Start, Confined: d.tools.StartConfined,
		Environ: tool.Environ(os.Environ()),
	}, nil)
	d.takeHooks(d.cfg.Hooks)
}

// takeHooks puts others in the place of the user's hooks.
func (d *Daemon) takeHooks(list []hookfile.Hook) {
	for _, k := range d.hooks.Replace(list) {
		if k.On == hookfile.OnEvent {
			d.audit.RemoveHook(k.String())
		}
	}
	for _, k := range list {
		if k.On == hookfile.OnEvent {
			d.audit.AddHook(k.String(), func(ctx context.Context, event []byte) error { return d.hooks.Tell(ctx, k, event) })
		}
	}
}

// modules have a say in runs: modules of the tools directories first, then hooks.
type modules struct {
	*registry.Registry
	hooks *hook.Hooks
}

// Orchestrated reports whether BeforeTurn has anybody to ask.
func (m modules) Orchestrated() bool {
	return m.Registry.Orchestrated() || m.hooks.Anywhere(hookfile.OnPrompt)
}

// BeforeTurn is what orchestrators and hooks make of a text.
func (m modules) BeforeTurn(ctx context.Context, sessionID, workdir, input string, state []byte) (string, error) {
	text, err := m.Registry.BeforeTurn(ctx, sessionID, workdir, input, state)
	if err == nil {
		text, err = m.OnPrompt(ctx, sessionID, workdir, text)
	}
	if err == nil {
		text, err = m.hooks.OnPrompt(ctx, sessionID, workdir, text)
	}
	return text, err
}

// AfterTool is a call's result with what modules and hooks add.
func (m modules) AfterTool(ctx context.Context, inv model.Invocation, res model.ToolResult) (model.ToolResult,
	[]string,
) {
	res, problems := m.Registry.AfterTool(ctx, inv, res)
	res, more := m.hooks.AfterTool(ctx, inv, res)
	return res, append(problems, more...)
}

// Stops reports whether OnStop may have anybody to ask.
func (m modules) Stops(workdir string) bool {
	return m.Registry.Stops() || m.hooks.Has(hookfile.OnStop, workdir, "")
}

// OnStop is what modules and hooks say that do not let a run end.
func (m modules) OnStop(ctx context.Context, sessionID, workdir, output string) (string, []string) {
	text, problems := m.Registry.OnStop(ctx, sessionID, workdir, output)
	more, others := m.hooks.OnStop(ctx, sessionID, workdir, output)
	switch {
	case text == "":
		text = more
	case more != "":
		text += "\n\n" + more
	}
	return text, append(problems, others...)
}

// HookProblem says why the hooks of a folder do not run.
func (m modules) HookProblem(workdir string) string { return m.hooks.Problem(workdir) }
