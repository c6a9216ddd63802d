package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Bounds of what a server sends. NATS's library makes room for whatever size a server
// names, and where that is too much its reader ends the process.
const (
	maxControl = 64 << 10 // bytes of a line of the protocol
	// A message has at most 64 MiB. JetStream sends one that it has stored in base64.
	maxMessage = 96 << 20
)

// guarded is a connection whose reader gets nothing that is not NATS's protocol.
type guarded struct {
	net.Conn
	first []byte // read already
	follower
	broken error
}

// Read is that of net.Conn. It fails for good where the server breaks the protocol.
func (g *guarded) Read(p []byte) (n int, err error) {
	switch {
	case g.broken != nil:
		return 0, g.broken
	case len(g.first) > 0:
		n = copy(p, g.first)
		g.first = g.first[n:]
	default:
		n, err = g.Conn.Read(p)
	}
	if g.broken = g.follow(p[:n]); g.broken != nil {
		return 0, g.broken
	}
	return n, err
}

// follower follows the protocol as a client reads it. What it lets pass the library's
// parser takes for the same lines and sizes.
type follower struct {
	line  []byte // the beginning of one
	skip  int    // bytes of a message that are still to come
	ended bool   // the end of a message's line is still to come
}

// follow takes the next bytes. After an error it must not be called again.
func (f *follower) follow(p []byte) error {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		part, rest, whole := bytes.Cut(p, []byte{'\n'})
		if len(f.line)+len(part) > maxControl {
			return fmt.Errorf("the server breaks the protocol: a line of more than %d bytes", maxControl)
		}
		if !whole {
			f.line = append(f.line, part...)
			return nil
		}
		line := part
		if len(f.line) > 0 {
			f.line = append(f.line, part...)
			line, f.line = f.line, f.line[:0]
		}
		if err := f.checkLine(line); err != nil {
			return fmt.Errorf("the server breaks the protocol: %w", err)
		}
		p = rest
	}
	return nil
}

// checkLine takes a line, without its LF.
func (f *follower) checkLine(line []byte) error {
	has := func(verb string) bool { return bytes.HasPrefix(line, []byte(verb)) }
	switch {
	case f.ended:
		f.ended = false
		if string(line) != "\r" {
			return errors.New("a message is longer than it says")
		}
	case has("MSG "):
		return f.message(line[len("MSG "):], 3)
	case has("HMSG "):
		return f.message(line[len("HMSG "):], 4)
	case has("PING"), has("PONG"), has("+OK"):
	case has("-ERR "), has("INFO "):
		if len(bytes.TrimSpace(line[len("INFO "):])) == 0 {
			return errors.New("a line that says nothing")
		}
	default:
		return fmt.Errorf("a line that begins with %.20q", line)
	}
	return nil
}

// message takes the arguments of a message: want of them, or one more where it has a
// reply subject. The last is its size.
func (f *follower) message(args []byte, want int) error {
	line, ok := bytes.CutSuffix(args, []byte{'\r'})
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return errors.New("a message's line that does not end in CR and LF")
	}
	n, last := arguments(line)
	if n != want && n != want+1 {
		return fmt.Errorf("a message with %d arguments", n)
	}
	size, err := strconv.ParseUint(string(last), 10, 63)
	if err != nil || size > maxMessage {
		return fmt.Errorf("a message of %.20q bytes: at most %d", last, maxMessage)
	}
	f.skip, f.ended = int(size), true
	return nil
}

// arguments counts the words of a line.
func arguments(line []byte) (n int, last []byte) {
	start := -1
	for i, b := range line {
		switch space := b == ' ' || b == '\t'; {
		case !space && start < 0:
			start = i
			n++
		case space && start >= 0:
			last, start = line[start:i], -1
		}
	}
	if start >= 0 {
		last = line[start:]
	}
	return n, last
}
