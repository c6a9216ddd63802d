package fleettest

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy that can stall: its connections stay open, and carry nothing.
type Proxy struct {
	ln net.Listener

	all sync.WaitGroup

	mu      sync.Mutex
	to      string        // "": nobody is there, and connections are closed
	gate    chan struct{} // closed while it carries
	stalled bool
	conns   map[net.Conn]bool
	closed  bool
}

// NewProxy listens until the test ends.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{ln: ln, gate: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.gate)
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is where clients of the NATS server behind it connect.
func (p *Proxy) URL() string { return "nats://" + p.ln.Addr().String() }

// Stall has nothing carried any more, in either direction.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stalled {
		p.stalled, p.gate = true, make(chan struct{})
	}
}

// Go carries again what was held up.
func (p *Proxy) Go() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled {
		p.stalled = false
		close(p.gate)
	}
}

// Cut ends all connections; new ones are carried.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// lead has new connections carried to another address.
func (p *Proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *Proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.ln.Close()
	p.Cut()
	p.Go()
	p.all.Wait()
}

func (p *Proxy) accept() {
	for {
		near, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.carry(near) })
	}
}

func (p *Proxy) carry(near net.Conn) {
	p.open()
	to := p.target()
	if to == "" {
		_ = near.Close()
		return
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		_ = near.Close()
		return
	}
	if !p.keep(near, far) {
		_, _ = near.Close(), far.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(far, near) })
	both.Go(func() { p.copy(near, far) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, near)
	delete(p.conns, far)
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return !p.closed
}

// open waits while it is stalled.
func (p *Proxy) open() {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	<-gate
}

func (p *Proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		p.open()
		n, err := from.Read(buf)
		if n > 0 {
			p.open()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
