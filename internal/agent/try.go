package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"noused/internal/model"
)

// Try starts an agent in a folder, has it say what it is, and ends it again. It waits for no
// longer than limit. The error has the agent's own words.
func (a *Agents) Try(ctx context.Context, name, workdir string, limit time.Duration) (said string, err error) {
	s := a.Open("", name, workdir, func(context.Context, model.AgentNews) {})
	defer s.Close()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := s.start(limited)
	ended := new(endedError)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case limited.Err() != nil:
		return "", fmt.Errorf("%s has not answered initialize for %v", name, limit)
	case errors.As(err, &ended):
		return "", fmt.Errorf("%s ended before it answered: %s", name, ended.how)
	case err != nil:
		return "", err
	}
	if about := p.said.Agent; about != nil {
		said = strings.TrimSpace(about.Name + " " + about.Version)
	}
	p.p.Stop()
	<-p.over
	return said, nil
}
