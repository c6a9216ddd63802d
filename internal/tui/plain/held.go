package plain

// What is typed in the plain mode while another machine is away waits for it, in order.

const maxHeld = 100

func (p *plain) hold(text string) {
	if len(p.held) >= maxHeld {
		p.sayf("error: %s is away, and %d lines wait for it; not sent: %s", p.opts.Host, len(p.held), text)
		return
	}
	p.held = append(p.held, text)
	p.sayf("%s is away; this is done when it is back", p.opts.Host)
}

// nextHeld does the next line that waited, if there is one and a connection.
func (p *plain) nextHeld() bool {
	if p.offline || len(p.held) == 0 {
		return false
	}
	text := p.held[0]
	p.held = p.held[1:]
	p.typed(text)
	return true
}

// tellUnsent says at the end what still waits.
func (p *plain) tellUnsent() {
	for _, text := range p.held {
		p.sayf("not sent: %s", text)
	}
}
