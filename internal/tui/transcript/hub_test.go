package transcript

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"noused/internal/client"
	"noused/internal/event"
	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/session"
)

// textTools are tools that need no process: they work on their arguments alone.
type textTools struct{}

func (textTools) List(context.Context, model.Scope) []model.ToolInfo {
	return []model.ToolInfo{{ToolSpec: model.ToolSpec{Name: "text.upper"}, Module: "text", Healthy: true}}
}

func (textTools) Servers(model.Scope) []model.ServerInfo { return nil }

func (textTools) Expand(_ context.Context, _ model.Scope, text string) (model.Expanded, error) {
	return model.Expanded{Text: text}, nil
}

func (textTools) Check(model.Server) error { return nil }

func (textTools) Try(context.Context, model.Scope) {}

func (textTools) Ready(context.Context, model.Scope) []string { return nil }

func (textTools) Jobs(string) []model.Job { return nil }

func (textTools) EndSession(context.Context, string) {}

func (textTools) Has(_ context.Context, _ model.Scope, name string) bool { return name == "text.upper" }

func (textTools) Call(_ context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	var a struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(inv.Arguments, &a); err != nil || inv.Name != "text.upper" {
		return model.Failed("bad_request", "want text.upper with a text")
	}
	progress(model.ToolUpdate{Delta: "looking at " + a.Text})
	return model.ToolResult{
		OK: true, Text: strings.ToUpper(a.Text),
		Outputs: map[string]string{"length": fmt.Sprint(len(a.Text))},
	}
}

// hub runs sessions as the daemon does, and answers commands.
type hub struct {
	t   *testing.T
	mux protocol.Mux
}

func newHub(t *testing.T) *hub {
	t.Helper()
	store, err := session.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := event.New("epoch", 1<<20, time.Now)
	var ids atomic.Int64
	core := runloop.NewHub(runloop.Options{
		Store: store, Model: offline.Model{}, ModelInfo: model.Choice{Provider: "offline", Name: offline.Name},
		Tools: textTools{}, Events: log,
		Now: time.Now, NewID: func(prefix string) string { return fmt.Sprint(prefix, ids.Add(1)) },
		Fault: func(id string, err error) { t.Errorf("session %s: %v", id, err) },
	})
	h := &hub{t: t}
	core.Bind(&h.mux)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- core.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		core.Drain(time.Minute)
		log.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// command sends one command and decodes the payload of the reply.
func (h *hub) command(command string, params, into any) {
	h.t.Helper()
	payload, err := json.Marshal(params)
	if err != nil {
		h.t.Fatal(err)
	}
	o := h.mux.Run(context.Background(), protocol.Command{ID: "1", Type: command, Payload: payload})
	if later := o.Later(); later != nil {
		o = later(context.Background())
	}
	var reply struct {
		Payload jsontext.Value  `json:"payload"`
		Error   *protocol.Error `json:"error"`
	}
	if err := json.Unmarshal(o.Append(nil, "1"), &reply); err != nil {
		h.t.Fatal(err)
	}
	if o.Err() != nil {
		h.t.Fatalf("%s: %v", command, o.Err())
	}
	if err := json.Unmarshal(reply.Payload, into); err != nil {
		h.t.Fatal(err)
	}
}

// One who watched a run sees the same as one who loads it afterwards.
func TestEventsAndEntriesTellTheSame(t *testing.T) {
	h := newHub(t)
	line := rapid.OneOf(
		rapid.SampledFrom([]string{
			"?let me think", "?and again", "some *words* to say", "- an item", "```go", "func f() {}", "```", "", "# a title",
			"日本語 and é",
			`!text.upper {"text":"quiet"}`, `!text.upper {"text":"two\nlines"}`, `!text.upper {"tex":1}`, `!no.such {}`,
			"!text.upper",
		}),
		rapid.StringMatching(`[ -~]{1,60}`),
	)
	rapid.Check(t, func(rt *rapid.T) {
		var s protocol.Session
		h.command("new_session", map[string]any{}, &s)
		live := fresh(plain)
		for range rapid.IntRange(1, 2).Draw(rt, "prompts") {
			var text string
			for strings.TrimSpace(text) == "" {
				text = strings.Join(rapid.SliceOfN(line, 1, 8).Draw(rt, "lines"), "\n")
			}
			var r struct {
				Events []protocol.EventEnvelope `json:"events"`
			}
			h.command("prompt", map[string]any{"session_id": s.SessionID, "text": text, "wait": true}, &r)
			for i, env := range r.Events {
				ev, err := client.Decode(env)
				if err != nil {
					rt.Fatal(err)
				}
				live.Apply(ev, env.TS)
				if i%7 == 0 {
					live.View(20)
				}
			}
		}
		var m protocol.Messages
		h.command("get_messages", map[string]any{"session_id": s.SessionID}, &m)
		loaded := fresh(plain)
		if err := loaded.Load(m.Messages, m.Runs, nil); err != nil {
			rt.Fatal(err)
		}
		loaded.SetRunning(false)
		if diff := cmp.Diff(all(live), all(loaded)); diff != "" {
			rt.Fatalf("-watched +loaded:\n%s", diff)
		}
		before := all(live)
		if err := live.Load(m.Messages, m.Runs, nil); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(before, all(live)); diff != "" {
			rt.Fatalf("loading what was watched changes the screen (-before +after):\n%s", diff)
		}
	})
}
