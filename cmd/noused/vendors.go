package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/model/anthropic"
	"noused/internal/model/catalogue"
	"noused/internal/model/openai"
	modelwire "noused/internal/model/wire"
	"noused/internal/regular"
)

// The wires that servers speak.
const (
	chatWire      = "chat"
	responsesWire = "responses"
	messagesWire  = "messages"
)

var wires = []string{chatWire, responsesWire, messagesWire}

// ProviderConfig is a section [providers.NAME]: who serves models, and how it is
// asked. What it leaves open the catalogue says, where it knows the name.
type ProviderConfig struct {
	Wire, BaseURL, APIKeyEnv string
	Headers                  map[string]string
	Extra                    map[string]any
	Models                   []string // to be listed without asking
}

// vendors knows who serves models over HTTP: those of the configuration, and
// those of the catalogue.
type vendors struct {
	own    ModelConfig // of the daemon's own model
	named  map[string]ProviderConfig
	models map[string]fact // of models.toml, by provider/name
	getenv func(string) string
	saved  map[string]string // keys, by provider

	savedFirst bool // a saved key comes before that of a variable
}

// has reports whether a provider is a vendor.
func (v vendors) has(name string) bool {
	if _, ok := v.named[name]; ok {
		return true
	}
	_, ok := catalogue.FindProvider(name)
	return ok
}

// names are those of all vendors, sorted.
func (v vendors) names() []string {
	all := slices.AppendSeq(catalogue.Names(), maps.Keys(v.named))
	slices.Sort(all)
	return slices.Compact(all)
}

// endpoint is where a model is asked, and how.
type endpoint struct {
	modelwire.Options
	wire string
}

// config is what is known of a provider, the configuration first; own has what
// [model] says of it, too.
func (v vendors) config(provider string, own bool) ProviderConfig {
	cfg := v.named[provider]
	if own && provider == v.own.Provider {
		cfg.Wire, cfg.BaseURL = cmp.Or(v.own.Wire, cfg.Wire), cmp.Or(v.own.BaseURL, cfg.BaseURL)
		cfg.APIKeyEnv = cmp.Or(v.own.APIKeyEnv, cfg.APIKeyEnv)
		if v.own.Extra != nil {
			extra := maps.Clone(v.own.Extra)
			for name, value := range cfg.Extra {
				if _, ok := extra[name]; !ok {
					extra[name] = value
				}
			}
			cfg.Extra = extra
		}
	}
	if provider == "openai" || provider == "anthropic" {
		cfg.BaseURL = cmp.Or(cfg.BaseURL, v.getenv(strings.ToUpper(provider)+"_BASE_URL"))
	}
	if known, ok := catalogue.FindProvider(provider); ok {
		cfg.APIKeyEnv = cmp.Or(cfg.APIKeyEnv, known.KeyVariable)
	}
	return cfg
}

// server says where a provider's model of that name is asked; own: as [model] has
// it. A key is for the server that the configuration, or the environment, has it
// for. With an error that says why it cannot be asked, the rest is as it would be.
func (v vendors) server(provider, name string, own bool) (endpoint, error) {
	cfg := v.config(provider, own)
	s := endpoint{wire: v.wireFor(provider, name, cfg), Options: modelwire.Options{
		BaseURL: cfg.BaseURL, APIKey: v.key(provider, cfg.APIKeyEnv), Model: name, MaxOutputTokens: v.own.MaxOutputTokens,
		KeyHint: v.keyHint(provider, cfg.APIKeyEnv), Timeout: v.own.Timeout, Extra: cfg.Extra, Headers: cfg.Headers,
	}}
	if cfg.BaseURL != "" {
		return s, nil
	}
	known, _ := catalogue.FindProvider(provider)
	s.BaseURL = known.Servers[s.wire]
	if other := map[string]string{chatWire: responsesWire, responsesWire: chatWire}[s.wire]; s.BaseURL == "" {
		s.BaseURL = known.Servers[other] // below the same address
	}
	switch {
	case s.APIKey == "" && cfg.APIKeyEnv != "":
		return s, fmt.Errorf("there is no key: nous login %s saves one, or set %s in the daemon's environment", provider,
			cfg.APIKeyEnv)
	case s.BaseURL == "":
		return s, fmt.Errorf("base_url in [providers.%s] is missing: where does it speak %s?", provider, s.wire)
	}
	return s, nil
}

