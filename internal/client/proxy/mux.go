package proxy

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
	drainTime = 10 * time.Second // for the daemon's other connection when one has ended
)

var (
	ErrNobodyReads = errors.New("nobody reads standard output any more")
	errMux         = errors.New("the client asks for a session")
)

// mux joins a daemon's two sockets on one pair of streams. Each source is copied by
// a goroutine of its own, which waits for the reader of out: what that does not take
// stays with the daemon.
//
// A client may ask for a session instead, with its first line: ssh.MuxLine.
type mux struct {
	socket           string
	commands, events net.Conn
	gone             <-chan struct{} // closed when nobody reads out any more

	outMu sync.Mutex // held from the beginning of a line to its end
	out   io.Writer

	mu      sync.Mutex
	asked   int           // of the event socket
	told    int           // by it
	ending  bool          // the input is over
	settled chan struct{} // closed when the input is over, and all that was asked of the event socket is told
}

// Run blocks until in has ended and all of it is answered, or until the daemon or the
// Reader is gone. It closes the connections. Who reads in goes on until the program ends.
func (j *mux) run(ctx context.Context, in io.Reader) error {
	j.settled = make(chan struct{})
	lines := bufio.NewReaderSize(in, piece)
	commands := flowing(func() error { return j.copy(j.commands, nil) })
	events := flowing(func() error { return j.copy(j.events, j.count) })
	input := flowing(func() error { return j.read(lines) })
	select {
	case <-input.over:
		if errors.Is(input.err, errMux) {
			return j.serve(ctx, lines, commands)
		}
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
		return ErrNobodyReads
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

// await waits for the end of a copy, unless nobody reads it.
func (j *mux) await(over <-chan struct{}, limit <-chan time.Time) {
	select {
	case <-over:
	case <-j.gone:
	case <-limit:
	}
}

// daemonGone waits for what the daemon's other connections still say.
func (j *mux) daemonGone(err error, other *flow) error {
	j.await(other.over, time.After(drainTime))
	j.close()
	j.await(other.over, nil)
	return j.orNobody(j.isGone(err))
}

func (j *mux) isGone(err error) error {
	if err == nil {
		err = errors.New("it has closed the connection")
	}
	return protocol.Errorf(codeDaemonGone, "the daemon at %s is gone: %v", j.socket, err)
}

// serve has a session take the place of the lines. The command connection stands beside it, and
// tells when the daemon is gone.
func (j *mux) serve(ctx context.Context, in *bufio.Reader, commands *flow) error {
	out := j.out
	j.outMu.Lock()
	_, err := io.WriteString(out, ssh.MuxLine+"\n")
	j.out = io.Discard
	j.outMu.Unlock()
	if err != nil {
		return err
	}
	_ = j.events.Close()
	far := ssh.FarEnd{In: in, Out: out, NoDaemon: commands.over, NoReader: j.gone}
	far.Dial = func(kind byte) (net.Conn, error) {
		if kind == ssh.ToEvents {
			return client.Connect(ctx, protocol.EventSocket(j.socket))
		}
		return client.Connect(ctx, j.socket)
	}
	if err = far.Serve(); err == nil {
		select {
		case <-commands.over:
			err = j.isGone(commands.err)
		default:
		}
	}
	return j.orNobody(err)
}

func (j *mux) orNobody(err error) error {
	select {
	case <-j.gone:
		return ErrNobodyReads
	default:
		return err
	}
}

// closeWrite has the daemon answer what it was asked, and then hang up.
func (j *mux) closeWrite() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ending = true
	for _, conn := range []net.Conn{j.commands, j.events} {
		_ = conn.(*net.UnixConn).CloseWrite() // one that is gone says so to its reader
	}
	j.settle()
}

func (j *mux) close() { _, _ = j.commands.Close(), j.events.Close() }

// read passes the lines of in on until it ends.
func (j *mux) read(lines *bufio.Reader) error {
	var to io.Writer // of the line that goes on
	for first := true; ; first = false {
		part, err := lines.ReadSlice('\n')
		if first && string(part) == ssh.MuxLine+"\n" {
			return errMux
		}
		if len(part) > 0 {
			if to == nil {
				to = j.route(part)
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

// route finds out where a line goes by its beginning.
func (j *mux) route(part []byte) io.Writer {
	if isSubscribe(part) {
		j.mu.Lock()
		j.asked++
		j.mu.Unlock()
		return j.events
	}
	return j.commands
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

// copy passes on what src says until it ends, in whole lines: who has begun one goes on to its
// end. seen, if it is not nil, is given the lines that could be held once they are written.
func (j *mux) copy(src io.Reader, seen func(lines []byte)) error {
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
func (j *mux) count(lines []byte) {
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

func (j *mux) settle() {
	if j.ending && j.told >= j.asked {
		select {
		case <-j.settled:
		default:
			close(j.settled)
		}
	}
}
