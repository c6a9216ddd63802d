package tool

import (
	"context"
	"errors"
	"os"
	"slices"

	"noused/internal/proc"
	"noused/internal/trust"
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
	c := proc.Command{
		Name: d.Name, Path: path, Args: d.Transport.Command, Dir: d.Workdir, Env: d.environ,
		MaxLine: d.MaxOutput,
	}
	if d.guards() {
		c.Env = trust.Environ(c.Env)
	}
	if d.Neutral && d.Workdir != d.trusted {
		c.Dir, c.Env = "", append(slices.Clip(c.Env), WorkdirVariable+"="+d.Workdir)
	}
	return c, nil
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
	write := d.beside()
	trust.Writable(append(slices.Clip(write), d.Workdir)...)
	fixed := slices.Clone(write)
	if d.Fixed {
		fixed = append(fixed, d.Workdir)
	}
	box := proc.Sandbox{
		Name: d.Name, Workdir: d.Workdir, Write: write, Cache: len(d.SandboxWrite) == 0, Fixed: fixed,
		Weak: !d.SandboxRequired,
	}
	if d.Readable != "" {
		box.Read = []string{d.Readable}
	}
	view, err := s.Sandboxed(box)
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
// beside a temporary one and its cache, which are the daemon's own.
func (d *Descriptor) Writable() []string {
	return append([]string{d.Workdir}, d.beside()...)
}

// beside is what may be written beside the workdir, but for the cache. None of it has a
// link on the way.
func (d *Descriptor) beside() []string {
	write := slices.Clip(d.SandboxWrite)
	if d.OwnWorkdir {
		return write
	}
	if git := gitFolder(d.Workdir); git != "" {
		write = append(write, git)
	}
	return write
}
