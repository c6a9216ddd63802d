package ssh

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// MuxLine is the line with which a client asks a proxy for a yamux session instead of lines,
// and the proxy's answer. In both directions frames follow it.
//
// A stream begins with the byte ToCommands or ToEvents. Behind it is what goes over that socket.
// Only the client opens streams, and nobody sends pings: ssh finds out that the other end is gone.
const MuxLine = `{"mux":1}`

// The first byte of a stream.
const (
	ToCommands byte = 'c'
	ToEvents   byte = 'e'
)

const (
	// maxStreams is how many streams a session has at most. Each holds at most one window of
	// 256 KiB that is not read yet: 64 MiB together, on either end.
	maxStreams = 256
	maxFrame   = 64 << 10         // bytes of a frame's body; ours have half as many
	drainTime  = 10 * time.Second // for what a daemon that is gone has said
)

var (
	errTooMany = fmt.Errorf("there are %d connections, and no more are made", maxStreams)
	errFrame   = errors.New("it sends frames that have no place there")
)

// muxConfig is that of both ends. A write has no time limit: yamux leaves the two ends of a
// stream in different states after one (GHSA-29qp-crvh-w22m), and who waits for a write gives up
// by itself.
func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = maxStreams
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = math.MaxInt64
	c.StreamOpenTimeout = 0
	c.LogOutput = io.Discard
	return c
}

// frames is what yamux reads and writes. It hands yamux, which holds a stream's lock while it reads
// a frame, whole ones, and none that cost memory without a bound: yamux starts a goroutine for
// each ping. It writes each in one piece, which yamux does not: ssh makes a packet of each piece.
type frames struct {
	in    *bufio.Reader
	opens bool   // the other end may open streams
	frame []byte // the last one
	rest  []byte // what of it is not read

	writing sync.Mutex
	out     io.Writer
	begun   []byte

	stop func() // ends a Read of in, if it can be ended
}

// lineError is a line in the place of a frame.
type lineError struct{ line []byte }

func (e *lineError) Error() string {
	return fmt.Sprintf("it sends %.100q in the place of a frame", e.line)
}

func (f *frames) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// The layout of a frame, as yamux's spec.md has it.
const (
	frameHead   = 12
	frameData   = 0
	framePing   = 2
	frameGoAway = 3
	flagSYN     = 1
)

func (f *frames) next() error {
	head, err := f.in.Peek(1)
	if err != nil {
		return err
	}
	if head[0] != 0 { // the version
		line, _ := f.in.ReadSlice('\n')
		return &lineError{bytes.Clone(line)}
	}
	if head, err = f.in.Peek(frameHead); err != nil {
		return noEOF(err)
	}
	kind, flags, size := head[1], binary.BigEndian.Uint16(head[2:]), bodySize(head)
	if kind > frameGoAway || kind == framePing || flags&flagSYN != 0 && !f.opens || size > maxFrame {
		return errFrame
	}
	f.frame = slices.Grow(f.frame[:0], frameHead+size)[:frameHead+size]
	if _, err := io.ReadFull(f.in, f.frame); err != nil {
		return noEOF(err)
	}
	f.rest = f.frame
	return nil
}

// bodySize is how many bytes stand behind a frame's head.
func bodySize(head []byte) int {
	if head[1] != frameData {
		return 0
	}
	return int(binary.BigEndian.Uint32(head[8:]))
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write never fails: who reads the other way finds out why nothing is taken.
func (f *frames) Write(p []byte) (int, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.begun = append(f.begun, p...)
	if len(f.begun) >= frameHead && len(f.begun) == frameHead+bodySize(f.begun) {
		_, _ = f.out.Write(f.begun)
		f.begun = f.begun[:0]
	}
	return len(p), nil
}

// shut waits for a frame that is being written. None is written after it.
func (f *frames) shut() {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.out = io.Discard
}

// Close implements io.Closer, for yamux.
func (f *frames) Close() error {
	f.stop()
	return nil
}

// FarEnd is the proxy's end of a session.
type FarEnd struct {
	In  *bufio.Reader
	Out io.Writer
	// Dial connects to the socket that a stream's first byte names.
	Dial func(kind byte) (net.Conn, error)
	// NoDaemon is closed when the daemon is gone, NoReader when nobody reads Out any more.
	NoDaemon, NoReader <-chan struct{}
}

// Serve blocks until the client has ended the session, which is no error, or the daemon or the
// reader is gone. What the daemon has said by then is sent, and Out is the caller's again. In is
// read until it ends.
func (f *FarEnd) Serve() error {
	over := &frames{in: f.In, opens: true, out: f.Out, stop: func() {}}
	defer over.shut()
	session, err := yamux.Server(over, muxConfig())
	if err != nil {
		return err
	}
	places, ended := make(chan struct{}, maxStreams), make(chan error, 1)
	go func() { ended <- f.accept(session, places) }() // ends with the session
	select {
	case err = <-ended:
		if errors.Is(err, io.EOF) {
			err = nil
		}
	case <-f.NoDaemon:
		for limit := time.After(drainTime); len(places) < maxStreams; {
			select {
			case places <- struct{}{}: // in the place of a stream that has ended
			case <-f.NoReader:
				return nil
			case <-limit:
				return nil
			}
		}
	case <-f.NoReader:
	}
	return err
}

// accept joins streams with sockets until the session ends. Each has one of the places.
func (f *FarEnd) accept(session *yamux.Session, places chan struct{}) error {
	for {
		s, err := session.AcceptStream()
		if err != nil {
			return err
		}
		select {
		case places <- struct{}{}:
		default:
			return errTooMany
		}
		go func() { // ends with the stream
			f.serve(s)
			<-places
		}()
	}
}

func (f *FarEnd) serve(s *yamux.Stream) {
	defer s.Close()
	var kind [1]byte
	if _, err := io.ReadFull(s, kind[:]); err != nil {
		return
	}
	if conn, err := f.Dial(kind[0]); err == nil {
		join(s, conn)
	}
}

var past = time.Unix(1, 0)

// join carries bytes both ways until both sides have ended.
func join(s *yamux.Stream, conn net.Conn) {
	var out sync.WaitGroup
	out.Go(func() {
		_, _ = io.Copy(s, conn)
		_ = s.Close()
		_ = s.SetReadDeadline(past)
	})
	_, _ = io.Copy(conn, s)
	_, _ = io.Copy(io.Discard, s) // conn takes no more, and may have more to say
	_ = conn.Close()
	_ = s.SetWriteDeadline(past)
	out.Wait()
}
