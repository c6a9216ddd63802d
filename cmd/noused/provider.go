package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"noused/internal/model/anthropic"
	provider "noused/internal/model/module"
	"noused/internal/model/offline"
	"noused/internal/model/openai"
	modelwire "noused/internal/model/wire"
	"noused/internal/runloop"
	"noused/internal/tool"
)

// newModel makes the model that answers prompts, and what gives up its
// connections. getenv tells the keys.
func newModel(cfg ModelConfig, tools *tool.Registry, getenv func(string) string) (runloop.Model, func(), error) {
	switch cfg.Provider {
	case "module":
		if !tools.Provides(cfg.Name) {
			return nil, nil, fmt.Errorf("--model module/%s: no tools directory has a provider module of that name", cfg.Name)
		}
		return provider.Model{Invoke: func(ctx context.Context, op string, args json.RawMessage) (json.RawMessage, error) {
			result, err := tools.Invoke(ctx, cfg.Name, op, args)
			if err != nil {
				err = fmt.Errorf("module %s: %s", cfg.Name, tool.Failure(err).Text)
			}
			return result, err
		}}, func() {}, nil
	case "openai":
		return vendor(openai.New, cfg, getenv)
	case "anthropic":
		return vendor(anthropic.New, cfg, getenv)
	}
	return offline.Model{Delay: cfg.Delay}, func() {}, nil
}

// vendor makes the model of a provider over HTTP.
func vendor[M interface {
	runloop.Model
	Close()
}](make func(modelwire.Options) (M, error), cfg ModelConfig, getenv func(string) string) (runloop.Model, func(), error) {
	var m M
	o, err := serverOf(cfg, getenv)
	if err == nil {
		m, err = make(o)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("model %s/%s: %w", cfg.Provider, cfg.Name, err)
	}
	return m, m.Close, nil
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
