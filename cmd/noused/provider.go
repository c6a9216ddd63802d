package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"noused/internal/model"
	"noused/internal/model/anthropic"
	provider "noused/internal/model/module"
	"noused/internal/model/offline"
	"noused/internal/model/openai"
	"noused/internal/model/responses"
	modelwire "noused/internal/model/wire"
	"noused/internal/regular"
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
		err = fmt.Errorf("there is no provider %.40q, only offline, openai (also for other servers that speak its wire, with base_url), anthropic and module", provider)
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
	if u, err := url.Parse(baseURL); err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return c, errors.New("base_url may have no password, query or fragment: it is kept and shown")
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
	switch {
	case c.Provider == "openai":
		return vendor(m.openai, m, c)
	case c.Provider == "anthropic":
		return vendor(anthropic.New, m, c)
	case c.BaseURL != "":
		return nil, fmt.Errorf("%s is asked at no server: it takes no base_url", c.Provider)
	case c.Provider == "module":
		return m.module(c.Name)
	}
	return offline.Model{Delay: m.cfg.Delay}, nil
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

// vendor makes the model of a provider over HTTP.
func vendor[M runloop.Model](make func(modelwire.Options) (M, error), m *models, c model.Choice) (runloop.Model, error) {
	var made M
	o, err := m.server(c)
	if err == nil {
		made, err = make(o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", c.Provider, c.Name, err)
	}
	return made, nil
}

// openai makes a model over the wire that its server speaks.
func (m *models) openai(o modelwire.Options) (runloop.Model, error) {
	wire := wireOf(o.BaseURL)
	if own, err := serverOf(m.cfg, m.getenv); m.cfg.Provider == "openai" && err == nil && sameAddress(own.BaseURL, o.BaseURL) {
		wire = cmp.Or(m.cfg.Wire, wire)
	}
	if wire == "responses" {
		return responses.New(o)
	}
	return openai.New(o)
}

// wireOf is the wire that the provider openai speaks with a server: OpenAI's own
// and Azure's current models take tools over the Responses API only; elsewhere
// it is chat completions.
func wireOf(baseURL string) string {
	u, err := url.Parse(baseURL)
	if err != nil {
		return "chat"
	}
	host := strings.ToLower(u.Hostname())
	for _, suffix := range []string{".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"} {
		if strings.HasSuffix(host, suffix) {
			return "responses"
		}
	}
	if host == "api.openai.com" {
		return "responses"
	}
	return "chat"
}

// server says where a vendor's model is and how to ask it. A key is for the
// server that the configuration, or the environment, has it for: another one is
// asked without.
func (m *models) server(c model.Choice) (modelwire.Options, error) {
	cfg := ModelConfig{Provider: c.Provider, Name: c.Name, MaxOutputTokens: m.cfg.MaxOutputTokens, Timeout: m.cfg.Timeout}
	candidates := []ModelConfig{cfg}
	if c.Provider == m.cfg.Provider {
		own := m.cfg
		own.Name = c.Name
		candidates = []ModelConfig{own, cfg}
	}
	if c.BaseURL == "" {
		return serverOf(candidates[0], m.getenv)
	}
	for _, cfg := range candidates {
		if o, err := serverOf(cfg, m.getenv); err == nil && sameAddress(c.BaseURL, o.BaseURL) {
			return o, nil
		}
	}
	return modelwire.Options{
		BaseURL: c.BaseURL, Model: c.Name, MaxOutputTokens: cfg.MaxOutputTokens, Timeout: cfg.Timeout, Extra: candidates[0].Extra,
	}, nil
}

// sameAddress reports whether two base URLs mean the same, which a slash at the
// end does not change.
func sameAddress(a, b string) bool {
	return strings.TrimRight(modelwire.Address(a), "/") == strings.TrimRight(modelwire.Address(b), "/")
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

// credentialsVariable names the folder in which systemd puts the credentials of
// a service (LoadCredential=, ImportCredential=).
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// maxKey bounds a key that is a credential, in bytes.
const maxKey = 64 << 10

// key is a variable's value, or, where it is not set, the credential of that
// name that systemd has for the daemon. "" is none.
func key(name string, getenv func(string) string) string {
	value, dir := getenv(name), getenv(credentialsVariable)
	if value != "" || !filepath.IsAbs(dir) || !filepath.IsLocal(name) {
		return value
	}
	text, err := regular.Read(filepath.Join(dir, name), maxKey)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// serverOf says where a vendor's model is and how to ask it. What the
// configuration leaves open the variables with the vendor's prefix fill in.
func serverOf(cfg ModelConfig, getenv func(string) string) (modelwire.Options, error) {
	v := vendors[cfg.Provider]
	o := modelwire.Options{
		BaseURL: cmp.Or(cfg.BaseURL, getenv(v.prefix+"_BASE_URL")), APIKey: key(keyVariable(cfg), getenv),
		Model: cfg.Name, MaxOutputTokens: cfg.MaxOutputTokens, Timeout: cfg.Timeout, Extra: cfg.Extra,
	}
	if o.BaseURL == "" && o.APIKey == "" {
		return o, fmt.Errorf("the variable %s is not set, nor a credential of that name, and no base_url names another server", keyVariable(cfg))
	}
	o.BaseURL = cmp.Or(o.BaseURL, v.baseURL)
	return o, nil
}
