package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/lock"
	"noused/internal/protocol"
	"noused/internal/trust"
)

const (
	// patience is how long a daemon may take to answer on one socket.
	patience = 5 * time.Second
	maxReply = 16 << 20 // bytes of a line
)

// sockets looks at the folder, at both sockets, and at who answers on them
// (wire-v1 §1, §8).
func (e *exam) sockets(ctx context.Context) {
	longest := protocol.EventSocket(e.Socket)
	if len(longest) > protocol.MaxSocketPath {
		e.fail(Sockets, "choose a shorter path with --socket", "%s is %d bytes long, at most %d can be bound", longest,
			len(longest), protocol.MaxSocketPath)
		return
	}
	if !e.socketDir(filepath.Dir(e.Socket)) {
		return
	}
	running, err := heldBy(e.Socket + ".lock")
	if err != nil {
		e.fail(Sockets, "move it out of the way", "lock of the socket: %v", err)
		return
	}
	if running == nil {
		running = e.holder // under systemd the socket is not locked
	}
	for _, path := range []string{e.Socket, longest} {
		e.socket(ctx, path, running)
	}
}

// socketDir reports whether there is a folder to look into.
func (e *exam) socketDir(dir string) bool {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && e.holder != nil:
		e.fail(Sockets, fmt.Sprintf("name the socket of %s with --socket, or restart it", e.holder),
			"%s is not there, though %s runs with this state directory", dir, e.holder)
		return false
	case errors.Is(err, os.ErrNotExist):
		if err := canWrite(nearest(dir)); err != nil {
			e.fail(Sockets, "choose another path with --socket", "%s does not exist and cannot be made: %v", dir, err)
			return false
		}
		e.ok(Sockets, "%s does not exist yet; a daemon makes it when it starts", dir)
		return false
	case err != nil:
		e.fail(Sockets, "choose another path with --socket", "%v", err)
		return false
	}
	if err := trust.Folder(dir); err != nil {
		fix := "choose another path with --socket"
		if at := (*trust.FolderError)(nil); errors.As(err, &at) && at.Writable {
			fix = "chmod go-w " + quote(at.Path) + ", or " + fix
		}
		e.fail(Sockets, fix, "%v", err)
		return false
	}
	own, mode := dir == filepath.Dir(e.DefaultSocket), info.Mode().Perm()
	_, notLink := os.Readlink(dir)
	switch {
	case own && notLink == nil: // in /tmp, a link is somebody else's idea
		e.fail(Sockets, "move it out of the way, or choose another path with --socket", "%s is a link", dir)
		return false
	case mode != 0o700 && own:
		e.mend(Finding{
			Status: Warn, Area: Sockets, What: fmt.Sprintf("%s has mode %04o, and should be private", dir, mode),
			Fix: "chmod 700 " + quote(dir) + " (a daemon does it when it starts)",
		}, "its mode is 0700 now", func() error { return restrict(dir, 0o700) })
		return true
	}
	e.ok(Sockets, "%s is safe from others (mode %04o)", dir, mode)
	return true
}

// socket looks at one socket. Connecting is safe only where a daemon is known to
// run, or nobody listens: systemd would start one for us.
func (e *exam) socket(ctx context.Context, path string, running *process) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && running != nil:
		e.fail(Sockets, fmt.Sprintf("name the socket of %s with --socket, or restart it", running),
			"%s is not there, though %s runs with this state directory or socket", path, running)
		return
	case errors.Is(err, os.ErrNotExist):
		e.ok(Sockets, "%s does not exist; no daemon runs", path)
		return
	case err != nil:
		e.fail(Sockets, "choose another path with --socket", "%v", err)
		return
	case info.Mode()&os.ModeSocket == 0:
		e.fail(Sockets, "move it out of the way: mv "+quote(path)+" "+quote(path+".old"), "%s is not a socket", path)
		return
	}
	if running == nil && listening(path) {
		e.ok(Sockets, "systemd listens on %s, or a daemon with another state directory; it was not contacted, because that "+
			"could start a daemon", path)
		return
	}
	answer, version, err := e.probe(ctx, path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED) && running == nil && e.unitListens(path):
		e.ok(Sockets, "%s is systemd's, which does not listen on it now; no daemon runs", path)
	case errors.Is(err, unix.ECONNREFUSED):
		e.stale(path)
	case err != nil && running != nil && running.PID != 0:
		e.fail(Sockets, fmt.Sprintf("look into its log (journalctl --user -u noused); kill %d and start it again",
			running.PID), "%s: %v", path, err)
	case err != nil:
		e.fail(Sockets, "find out who listens there: ss -xlp", "%s: %v", path, err)
	default:
		e.ok(Sockets, "%s: %s", path, answer)
		if path == e.Socket && running != nil {
			e.program(running, version)
			e.askModel(ctx)
		}
	}
}

