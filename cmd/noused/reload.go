package main

import (
	"fmt"
	"path/filepath"
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

// reload reads the rules, the tool descriptors, the keys, what chooses models and the agents
// again.
func (d *Daemon) reload() protocol.ToolsReloaded {
	d.reloading.Lock() // a signal and any client may ask for it
	defer d.reloading.Unlock()
	bad := d.rules.Reload()
	problems := d.reloadModels()
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
	d.hub.ModelsChanged(modelsPatience) // a module may be one
	return r
}

// modelsPatience is how long sessions that are busy are waited for when models change.
const modelsPatience = 2 * time.Second

// reloadModels reads the keys again, and who answers. After an error in the configuration
// all stays as it was.
func (d *Daemon) reloadModels() (problems []error) {
	cfg, err := d.read()
	if err != nil {
		return append(cfg.Problems, err)
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
		return append(cfg.Problems, err)
	}
	return cfg.Problems
}
