package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"noused/internal/model/offline"
	modelwire "noused/internal/model/wire"
	"noused/internal/protocol"
)

// localServers are where servers of models on this machine are found: Ollama,
// LM Studio, llama.cpp and vLLM, as they come. All speak OpenAI's wire.
var localServers = []string{
	"http://127.0.0.1:11434/v1", "http://127.0.0.1:1234/v1", "http://127.0.0.1:8080/v1", "http://127.0.0.1:8000/v1",
}

// How long servers have for the list of their models: one that is known, which
// may be at the other end of the world, and one that may run on this machine.
const (
	knownPatience = 10 * time.Second
	localPatience = 2 * time.Second
)

// maxListed is how many models of one server are listed.
const maxListed = 200

// catalog lists the models that could answer prompts. Any number of lists may
// be made at once.
type catalog struct {
	vendors
	providers func() []string
	local     []string
}

// handle is the command list_models.
func (c catalog) handle(_ context.Context, p protocol.ListModelsParams) (protocol.Answer[protocol.Models], error) {
	if !p.Probe {
		return protocol.Answer[protocol.Models]{Reply: protocol.Models{Models: rowsOf(c.known())}}, nil
	}
	c.savedFirst = p.Saved
	return protocol.Answer[protocol.Models]{Later: c.probe}, nil
}

// known is one line of what is known without asking: a model, and where it can
// be asked for, if it can.
type known struct {
	protocol.ListedModel
	server endpoint
	asks   bool
	guess  bool // there may be nobody
	models []string
}

// known are the daemon's own model, the vendors of the configuration and those
// that the environment has a key or a server for, the provider modules, and the
// offline model.
func (c catalog) known() []known {
	var own known
	var all []known
	modules := c.providers()
	if c.own.Provider != "" {
		own = c.entry(c.own.Provider, c.own.Name, "config", true)
		own.Default = true
		switch {
		case own.Provider == "offline":
			own.Source = "built-in"
		case own.Provider == "module" && !slices.Contains(modules, own.Name):
			own.Problem = "no tools directory has a provider module of that name any more"
		}
		all = append(all, own)
	}
	for _, provider := range c.names() {
		cfg, named := c.named[provider]
		for _, name := range cfg.Models {
			if provider != own.Provider || name != own.Name {
				k := c.entry(provider, name, "config", false)
				k.asks = false // the provider's own line is
				all = append(all, k)
			}
		}
		source := "environment"
		if named || c.saved[provider] != "" && c.keyVariable(provider, false) == "" { // a saved key is configured, too
			source = "config"
		}
		if k := c.entry(provider, "", source, false); (named || c.provided(provider)) &&
			(k.Provider != own.Provider || k.BaseURL != own.BaseURL) {
			all = append(all, k)
		}
	}
	for _, name := range modules {
		if own.Provider != "module" || own.Name != name {
			all = append(all, c.entry("module", name, "module", false))
		}
	}
	if own.Provider != "offline" {
		all = append(all, c.entry("offline", offline.Name, "built-in", false))
	}
	return all
}

// provided reports whether the environment has a key or a server for a vendor.
func (v vendors) provided(provider string) bool {
	cfg := v.config(provider, false)
	return cfg.BaseURL != "" || v.key(provider, cfg.APIKeyEnv) != ""
}

// entry is a line about a model, or about a vendor where it has no name; own: as
// [model] has it.
func (c catalog) entry(provider, name, source string, own bool) known {
	k := known{ListedModel: protocol.ListedModel{
		Model: modelText(provider, name), Provider: provider, Name: name, Source: source,
	}}
	if provider != "offline" && provider != "module" {
		var err error
		if k.server, err = c.server(provider, name, own); err != nil {
			k.Problem = err.Error()
			return k
		}
		k.KeyVariable = c.keyVariable(provider, own)
		k.asks, k.BaseURL = true, modelwire.Address(k.server.BaseURL)
	}
	return k
}

// modelText is a model as --model takes it.
func modelText(provider, name string) string {
	if provider == "offline" || name == "" {
		return provider
	}
	return provider + "/" + name
}

func rowsOf(all []known) []protocol.ListedModel {
	rows := make([]protocol.ListedModel, len(all))
	for i, k := range all {
		rows[i] = k.ListedModel
	}
	return rows
}

// probe asks all servers at once for their models, the local ones without a
// key.
func (c catalog) probe(ctx context.Context) (protocol.Models, error) {
	all := c.known()
	for _, local := range c.local {
		if !slices.ContainsFunc(all, func(k known) bool { return sameServer(k.BaseURL, local) }) {
			all = append(all, known{
				ListedModel: protocol.ListedModel{Provider: "openai", BaseURL: local, Source: "server"},
				server:      endpoint{wire: chatWire, Options: modelwire.Options{BaseURL: local}}, asks: true, guess: true,
			})
		}
	}
	var asked sync.WaitGroup
	for i := range all {
		if all[i].asks {
			asked.Go(func() { all[i].askServers(ctx) }) // ends with the answer or its patience
		}
	}
	asked.Wait()
	if ctx.Err() != nil {
		return protocol.Models{}, context.Cause(ctx)
	}
	reply := protocol.Models{Models: []protocol.ListedModel{}}
	for _, k := range all {
		if !k.guess {
			reply.Models = append(reply.Models, k.ListedModel)
		}
		told := 0
		for _, name := range k.models {
			if name == k.Name {
				continue
			}
			if told++; told > maxListed {
				reply.Truncated = true
				break
			}
			reply.Models = append(reply.Models, protocol.ListedModel{
				Model: modelText(k.Provider, name), Provider: k.Provider, Name: name, BaseURL: k.BaseURL, Source: "server",
				Reachable: new(true),
			})
		}
	}
	return reply, nil
}

// askServers fills in what a server says about its models.
func (k *known) askServers(ctx context.Context) {
	patience := knownPatience
	if k.guess {
		patience = localPatience
	}
	listed, err := askServer(ctx, k.server, patience)
	k.models = modelwire.NamesOf(listed)
	var answer *modelwire.Error
	k.Reachable = new(err == nil || errors.As(err, &answer) && answer.Status != 0)
	k.NoCredit = answer != nil && answer.NoCredit()
	k.Refused = !k.NoCredit && answer != nil && (answer.Status == http.StatusUnauthorized ||
		answer.Status == http.StatusForbidden)
	switch {
	case err != nil:
		k.Problem = err.Error()
	case k.Name != "" && !modelwire.Lists(k.models, k.Name):
		k.Problem = fmt.Sprintf("the server does not list %s", k.Name)
		if near := modelwire.Nearest(k.models, k.Name); len(near) > 0 {
			k.Problem += ", but " + strings.Join(near, ", ")
		}
	}
}

// askServer asks a server for its models, for so long at most. Errors are
// *modelwire.Error, or about the options.
func askServer(ctx context.Context, s endpoint, patience time.Duration) ([]modelwire.Listed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		&modelwire.Error{Message: fmt.Sprintf("no answer within %s", patience)})
	defer cancel()
	return s.list(ctx)
}

// sameServer reports whether two addresses are one server of this machine.
func sameServer(a, b string) bool {
	port := func(text string) string {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
			return ""
		}
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return port(a) != "" && port(a) == port(b)
}
