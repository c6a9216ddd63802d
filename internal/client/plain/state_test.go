package plain

import (
	"strings"
	"testing"
	"time"

	"noused/internal/protocol"
)

// nous status says whether the daemon is in its fleet, and why not.
func TestStatusOfAFleet(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		state protocol.FleetState
		want  []string
	}{
		"in": {protocol.FleetState{
			Name: "box", Server: "tls://nats", Connected: true, Since: now.Add(-time.Minute),
			PublishedSeq: 7,
		}, []string{"box at tls://nats, in it for 1 min", "events sent up to 7"}},
		"away": {
			protocol.FleetState{
				Name: "box", Server: "tls://nats", Since: now.Add(-time.Hour),
				Problems: []string{"cannot connect: no servers available"},
			},
			[]string{"away for 1 h", "cannot connect: no servers available"},
		},
	} {
		p := &statusPairs{now: now}
		p.health(protocol.State{Health: protocol.Health{Fleet: &c.state}})
		text := flat(p)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
	}
	p := &statusPairs{now: now}
	if p.health(protocol.State{}); strings.Contains(flat(p), "fleet") {
		t.Error("a daemon without a fleet reports one")
	}
}

func flat(p *statusPairs) string {
	var out strings.Builder
	for _, pair := range p.pairs {
		out.WriteString(pair[0] + " " + pair[1] + "\n")
	}
	return out.String()
}