// program compares the version that the running daemon says it has with this
// one's. A daemon of before pong told it says none.
func (e *exam) program(running *process, version string) {
	switch version {
	case "":
		e.ok(Sockets, "the daemon is %s; it does not say its version", running)
	case e.Version:
		e.ok(Sockets, "the daemon is %s, version %s", running, version)
	default:
		e.warn(Sockets, "restart the daemon, or use the program it was started from",
			"the daemon is %s, version %s; this is version %s", running, version, e.Version)
	}
}

func (e *exam) stale(path string) {
	e.mend(Finding{
		Status: Warn, Area: Sockets, What: path + " is left over: nobody listens on it",
		Fix: "rm " + quote(path) + " (a daemon does it when it starts)",
	}, "removed", func() error {
		l, err := lock.Acquire(e.Socket + ".lock")
		if err != nil {
			return err
		}
		defer func() { _ = l.Release() }()
		conn, err := net.DialTimeout("unix", path, patience)
		if err == nil {
			_ = conn.Close()
			return errors.New("somebody listens on it by now")
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		return os.Remove(path)
	})
}

// listening tells from the kernel's table whether somebody listens on a socket,
// without connecting.
func listening(path string) bool {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false
	}
	const accepting = "00010000" // __SO_ACCEPTCON
	for line := range strings.Lines(string(table)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 8)
		if strings.HasSuffix(line, " "+path+"\n") && len(fields) > 3 && fields[3] == accepting {
			return true
		}
	}
	return false
}

// probe pings the command socket, or subscribes to the event socket and hangs up.
// Neither makes a session, starts a tool, or is an event. The version is the
// daemon's, "" where it does not say.
func (e *exam) probe(ctx context.Context, path string) (answer, version string, err error) {
	request, want := "ping", "pong"
	if path != e.Socket {
		request, want = "subscribe", "subscribed"
	}
	said, err := exchange(ctx, path, request, want)
	switch {
	case err != nil:
		return "", "", err
	case said.Epoch != "":
		return "a daemon sends its events, epoch " + said.Epoch, "", nil
	}
	return "a daemon answers, protocol " + protocol.Version, said.Version, nil
}

// askModel asks the running daemon which model is its own, without having it
// ask any server. A daemon that does not know the command leaves it unknown.
func (e *exam) askModel(ctx context.Context) {
	if said, err := exchange(ctx, e.Socket, "list_models", "models"); err == nil && len(said.Models) > 0 &&
		said.Models[0].Default {
		e.running = said.Models[0].Model
	}
}

// payload is what the replies that doctor asks for have in them.
type payload struct {
	Epoch   string                 `json:"epoch"`
	Version string                 `json:"version"`
	Models  []protocol.ListedModel `json:"models"`
}

// exchange connects to a socket, makes one request without a payload, and
// returns what the reply of type want says. It takes patience at most.
func exchange(ctx context.Context, path, request, want string) (payload, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return payload{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := trust.Peer(conn.(*net.UnixConn)); err != nil {
		return payload{}, err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return payload{}, err
	}
	if _, err := fmt.Fprintf(conn, `{"v":"1","id":"doctor","type":%q}`+"\n", request); err != nil {
		return payload{}, err
	}
	for in := protocol.NewLineReader(conn, maxReply); ; {
		line, err := in.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return payload{}, fmt.Errorf("no answer to %s within %v", request, patience)
		}
		if err != nil {
			return payload{}, fmt.Errorf("no answer to %s: %w", request, err)
		}
		var reply struct {
			V       string          `json:"v"`
			ID      string          `json:"id"`
			Type    string          `json:"type"`
			Payload payload         `json:"payload"`
			Error   *protocol.Error `json:"error"`
		}
		err = json.Unmarshal(line, &reply)
		switch {
		case err != nil:
			return payload{}, fmt.Errorf("the answer to %s is not of this protocol: %w", request, err)
		case reply.ID != "doctor" && reply.Error == nil:
			continue // an event of before
		case reply.Error != nil:
			return payload{}, fmt.Errorf("%s is refused: %s: %s", request, reply.Error.Code, reply.Error.Message)
		case reply.Type != want:
			return payload{}, fmt.Errorf("the answer to %s is %.40q, want %q", request, reply.Type, want)
		case reply.V != "" && reply.V != protocol.Version:
			return payload{}, fmt.Errorf("it speaks protocol %.20q, not %q", reply.V, protocol.Version)
		}
		return reply.Payload, nil
	}
}
