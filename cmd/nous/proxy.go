package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/start"
)

// The codes of the line that a proxy ends with (docs/remote.md).
const (
	proxyNoDaemon                  = ssh.CodeNoDaemon
	proxyNotStarted  protocol.Code = "not_started"
	proxyDistrusted  protocol.Code = "distrusted"
	proxyDaemonGone  protocol.Code = "daemon_gone"
	proxyUnreachable protocol.Code = "unreachable"
)

func (a *app) proxyCommand() *cobra.Command {
	var mayStart bool
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Join the daemon's two sockets on standard input and output",
		Long: `Join the daemon's two sockets on standard input and output, for a nous or any other
client that comes by ssh: nous --host runs it at the far end.

The first line is a hello. Then each subscribe line that is read goes to the event socket,
every other line to the command socket, and what both say comes back, line by line.
docs/remote.md has the details. Where there is no daemon, or it goes away, the last line is
{"ok":false,"error":{"code":"…","message":"…"}} and the exit status 3.`,
		Example: "  nous proxy",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.proxy(cmd.Context(), mayStart)
			switch {
			case err == nil:
				return nil
			case errors.Is(err, errNobodyReads):
				return &quietExit{exitFailed}
			case a.out.err != nil:
				return a.out.failure()
			}
			return a.endProxy(err)
		},
	}
	cmd.Flags().BoolVar(&mayStart, "start", false, "start a daemon where none runs")
	return cmd
}

// endProxy says why there is no proxy, or none any more.
func (a *app) endProxy(err error) error {
	last := struct {
		OK     bool            `json:"ok"`
		Error  *protocol.Error `json:"error"`
		Socket string          `json:"socket"`
	}{Error: proxyError(err), Socket: a.socket}
	line, err := json.Marshal(last)
	if err == nil {
		_, err = a.out.Write(append(line, '\n'))
	}
	if err != nil {
		return err
	}
	return &quietExit{exitNoDaemon}
}

func proxyError(err error) *protocol.Error {
	var (
		wire       *protocol.Error
		unmet      *start.Error
		gone       *client.NoDaemonError
		distrusted *client.DistrustError
	)
	switch {
	case errors.As(err, &unmet):
		return protocol.Errorf(proxyNotStarted, "%s", unmet.Lines())
	case errors.As(err, &gone):
		return protocol.Errorf(proxyNoDaemon, "%v", gone)
	case errors.As(err, &distrusted):
		return protocol.Errorf(proxyDistrusted, "%v", distrusted)
	case errors.As(err, &wire):
		return wire
	default:
		return protocol.Errorf(proxyUnreachable, "%v", err)
	}
}

// proxy joins the sockets until standard input ends and all is answered, which is no
// error.
func (a *app) proxy(ctx context.Context, mayStart bool) error {
	daemon := follow.Socket(a.socket)
	commands, events, epoch, err := a.openProxy(ctx, daemon, mayStart)
	for follow.IsResent(err) { // a daemon that goes: as every command is sent again to the next one
		limited, cancel := context.WithTimeout(ctx, a.patience)
		next, late := follow.Next(limited, daemon, nil, client.ErrLost)
		cancel()
		if late != nil {
			return err
		}
		_ = next.Close()
		commands, events, epoch, err = a.openProxy(ctx, daemon, false)
	}
	if err != nil {
		return err
	}
	defer commands.Close()
	defer events.Close()
	hello, err := json.Marshal(ssh.Hello{Proxy: 1, Version: buildinfo.Version(), Socket: a.socket, Epoch: epoch, Mux: 1})
	if err != nil {
		return err
	}
	if _, err := a.out.Write(append(hello, '\n')); err != nil {
		return err
	}
	j := &proxyMux{socket: a.socket, commands: commands, events: events, out: a.out, gone: gone(a.out.w)}
	return j.run(ctx, a.in)
}

// openProxy connects to both sockets, and asks whose they are.
func (a *app) openProxy(ctx context.Context, daemon follow.Dialer, mayStart bool) (commands, events net.Conn,
	epoch string, err error,
) {
	commands, err = daemon.Commands(ctx)
	if mayStart {
		if err = a.startFor(ctx, err); errors.Is(err, errStarted) {
			commands, err = daemon.Commands(ctx)
		}
	}
	if err != nil {
		return nil, nil, "", err
	}
	if events, err = daemon.Events(ctx); err == nil {
		if epoch, err = epochOf(ctx, daemon, a.answer); err == nil {
			return commands, events, epoch, nil
		}
		_ = events.Close()
	}
	_ = commands.Close()
	return nil, nil, "", err
}

// epochOf asks for the daemon's epoch on a connection of its own, and makes no session.
// An older core, which may leave that unanswered, has none.
func epochOf(ctx context.Context, daemon follow.Dialer, answer time.Duration) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answer, &client.SilentError{For: answer})
	defer cancel()
	type told struct {
		epoch string
		err   error
	}
	subscribed := make(chan told, 1)
	go func() { // ends with ctx
		epoch, err := subscribeOnce(ctx, daemon)
		subscribed <- told{epoch, err}
	}()
	select {
	case t := <-subscribed:
		return t.epoch, orOlder(t.err)
	case <-time.After(200 * time.Millisecond): // it has much to do, or is an older core
	}
	if older, err := follow.Older(ctx, daemon, answer); older || err != nil {
		return "", err
	}
	t := <-subscribed
	return t.epoch, orOlder(t.err)
}

// orOlder is no error where the daemon refused to subscribe: an older core.
func orOlder(err error) error {
	if errors.As(err, new(*protocol.Error)) {
		return nil
	}
	return err
}

func subscribeOnce(ctx context.Context, daemon follow.Dialer) (epoch string, err error) {
	conn, err := daemon.Events(ctx)
	if err != nil {
		return "", err
	}
	e, err := client.SubscribeOver(ctx, conn, protocol.SubscribeParams{SessionID: ssh.Nobody})
	if err != nil {
		return "", err
	}
	defer e.Close()
	return e.Epoch(), nil
}

// gone is closed when nobody reads w any more, where that can be known.
func gone(w any) <-chan struct{} {
	c := make(chan struct{})
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return c
	}
	go func() { // ends with the program, if not before
		p := []unix.PollFd{{Fd: int32(f.Fd())}} // errors and hang-ups only
		for {
			n, err := unix.Poll(p, -1)
			switch {
			case n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
				close(c)
				return
			case n > 0, err != nil && !errors.Is(err, unix.EINTR):
				return
			}
		}
	}()
	return c
}
