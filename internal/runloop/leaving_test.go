package runloop

import (
	"context"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// lingering are agents that end when they are told to.
type lingering struct {
	Agents
	end chan struct{}
}

func (lingering) Default() string      { return "" }
func (lingering) Check(string) error   { return nil }
func (lingering) Missing(string) error { return nil }

func (a lingering) Open(string, string, string, func(context.Context, model.AgentNews) error) Agent {
	return lingeringAgent{end: a.end}
}

type lingeringAgent struct {
	Agent
	end chan struct{}
}

func (a lingeringAgent) Close() { <-a.end }

// A hosted session that is closed since it was idle keeps nobody waiting until its agent has ended
// but those who want this session.
func TestAnAgentThatEndsSlowlyHoldsUpNoOtherSession(t *testing.T) {
	agents := lingering{end: make(chan struct{})}
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), offline.Model{}, echoTool, newRecorder(), func(o *Options) {
		o.Agents = agents
	})
	r, err := f.newSession(nous, protocol.NewSessionParams{Agent: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	plain := f.session()
	state := func(id string) error {
		_, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
		return err
	}
	for _, id := range []string{plain, r.SessionID} { // until each has looked whether there is a run to resume
		if err := state(id); err != nil {
			t.Error(err)
		}
	}
	f.evict(time.Now().Add(time.Hour))
	if err := state(plain); err != nil {
		t.Error(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- state(r.SessionID) }()
	select {
	case err := <-asked:
		t.Errorf("the session is opened while its agent still ends: %v", err)
		asked <- err
	default:
	}
	close(agents.end)
	if err := <-asked; err != nil {
		t.Error(err)
	}
}
