package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"noused/internal/model"
	"noused/internal/model/catalogue"
	modelwire "noused/internal/model/wire"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/runloop"
)

// vendors are those that the configuration and the catalogue know.
func (c Config) vendors(getenv func(string) string) vendors {
	return vendors{own: c.Model, named: c.Providers, models: c.Facts, getenv: getenv, saved: c.Keys}
}

// model reads --model PROVIDER[/NAME], or the section [model] of the file. One
// that is named replaces the other's provider and name together.
func (r *resolver) model(v vendors) ModelConfig {
	var m ModelConfig
	provider, from, ok := r.named("model")
	if ok {
		m.Provider = provider
	} else {
		var v any
		v, from = r.file.find("model.provider")
		if provider, _, ok = r.asText(v, from); ok {
			m.Provider = provider
		}
		v, nameFrom := r.file.find("model.name")
		if name, _, ok := r.asText(v, nameFrom); ok && m.Provider == "" {
			r.fail(nameFrom, "there is no model.provider that has it")
		} else if ok {
			m.Provider, from = m.Provider+"/"+name, nameFrom
		}
	}
	var err error
	if m.Provider == "" {
		m.Provider, m.Name = v.onlyModel()
	} else if m.Provider, m.Name, err = v.parse(m.Provider); err != nil {
		r.fail(from, "%v", err)
	}
	if v, from := r.file.find("model.wire"); v != nil {
		if m.Wire, _, _ = r.asText(v, from); m.Wire != chatWire && m.Wire != responsesWire {
			r.fail(from, "there is no wire %v, only chat and responses", v)
		}
	}
	for key, dst := range map[string]*string{"base_url": &m.BaseURL, "api_key_env": &m.APIKeyEnv, "system": &m.System} {
		v, from := r.file.find("model." + key)
		*dst, _, _ = r.asText(v, from)
	}
	for key, dst := range map[string]*time.Duration{"delay": &m.Delay, "timeout": &m.Timeout} {
		v, from := r.file.find("model." + key)
		*dst = r.asDuration(v, from, maxDelay, 0)
	}
	m.MaxOutputTokens = int(r.count("model.max_output_tokens", 1, maxTokens))
	m.ContextWindow = r.count("model.context_window", protocol.MinContextWindow, protocol.MaxContextWindow)
	m.MaxSteps = int(r.count("model.max_steps", 1, maxMaxSteps))
	extra, from := r.file.find("model.extra")
	m.Extra = r.asTable(extra, from)
	v.own = m
	m.Effort = r.effort(v)
	m.Fallback = r.fallback(v)
	if value, from := r.file.find("small_model"); value != nil {
		m.Small = r.asModel(v, value, from)
	}
	return m
}

// maxFallbacks bounds the models that are asked for one answer.
const maxFallbacks = 8

// fallback reads which models answer while another cannot. One without a key is no
// error: it is passed over as long as it has none.
func (r *resolver) fallback(v vendors) (list []model.Choice) {
	value, from := r.file.find("fallback")
	if value == nil {
		return nil
	}
	for _, text := range r.asTexts(value, from) {
		list = append(list, r.asModel(v, text, from))
	}
	if len(list) > maxFallbacks {
		r.fail(from, "has %d models, at most %d are allowed", len(list), maxFallbacks)
	}
	return list
}

// asModel reads PROVIDER/NAME.
func (r *resolver) asModel(v vendors, value any, from origin) model.Choice {
	text, _, _ := r.asText(value, from)
	provider, name, err := v.parse(text)
	if err != nil {
		r.fail(from, "%v", err)
	}
	return model.Choice{Provider: provider, Name: name}
}

// onlyModel is the default model of the one provider that there is a key for, where
// there is no other.
func (v vendors) onlyModel() (provider, name string) {
	for _, one := range v.names() {
		switch {
		case v.key(one, v.config(one, false).APIKeyEnv) == "":
		case provider != "":
			return "", ""
		default:
			provider = one
		}
	}
	if name = catalogue.Default(provider); name == "" {
		return "", ""
	}
	return provider, name
}

