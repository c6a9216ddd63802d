package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"noused/internal/client"
	"noused/internal/client/ssh"
	"noused/internal/protocol"
)

const (
	// piece is what is held of a line in either direction. A longer one is passed on
	// as it arrives, and nothing else comes between.
	piece     = 64 << 10
	maxLanes  = 256
	drainTime = 10 * time.Second // for the daemon's other connections when one has ended
)

var (
	errNobodyReads = errors.New("nobody reads standard output any more")
	errTooMany     = errors.New("too many connections")
)

// proxyMux joins a daemon's two sockets on one pair of streams. Each source is copied by
// a goroutine of its own, which waits for the reader of out: what that does not take
// stays with the daemon.
//
// A line that begins with {"connection":N, goes over a command connection of its own,
// which is made for the first such line; {"connection":N} hangs it up, and says that
// the daemon did.
type proxyMux struct {
	socket           string
	commands, events net.Conn
	gone             <-chan struct{} // closed when nobody reads out any more

	outMu sync.Mutex // held from the beginning of a line to its end
	out   io.Writer

	mu      sync.Mutex
	lanes   map[string]*lane
	copying sync.WaitGroup // of the lanes
	asked   int            // of the event socket
	told    int            // by it
	ending  bool           // no lane is made any more
	settled chan struct{}  // closed when the input is over, and all that was asked of the event socket is told
}

// lane is a command connection by name.
type lane struct {
	name string
	conn net.Conn
}

// run blocks until in has ended and all of it is answered, or until the daemon or the
// reader is gone. It closes the connections. Who reads in goes on until the program ends.
func (j *proxyMux) run(ctx context.Context, in io.Reader) error {
	j.lanes, j.settled = map[string]*lane{}, make(chan struct{})
	commands := flowing(func() error { return j.copy(j.commands, nil) })
	events := flowing(func() error { return j.copy(j.events, j.count) })
	input := flowing(func() error { return j.read(ctx, in) })
	select {
	case <-input.over:
		j.closeWrite()
		j.await(commands.over, nil)
		j.await(j.settled, time.After(drainTime)) // an older core may not answer there
		j.close()
		j.await(events.over, nil)
		return j.orNobody(input.err)
	case <-commands.over:
		return j.daemonGone(commands.err, events)
	case <-events.over:
		return j.daemonGone(events.err, commands)
	case <-j.gone:
		j.close()
		return errNobodyReads
	}
}

// flow is one of a proxyMux's goroutines. err is its end's, once over is closed.
type flow struct {
	over chan struct{}
	err  error
}

func flowing(do func() error) *flow {
	p := &flow{over: make(chan struct{})}
	go func() { // ends with its source
		defer close(p.over)
		p.err = do()
	}()
	return p
}

// await waits for the end of a copy and of the lanes', unless nobody reads them.
func (j *proxyMux) await(over <-chan struct{}, limit <-chan time.Time) {
	all := make(chan struct{})
	go func() { // ends with the connections
		<-over
		j.copying.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-j.gone:
	case <-limit:
	}
}

// daemonGone waits for what the daemon's other connections still say.
func (j *proxyMux) daemonGone(err error, other *flow) error {
	j.mu.Lock()
	j.ending = true
	j.mu.Unlock()
	j.await(other.over, time.After(drainTime))
	j.close()
	j.await(other.over, nil)
	if err == nil {
		err = errors.New("it has closed the connection")
	}
	return j.orNobody(protocol.Errorf(proxyDaemonGone, "the daemon at %s is gone: %v", j.socket, err))
}

func (j *proxyMux) orNobody(err error) error {
	select {
	case <-j.gone:
		return errNobodyReads
	default:
		return err
	}
}

// closeWrite has the daemon answer what it was asked, and then hang up.
func (j *proxyMux) closeWrite() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ending = true
	for _, conn := range j.conns() {
		_ = conn.(*net.UnixConn).CloseWrite() // one that is gone says so to its reader
	}
	j.settle()
}

func (j *proxyMux) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, conn := range j.conns() {
		_ = conn.Close()
	}
}

func (j *proxyMux) conns() []net.Conn {
	all := []net.Conn{j.commands, j.events}
	for _, l := range j.lanes {
		all = append(all, l.conn)
	}
	return all
}

