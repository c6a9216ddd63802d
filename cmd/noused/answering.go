package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"noused/internal/model"
	"noused/internal/model/catalogue"
	modelwire "noused/internal/model/wire"
)

// defaultWindow is the context window of a model over HTTP for which
// nobody sets one: few that people run agents with read less.
const defaultWindow = 128_000

// windowPatience is how long the first request to a model waits for its server to
// say how much it can read.
const windowPatience = 3 * time.Second

// answering is a model over HTTP with what is known of it: it is told how hard to
// think in its own words, shown no images if it has no eyes, and each call says
// what it cost.
type answering struct {
	httpModel
	choice model.Choice
	server endpoint
	models *models
	facts  func() (catalogue.Model, bool)
	asking chan struct{} // holds one while the server is asked how much it can read
}

func newAnswering(m *models, c model.Choice, s endpoint, made httpModel) *answering {
	return &answering{
		httpModel: made, choice: c, server: s, models: m, asking: make(chan struct{}, 1),
		facts: sync.OnceValues(func() (catalogue.Model, bool) { return m.facts(c, s.BaseURL) }),
	}
}

// Stream yields what the model does, and counts what it cost.
func (a *answering) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		facts, known := a.facts()
		if a.models.windowOf(a.choice, facts) == 0 {
			a.askWindow(ctx)
		}
		req.OutputLimit = facts.Output
		req.Effort.Form = facts.EffortForm
		if word, ok := facts.Word(req.Effort.Level); ok {
			req.Effort.Word = word
		}
		req.Repair.NoImages = req.Repair.NoImages || known && !facts.Images
		for d, err := range a.httpModel.Stream(ctx, req) {
			if d.Usage != (model.Usage{}) {
				d.Usage = d.Usage.Believed()
				d.Usage.Cost = catalogue.Cost(facts.Prices, d.Usage)
				if a.models.ledger != nil && d.Usage.Cost > 0 {
					a.models.ledger.add(d.Usage.Cost)
				}
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// windowOf is how much a model can read as far as the configuration or the
// catalogue says, else 0.
func (m *models) windowOf(c model.Choice, facts catalogue.Model) int64 {
	if m.own.ContextWindow > 0 && plain(c) == plain(m.choice()) {
		return m.own.ContextWindow
	}
	return facts.Window
}

// Window is how many tokens a model can read, as far as is known by now.
func (m *models) Window(c model.Choice) int64 {
	n, _ := m.window(c)
	return n
}

// window is Window, and who says so.
func (m *models) window(c model.Choice) (tokens int64, whence string) {
	if c.Provider == "offline" || c.Provider == "module" {
		return m.windowOf(c, catalogue.Model{}), "the configuration"
	}
	var facts catalogue.Model
	if made, err := m.Model(c); err == nil {
		facts, _ = made.(*answering).facts()
	}
	m.mu.Lock()
	said := m.said[plain(c)]
	m.mu.Unlock()
	switch n := m.windowOf(c, facts); {
	case n > 0 && n == facts.Window:
		return n, facts.Source
	case n > 0:
		return n, "the configuration"
	case said > 0:
		return said, "its server"
	case m.own.ContextWindow > 0 && c.Provider == m.own.Provider:
		return m.own.ContextWindow, "the configuration of " + m.own.Name
	}
	return defaultWindow, "nobody: context_window in [model] can say it"
}

// askWindow asks the server, once, how much the model can read.
func (a *answering) askWindow(ctx context.Context) {
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return
	}
	a.models.mu.Lock()
	_, asked := a.models.said[a.choice]
	a.models.mu.Unlock()
	if asked {
		return
	}
	listed, err := askServer(ctx, a.server, windowPatience)
	var answer *modelwire.Error
	if ctx.Err() != nil || errors.As(err, &answer) && answer.Unreachable() {
		return // and is asked again when it may be there
	}
	a.models.heard(a.choice, modelwire.WindowOf(listed, a.choice.Name))
}

// heard keeps what a server said of a model.
func (m *models) heard(c model.Choice, window int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.said) >= maxModels {
		clear(m.said)
	}
	m.said[plain(c)] = window
}

// effortError is about an effort that a model does not have.
type effortError struct{ message string }

func (e *effortError) Error() string { return e.message }
func (e *effortError) Unwrap() error { return model.ErrEffort }

// checkEffort says why a model cannot be told to think as hard as that. Of one
// that is not known nobody can say it.
func (v vendors) checkEffort(c model.Choice, effort string) error {
	if effort == "" || c.Provider == "" {
		return nil
	}
	if !v.has(c.Provider) {
		return &effortError{fmt.Sprintf("the provider %s cannot be told how hard to think", c.Provider)}
	}
	s, _ := v.at(c) // why it cannot be asked is told where it is
	facts, known := v.facts(c, s.BaseURL)
	if _, has := facts.Word(effort); has || !known {
		return nil
	}
	only := "none at all"
	if levels := facts.Levels(); len(levels) > 0 {
		only = strings.Join(levels, ", ")
	}
	return &effortError{fmt.Sprintf("%s/%s has no effort %s, but %s (says %s)", c.Provider, c.Name, effort, only,
		facts.Source)}
}
