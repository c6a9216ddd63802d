//go:build sim

package sim

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/proc"
	"noused/internal/session/sessiontest"
	"noused/internal/tool"
	"noused/internal/tool/registry"
)

// own is the daemon's own model.
var own = model.Choice{Provider: "offline", Name: offline.Name}

// thinker is the offline model under some name, which waits for the driver before each delta. What it says has a price,
// also where it fails.
type thinker struct {
	l    *life
	name string
}

func (m thinker) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		m.l.w.thinks(req.SessionID, m.name)
		for d, err := range (offline.Model{}).Stream(ctx, req) {
			if fault := m.l.stopUntil(ctx, "answer of the model to "+req.SessionID); fault != nil {
				if ctx.Err() != nil { // to give up takes a provider its time, too
					_ = m.l.stopUntil(context.Background(), "end of the answer to "+req.SessionID)
				}
				if fault == errProvider && !yield(model.Delta{Usage: m.price(req.SessionID, model.Usage{InputTokens: 1})}, nil) {
					return
				}
				yield(model.Delta{}, fault)
				return
			}
			d.Usage = m.price(req.SessionID, d.Usage)
			if !yield(d, err) {
				return
			}
		}
	}
}

// perToken is what a token costs, in billionths of a dollar. The small model costs more: whatever it is called.
const perToken = 1_000_000

func (m thinker) price(session string, u model.Usage) model.Usage {
	u.Cost = tokens(u) * perToken
	if m.name == small {
		u.Cost *= 3
	}
	m.l.w.mu.Lock()
	defer m.l.w.mu.Unlock()
	m.l.w.spent[session] = m.l.w.spent[session].Add(u)
	m.l.w.costs[dayOf(time.Now())] += u.Cost
	return u
}

// What the first signal of a process that is asked for starts must not belong to the bubble of a history.
func init() { signal.Notify(make(chan os.Signal, 1), unix.SIGCHLD) }

// newTools is the real registry with two modules, whose calls are made by call: that of t has t.x, which may be called,
// and t.ask, which asks first. The daemon's own has agent, for a child session.
func newTools(workdir string, call tools) *registry.Registry {
	describe := func(name string, own bool, operations ...string) *tool.Descriptor {
		d := &tool.Descriptor{
			Name: name, Kind: tool.KindTool, Protocol: "simulated", Sandbox: tool.SandboxNone, Workdir: workdir,
			Bare: own, Jobs: own,
		}
		for _, name := range operations {
			d.Operations = append(d.Operations, tool.Operation{Name: name, Params: []byte(`{"type":"object"}`)})
		}
		return d
	}
	return registry.New(registry.Options{
		Descriptors: []*tool.Descriptor{describe("noused", true, tool.Agent), describe("t", false, "x", "ask")},
		Dialects: map[string]tool.Dialect{
			"simulated": func(d *tool.Descriptor, _ *proc.Supervisor, _ *zap.Logger) tool.Host {
				return &module{&tool.Manifest{Operations: d.Operations}, call}
			},
		},
		Workdir: workdir, OutputDir: filepath.Join(workdir, "outputs"), Environ: []string{},
	})
}

// tools makes the calls of all modules.
type tools func(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult

// module is one without a process.
type module struct {
	manifest *tool.Manifest
	call     tools
}

func (m *module) Describe(context.Context) (*tool.Manifest, error) { return m.manifest, nil }
func (m *module) Close(context.Context)                            {}
func (m *module) Call(ctx context.Context, _ string, inv model.Invocation, progress func(model.ToolUpdate),
) model.ToolResult {
	return m.call(ctx, inv, progress)
}

// call is one of a tool's, which waits for the driver twice.
func (l *life) call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	w := l.w
	w.mu.Lock()
	if w.calls[inv.ID]++; w.calls[inv.ID] > 1 && !l.gone() {
		w.fail("call %s is made for the %d. time", inv.ID, w.calls[inv.ID])
	}
	if !l.gone() {
		w.mayCall(inv)
		w.vow("called: "+inv.ID, inv.SessionID, func(all map[string]*sessiontest.Story) bool {
			return all[inv.SessionID] != nil && all[inv.SessionID].Calls[inv.ID]
		})
	}
	w.mu.Unlock()
	for range 2 {
		if err := l.stopUntil(ctx, "call of "+inv.Name+" as "+inv.ID); err != nil {
			return model.ToolResult{Error: &model.ToolError{Code: "cancelled", Message: err.Error()}}
		}
		w.mu.Lock()
		if !l.gone() && ctx.Err() == nil {
			w.touch(inv.SessionID)
		}
		w.mu.Unlock()
		progress(model.ToolUpdate{Delta: "working", Patch: []byte(`{"last":"` + inv.ID + `"}`)})
	}
	return model.ToolResult{OK: true, Text: "done"}
}

// rules asks about t.ask and allows the rest. An answer for more than once is for calls
// without arguments.
type rules struct{}

func (rules) Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
	switch {
	case inv.Name == "agent":
		return model.Verdict{Decision: model.Allow, Delegates: true}
	case inv.Name != "t.ask" || mode == "auto" || len(answers) > 0 && len(inv.Arguments) <= len("{}"):
		return model.Verdict{Decision: model.Allow}
	case mode == "deny":
		return model.Verdict{Decision: model.Deny, Why: "mode"}
	}
	return model.Verdict{
		Decision: model.Ask, Rule: "ask: t.ask",
		Offer: &model.Offer{Pattern: "t.ask", Rule: json.RawMessage(`{"tool":"t.ask"}`)},
	}
}

func (rules) Guard(context.Context, model.Invocation) model.Verdict { return model.Verdict{} }
func (rules) Preview(model.Invocation) string                       { return "" }
func (rules) Keep(_ []byte, _ time.Time, _, _ string) error         { return nil }

// nobody is no orchestrator and no context module.
type nobody struct{}

func (nobody) Orchestrated() bool { return false }
func (nobody) Transforms() bool   { return false }
func (nobody) BeforeTurn(_ context.Context, _, _, input string, _ []byte) (string, error) {
	return input, nil
}

func (nobody) Transform(_ context.Context, _, _ string, m []model.Message) ([]model.Message, error) {
	return m, nil
}

func (nobody) AfterTool(_ context.Context, _ model.Invocation, r model.ToolResult) (model.ToolResult, []string) {
	return r, nil
}
func (nobody) Stops(string) bool { return false }
func (nobody) OnStop(context.Context, string, string, string) (string, []string) {
	return "", nil
}
func (nobody) HookProblem(string) string { return "" }
