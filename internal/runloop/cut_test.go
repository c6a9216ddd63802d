package runloop

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"testing"
	"testing/synctest"
	"time"

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

func (*cutter) Own() []string { return nil }
func (*cutter) Close()        {}
func (c *cutter) Open(string, string, string, func(context.Context, model.AgentNews) error) Agent {
	return c
}

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
		s, err := f.newSession(nous, protocol.NewSessionParams{Agent: "codex"})
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

// lasting has what a turn has changed recorded when it is let go on.
type lasting struct {
	settling
	goOn chan struct{}
}

func (l *lasting) After(context.Context, string, string, string) (model.Recorded, error) {
	<-l.goOn
	return model.Recorded{}, nil
}

// A steer that a hosted agent was stopped for cannot be taken back any more: the run ended as completed, and the
// agent had never had the text that it was about (found by the simulator).
func TestASteerThatStoppedAnAgentIsDelivered(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, c := context.Background(), &cutter{streams: make(chan context.Context), late: make(chan bool, 1)}
		changes := &lasting{settling: settling{disk: &unsynced{}}, goOn: make(chan struct{})}
		f := newFixtureWith(t, session.OSDisk{}, dir, offline.Model{}, echoTool, newRecorder(), func(o *Options) {
			o.Agents, o.Changes = c, changes
		})
		s, err := f.newSession(nous, protocol.NewSessionParams{Agent: "codex"})
		if err != nil {
			t.Fatal(err)
		}
		scope := protocol.Scope{SessionID: s.SessionID}
		say := func(text string, kind protocol.Kind) string {
			t.Helper()
			a, err := answered(f.prompt(ctx, protocol.PromptParams{
				Scope: scope, Text: text, Wait: no, StreamingBehavior: kind,
			}))
			if err != nil {
				t.Fatal(err)
			}
			return a.Accepted.InputID
		}
		say("go", "")
		c.now = <-c.streams
		first, second := say("instead", protocol.KindSteer), say("or that", protocol.KindSteer)
		synctest.Wait() // until its folder is being recorded
		if _, err := f.withdraw(ctx, protocol.WithdrawParams{Scope: scope, InputID: first}); err != nil {
			t.Errorf("another steer waits, and the first cannot be taken back: %v", err)
		}
		_, err = f.withdraw(ctx, protocol.WithdrawParams{Scope: scope, InputID: second})
		var wire *protocol.Error
		if !errors.As(err, &wire) || wire.Reason() != protocol.NotPending {
			t.Errorf("got %v, want that it is refused as %s", err, protocol.NotPending)
		}
		close(changes.goOn)
		if !t.Failed() {
			c.now = <-c.streams
		}
	})
}

// slow takes a second to write what has a word in it.
type slow struct {
	session.OSDisk
	word    string
	written bool
}

func (d *slow) Write(f *os.File, text []byte) (int, error) {
	has := bytes.Contains(text, []byte(d.word))
	if has {
		time.Sleep(time.Second)
	}
	n, err := d.OSDisk.Write(f, text)
	d.written = d.written || has
	return n, err
}

// teller is a hosted agent that tells something before it would prompt.
type teller struct {
	cutter
	news model.AgentNews
	tell func(context.Context, model.AgentNews) error
	then func(error)
}

func (t *teller) Open(_, _, _ string, tell func(context.Context, model.AgentNews) error) Agent {
	t.tell = tell
	return t
}

func (t *teller) Stream(ctx context.Context, _ model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		t.then(t.tell(ctx, t.news))
		yield(model.Delta{Stop: model.StopEnd}, nil)
	}
}

// An agent is prompted when its session is in the journal. A daemon that was killed on a slow
// disk began a new one, and sent it the text that the first was working on.
func TestAnAgentsSessionIsKeptBeforeItIsPrompted(t *testing.T) {
	for word, news := range map[string]model.AgentNews{
		"agent_session": {Session: "s-1"}, "agent_prompted": {Prompted: "Go on."},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			ctx, disk, asked := t.Context(), &slow{word: word}, false
			agent := &teller{news: news, then: func(err error) {
				if asked = true; err != nil || !disk.written {
					t.Errorf("%s: error %v, written %v, want it written", word, err, disk.written)
				}
			}}
			f := newFixtureWith(t, disk, dir, offline.Model{}, echoTool, newRecorder(), func(o *Options) { o.Agents = agent })
			s, err := f.newSession(nous, protocol.NewSessionParams{Agent: "codex"})
			if err == nil {
				_, err = answered(f.prompt(ctx, protocol.PromptParams{
					Scope: protocol.Scope{SessionID: s.SessionID}, Text: "go",
				}))
			}
			if err != nil || !asked {
				t.Errorf("error %v, asked %v", err, asked)
			}
		})
	}
}
