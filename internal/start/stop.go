package start

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
)

// extra is how long a daemon may take to end beside what its runs get.
const extra = 30 * time.Second

// Daemon that runs, as a client sees it.
type running struct {
	*client.Client
	pid  int    // as the daemon says
	fd   int    // the process that listens, -1 where it is not the daemon
	unit string // of the user's systemd that has it, or ""
}

// meet connects to the daemon and finds out who it is. The error is that of
// client.Connect, or an *Error: what listens there is no daemon, hangs, or hangs up
// (client.ErrLost).
func meet(ctx context.Context, socket string) (*running, error) {
	conn, err := client.Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	r := &running{fd: listener(conn), Client: client.New(conn)}
	asked, cancel := client.Bounded(ctx, protocol.PingParams{}, Patience)
	defer cancel()
	pong, err := client.Call(asked, r.Client, protocol.Ping, protocol.PingParams{})
	if err != nil {
		defer r.close()
		who := "what listens at " + socket
		if pid, err := processOf(r.fd); err == nil {
			who = fmt.Sprintf("process %d, which listens at %s,", pid, socket)
		}
		if foreign := (*client.ForeignError)(nil); errors.As(err, &foreign) {
			return nil, &Error{
				What: fmt.Sprintf("%s does not speak the protocol of noused: %v", who, foreign.Err),
				Next: "end it, or name another socket with --socket",
			}
		}
		return nil, &Error{
			What: fmt.Sprintf("%s does not answer: %v", who, err),
			Next: "a daemon that hangs ends with kill -9, and its runs go on with the next one", why: err,
		}
	}
	r.pid = pong.PID
	if pid, err := processOf(r.fd); err != nil || pid != r.pid {
		_ = unix.Close(r.fd) // another one listens for it: systemd, or a container's
		r.fd = -1
	}
	r.unit = unitOf(ctx, r.pid)
	return r, nil
}

func (r *running) close() {
	_ = r.Close()
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
	}
}

// listener is a pidfd of the process that listens at the other end, or -1.
func listener(conn net.Conn) int {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1
	}
	fd := -1
	_ = raw.Control(func(socket uintptr) {
		if got, err := unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			fd = got
		} else if cred, err := unix.GetsockoptUcred(int(socket), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil &&
			cred.Pid > 0 {
			if got, err := unix.PidfdOpen(int(cred.Pid), 0); err == nil {
				fd = got
			}
		}
	})
	return fd
}

// processOf is the number of a pidfd's process.
func processOf(fd int) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nPid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// unitOf is the unit of the user's systemd whose main process is the daemon, or "".
func unitOf(ctx context.Context, pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		name := filepath.Base(line)
		if !strings.HasPrefix(name, "noused") || !strings.HasSuffix(name, ".service") {
			continue
		}
		if main, err := systemctl(ctx, "show", "--property=MainPID", "--value", name); err == nil &&
			main == strconv.Itoa(pid) {
			return name
		}
	}
	return ""
}

// Stopped is what Stop and Restart have done.
type Stopped struct {
	PID  int    // of the daemon; 0: none ran
	Unit string // systemd's that has it, or ""
}

// maxMet bounds how many daemons that stop already are waited for, one after the other.
const maxMet = 10

// Stop ends the daemon at the socket, as SIGTERM does, and returns when it has gone. One
// of systemd's is stopped with its sockets, so that none comes back before somebody wants
// one. That none runs is no error.
func Stop(ctx context.Context, o Options) (Stopped, error) {
	last := Stopped{}
	for range maxMet - 1 {
		s, err := stop(ctx, o)
		if err == nil && s.PID == 0 && last.PID != 0 {
			return last, ended(ctx, last.PID)
		}
		if !stopsAlready(ctx, err) {
			return s, err
		}
		last = s
	}
	return stop(ctx, o)
}

// ended returns when a process has that takes no connections any more.
func ended(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, extra)
	defer cancel()
	for unix.Kill(pid, 0) == nil {
		select {
		case <-time.After(leavingLook):
		case <-ctx.Done():
			return (&running{pid: pid}).late(extra)
		}
	}
	return nil
}

// stopsAlready tells whether somebody else has stopped or restarted the daemon meanwhile,
// so that it is to be seen what is there now.
func stopsAlready(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.As(err, new(*client.ForeignError)) {
		return false
	}
	var wire *protocol.Error
	return errors.Is(err, client.ErrLost) || errors.As(err, &wire) && wire.Reason() == protocol.ShuttingDown
}

func stop(ctx context.Context, o Options) (Stopped, error) {
	r, err := meet(ctx, o.Socket)
	if errors.As(err, new(*client.NoDaemonError)) {
		return o.stopUnreached(ctx)
	}
	if err != nil {
		return Stopped{}, err
	}
	defer r.close()
	s := Stopped{PID: r.pid, Unit: r.unit}
	if r.unit != "" {
		return s, stopUnit(ctx, r.unit)
	}
	reply, err := r.shutdown(ctx, protocol.ShutdownParams{})
	if err != nil {
		return s, err
	}
	return s, r.awaitEnd(ctx, reply)
}

