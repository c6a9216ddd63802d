package runloop

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// slowServers are tools with two servers that have not said what they can do.
type slowServers struct {
	tools
	asked atomic.Int64
}

func (s *slowServers) Ready(ctx context.Context, _ model.Scope) []string {
	s.asked.Add(1)
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > serverWait {
		panic("a model call waits for ever")
	}
	return []string{"far", "slow"}
}

// A model call goes without servers that are not ready, and says which, once.
func TestAModelCallGoesWithoutSlowServers(t *testing.T) {
	events, servers := newRecorder(), &slowServers{tools: echoTool}
	var warned []protocol.Warning
	events.onEvent = func(ev protocol.Event) {
		if w, ok := ev.(protocol.Warning); ok {
			warned = append(warned, w)
		}
	}
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), offline.Model{}, nil, events, func(o *Options) {
		o.Tools = servers
	})
	id := f.session()
	r, err := f.prompt(t.Context(), protocol.PromptParams{Scope: protocol.Scope{SessionID: id}, Text: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := r.Later(t.Context())
	if err != nil || reply.Result.Output != "hello" {
		t.Fatalf("got %+v, %v; want an answer all the same", reply.Result, err)
	}
	f.say(id, "once more") // and is not told again
	f.stop()
	events.done(t)
	if len(warned) != 1 || warned[0].Code != "tools_not_ready" || warned[0].TurnID == "" ||
		!strings.Contains(warned[0].Message, "far, slow") || servers.asked.Load() != 2 {
		t.Errorf("got %+v after %d questions, want one warning that names both servers", warned, servers.asked.Load())
	}
}
