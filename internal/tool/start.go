package tool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"noused/internal/proc"
)

// Command returns what to start for a module over stdio. An error says, in
// words for the user, why it cannot be.
func (d *Descriptor) Command() (proc.Command, error) {
	if info, err := os.Stat(d.Workdir); err != nil || !info.IsDir() {
		code := WorkdirMissing
		if d.OwnWorkdir {
			code = Unreachable
		}
		return proc.Command{}, Faultf(code, "cannot start %s: workdir %s is not a directory", d.Name, d.Workdir)
	}
	path, err := d.LookPath(d.Transport.Command[0])
	if err != nil {
		return proc.Command{}, Faultf(Unreachable, "cannot start %s: %v", d.Name, err)
	}
	return proc.Command{
		Name: d.Name, Path: path, Args: d.Transport.Command, Dir: d.Workdir,
		Env: d.environ, MaxLine: d.MaxOutput,
	}, nil
}

// Start starts a program with [proc.Supervisor.Start]. Errors are Faults:
// unreachable for one that cannot be started, forbidden for one that cannot be
// confined, and what [Interrupted] finds once ctx has ended.
func Start(ctx context.Context, s *proc.Supervisor, c proc.Command) (*proc.Process, error) {
	p, err := s.Start(ctx, c)
	var e *proc.Error
	switch {
	case err == nil:
		return p, nil
	case !errors.As(err, &e):
		return nil, Interrupted(ctx)
	case e.Forbidden:
		return nil, Faultf(Forbidden, "%s", e.Reason)
	}
	return nil, Faultf(Unreachable, "%s", e.Reason)
}

// Confine returns a view of a Supervisor that starts processes in the sandbox
// that the descriptor asks for. A [Fault], forbidden, says why that cannot be
// done.
func (d *Descriptor) Confine(s *proc.Supervisor) (*proc.Supervisor, error) {
	switch {
	case d.Sandbox != SandboxWorkdir:
		return nil, Faultf(Forbidden, "sandbox %s is not known", d.Sandbox)
	case d.Transport.Type == "http":
		return nil, Faultf(Forbidden, "a module over http runs elsewhere and cannot be put in a sandbox")
	}
	write, fixed := d.beside()
	if d.Fixed {
		fixed = append(fixed, d.Workdir)
	}
	view, err := s.Sandboxed(proc.Sandbox{
		Name: d.Name, Workdir: d.Workdir, Write: write, Cache: d.cache(), Fixed: fixed, Weak: !d.SandboxRequired,
	})
	return view, unconfined(err)
}

// unconfined is the fault of a sandbox that cannot be had.
func unconfined(err error) error {
	var e *proc.Error
	switch {
	case !errors.As(err, &e):
		return err
	case e.Weak:
		return Faultf(Forbidden, "%s; sandbox_required=false runs the tool without", e.Reason)
	}
	return Faultf(Forbidden, "%s", e.Reason)
}

// Writable are the folders that a module in the sandbox "workdir" may write to,
// beside a temporary one.
func (d *Descriptor) Writable() []string {
	write, _ := d.beside()
	write = append([]string{d.Workdir}, write...)
	if cache := d.cache(); cache != "" {
		write = append(write, cache)
	}
	return write
}

// beside is what may be written beside the workdir, but for caches, and what of
// that has no link on the way.
func (d *Descriptor) beside() (write, fixed []string) {
	write = slices.Clip(d.SandboxWrite)
	if d.OwnWorkdir {
		return write, nil
	}
	if git := gitFolder(d.Workdir); git != "" {
		return append(write, git), []string{git}
	}
	return write, nil
}

// cache is where the XDG base directories have the user's cache, "" where nobody
// can tell, and where the descriptor names what may be written instead.
func (d *Descriptor) cache() string {
	if len(d.SandboxWrite) > 0 {
		return ""
	}
	if dir := lookup(d.environ, "XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if home := lookup(d.environ, "HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache")
	}
	return ""
}
