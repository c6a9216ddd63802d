package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/hook"
	"noused/internal/hookfile"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/regular"
	"noused/internal/tool/builtin"
	"noused/internal/tool/registry"
)

// maxRules is the most bytes that rules.toml may have.
const maxRules = 1 << 20

// policySettings say where the rules on calls are, and how long a question waits.
type policySettings struct {
	Config, Rules   string        // files; either may be missing
	ApprovalTimeout time.Duration // 0: for ever
}

// maxApprovalTimeout is longer than anybody is away.
const maxApprovalTimeout = 366 * 24 * time.Hour

// policy finds the files, and reports what is wrong with them.
func (r *resolver) policy() policySettings {
	s := policySettings{Config: r.used, Rules: r.rulesFile()}
	if v, from := r.file.find("policy.approval_timeout"); v != nil {
		text, _ := v.(string)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > maxApprovalTimeout {
			r.fail(from, "got %v, want a time such as 30m, at most %v", v, maxApprovalTimeout)
		}
		s.ApprovalTimeout = d
	}
	if _, err := loadRules(s); err != nil && r.err == nil {
		r.err = err
	}
	return s
}

// rulesFile is beside the configuration file in use.
func (r *resolver) rulesFile() string { return filepath.Join(filepath.Dir(r.used), "rules.toml") }

// rules are those that the user has written, and those that answers with "always"
// have added. It may be used from any goroutine.
type rules struct {
	settings policySettings
	set      atomic.Pointer[policy.Set]
	keeping  sync.Mutex
}

// openRules reads the rules. The error names the file, the line and the key. A file
// that is missing is made, empty: what is not there cannot be hidden from a tool
// that may write to its folder, and would be read at the next start.
func openRules(s policySettings) (*rules, error) {
	f, err := os.OpenFile(s.Rules, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	switch { // where we cannot make it, no tool can
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		errors.Is(err, unix.EROFS):
	case err != nil:
		return nil, err
	}
	r := &rules{settings: s}
	return r, r.Reload()
}

// Set are the rules of now.
func (r *rules) Set() *policy.Set { return r.set.Load() }

// Reload reads them again. After an error those from before hold.
func (r *rules) Reload() error {
	set, err := loadRules(r.settings)
	if err == nil {
		r.set.Store(set)
	}
	return err
}

func loadRules(s policySettings) (*policy.Set, error) {
	text, err := readRules(s.Rules)
	if err != nil {
		return nil, err
	}
	return parseRules(s, text)
}

// parseRules puts [policy] of the configuration file and a text of rules together.
func parseRules(s policySettings, text []byte) (*policy.Set, error) {
	configText, err := regular.Settings(s.Config, maxRules)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config, err := policy.ReadConfig(s.Config, configText)
	if err != nil {
		return nil, err
	}
	added, err := policy.ReadRules(s.Rules, text)
	if err != nil {
		return nil, err
	}
	return policy.New(config, added)
}

// readRules reads the rules, which may be missing. Another user's allow nothing.
func readRules(path string) ([]byte, error) {
	text, err := regular.FollowOwn(path, maxRules)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Keep appends a rule, as JSON, to rules.toml, unless it is there already. It holds
// from then on, for all sessions, and is on the disk when Keep returns.
func (r *rules) Keep(text []byte, at time.Time, sessionID, title string) error {
	var rule policy.Rule
	if err := json.Unmarshal(text, &rule); err != nil {
		return fmt.Errorf("rule: %w", err)
	}
	table, err := rule.TOML(at, sessionID, title)
	if err != nil {
		return err
	}
	r.keeping.Lock()
	defer r.keeping.Unlock()
	before, err := readRules(r.settings.Rules)
	if err != nil {
		return err
	}
	if set, err := parseRules(r.settings, before); err == nil && set.Has(rule) {
		r.set.Store(set)
		return nil
	}
	if len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(before, '\n')
	}
	after := append(before, table...)
	set, err := parseRules(r.settings, after)
	switch {
	case err != nil:
		return err
	case len(after) > maxRules:
		return fmt.Errorf("%s would have %d bytes, at most %d are allowed", r.settings.Rules, len(after), maxRules)
	}
	if err := writeRules(r.settings.Rules, after); err != nil {
		return err
	}
	r.set.Store(set)
	return nil
}

// writeRules replaces the file, or what it is a link to.
func writeRules(path string, text []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return regular.Replace(path, text, 0o600)
}

// judge is what the run loop asks about calls.
type judge struct {
	*registry.Registry
	*rules
	hooks *hook.Hooks
}

// Judge is the registry's, and says of a call whether hooks have a say in it.
func (j judge) Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
	v := j.Registry.Judge(inv, mode, answers)
	v.Guarded = v.Guarded || j.hooks.Has(hookfile.BeforeTool, inv.Workdir, inv.Name)
	return v
}

// Guard is the stricter of what orchestrators and hooks say.
func (j judge) Guard(ctx context.Context, inv model.Invocation) model.Verdict {
	v := j.Registry.Guard(ctx, inv)
	if v.Decision == model.Deny {
		return v
	}
	if denied := j.hooks.Guard(ctx, inv); denied.Decision == model.Deny {
		return denied
	}
	return v
}

// Preview is the diff that a call of a built-in tool would make.
func (judge) Preview(inv model.Invocation) string {
	return builtin.Preview(inv.Workdir, inv.Name, inv.Arguments)
}
