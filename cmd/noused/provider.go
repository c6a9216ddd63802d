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
		return vendor(openai.New, cfg, "OPENAI", getenv)
	case "anthropic":
		return vendor(anthropic.New, cfg, "ANTHROPIC", getenv)
	}
	return offline.Model{Delay: cfg.Delay}, func() {}, nil
}

// vendor makes the model of a provider over HTTP. What the configuration leaves
// open the variables with the vendor's prefix fill in.
func vendor[M interface {
	runloop.Model
	Close()
}](make func(modelwire.Options) (M, error), cfg ModelConfig, prefix string, getenv func(string) string) (runloop.Model, func(), error) {
	variable := cmp.Or(cfg.APIKeyEnv, prefix+"_API_KEY")
	o := modelwire.Options{
		BaseURL: cmp.Or(cfg.BaseURL, getenv(prefix+"_BASE_URL")), APIKey: getenv(variable),
		Model: cfg.Name, MaxOutputTokens: cfg.MaxOutputTokens, Timeout: cfg.Timeout, Extra: cfg.Extra,
	}
	if o.BaseURL == "" && o.APIKey == "" {
		return nil, nil, fmt.Errorf("model %s/%s: the variable %s is not set, and no base_url names another server", cfg.Provider, cfg.Name, variable)
	}
	m, err := make(o)
	if err != nil {
		return nil, nil, fmt.Errorf("model %s/%s: %w", cfg.Provider, cfg.Name, err)
	}
	return m, m.Close, nil
}
