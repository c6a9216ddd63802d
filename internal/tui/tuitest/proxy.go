package tuitest

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// maxRecorded bounds what a Proxy remembers, in bytes.
const maxRecorded = 16 << 20

// Proxy stands before a daemon's two sockets. It remembers what clients say and
// can cut their connections, which a daemon does not do.
type Proxy struct {
	Socket string

	behind string
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	blocks bool
	said   map[net.Conn]*bytes.Buffer // on the command socket
	order  []net.Conn
	size   int
	heard  int // clients of the event socket that it has said something to
}

// NewProxy listens on a socket of its own until the test ends.
func NewProxy(t testing.TB, behind string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Socket: filepath.Join(dir, "s"), behind: behind, said: map[net.Conn]*bytes.Buffer{}}
	var listeners []net.Listener
	for _, suffix := range []string{"", ".events"} {
		l, err := net.Listen("unix", p.Socket+suffix)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		p.wg.Go(func() { // ends with its listener
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				p.join(conn, suffix)
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		p.Cut(true)
		p.wg.Wait()
		os.RemoveAll(dir)
	})
	return p
}

func (p *Proxy) join(front net.Conn, suffix string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	back, err := net.Dial("unix", p.behind+suffix)
	if err != nil || p.blocks {
		front.Close()
		if err == nil {
			back.Close()
		}
		return
	}
	p.conns = append(p.conns, front, back)
	var to, answers io.Writer = back, front
	if suffix == "" {
		p.said[front] = &bytes.Buffer{}
		p.order = append(p.order, front)
		to = io.MultiWriter(back, recorder{p, front})
	} else {
		answers = &counter{p: p, to: front}
	}
	copying := func(to io.Writer, from net.Conn) {
		_, _ = io.Copy(to, from)
		front.Close()
		back.Close()
	}
	p.wg.Go(func() { copying(to, front) })
	p.wg.Go(func() { copying(answers, back) })
}

// counter notes that something was said to a client.
type counter struct {
	p    *Proxy
	to   io.Writer
	said bool
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.to.Write(data)
	if !c.said {
		c.said = true
		c.p.mu.Lock()
		c.p.heard++
		c.p.mu.Unlock()
	}
	return n, err
}

// Heard is how many connections to the event socket have been answered: they miss
// nothing from then on.
func (p *Proxy) Heard() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

type recorder struct {
	p    *Proxy
	conn net.Conn
}

func (r recorder) Write(data []byte) (int, error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.p.size += len(data); r.p.size <= maxRecorded {
		r.p.said[r.conn].Write(data)
	}
	return len(data), nil
}

// Cut ends all connections; while it blocks, new ones end at once.
func (p *Proxy) Cut(block bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns, p.blocks = nil, block
}

// Commands are the lines that clients have sent to the command socket, by
// connection.
func (p *Proxy) Commands() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines [][]byte
	for _, conn := range p.order {
		for line := range bytes.Lines(p.said[conn].Bytes()) {
			lines = append(lines, bytes.Clone(line))
		}
	}
	return lines
}