// shutdown asks for it. Where somebody else has, the error is the daemon's, when its
// connections have ended.
func (r *running) shutdown(ctx context.Context, p protocol.ShutdownParams) (protocol.ShutdownAccepted, error) {
	reply, err := client.Call(ctx, r.Client, protocol.Shutdown, p)
	if !stopsAlready(ctx, err) {
		return reply, err
	}
	select {
	case <-r.Gone():
		return reply, err
	case <-ctx.Done():
		return reply, context.Cause(ctx)
	}
}

// stopUnit stops a unit and what would start it again.
func stopUnit(ctx context.Context, unit string) error {
	units := append(triggers(ctx, unit), unit)
	said, err := systemctl(ctx, append([]string{"stop"}, units...)...)
	if err != nil {
		return &Error{What: "systemd cannot stop " + unit, Said: said, Next: lookAt(unit)}
	}
	return nil
}

// awaitEnd returns when the daemon's process has ended; where that cannot be seen, when
// its connections have.
func (r *running) awaitEnd(ctx context.Context, reply protocol.ShutdownAccepted) error {
	limit := time.Duration(reply.DrainMS)*time.Millisecond + extra
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-r.Gone():
	case <-ctx.Done():
		return r.late(limit)
	}
	if r.fd < 0 {
		return nil
	}
	return r.awaitProcess(ctx, limit)
}

// awaitProcess returns when the process has ended.
func (r *running) awaitProcess(ctx context.Context, limit time.Duration) error {
	over, end, err := os.Pipe()
	if err != nil {
		return err
	}
	defer over.Close()
	defer end.Close()
	stop := context.AfterFunc(ctx, func() { _ = end.Close() })
	defer stop()
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}, {Fd: int32(over.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case fds[0].Revents != 0:
			return nil
		default:
			return r.late(limit)
		}
	}
}

func (r *running) late(limit time.Duration) error {
	return &Error{
		What: fmt.Sprintf("noused (process %d) was told to stop and has not ended after %s", r.pid, limit),
		Next: fmt.Sprintf("kill -9 %d ends it; its runs go on with the next daemon", r.pid),
	}
}

// Restart has the daemon at the socket start anew, with its command line and its
// environment and the program that is at its path now, and returns when the new one
// answers. Runs go on, and no client is refused meanwhile. Where none runs, one is
// started, and Stopped is empty.
func Restart(ctx context.Context, o Options) (Stopped, Started, error) {
	for range maxMet - 1 {
		if was, is, err := restart(ctx, o); !stopsAlready(ctx, err) {
			return was, is, err
		}
	}
	return restart(ctx, o)
}

func restart(ctx context.Context, o Options) (Stopped, Started, error) {
	r, err := meet(ctx, o.Socket)
	if errors.As(err, new(*client.NoDaemonError)) {
		s, err := Daemon(ctx, o)
		return Stopped{}, s, err
	}
	if err != nil {
		return Stopped{}, Started{}, err
	}
	defer r.close()
	s := Stopped{PID: r.pid, Unit: r.unit}
	reply, err := r.shutdown(ctx, protocol.ShutdownParams{Restart: true})
	var wire *protocol.Error
	if r.unit != "" && errors.As(err, &wire) && wire.Reason() == protocol.UnknownCommand { // it is an older one
		return s, Started{Log: r.unit, Unit: true}, restartUnit(ctx, r.unit)
	}
	if err != nil {
		return s, Started{}, err
	}
	return s, Started{PID: reply.PID, Log: r.unit, Unit: r.unit != ""}, r.awaitNext(ctx, o, reply)
}

// restartUnit has systemd restart a daemon of its own.
func restartUnit(ctx context.Context, unit string) error {
	said, err := systemctl(ctx, "restart", unit)
	if err == nil {
		return nil
	}
	return &Error{
		What: "systemd cannot restart " + unit, Said: join(said, journal(unit)), Next: unitNext(ctx, unit),
	}
}

// awaitNext returns when the program that has taken the daemon's place answers. It is
// the one that a connection leads to which is made after the old one's have ended.
func (r *running) awaitNext(ctx context.Context, o Options, reply protocol.ShutdownAccepted) error {
	limit := time.Duration(reply.DrainMS)*time.Millisecond + extra
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it takes too long"))
	defer cancel()
	select {
	case <-r.Gone():
	case <-ctx.Done():
		return r.late(limit)
	}
	c, err := client.Dial(ctx, o.Socket)
	if err == nil {
		defer c.Close()
		_, err = client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
	}
	if err != nil {
		return &Error{
			What: fmt.Sprintf("noused (process %d) was restarted and does not answer: %v", r.pid, err),
			Next: "its log says why: " + o.LogPath(),
		}
	}
	return nil
}
