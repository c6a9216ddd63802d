package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"noused/internal/format"
	"noused/internal/hookfile"
)

// Fallback is a model that answers while another cannot.
type Fallback struct {
	Model    string // as provider/name
	Provider string // that nous login knows; "": it needs no key
	Err      error  // why it is passed over
}

// fallbacks lists the models that answer while another cannot. None is asked.
func (e *exam) fallbacks(context.Context) {
	const passed = "fallback %d, %s, is passed over: %v"
	for i, f := range e.Fallbacks {
		switch {
		case f.Err == nil:
			e.ok(Model, "fallback %d, %s: can be asked", i+1, f.Model)
		case f.Provider != "":
			e.warn(Model, "nous login "+f.Provider+" saves its key", passed, i+1, f.Model, f.Err)
		default:
			e.warn(Model, "correct fallback in "+e.Config, passed, i+1, f.Model, f.Err)
		}
	}
}

// hooks looks whether the hooks of the projects run.
func (e *exam) hooks(context.Context) {
	var seen []string
	for _, dir := range e.Folders {
		if !slices.Contains(seen, dir) {
			seen = append(seen, dir)
			e.hooksOf(dir)
		}
	}
}

func (e *exam) hooksOf(dir string) {
	file := filepath.Join(dir, hookfile.FileName)
	text, err := hookfile.ProjectText(dir)
	now, before, unknown := hookfile.Trusted(filepath.Dir(e.ServersFile), dir, text)
	if err == nil {
		err = unknown
	}
	var list []hookfile.Hook
	if err == nil && text != nil {
		list, err = hookfile.ReadProject(dir, text)
	}
	trust := fmt.Sprintf("nous trust, in %s, shows what runs and asks you", dir)
	hooks := format.Count(len(list), "hook")
	one := len(list) == 1
	const changed = "%s was changed since you trusted it: "
	switch {
	case err != nil && !before && unknown == nil:
		e.warn(Hooks, "correct it; nothing of it holds, as you do not trust it", "%v", err)
	case err != nil:
		e.fail(Hooks, "correct it; what its hooks guarded is denied until then", "%v", err)
	case text == nil && before:
		e.warn(Hooks, "nous trust, in "+dir+", forgets it",
			"%s, which you trusted, is gone: what its hooks guarded is denied", file)
	case len(list) == 0 && !before:
	case now:
		e.ok(Hooks, "%s has %s, which you trust", file, hooks)
	case before && one:
		e.warn(Hooks, trust, changed+"its hook does not run, and what it guarded is denied", file)
	case before:
		e.warn(Hooks, trust, changed+"its %s do not run, and what they guarded is denied", file, hooks)
	case one:
		e.warn(Hooks, trust, "%s has 1 hook that you do not trust: it does not run", file)
	default:
		e.warn(Hooks, trust, "%s has %s that you do not trust: they do not run", file, hooks)
	}
}
