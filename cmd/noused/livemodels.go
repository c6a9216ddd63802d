package main

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"noused/internal/model"
	"noused/internal/model/credentials"
	"noused/internal/runloop"
)

// environmentFile is what the user's file of variables has put into this process's
// environment.
var environmentFile credentials.Environment

// readSettings reads all that configures the daemon: the file of variables, then what
// resolveConfig does.
func readSettings(flags *pflag.FlagSet, getenv func(string) string) (Config, error) {
	problems := environmentFile.Load((&resolver{flags: flags, getenv: getenv}).configDir())
	cfg, err := resolveConfig(flags, getenv)
	cfg.Problems = append(problems, cfg.Problems...)
	return cfg, err
}

// liveModels are the models as the configuration had them when it was last read. Calls that
// have begun end with what they began with.
type liveModels struct{ now atomic.Pointer[models] }

func (l *liveModels) Own() model.Choice { return l.now.Load().Own() }

func (l *liveModels) Fallbacks() []model.Choice { return l.now.Load().Fallbacks() }

func (l *liveModels) Small() model.Choice { return l.now.Load().Small() }

func (l *liveModels) Choose(name, baseURL, effort string) (model.Choice, error) {
	return l.now.Load().Choose(name, baseURL, effort)
}

func (l *liveModels) Window(c model.Choice) int64 { return l.now.Load().Window(c) }

func (l *liveModels) Model(c model.Choice) (runloop.Model, error) { return l.now.Load().Model(c) }

func (l *liveModels) today(at time.Time) int64 { return l.now.Load().today(at) }

func (l *liveModels) Close() { l.now.Load().Close() }

// problem says why the daemon's own model cannot be asked, nil where it can or none is
// chosen.
func (l *liveModels) problem() error {
	own := l.Own()
	if own.Provider == "" {
		return nil
	}
	_, err := l.Model(own)
	return err
}

// replaceBy replaces the models by those of another configuration.
func (l *liveModels) replaceBy(cfg Config) {
	was := l.now.Load()
	is := newModels(cfg.vendors(os.Getenv), was.tools)
	is.ledger = was.ledger
	l.now.Store(is)
	was.Close()
}
