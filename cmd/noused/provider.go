package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
	for vendor, variable := range map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"} {
		o := cfg.options(strings.TrimSuffix(variable, "_API_KEY"), getenv)
		if cfg.Provider == vendor && o.BaseURL == "" && o.APIKey == "" {
			return nil, nil, fmt.Errorf("model %s/%s: the variable %s is not set, and no base_url names another server",
				vendor, cfg.Name, cmp.Or(cfg.APIKeyEnv, variable))
		}
	}
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
		m, err := openai.New(cfg.options("OPENAI", getenv))
		if err != nil {
			return nil, nil, fmt.Errorf("model openai/%s: %w", cfg.Name, err)
		}
		return m, m.Close, nil
	case "anthropic":
		m, err := anthropic.New(cfg.options("ANTHROPIC", getenv))
		if err != nil {
			return nil, nil, fmt.Errorf("model anthropic/%s: %w", cfg.Name, err)
		}
		return m, m.Close, nil
	}
	return offline.Model{Delay: cfg.Delay}, func() {}, nil
}

// options are a provider's options. What the configuration leaves open the
// variables with the vendor's prefix fill in.
func (c ModelConfig) options(prefix string, getenv func(string) string) modelwire.Options {
	return modelwire.Options{
		BaseURL: cmp.Or(c.BaseURL, getenv(prefix+"_BASE_URL")),
		APIKey:  getenv(cmp.Or(c.APIKeyEnv, prefix+"_API_KEY")),
		Model:   c.Name, MaxOutputTokens: c.MaxOutputTokens, Timeout: c.Timeout, Extra: c.Extra,
	}
}
