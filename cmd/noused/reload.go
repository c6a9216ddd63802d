package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"noused/internal/mcpfile"
	"noused/internal/protocol"
)

// warm has the user's MCP servers read, and tells what is wrong with them.
func (d *Daemon) warm() {
	d.tools.Warm()
	d.unused()
	d.warnOf(d.tools.Ignored()...)
	for _, err := range d.tools.Errors() {
		if strings.Contains(err.Error(), filepath.Join(d.cfg.ConfigDir, mcpfile.Name)) { // the others were told
			d.log.Error("MCP server not loaded", zap.Error(err))
		}
	}
}

// unused warns of what the policy says and nothing fits: it may be misspelt.
func (d *Daemon) unused() {
	for _, rule := range d.tools.Unused() {
		d.events.Append(protocol.Warning{
			Code:    protocol.WarningRuleUnused,
			Message: fmt.Sprintf("the pattern %q of the policy, %s, fits no tool", rule.Tool, rule.Place),
		})
		d.log.Warn("a pattern of the policy fits no tool", zap.String("pattern", rule.Tool), zap.Stringer("at", rule.Place))
	}
}

// warnOf tells the log what is not as somebody may believe.
func (d *Daemon) warnOf(what ...string) {
	for _, text := range what {
		d.log.Warn(text)
	}
}

// reload reads the rules, the tool descriptors, the keys, what chooses models and the agents
// again.
func (d *Daemon) reload() protocol.ToolsReloaded {
	d.reloading.Lock() // a signal and any client may ask for it
	defer d.reloading.Unlock()
	bad := d.rules.Reload()
	problems, waits := d.reloadModels()
	c := d.tools.Reload()
	d.unused()
	d.log.Info("tools reloaded", zap.Strings("added", c.Added), zap.Strings("changed", c.Changed),
		zap.Strings("removed", c.Removed))
	r := protocol.ToolsReloaded{
		Added: append([]string{}, c.Added...), Changed: append([]string{}, c.Changed...),
		Removed: append([]string{}, c.Removed...),
		Errors:  []string{},
	}
	if bad != nil {
		d.log.Error("rules not loaded; those from before hold", zap.Error(bad))
		r.Errors = append(r.Errors, bad.Error())
	}
	for _, err := range c.Errors {
		d.log.Error("tool not loaded", zap.Error(err))
		r.Errors = append(r.Errors, err.Error())
	}
	for _, err := range problems {
		if slices.Contains(r.Errors, err.Error()) {
			continue
		}
		d.log.Error("model", zap.Error(err))
		r.Errors = append(r.Errors, err.Error())
	}
	ignored := d.tools.Ignored()
	d.warnOf(ignored...)
	for _, field := range ignored {
		if strings.Contains(field, "did you mean") { // another may be there for another program
			r.Errors = append(r.Errors, field)
		}
	}
	if waits != "" {
		d.warnOf(waits)
		r.Errors = append(r.Errors, waits)
	}
	d.hub.ModelsChanged(modelsPatience) // a module may be one
	return r
}

// atStart are the keys and the tables of the configuration that only a start applies.
var atStart = []struct {
	name string
	of   func(Config) any
}{
	{"socket", func(c Config) any { return c.Socket }},
	{"debug_socket", func(c Config) any { return c.DebugSocket }},
	{"state_dir", func(c Config) any { return c.StateDir }},
	{"workdir", func(c Config) any {
		if !c.WorkdirNamed {
			return ""
		}
		return c.Workdir
	}},
	{"tools_dir", func(c Config) any { return c.ToolsDirs }},
	{"max_line", func(c Config) any { return c.MaxLine }},
	{"event_buffer", func(c Config) any { return c.EventBuffer }},
	{"drain_timeout", func(c Config) any { return c.DrainTimeout }},
	{"log_level", func(c Config) any { return c.LogLevel }},
	{"builtin_tools", func(c Config) any { return c.BuiltinTools }},
	{"model.system", func(c Config) any { return c.Model.System }},
	{"model.max_steps", func(c Config) any { return c.Model.MaxSteps }},
	{"policy.approval_timeout", func(c Config) any { return c.Policy.ApprovalTimeout }},
	{"[limits]", func(c Config) any { return c.Limits }},
	{"[children]", func(c Config) any { return c.Children }},
	{"[notify]", func(c Config) any { return c.Notify }},
	{"[sandbox]", func(c Config) any { // not what the folders of the user are now
		return []any{c.Sandbox.Hide, c.Sandbox.Read, c.Sandbox.Network}
	}},
	{"[retention]", func(c Config) any { return c.Retention }},
	{"[changes]", func(c Config) any { return c.ChangesMax }},
	{"[fleet]", func(c Config) any { return c.Fleet }},
}

// notApplied names what only a start applies and is not as the daemon runs with.
func notApplied(was, is Config) (names []string) {
	for _, part := range atStart {
		if !reflect.DeepEqual(part.of(was), part.of(is)) {
			names = append(names, part.name)
		}
	}
	return names
}

// waits says which parts of the configuration wait for a restart, "" where none does.
func (d *Daemon) waits(cfg Config) string {
	names := notApplied(d.cfg, cfg)
	if len(names) == 0 {
		return ""
	}
	text, last := strings.Join(names[:len(names)-1], ", "), names[len(names)-1]
	if text != "" {
		last = text + " and " + last
	}
	return fmt.Sprintf("%s differs in %s from what this daemon runs with: nous restart applies it",
		cfg.Policy.Config, last)
}

// modelsPatience is how long sessions that are busy are waited for when models change.
const modelsPatience = 2 * time.Second

// reloadModels reads the keys again, and which models and agents answer, and says which parts of the
// configuration wait for a restart. After an error in the configuration all stays as it was.
func (d *Daemon) reloadModels() (problems []error, waits string) {
	cfg, err := d.read()
	if err != nil {
		return append(cfg.Problems, err), ""
	}
	was := d.models.Own()
	d.models.replaceBy(cfg)
	d.takeHooks(cfg.Hooks)
	d.agents.Replace(cfg.Agents, cfg.DefaultAgent)
	if is := d.models.Own(); is != was {
		d.events.Append(protocol.Status{Code: protocol.StatusSettingChanged, Message: "model: " +
			modelText(is.Provider, is.Name)})
	}
	if err := d.models.problem(); err != nil {
		return append(cfg.Problems, err), d.waits(cfg)
	}
	return cfg.Problems, d.waits(cfg)
}
