package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Try starts an agent in a folder, has it say what it is, and ends it again. It waits for no
// longer than limit. The error has the agent's own words.
func (a *Agents) Try(ctx context.Context, name, workdir string, limit time.Duration) (said string, err error) {
	spec, err := a.spec(name)
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p := newProcess(a, spec)
	go p.start(workdir) // ends with stop
	defer p.stop()
	select {
	case <-p.started:
		err = p.problem
	case <-limited.Done():
	}
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
	return said, nil
}
