package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
)

// Agent is a hosted agent that the configuration names.
type Agent struct {
	Name string
	// Try starts it and has it say what it is. It ends soon.
	Try func(context.Context) (said string, err error)
	// SignIn is the line that signs in; "" where that is not known, or was done.
	SignIn string
	// Needs are the programs that are looked up in PATH to start it.
	Needs []string
}

// agents starts each agent that the configuration names, and ends it again.
func (e *exam) agents(ctx context.Context) {
	for _, a := range e.Agents {
		said, err := a.Try(ctx)
		if said != "" {
			said = " as " + said
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			fix := "correct [agent." + a.Name + "] in the configuration, or start its program by hand"
			if a.SignIn != "" {
				fix = fmt.Sprintf("sign in with %s, or %s", a.SignIn, fix)
			}
			e.fail(Hosted, fix, "%v", err)
		case a.SignIn != "":
			e.warn(Hosted, a.SignIn, "%s answers%s, and is not signed in", a.Name, said)
		default:
			e.ok(Hosted, "%s answers%s", a.Name, said)
		}
	}
	e.servicePath(ctx)
}

// servicePath tells which agents are found here, but not by a daemon that systemd starts: it has
// not the PATH of the shell that doctor is started in.
func (e *exam) servicePath(ctx context.Context) {
	if len(e.Agents) == 0 || e.ServicePath == nil || e.unit(units[0]) == "" {
		return
	}
	path := e.ServicePath(ctx)
	if path == "" {
		return
	}
	for _, a := range e.Agents {
		for _, name := range a.Needs {
			if here, err := exec.LookPath(name); err == nil && !isIn(path, name) {
				e.warn(Hosted, "systemctl --user import-environment PATH && systemctl --user restart "+units[0]+
					"; to keep it over a logout, write PATH=… to ~/.config/environment.d/path.conf",
					"%s needs %s, which is in %s here, but not in the PATH that systemd gives the daemon", a.Name, name,
					filepath.Dir(here))
			}
		}
	}
}

// isIn tells whether a program is in a folder of a PATH.
func isIn(path, name string) bool {
	return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
		_, err := exec.LookPath(filepath.Join(dir, name))
		return filepath.IsAbs(dir) && err == nil
	})
}