// read passes the lines of in on until it ends.
func (j *proxyMux) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReaderSize(in, piece)
	var to io.Writer // of the line that goes on
	for {
		part, err := lines.ReadSlice('\n')
		if len(part) > 0 {
			if to == nil {
				to, part = j.route(ctx, part)
			}
			_, _ = to.Write(part) // who is gone says so to its reader
		}
		switch {
		case err == nil:
			to = nil
		case errors.Is(err, io.EOF):
			if to != nil {
				_, _ = to.Write([]byte{'\n'})
			}
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// route finds out where a line goes by its beginning, and what of that is passed on.
func (j *proxyMux) route(ctx context.Context, part []byte) (io.Writer, []byte) {
	if name, rest, ok := cutConnection(part); ok {
		if len(bytes.TrimRight(rest, "\r\n")) == 1 { // the closing brace
			j.hangUp(name)
			return io.Discard, nil
		}
		rest[0] = '{' // the comma
		return j.lane(ctx, name), rest
	}
	if isSubscribe(part) {
		j.mu.Lock()
		j.asked++
		j.mu.Unlock()
		return j.events, part
	}
	return j.commands, part
}

var connectionMember = []byte(`{"connection":`)

// cutConnection takes the first member off a line, where it is the number of a
// connection. rest begins with a comma or the closing brace.
func cutConnection(line []byte) (name string, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, connectionMember)
	digits := 0
	for digits < len(rest) && digits < 10 && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if !ok || digits == 0 || digits == len(rest) || rest[digits] != ',' && rest[digits] != '}' {
		return "", nil, false
	}
	return string(rest[:digits]), rest[digits:], true
}

// isSubscribe tells whether a line is one for the event socket. What cannot be read is
// for the command socket, which says what is wrong with it.
func isSubscribe(line []byte) bool {
	if !bytes.HasSuffix(line, []byte{'\n'}) && len(line) >= piece || !bytes.Contains(line, []byte("subscribe")) {
		return false
	}
	cmd, err := protocol.DecodeCommand(bytes.TrimRight(line, "\r\n"))
	return err == nil && cmd.Type == "subscribe"
}

// lane is the connection of a name. One that cannot be made is hung up.
func (j *proxyMux) lane(ctx context.Context, name string) io.Writer {
	j.mu.Lock()
	defer j.mu.Unlock()
	if l, ok := j.lanes[name]; ok {
		return l.conn
	}
	if j.ending {
		return io.Discard
	}
	var conn net.Conn
	err := errTooMany
	if len(j.lanes) < maxLanes {
		conn, err = client.Connect(ctx, j.socket)
	}
	if err != nil {
		j.copying.Go(func() { j.sayHungUp(name) })
		return io.Discard
	}
	l := &lane{name, conn}
	j.lanes[name] = l
	j.copying.Go(func() { // ends with the connection
		_ = j.copy(conn, nil)
		j.over(l)
	})
	return conn
}

// hangUp ends a connection on the client's behalf: the daemon ends what belongs to it.
func (j *proxyMux) hangUp(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if l, ok := j.lanes[name]; ok {
		delete(j.lanes, name)
		_ = l.conn.Close()
	}
}

// over is the end of a connection's replies. If that was not the client's wish, it is told.
func (j *proxyMux) over(l *lane) {
	j.mu.Lock()
	unasked := j.lanes[l.name] == l && !j.ending
	if unasked {
		delete(j.lanes, l.name)
	}
	j.mu.Unlock()
	_ = l.conn.Close()
	if unasked {
		j.sayHungUp(l.name)
	}
}

func (j *proxyMux) sayHungUp(name string) {
	j.outMu.Lock()
	defer j.outMu.Unlock()
	_, _ = j.out.Write([]byte(`{"connection":` + name + "}\n"))
}

// copy passes on what src says until it ends, in whole lines: who has begun one goes on to its
// end. seen, if it is not nil, is given the lines that could be held once they are written.
func (j *proxyMux) copy(src io.Reader, seen func(lines []byte)) error {
	buf, held, amid := make([]byte, piece), 0, false
	defer func() {
		if amid { // the daemon was killed in the middle
			_, _ = j.out.Write([]byte{ssh.CutMark, '\n'})
			j.outMu.Unlock()
		}
	}()
	for {
		n, err := src.Read(buf[held:])
		held += n
		whole := bytes.LastIndexByte(buf[:held], '\n') + 1
		if whole == 0 && held == len(buf) {
			whole = held
		}
		if whole > 0 {
			begins := !amid
			if begins {
				j.outMu.Lock()
				amid = true
			}
			if _, err := j.out.Write(buf[:whole]); err != nil {
				return err
			}
			if buf[whole-1] == '\n' {
				j.outMu.Unlock()
				amid = false
			}
			if begins && seen != nil {
				seen(buf[:whole])
			}
			held = copy(buf, buf[whole:held])
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// count counts the event socket's answers: what is no event.
func (j *proxyMux) count(lines []byte) {
	answers := 0
	for line := range bytes.Lines(lines) {
		if protocol.SeqOf(line) == 0 {
			answers++
		}
	}
	if answers > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.told += answers
		j.settle()
	}
}

func (j *proxyMux) settle() {
	if j.ending && j.told >= j.asked {
		select {
		case <-j.settled:
		default:
			close(j.settled)
		}
	}
}
