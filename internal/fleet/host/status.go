package host

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/protocol"
)

const (
	maxProblems = 8
	maxProblem  = 400 // bytes
)

// status is what people learn about the fleet: the log when something changes, the
// daemon's state when they ask. Its methods do not block.
type status struct {
	log          *zap.Logger
	name, server string

	mu     sync.Mutex
	is     bool      // joined
	since  time.Time // it is so
	away_  string    // why it is not
	denied []string  // of this connection
	wrong  []trouble // by part
}

// trouble is what a part cannot do.
type trouble struct{ part, why string }

func newStatus(o Options) *status {
	return &status{
		log: o.Log, name: o.Name, server: strings.Join(o.URLs, ", "), since: time.Now().UTC(),
		away_: "not connected yet",
	}
}

// reset forgets what the former connection was denied.
func (s *status) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied, s.wrong = nil, nil
}

func (s *status) joined() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is, s.since, s.away_ = true, time.Now().UTC(), ""
	s.log.Info("joined the fleet", zap.String("name", s.name), zap.String("server", s.server))
}

// away says why the daemon is not in the fleet, in the log once for each reason.
func (s *status) away(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is {
		s.is, s.since = false, time.Now().UTC()
	}
	if why := short(err); why != s.away_ {
		s.away_ = why
		s.log.Warn("away from the fleet; trying again", zap.String("name", s.name), zap.String("server", s.server),
			zap.String("error", why))
	}
}

// heard takes note of what the server has denied.
func (s *status) heard(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := short(err)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(why, `"`+micro.APIPrefix+"."):
		// Who may not be found by those who look for services misses nothing.
	case errors.Is(err, nats.ErrPermissionViolation) && !slices.Contains(s.denied, why):
		if len(s.denied) < maxProblems {
			s.denied = append(s.denied, why)
			s.log.Warn("the fleet's server denies something", zap.String("error", why))
		}
	case !errors.Is(err, nats.ErrPermissionViolation):
		s.log.Debug("fleet", zap.String("error", why))
	}
}

// problem says what a part cannot do.
func (s *status) problem(part string, err error) { s.report(part, "fleet: "+part+" wait", err) }

// report says what is wrong, in the log when it is another thing than before.
func (s *status) report(part, message string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := short(err)
	i := slices.IndexFunc(s.wrong, func(t trouble) bool { return t.part == part })
	switch {
	case i < 0:
		s.wrong = append(s.wrong, trouble{part, why})
	case s.wrong[i].why == why:
		return
	default:
		s.wrong[i].why = why
	}
	s.log.Warn(message, zap.String("name", s.name), zap.String("error", why))
}

// has tells whether there is something that a part cannot do.
func (s *status) has(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.wrong, func(t trouble) bool { return t.part == part })
}

func (s *status) solved(part string) { s.over(part, "fleet: "+part+" go on") }

// over forgets what was wrong, and says so in the log.
func (s *status) over(part, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.wrong, func(t trouble) bool { return t.part == part }); i >= 0 {
		s.wrong = slices.Delete(s.wrong, i, i+1)
		s.log.Info(message)
	}
}

func (s *status) state(published uint64) *protocol.FleetState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &protocol.FleetState{
		Name: s.name, Server: s.server, Connected: s.is, Since: s.since, Problems: []string{},
		PublishedSeq: published,
	}
	if s.away_ != "" {
		out.Problems = append(out.Problems, s.away_)
	}
	for _, t := range s.wrong {
		out.Problems = append(out.Problems, t.part+": "+t.why)
	}
	out.Problems = append(out.Problems, s.denied...)
	out.Problems = out.Problems[:min(len(out.Problems), maxProblems)]
	return out
}

func short(err error) string {
	if err == nil {
		return "the connection was lost"
	}
	text := strings.TrimPrefix(err.Error(), "nats: ")
	return format.Cut(text, maxProblem)
}
