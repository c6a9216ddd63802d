// Package proxy joins a daemon's two sockets on one pair of streams: the far end of nous --host.
//
// One goroutine for each source copies it, and waits for the reader of what it writes; nothing is
// held beside that. The package refuses to read what it passes on, but for the beginning of a line.
package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/ssh"
	"noused/internal/protocol"
	"noused/internal/start"
)

// The codes of the line that a proxy ends with (docs/remote.md).
const (
	codeNoDaemon                  = ssh.CodeNoDaemon
	codeNotStarted  protocol.Code = "not_started"
	codeDistrusted  protocol.Code = "distrusted"
	codeDaemonGone  protocol.Code = "daemon_gone"
	codeUnreachable protocol.Code = "unreachable"
)

// LastLine is what a proxy ends with, which says why.
func LastLine(err error, socket string) []byte {
	line, _ := json.Marshal(struct {
		OK     bool            `json:"ok"`
		Error  *protocol.Error `json:"error"`
		Socket string          `json:"socket"`
	}{Error: proxyError(err), Socket: socket}) // an error and a text can be encoded
	return append(line, '\n')
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
		return protocol.Errorf(codeNotStarted, "%s", unmet.Lines())
	case errors.As(err, &gone):
		return protocol.Errorf(codeNoDaemon, "%v", gone)
	case errors.As(err, &distrusted):
		return protocol.Errorf(codeDistrusted, "%v", distrusted)
	case errors.As(err, &wire):
		return wire
	default:
		return protocol.Errorf(codeUnreachable, "%v", err)
	}
}

// Options say which daemon a proxy is for.
type Options struct {
	Socket string
	// Start starts a daemon where the error says that none runs, and reports that it did; nil where
	// none is to be started.
	Start    func(ctx context.Context, err error) (bool, error)
	Patience time.Duration // with a daemon that goes away before the proxy stands
	Answer   time.Duration // how long an answer is waited for
	Reader   any           // standard output itself, which tells when nobody reads it any more
}

// Run joins the sockets until standard input ends and all is answered, which is no
// error.
func (o Options) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	daemon := follow.Socket(o.Socket)
	commands, events, epoch, err := o.open(ctx, daemon, o.Start)
	for follow.IsResent(err) { // a daemon that goes: as every command is sent again to the next one
		limited, cancel := context.WithTimeout(ctx, o.Patience)
		next, late := follow.Next(limited, daemon, nil, client.ErrLost)
		cancel()
		if late != nil {
			return err
		}
		_ = next.Close()
		commands, events, epoch, err = o.open(ctx, daemon, nil)
	}
	if err != nil {
		return err
	}
	defer commands.Close()
	defer events.Close()
	hello, err := json.Marshal(ssh.Hello{Proxy: 1, Version: buildinfo.Version(), Socket: o.Socket, Epoch: epoch, Mux: 1})
	if err != nil {
		return err
	}
	if _, err := out.Write(append(hello, '\n')); err != nil {
		return err
	}
	j := &mux{socket: o.Socket, commands: commands, events: events, out: out, gone: gone(o.Reader)}
	return j.run(ctx, in)
}

// open connects to both sockets, and asks whose they are.
func (o Options) open(ctx context.Context, daemon follow.Dialer, start func(context.Context, error) (bool, error)) (
	commands, events net.Conn, epoch string, err error,
) {
	commands, err = daemon.Commands(ctx)
	if start != nil {
		started := false
		if started, err = start(ctx, err); started {
			commands, err = daemon.Commands(ctx)
		}
	}
	if err != nil {
		return nil, nil, "", err
	}
	if events, err = daemon.Events(ctx); err == nil {
		if epoch, err = epochOf(ctx, daemon, o.Answer); err == nil {
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
