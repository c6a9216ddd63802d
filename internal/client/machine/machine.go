// Package machine is another machine whose daemon is meant, to which ssh leads or a fleet: how it is
// connected to, how something is done there, and whether all is there that nous --host needs.
//
// A Host may be used by several goroutines once its fields are set. Connecting blocks until the
// far end has answered, or ssh has given up. The package refuses to read a configuration, and to
// print: who has ssh ask on the terminal says where in its Options.
package machine

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/fleet/via"
)

// ErrLeft says that Ctrl-C ended the first connection.
var ErrLeft = errors.New("left")

// Host is a machine whose daemon is meant.
type Host struct {
	Name    string // as the user calls it
	Workdir string // the folder there that is meant without another, or ""
	SSH     ssh.Options
	Link    *ssh.Link
	reached atomic.Bool // once
	left    atomic.Bool // by Ctrl-C before that
	Fleet   *via.Host   // instead of ssh; or nil
}

// Reach connects for the first time, while ssh may ask on the terminal. A signal that would
// end nous ends ssh before, which puts the terminal in order.
func (h *Host) Reach(ctx context.Context) error {
	if h.reached.Load() || !h.SSH.Ask {
		return nil
	}
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	asking, stop := signal.NotifyContext(ctx, signals...)
	defer stop()
	_, err := h.Link.Hello(asking)
	switch {
	case err == nil:
		h.reached.Store(true)
	case h.left.Load(), asking.Err() != nil && (ctx.Err() == nil || errors.Is(context.Cause(ctx), cmdline.ErrInterrupted)):
		h.left.Store(true)
		_ = h.Link.Close()
		return ErrLeft
	}
	return err
}

// Commands connects to the command socket there.
func (h *Host) Commands(ctx context.Context) (net.Conn, error) {
	if err := h.Reach(ctx); err != nil {
		return nil, err
	}
	return h.Link.Commands(ctx)
}

// Events connects to the event socket there.
func (h *Host) Events(ctx context.Context) (net.Conn, error) {
	if err := h.Reach(ctx); err != nil {
		return nil, err
	}
	return h.Link.Events(ctx)
}

// Place is where the daemon is, as messages name it.
func (h *Host) Place() string {
	if h.Fleet != nil {
		return h.Fleet.String()
	}
	return h.Name
}

// There is how something is done on the host.
func (h *Host) There(command string) string {
	if h.Fleet != nil {
		return "log in on " + h.Name + " and run `" + strings.TrimSpace("nous "+command) + "`"
	}
	to := h.SSH.SSH
	if len(to) == 0 {
		to = []string{h.Name}
	}
	nous := h.SSH.Nous
	if nous == "" {
		nous = "nous"
	}
	if h.SSH.Socket != "" {
		command = "--socket " + h.SSH.Socket + " " + command
	}
	return "run `ssh " + strings.Join(to, " ") + " " + nous + " " + command + "`"
}

// Start has a daemon started there, beside the existing connections.
func (h *Host) Start(ctx context.Context) error {
	if h.Fleet != nil {
		return errors.New("a daemon of a fleet is started on its own machine: " + h.There(""))
	}
	o := h.SSH
	o.Start, o.Ask = true, false
	link := ssh.New(o)
	defer link.Close()
	_, err := link.Hello(ctx)
	var failed *ssh.Error
	if errors.As(err, &failed) {
		return errors.New(strings.TrimSpace(failed.Error() + "\n" + failed.Next))
	}
	return err
}

// Answers tells whether the host can be reached.
func (h *Host) Answers(ctx context.Context) error {
	if h.Fleet == nil {
		_, err := h.Link.Hello(ctx)
		return err
	}
	conn, err := h.Fleet.Commands(ctx)
	if err == nil {
		_ = conn.Close()
	}
	return err
}
