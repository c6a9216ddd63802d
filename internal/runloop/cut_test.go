package runloop

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// cutter is a hosted agent that is silent until it is cut, and knows whether its turn could
// still have begun then.
type cutter struct {
	Agent
	streams chan context.Context
	late    chan bool
	now     context.Context
}

func (*cutter) Default() string { return "" }

func (*cutter) Check(string) error { return nil }

func (*cutter) Missing(string) error { return nil }

func (*cutter) Resumes(string) bool { return true }

func (*cutter) Serves(string) bool { return false }

func (*cutter) Queues() bool { return false }

func (*cutter) Steered() {}

func (*cutter) Own() []string                                                               { return nil }
func (*cutter) Close()                                                                      {}
func (c *cutter) Open(string, string, string, func(context.Context, model.AgentNews)) Agent { return c }

func (c *cutter) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		c.streams <- ctx
		<-ctx.Done()
		yield(model.Delta{}, context.Cause(ctx))
	}
}

func (c *cutter) Cut() { c.late <- c.now.Err() == nil }

// An agent is told to end its turn when nothing of that turn can begin any more. One that
// began after it was told went on working, and the next turn waited for its end for ever
// (found by the simulator).
func TestATurnThatIsCutBeginsNoMore(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, c := context.Background(), &cutter{streams: make(chan context.Context), late: make(chan bool, 1)}
		f := newFixtureWith(t, session.OSDisk{}, dir, offline.Model{}, echoTool, newRecorder(), func(o *Options) {
			o.Agents, o.Changes = c, &settling{disk: &unsynced{}}
		})
		s, err := f.newSession(ctx, protocol.NewSessionParams{Agent: "codex"})
		if err != nil {
			t.Fatal(err)
		}
		scope := protocol.Scope{SessionID: s.SessionID}
		if _, err := answered(f.prompt(ctx, protocol.PromptParams{Scope: scope, Text: "go", Wait: no})); err != nil {
			t.Fatal(err)
		}
		c.now = <-c.streams
		if _, err := answered(f.prompt(ctx, protocol.PromptParams{
			Scope: scope, Text: "instead", Wait: no, StreamingBehavior: protocol.KindSteer,
		})); err != nil {
			t.Fatal(err)
		}
		if <-c.late {
			t.Error("the turn is cut, and may still begin")
		}
		c.now = <-c.streams
	})
}