// wireFor is the wire that a provider's model is asked over.
func (v vendors) wireFor(provider, name string, cfg ProviderConfig) string {
	known, ok := catalogue.FindProvider(provider)
	switch {
	case cfg.Wire != "":
		return cfg.Wire
	case provider == "openai" && cfg.BaseURL != "", !ok:
		return wireOf(cfg.BaseURL)
	}
	if m, ok := catalogue.Find(provider, name); ok {
		return m.Wire
	}
	return known.Wire
}

// elsewhere is a provider's model at another server than the configured one,
// unless that is the one that is meant, however its address is spelt: nothing
// that is secret goes there.
func (v vendors) elsewhere(provider, name, baseURL string) (endpoint, error) {
	for _, own := range []bool{true, false} {
		if s, err := v.server(provider, name, own); s.BaseURL != "" && sameAddress(baseURL, s.BaseURL) {
			return s, err
		}
	}
	cfg := v.config(provider, true)
	wire := cfg.Wire
	if provider == "openai" || wire == "" {
		wire = v.wireFor(provider, name, ProviderConfig{BaseURL: baseURL})
	}
	return endpoint{wire: wire, Options: modelwire.Options{
		BaseURL: baseURL, Model: name, MaxOutputTokens: v.own.MaxOutputTokens, Timeout: v.own.Timeout, Extra: cfg.Extra,
		KeyHint: "no key was sent: one goes only to a server that config.toml or the environment names",
	}}, nil
}

// list asks a server for its models.
func (s endpoint) list(ctx context.Context) ([]modelwire.Listed, error) {
	if s.wire == messagesWire {
		return anthropic.Models(ctx, s.Options)
	}
	return openai.Models(ctx, s.Options)
}

// wireOf is the wire of a server for which none is set: OpenAI's own
// and Azure's current models take tools over the Responses API only; elsewhere it
// is chat completions.
func wireOf(baseURL string) string {
	u, err := url.Parse(baseURL)
	if err != nil {
		return chatWire
	}
	host := strings.ToLower(u.Hostname())
	for _, suffix := range []string{".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"} {
		if strings.HasSuffix(host, suffix) {
			return responsesWire
		}
	}
	if host == "api.openai.com" {
		return responsesWire
	}
	return chatWire
}

// sameAddress reports whether two base URLs mean the same, which a slash at the
// end does not change.
func sameAddress(a, b string) bool {
	return strings.TrimRight(modelwire.Address(a), "/") == strings.TrimRight(modelwire.Address(b), "/")
}

// credentialsVariable names the folder in which systemd puts the credentials of
// a service (LoadCredential=, ImportCredential=).
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// maxKey bounds a key that is a credential, in bytes.
const maxKey = 64 << 10

// key is a provider's key: that of its variable, or the saved one. "" is none. Where the
// configuration names a variable of its own, the key is meant to be another one.
func (v vendors) key(provider, variable string) string {
	if known, _ := catalogue.FindProvider(provider); variable != known.KeyVariable {
		return key(variable, v.getenv)
	}
	if v.savedFirst {
		return cmp.Or(v.saved[provider], key(variable, v.getenv))
	}
	return cmp.Or(key(variable, v.getenv), v.saved[provider])
}

// keyHint says where a provider's key is from, and how another is set. It is "" for a login,
// which knows.
func (v vendors) keyHint(provider, variable string) string {
	saved := "nous login " + provider
	if known, _ := catalogue.FindProvider(provider); variable != known.KeyVariable {
		saved = "" // it would not be used
	}
	switch {
	case v.savedFirst:
		return ""
	case v.key(provider, variable) == "" && saved != "":
		return "no key was sent: " + saved + " saves one"
	case v.key(provider, variable) == "":
		return "no key was sent: set " + variable + " in the daemon's environment"
	case key(variable, v.getenv) == "":
		return "the key is the one that " + saved + " has saved; it saves another"
	}
	if file := environmentFile.File(variable); file != "" {
		return fmt.Sprintf("the key is %s in %s: change it there, then nous tools reload", variable, file)
	}
	return fmt.Sprintf("the key is %s in the daemon's environment: change it there, and restart the daemon", variable)
}

// keyVariable is the variable that a provider's key is from, "" where it is from none.
func (v vendors) keyVariable(provider string, own bool) string {
	variable := v.config(provider, own).APIKeyEnv
	if key(variable, v.getenv) == "" {
		return ""
	}
	return variable
}

// key is a variable's value, or, where it is not set, the credential of that
// name that systemd has for the daemon. "" is none.
func key(name string, getenv func(string) string) string {
	if name == "" {
		return ""
	}
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
