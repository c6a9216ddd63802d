package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// serves is a host of a module that is no tool.
type serves struct {
	*fakeHost
	invoke func(op string, args string) (string, error)
}

func (s serves) Invoke(_ context.Context, op string, args jsontext.Value, _ string) (jsontext.Value, error) {
	out, err := s.invoke(op, string(args))
	return jsontext.Value(out), err
}

func modules(t *testing.T, audit Auditor, kinds map[string]func(op, args string) (string, error)) *Registry {
	t.Helper()
	o := Options{Audit: audit, OutputDir: t.TempDir(), Dialects: map[string]tool.Dialect{
		tool.Amplifier: func(d *tool.Descriptor, _ *proc.Supervisor, _ *zap.Logger) tool.Host {
			return serves{offers(), kinds[d.Kind+" "+d.Name]}
		},
	}}
	for key := range kinds {
		kind, name, _ := strings.Cut(key, " ")
		o.Descriptors = append(o.Descriptors, &tool.Descriptor{
			Name: name, Kind: kind, Protocol: tool.Amplifier,
			Sandbox: tool.SandboxNone,
		})
	}
	r := New(o)
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

func TestOrchestratorsAreAskedOneAfterTheOther(t *testing.T) {
	says := func(answer string, err error) func(string, string) (string, error) {
		return func(op, args string) (string, error) {
			if op != "before_turn" {
				t.Errorf("asked for %s", op)
			}
			return strings.ReplaceAll(answer, "ARGS", strings.ReplaceAll(args, `"`, `'`)), err
		}
	}
	for name, c := range map[string]struct {
		first, second func(string, string) (string, error)
		want, err     string
	}{
		"both rewrite": {
			says(`{"input":"one"}`, nil), says(`{"input":"two ARGS"}`, nil),
			"two {'input':'one','state':{'k':1}}", "",
		},
		"no opinion": {
			says(`{"input":"ok"}`, nil), says(`{"rejected":"a typo"}`, nil), "",
			"b: the result of before_turn has neither",
		},
		"the first rejects": {says(`{"reject":"not that"}`, nil), says(`{"input":"never"}`, nil), "", "a: not that"},
		"the second fails": {
			says(`{"input":"ok"}`, nil), says("", tool.Faultf(tool.Timeout, "no result within 1s")), "",
			"b: no result within 1s",
		},
		"nonsense": {
			says(`{"input":7}`, nil), says(`{}`, nil), "",
			"a: the result of before_turn is not what it should be",
		},
		"nothing is left":     {says(`{"input":""}`, nil), says(`{}`, nil), "", "a: nothing is left of the text"},
		"rejects for nothing": {says(`{"reject":""}`, nil), says(`{}`, nil), "", "a: "},
	} {
		r := modules(t, nil, map[string]func(string, string) (string, error){
			"orchestrator a": c.first,
			"orchestrator b": c.second,
		})
		got, err := r.BeforeTurn(t.Context(), "ses-1", "", "text", []byte(`{"k":1}`))
		var rejected *Rejection
		if got != c.want || (err == nil) != (c.err == "") || err != nil &&
			(!errors.As(err, &rejected) || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%s: got %q, %v; want %q, %q", name, got, err, c.want, c.err)
		}
		if !r.Orchestrated() {
			t.Errorf("%s: no orchestrator", name)
		}
	}
}

// Orchestrators that name before_tool are shown each call; the strictest counts, and
// one that fails denies.
func TestOrchestratorsHaveASayInCalls(t *testing.T) {
	for name, c := range map[string]struct {
		a, b, want string
	}{
		"both allow": {`{"decision":"allow"}`, `{"decision":"allow"}`, ""},
		"one asks":   {`{"decision":"allow"}`, `{"decision":"ask","reason":"new"}`, "ask: ask: orchestrator b: new"},
		"one denies": {
			`{"decision":"ask"}`, `{"decision":"deny","reason":"too late"}`,
			"deny forbidden: deny: orchestrator b: too late",
		},
		"no opinion": {`{}`, `{"decision":"allow"}`, "deny forbidden: deny: orchestrator a: "},
		"one fails":  {`nonsense`, `{"decision":"allow"}`, "deny forbidden: deny: orchestrator a: "},
	} {
		asked := []string{}
		says := func(answer string) func(string, string) (string, error) {
			return func(op, args string) (string, error) {
				asked = append(asked, op+" "+args)
				return answer, nil
			}
		}
		r := modules(t, nil, map[string]func(string, string) (string, error){
			"orchestrator a": says(c.a),
			"orchestrator b": says(c.b),
		})
		if r.guarded() {
			t.Fatal("an orchestrator that does not name it is asked about calls")
		}
		for _, m := range r.all() {
			m.desc.Capabilities = []string{"before_turn", "before_tool"}
		}
		v := r.Guard(t.Context(), tooltest.Invocation("t.x", `{"n":1.0}`))
		got := strings.TrimSpace(v.Decision + " " + v.Code)
		if v.Decision == "ask" {
			got += ": " + v.Rule + ": " + v.Why
		} else if v.Code == tool.Forbidden {
			got += ": " + v.Why
		}
		if !strings.HasPrefix(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if asked[0] != `before_tool {"tool":"t.x","arguments":{"n":1.0}}` {
			t.Errorf("asked %q", asked)
		}
		if !r.Judge(tooltest.Invocation("nobody", "{}"), "ask", nil).Guarded {
			t.Error("the run loop is not told to ask them")
		}
	}
}

func TestContextModulesThatFailArePassedOver(t *testing.T) {
	audit := new(auditLog)
	r := modules(t, audit, map[string]func(string, string) (string, error){
		"context a": func(_, args string) (string, error) {
			if want := `{"messages":[{"role":"user","text":"hi"},{"role":"tool","text":"x","tool_call_id":"c","tool_name":"t.x"}]}`; args != want {
				t.Errorf("got %s, want %s", args, want)
			}
			return `{"messages":[{"role":"user","text":"shaped"}]}`, nil
		},
		"context b": func(string, string) (string, error) { return "", tool.Faultf(tool.Crashed, "exit status 1") },
		"context c": func(string, string) (string, error) { return `{"messages":[]}`, nil },
		"context d": func(string, string) (string, error) { return `{"messages":[{"role":"system","text":"x"}]}`, nil },
		"tool t":    func(string, string) (string, error) { return "", nil },
	})
	audit.takeLines()
	got, err := r.Transform(t.Context(), "ses-1", "", []model.Message{
		{Role: model.User, Text: "hi"},
		{Role: model.Tool, Text: "x", ToolCallID: "c", ToolName: "t.x"},
	})
	if diff := cmp.Diff([]model.Message{{Role: model.User, Text: "shaped"}}, got); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		"context module b: exit status 1", "context module c: it left no messages",
		"context module d: messages.0.role: got \"system\"",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	want := []string{
		"context:get a", `module:invoke a ok {"op":"transform"}`, "context:set a",
		"context:get b", `module:invoke b error {"op":"transform"} crashed`,
		"context:get c", `module:invoke c ok {"op":"transform"}`,
		"context:get d", `module:invoke d ok {"op":"transform"}`,
	}
	if diff := cmp.Diff(want, audit.takeLines()); diff != "" {
		t.Error(diff)
	}
	if r.Orchestrated() {
		t.Error("there is no orchestrator")
	}
}

func TestProvidersAndHooks(t *testing.T) {
	audit := new(auditLog)
	var told []string
	r := modules(t, audit, map[string]func(string, string) (string, error){
		"provider p": func(op, args string) (string, error) { return `{"text":"` + op + `"}`, nil },
		"hook h":     func(op, args string) (string, error) { told = append(told, op+" "+args); return `null`, nil },
	})
	if got, err := r.Invoke(t.Context(), "p", "generate", []byte(`{}`)); string(got) != `{"text":"generate"}` ||
		err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	for _, name := range []string{"nobody", "h"} {
		if _, err := r.Invoke(t.Context(), name, "generate", []byte(`{}`)); err == nil {
			t.Errorf("%s is taken for a provider", name)
		}
	}
	if err := audit.hooks["h"](t.Context(), []byte(`{"event":"x"}`)); err != nil || len(told) != 1 ||
		told[0] != `on_event {"event":"x"}` {
		t.Errorf("got %q, %v", told, err)
	}
	if list := r.List(t.Context(), model.Scope{}); len(list) > 0 {
		t.Errorf("offered to the model: %+v", list)
	}
	if got := call(t, r, "p.generate", "{}"); got.OK || got.Error.Code != tool.UnsupportedOp {
		t.Errorf("called as a tool: got %+v", got)
	}
	lines := strings.Join(audit.takeLines(), "\n")
	if !strings.Contains(lines, "hook:register h") || strings.Contains(lines, "module:invoke h") {
		t.Errorf("audited %s", lines)
	}
	r.Close(t.Context())
	if len(audit.hooks) > 0 {
		t.Error("the hook is still registered")
	}
}
