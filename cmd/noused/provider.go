package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/anthropic"
	provider "noused/internal/model/module"
	"noused/internal/model/offline"
	"noused/internal/model/openai"
	"noused/internal/model/responses"
	modelwire "noused/internal/model/wire"
	"noused/internal/runloop"
	"noused/internal/tool"
	"noused/internal/tool/registry"
)

// maxModels bounds the models that are kept with their connections, and what
// servers have said of theirs.
const maxModels = 32

// models makes the daemon's own model and those that sessions choose, each once
// while it is in use.
type models struct {
	vendors
	tools  *registry.Registry
	ledger *ledger // nil where no limit counts what a day costs

	mu   sync.Mutex
	made map[model.Choice]runloop.Model
	said map[model.Choice]int64 // what servers say that a model can read, 0 for nothing
}

func newModels(v vendors, tools *registry.Registry) *models {
	return &models{vendors: v, tools: tools, made: map[model.Choice]runloop.Model{}, said: map[model.Choice]int64{}}
}

// choice is the daemon's model, the zero Choice where none is chosen. It names the server,
// but for that of a section [providers.NAME]: a session that goes on with it stays there.
func (v vendors) choice() model.Choice {
	if v.own.Provider == "" {
		return model.Choice{}
	}
	c := model.Choice{Provider: v.own.Provider, Name: v.own.Name, ContextWindow: v.own.ContextWindow, Effort: v.own.Effort}
	if v.has(c.Provider) {
		s, _ := v.server(c.Provider, c.Name, true) // why it cannot be asked is told where it is
		if own := v.named[c.Provider].BaseURL; s.BaseURL != own {
			c.BaseURL = modelwire.Address(s.BaseURL)
		}
	}
	return c
}

// Own is the daemon's model.
func (m *models) Own() model.Choice { return m.choice() }

// Fallbacks are the models that answer while another cannot.
func (m *models) Fallbacks() []model.Choice { return m.own.Fallback }

// Small is the model of what needs no better one, the zero Choice where there is none that can be asked.
func (m *models) Small() model.Choice {
	if _, err := m.Model(m.own.Small); m.own.Small.Provider == "" || err != nil {
		return model.Choice{}
	}
	return m.own.Small
}

// parse reads PROVIDER[/NAME].
func (v vendors) parse(text string) (provider, name string, err error) {
	provider, name, _ = strings.Cut(text, "/")
	switch {
	case provider == "module" && name == "":
		err = errors.New("want module/NAME, the name of a provider module's descriptor")
	case provider == "module":
	case provider == "offline" && name != "" && name != offline.Name:
		err = fmt.Errorf("the offline model is called %q, not %.40q", offline.Name, name)
	case provider == "offline":
		name = offline.Name
	case !v.has(provider):
		err = fmt.Errorf("there is no provider %.40q; near it are %s; nous models lists what could answer, and another is "+
			"a section [providers.NAME] of config.toml",
			provider, strings.Join(modelwire.Nearest(append(v.names(), "offline", "module"), provider), ", "))
	case name == "":
		err = fmt.Errorf("want %s/NAME, the name of one of its models", provider)
	}
	return provider, name, err
}

// Choose returns the model that PROVIDER[/NAME] means, "" the daemon's own.
func (m *models) Choose(name, baseURL, effort string) (c model.Choice, err error) {
	if name == "" {
		return model.Choice{Effort: effort}, m.checkEffort(m.choice(), effort)
	}
	if c.Provider, c.Name, err = m.parse(name); err != nil {
		return c, err
	}
	if u, err := url.Parse(baseURL); err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return c, errors.New("base_url may have no password, query or fragment: it is kept and shown")
	}
	c.BaseURL, c.Effort = baseURL, effort
	if _, err = m.Model(c); err == nil {
		err = m.checkEffort(c, effort)
	}
	return c, err
}

// plain is a choice without what makes no other model of it.
func plain(c model.Choice) model.Choice {
	c.ContextWindow, c.Effort = 0, ""
	return c
}

// Model returns a model that was chosen. The error says why it cannot be.
func (m *models) Model(c model.Choice) (runloop.Model, error) {
	c = plain(c)
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
	case c.Provider == "":
		return nil, errors.New("no model is chosen: nous setup")
	case c.Provider != "offline" && c.Provider != "module":
		return m.vendor(c)
	case c.BaseURL != "":
		return nil, fmt.Errorf("%s is asked at no server: it takes no base_url", c.Provider)
	case c.Provider == "module":
		return m.module(c.Name)
	}
	return offline.Model{Delay: m.own.Delay}, nil
}

func (m *models) module(name string) (runloop.Model, error) {
	if !m.tools.Provides(name) {
		return nil, fmt.Errorf("module/%s: no tools directory has a provider module of that name", name)
	}
	return provider.Model{Invoke: func(ctx context.Context, op string, args jsontext.Value) (jsontext.Value, error) {
		result, err := m.tools.Invoke(ctx, name, op, args)
		if err != nil {
			err = fmt.Errorf("module %s: %s", name, tool.Failure(err).Text)
		}
		return result, err
	}}, nil
}

// vendor makes the model of a provider over HTTP.
func (m *models) vendor(c model.Choice) (runloop.Model, error) {
	s, err := m.at(c)
	var made httpModel
	if err == nil {
		made, err = s.model()
	}
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", c.Provider, c.Name, err)
	}
	return newAnswering(m, c, s, made), nil
}

// at says where a model that was chosen is asked. A provider that is gone from
// the configuration is an error.
func (v vendors) at(c model.Choice) (endpoint, error) {
	switch {
	case !v.has(c.Provider):
		return endpoint{}, fmt.Errorf("the configuration has no provider %q any more", c.Provider)
	case c.BaseURL != "":
		return v.elsewhere(c.Provider, c.Name, c.BaseURL)
	}
	return v.server(c.Provider, c.Name, true)
}

// httpModel is a model of a server.
type httpModel interface {
	runloop.Model
	Close()
}

// model makes the model over the wire that its server speaks.
func (s endpoint) model() (httpModel, error) {
	switch s.wire {
	case responsesWire:
		return made(responses.New(s.Options))
	case messagesWire:
		return made(anthropic.New(s.Options))
	}
	return made(openai.New(s.Options))
}

// made is a model, or a nil one that is no interface with nothing in it.
func made[M httpModel](m M, err error) (httpModel, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}