// effort reads --effort, or the one of [model], for the daemon's own model.
func (r *resolver) effort(v vendors) string {
	value, from := r.find("effort")
	if value == nil {
		value, from = r.file.find("model.effort")
	}
	level, from, ok := r.asText(value, from)
	if !ok {
		return ""
	}
	if !slices.Contains(protocol.Efforts, level) {
		r.fail(from, "there is no level %.40q, only %s", level, strings.Join(protocol.Efforts, ", "))
		return ""
	}
	if err := v.checkEffort(v.choice(), level); err != nil && r.err == nil {
		r.fail(from, "%v", err)
	}
	return level
}

func (r *resolver) asTable(v any, from origin) map[string]any {
	table, ok := v.(map[string]any)
	if v != nil && !ok {
		r.fail(from, "got %v, want a table", v)
	}
	return table
}

// providerName is what a section [providers.NAME] may be called.
var providerName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`) })

// providers reads the sections [providers.NAME].
func (r *resolver) providers() map[string]ProviderConfig {
	v, from := r.file.find("providers")
	var all map[string]ProviderConfig
	table := r.asTable(v, from)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		_, at := r.file.in("providers", name)
		if !providerName().MatchString(name) || name == "module" || name == "offline" || name == "default" {
			r.fail(at, "no provider can have this name: want small letters, digits, dots, dashes, and none of module, offline "+
				"and default")
		}
		if all == nil {
			all = map[string]ProviderConfig{}
		}
		all[name] = r.provider(name)
	}
	return all
}

func (r *resolver) provider(name string) ProviderConfig {
	var p ProviderConfig
	at := func(key string) (any, origin) { return r.file.in("providers", name, key) }
	for key, dst := range map[string]*string{"wire": &p.Wire, "base_url": &p.BaseURL, "api_key_env": &p.APIKeyEnv} {
		v, from := at(key)
		*dst, _, _ = r.asText(v, from)
	}
	if _, from := at("wire"); p.Wire != "" && !slices.Contains(wires, p.Wire) {
		r.fail(from, "there is no wire %.40q, only %s", p.Wire, strings.Join(wires, ", "))
	}
	v, from := at("extra")
	p.Extra = r.asTable(v, from)
	if v, from := at("models"); v != nil {
		p.Models = r.asTexts(v, from)
	}
	v, from = at("headers")
	for header, value := range r.asTable(v, from) {
		text, ok := value.(string)
		if !ok {
			r.fail(from, "%s: want a string", header)
		}
		if p.Headers == nil {
			p.Headers = map[string]string{}
		}
		p.Headers[header] = text
	}
	if err := modelwire.CheckHeaders(p.Headers); err != nil {
		r.fail(from, "%v", err)
	}
	if _, known := catalogue.FindProvider(name); !known && p.BaseURL == "" {
		_, from := at("base_url")
		r.fail(from, "is missing: the catalogue does not know %s, but %s", name, strings.Join(catalogue.Names(), ", "))
	}
	r.tryProvider(name, p)
	return p
}

// tryProvider makes a model of a provider, to find what is wrong with it now and
// not when somebody asks for it. A key is not looked at.
func (r *resolver) tryProvider(name string, p ProviderConfig) {
	v := vendors{named: map[string]ProviderConfig{name: p}, getenv: func(string) string { return "" }}
	s, _ := v.server(name, "any", false)
	if s.BaseURL == "" {
		return // which an error of its own says, where it is wrong
	}
	made, err := s.model()
	if err != nil {
		_, from := r.file.in("providers", name)
		r.fail(from, "%v", err)
		return
	}
	made.Close()
}

// limits reads [limits].
func (r *resolver) limits() runloop.Limits {
	l := runloop.Limits{RunTokens: r.count("limits.run_tokens", 1, maxRunTokens)}
	for key, dst := range map[string]*int64{"run_cost": &l.RunCost, "day_cost": &l.DayCost} {
		v, from := r.file.find("limits." + key)
		if *dst = int64(r.dollars(v, from)); v != nil && *dst == 0 {
			r.fail(from, "got %v, want more than nothing", v)
		}
	}
	return l
}

// defaultChildren are the bounds of children that nobody has set.
var defaultChildren = runloop.Bounds{Depth: 2, Parallel: 8, Total: 50}

// children are the bounds of [children].
func (r *resolver) children() runloop.Bounds {
	b := defaultChildren
	for key, bound := range map[string]struct {
		dst         *int
		least, most int64
	}{
		"depth": {&b.Depth, 0, 8}, "parallel": {&b.Parallel, 1, 64}, "total": {&b.Total, 1, 1000},
	} {
		if v, from := r.file.find("children." + key); v != nil {
			*bound.dst = int(r.asCount(v, from, bound.least, bound.most))
		}
	}
	return b
}

// maxRunTokens is more than any run uses.
const maxRunTokens = 1 << 50

// dollars is an amount, 0 where it is not set.
func (r *resolver) dollars(v any, from origin) catalogue.Dollars {
	var text string
	switch v := v.(type) {
	case nil:
		return 0
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		r.fail(from, "got %v, want US dollars, as in 2.5", v)
		return 0
	}
	d, err := catalogue.ParseDollars(text)
	if err != nil {
		r.fail(from, "%v", err)
	}
	return d
}

// facts reads models.toml, which has a section for each model, ["PROVIDER/NAME"].
func (r *resolver) facts(v vendors) map[string]fact {
	path := filepath.Join(r.configDir(), "models.toml")
	text, err := regular.Settings(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		r.fail(origin{name: "models.toml"}, "%v", err)
		return nil
	}
	file, err := parseFile(path, text, &map[string]struct{}{}, isFactKey)
	if err != nil && r.err == nil {
		r.err = err
	}
	all := map[string]fact{}
	for _, name := range slices.Sorted(maps.Keys(file.values)) {
		_, from := file.in(name)
		if provider, _, err := v.parse(name); err != nil || provider == "offline" || provider == "module" {
			if err == nil {
				err = fmt.Errorf("of %s nothing can be said", provider)
			}
			r.fail(from, "%v", err)
		}
		all[name] = r.fact(file, name)
	}
	return all
}

func (r *resolver) fact(file configFile, name string) fact {
	f := fact{source: file.path}
	number := func(key string, least, most int64) int64 {
		v, from := file.in(name, key)
		return r.asCount(v, from, least, most)
	}
	f.window = number("context_window", protocol.MinContextWindow, protocol.MaxContextWindow)
	f.output = number("max_output_tokens", 1, maxTokens)
	if v, from := file.in(name, "images"); v != nil {
		images, ok := v.(bool)
		if f.images = &images; !ok {
			r.fail(from, "got %v, want true or false", v)
		}
	}
	if v, from := file.in(name, "efforts"); v != nil {
		f.efforts = r.asTexts(v, from)
		for _, level := range f.efforts {
			if !slices.Contains(protocol.Efforts, level) {
				r.fail(from, "there is no level %.40q, only %s", level, strings.Join(protocol.Efforts, ", "))
			}
		}
	}
	if v, from := file.in(name, "price"); v != nil {
		f.price = r.price(file, name, r.asTable(v, from))
	}
	return f
}

// price reads what a million tokens cost. Input that nobody names a price for
// costs what all input does.
func (r *resolver) price(file configFile, name string, table map[string]any) *catalogue.Price {
	var p catalogue.Price
	_, from := file.in(name, "price")
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(priceKeys, key) {
			r.fail(from, "there is no %.40s, only %s", key, strings.Join(priceKeys, ", "))
		}
	}
	for key, dst := range map[string]*catalogue.Dollars{
		"input": &p.Input, "output": &p.Output, "cached": &p.Cached,
		"cache_write": &p.CacheWrite,
	} {
		*dst = r.dollars(table[key], origin{name: from.name + "." + key})
	}
	for key, dst := range map[string]*catalogue.Dollars{"cached": &p.Cached, "cache_write": &p.CacheWrite} {
		if table[key] == nil {
			*dst = p.Input
		}
	}
	return &p
}
