package runloop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// How long the fallbacks answer in the place of a model that cannot: as long as its
// provider says, within bounds, or awayTime.
const (
	awayTime = 10 * time.Minute
	maxAway  = 24 * time.Hour
)

// refusal is a model that could not make the answer that is being asked for.
type refusal struct {
	key string
	err error
}

// answering is the model that makes the next answer: the session's, or the first of the
// fallbacks that can be asked while it cannot. None is asked twice for one answer.
func (m *machine) answering() model.Choice {
	own := m.model()
	all := append([]model.Choice{own}, m.others(own)...)
	for _, now := range []func(model.Choice) bool{m.present, func(model.Choice) bool { return true }} {
		for _, c := range all {
			if !m.refusedBy(c) && now(c) {
				return c
			}
		}
	}
	return own
}

// others are the fallbacks that can be asked.
func (m *machine) others(own model.Choice) []model.Choice {
	if m.fallbacks == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(m.fallbacks()), func(c model.Choice) bool {
		return c.Key() == own.Key() || m.missing != nil && m.missing(c) != nil
	})
}

// present reports a model that has not failed lately.
func (m *machine) present(c model.Choice) bool { return !m.now.Before(m.away[c.Key()]) }

// refusedBy reports a model that has failed to make this answer.
func (m *machine) refusedBy(c model.Choice) bool {
	return slices.ContainsFunc(m.trouble.refusals, func(r refusal) bool { return r.key == c.Key() })
}

// fallBack has another model make the answer where the one that was asked cannot for
// long, and says so. False: there is none, or another model would do no better.
func (m *machine) fallBack(err error) bool {
	if !errors.Is(err, model.ErrGone) && !errors.Is(err, model.ErrPassing) || len(m.others(m.model())) == 0 {
		return false
	}
	wait := awayTime
	var says interface{ RetryAfter() time.Duration }
	if errors.As(err, &says) && says.RetryAfter() > 0 {
		wait = min(says.RetryAfter(), maxAway)
	}
	maps.DeleteFunc(m.away, func(_ string, until time.Time) bool { return !m.now.Before(until) })
	if m.away == nil {
		m.away = map[string]time.Time{}
	}
	m.away[m.asked.Key()] = m.now.Add(wait)
	m.trouble.refusals = append(m.trouble.refusals, refusal{m.asked.Key(), err})
	next := m.answering()
	if m.refusedBy(next) {
		return false
	}
	m.publish(protocol.Warning{
		Ref: m.ref(), Code: protocol.WarningModelFallback,
		Message: fmt.Sprintf("%s/%s cannot answer, and %s/%s does for it; it is asked again in %s: %v", m.asked.Provider,
			m.asked.Name, next.Provider, next.Name, wait.Round(time.Second), err),
	})
	return true
}

// withRefusals is the error of the model that was asked last, with those of the models
// before it.
func (m *machine) withRefusals(err error) error {
	var earlier []string
	for _, r := range m.trouble.refusals {
		if r.key != m.asked.Key() {
			earlier = append(earlier, r.err.Error())
		}
	}
	if earlier == nil {
		return err
	}
	return fmt.Errorf("%w (and before that %s)", err, strings.Join(earlier, "; "))
}
