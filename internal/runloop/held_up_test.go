package runloop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
)

// run executes a command as a connection does: what comes back has been answered,
// or holds nobody up.
func (f *fixture) run(mux *protocol.Mux, command string, params any) protocol.Outcome {
	f.t.Helper()
	payload, err := json.Marshal(params)
	if err != nil {
		f.t.Fatal(err)
	}
	return mux.Run(context.Background(), protocol.Command{ID: "c", Type: command, Payload: jsontext.Value(payload)})
}

func (f *fixture) mux() *protocol.Mux {
	mux := &protocol.Mux{}
	f.Bind(mux)
	return mux
}

// While a session is compacted, which takes as long as its model does, nothing
// that a client sends behind that is held up, whatever it is.
func TestACompactionHoldsNoCommandUp(t *testing.T) {
	m := held{make(chan struct{}, 9), make(chan struct{}, 9)}
	f := newFixture(t, t.TempDir(), m, echoTool, newRecorder())
	id, mux := f.session(), f.mux()
	scope := protocol.Scope{SessionID: id}
	for range 2 {
		m.leave <- struct{}{}
		a, err := f.start(id, "go")
		if err != nil {
			t.Fatal(err)
		}
		<-m.enter
		f.events.wait(a.RunID)
	}
	tree, err := f.getTree(context.Background(), protocol.GetTreeParams{Scope: scope})
	if err != nil {
		t.Fatal(err)
	}
	root := tree.Nodes[0].ID
	compacted := f.run(mux, "compact_session", protocol.CompactSessionParams{Scope: scope}).Later()
	<-m.enter
	if err := f.run(mux, "set_leaf", protocol.SetLeafParams{Scope: scope, LeafID: root}).Err(); err == nil ||
		!strings.Contains(err.Error(), "run_in_progress") {
		t.Errorf("set_leaf: got %v, want run_in_progress", err)
	}
	prompted := f.run(mux, "prompt", protocol.PromptParams{Scope: scope, Text: "from the start", LeafID: root, Wait: no}).
		Later()
	if prompted == nil {
		t.Fatal("a prompt that has to wait for the compaction is not answered later")
	}
	if err := f.run(mux, "abort", protocol.AbortParams{Scope: scope}).Err(); err == nil ||
		!strings.Contains(err.Error(), "no_active_run") {
		t.Errorf("abort: got %v", err)
	}
	var wire *protocol.Error
	if err := compacted(context.Background()).Err(); !errors.As(err, &wire) {
		t.Errorf("compact_session: got %v, want that it was given up", err)
	}
	close(m.leave)
	if err := prompted(context.Background()).Err(); err != nil {
		t.Errorf("prompt: got %v", err)
	}
}

// A text that has to wait for the end of a run that is being aborted, as its tool
// takes its time, waits alone.
func TestATextThatWaitsForAnAbortHoldsNoCommandUp(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	stubborn := tools(func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
		close(entered)
		<-leave
		return model.ToolResult{OK: true}
	})
	f := newFixture(t, t.TempDir(), offline.Model{}, stubborn, newRecorder())
	id, mux := f.session(), f.mux()
	scope := protocol.Scope{SessionID: id}
	if _, err := f.start(id, "!t.x"); err != nil {
		t.Fatal(err)
	}
	<-entered
	if err := f.run(mux, "abort", protocol.AbortParams{Scope: scope}).Err(); err != nil {
		t.Fatal(err)
	}
	steered := f.run(mux, "steer", protocol.SteerParams{Scope: scope, Text: "go on", IfIdle: "prompt"}).Later()
	if steered == nil {
		t.Fatal("a steer that has to wait for the abort is not answered later")
	}
	queued := f.run(mux, "prompt", protocol.PromptParams{
		Scope: scope, Text: "and on", StreamingBehavior: "follow_up",
		Wait: no,
	}).Later()
	if queued == nil {
		t.Fatal("a prompt that has to wait for the abort is not answered later")
	}
	close(leave)
	for _, later := range []func(context.Context) protocol.Outcome{steered, queued} {
		if err := later(context.Background()).Err(); err != nil {
			t.Error(err)
		}
	}
}

// silent are tools that never say what they can do.
type silent struct{ tools }

func (silent) List(ctx context.Context, _ model.Scope) []model.ToolInfo {
	<-ctx.Done()
	return []model.ToolInfo{{
		ToolSpec: model.ToolSpec{Name: "dumb"}, Module: "dumb",
		Problem: "has not said yet what it can do",
	}}
}

// A tool that says nothing holds up nobody who asks what tools there are, and for
// no longer than a moment those who choose among them.
func TestASilentToolHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, t.TempDir(), offline.Model{}, nil, newRecorder())
		f.env.Tools = silent{}
		scope, mux := protocol.Scope{SessionID: f.session()}, f.mux()
		before := time.Now()
		listed := f.run(mux, "list_tools", protocol.ListToolsParams{Scope: scope}).Later()
		if listed == nil || !time.Now().Equal(before) {
			t.Fatalf("list_tools held its connection up for %v", time.Since(before))
		}
		if line := string(listed(context.Background()).Append(nil, "c")); !strings.Contains(line, "has not said yet") {
			t.Errorf("list_tools says %s", line)
		}
		err := f.run(mux, "set_active_tools", protocol.SetActiveToolsParams{Scope: scope, Tools: []string{"later"}}).Err()
		if err == nil || !strings.Contains(err.Error(), "tool_not_registered") {
			t.Errorf("set_active_tools: got %v", err)
		}
		if took := time.Since(before); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		f.stop()
	})
}
