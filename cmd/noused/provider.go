package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"noused/internal/model"
	"noused/internal/model/anthropic"
	provider "noused/internal/model/module"
	"noused/internal/model/offline"
	"noused/internal/model/openai"
	modelwire "noused/internal/model/wire"
	"noused/internal/runloop"
	"noused/internal/tool"
)

// defaultWindow is the context window of a model over HTTP of which nobody says
// how much it can read: few that people run agents with read less.
const defaultWindow = 128_000

// maxModels bounds the models that are kept with their connections.
const maxModels = 32

// models makes the daemon's own model and those that sessions choose, each once
// while it is in use.
type models struct {
	cfg    ModelConfig // of the daemon's own
	tools  *tool.Registry
	getenv func(string) string // tells the keys

	mu   sync.Mutex
	made map[model.Choice]runloop.Model
}

func newModels(cfg ModelConfig, tools *tool.Registry, getenv func(string) string) *models {
	return &models{cfg: cfg, tools: tools, getenv: getenv, made: map[model.Choice]runloop.Model{}}
}

// own is the daemon's model, as get_state names it.
func (m *models) own() model.Choice {
	return model.Choice{Provider: m.cfg.Provider, Name: m.cfg.Name, ContextWindow: m.window(m.cfg.Provider)}
}

// window is that of a provider's models: the configured one counts for all of
// them, as nothing better is known.
func (m *models) window(provider string) int64 {
	switch {
	case provider == m.cfg.Provider && m.cfg.ContextWindow > 0:
		return m.cfg.ContextWindow
	case provider == "openai" || provider == "anthropic":
		return defaultWindow
	}
	return 0
}

// parseModel reads PROVIDER[/NAME].
func parseModel(text string) (provider, name string, err error) {
	provider, name, _ = strings.Cut(text, "/")
	switch {
	case provider == "module" && name == "":
		err = errors.New("want module/NAME, the name of a provider module's descriptor")
	case provider == "module":
	case provider == "openai" || provider == "anthropic":
		if name == "" {
			err = fmt.Errorf("want %s/NAME, the name of one of its models", provider)
		}
	case provider != "offline":
		err = fmt.Errorf("there is no provider %.40q, only offline, openai, anthropic and module", provider)
	case name != "" && name != offline.Name:
		err = fmt.Errorf("the offline model is called %q, not %.40q", offline.Name, name)
	default:
		name = offline.Name
	}
	return provider, name, err
}

// Choose returns the model that PROVIDER[/NAME] means.
func (m *models) Choose(name, baseURL string) (c model.Choice, err error) {
	if c.Provider, c.Name, err = parseModel(name); err != nil {
		return c, err
	}
	c.BaseURL, c.ContextWindow = baseURL, m.window(c.Provider)
	_, err = m.Model(c)
	return c, err
}

// Model returns a model that was chosen. The error says why it cannot be.
func (m *models) Model(c model.Choice) (runloop.Model, error) {
	c.ContextWindow = 0
	m.mu.Lock()
	defer m.mu.Unlock()
	if made, ok := m.made[c]; ok {
		return made, nil
	}
	made, err := m.make(c)
	if err != nil {
		return nil, err
	}
	if len(m.made) >= maxModels {
		m.close()
	}
	m.made[c] = made
	return made, nil
}

// Close closes the connections that are kept for later calls.
func (m *models) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.close()
}

func (m *models) close() {
	for _, made := range m.made {
		if c, ok := made.(interface{ Close() }); ok {
			c.Close()
		}
	}
	clear(m.made)
}

func (m *models) make(c model.Choice) (runloop.Model, error) {
	cfg := ModelConfig{Provider: c.Provider, MaxOutputTokens: m.cfg.MaxOutputTokens, Timeout: m.cfg.Timeout}
	if c.Provider == m.cfg.Provider {
		cfg = m.cfg
	}
	cfg.Name = c.Name
	switch {
	case c.Provider == "openai":
		return vendor(openai.New, cfg, c.BaseURL, m.getenv)
	case c.Provider == "anthropic":
		return vendor(anthropic.New, cfg, c.BaseURL, m.getenv)
	case c.BaseURL != "":
		return nil, fmt.Errorf("%s is asked at no server: it takes no base_url", c.Provider)
	case c.Provider == "module":
		return m.module(c.Name)
	}
	return offline.Model{Delay: cfg.Delay}, nil
}

func (m *models) module(name string) (runloop.Model, error) {
	if !m.tools.Provides(name) {
		return nil, fmt.Errorf("module/%s: no tools directory has a provider module of that name", name)
	}
	return provider.Model{Invoke: func(ctx context.Context, op string, args json.RawMessage) (json.RawMessage, error) {
		result, err := m.tools.Invoke(ctx, name, op, args)
		if err != nil {
			err = fmt.Errorf("module %s: %s", name, tool.Failure(err).Text)
		}
		return result, err
	}}, nil
}

// vendor makes the model of a provider over HTTP. The key is for the server that
// it was configured for: one that is elsewhere is asked without.
func vendor[M runloop.Model](make func(modelwire.Options) (M, error), cfg ModelConfig, elsewhere string, getenv func(string) string) (runloop.Model, error) {
	o, err := serverOf(cfg, getenv)
	if elsewhere != "" && elsewhere != o.BaseURL {
		o.BaseURL, o.APIKey, err = elsewhere, "", nil
	}
	var made M
	if err == nil {
		made, err = make(o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", cfg.Provider, cfg.Name, err)
	}
	return made, nil
}

// vendors are the providers over HTTP: the prefix of their variables, where
// they are themselves, and what asks one for its models.
var vendors = map[string]struct {
	prefix, baseURL string
	list            func(context.Context, modelwire.Options) ([]string, error)
}{
	"openai":    {"OPENAI", openai.BaseURL, openai.Models},
	"anthropic": {"ANTHROPIC", anthropic.BaseURL, anthropic.Models},
}

// keyVariable is the name of the variable that has a vendor's key.
func keyVariable(cfg ModelConfig) string {
	return cmp.Or(cfg.APIKeyEnv, vendors[cfg.Provider].prefix+"_API_KEY")
}

// serverOf says where a vendor's model is and how to ask it. What the
// configuration leaves open the variables with the vendor's prefix fill in.
func serverOf(cfg ModelConfig, getenv func(string) string) (modelwire.Options, error) {
	v := vendors[cfg.Provider]
	o := modelwire.Options{
		BaseURL: cmp.Or(cfg.BaseURL, getenv(v.prefix+"_BASE_URL")), APIKey: getenv(keyVariable(cfg)),
		Model: cfg.Name, MaxOutputTokens: cfg.MaxOutputTokens, Timeout: cfg.Timeout, Extra: cfg.Extra,
	}
	if o.BaseURL == "" && o.APIKey == "" {
		return o, fmt.Errorf("the variable %s is not set, and no base_url names another server", keyVariable(cfg))
	}
	o.BaseURL = cmp.Or(o.BaseURL, v.baseURL)
	return o, nil
}
