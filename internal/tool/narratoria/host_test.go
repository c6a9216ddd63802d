package narratoria

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

const (
	done  = `{"version":"0","type":"done","ok":true,"summary":"fine"}`
	hello = `{"version":"0","type":"log","level":"info","message":"hello"}`
)

// script is the tool t that takes these steps.
func script(t *testing.T, steps ...string) tooltest.Descriptor {
	return tooltest.New(t, "t", "narratoria", "player").Env("SCRIPT", strings.Join(steps, "\n"))
}

type run struct {
	*registry.Registry
	workdir string
	result  model.ToolResult
	log     tooltest.Log
	logged  *observer.ObservedLogs
}

var environ = []string{
	"PATH=/usr/bin:/bin", "HOME=/home/me", "LC_TIME=C", "OPENAI_API_KEY=sk-secret-1", "ANTHROPIC_API_KEY=sk-secret-2",
	"MY_TOKEN=sk-secret-3", "NOTIFY_SOCKET=/run/sk-secret-4", "LISTEN_FDS=2", "WATCHDOG_USEC=1", "LD_PRELOAD=sk-secret-5",
}

// mount makes a registry of one tool.
func mount(t *testing.T, d tooltest.Descriptor) *run {
	t.Helper()
	dir := t.TempDir()
	d.Write(t, dir)
	core, logged := observer.New(zapcore.DebugLevel)
	r := &run{workdir: t.TempDir(), logged: logged}
	r.Registry = registry.New(registry.Options{
		Dirs: []string{dir}, Workdir: r.workdir, OutputDir: t.TempDir(), Environ: environ, Logger: zap.New(core),
		Dialects: map[string]tool.Dialect{tool.Narratoria: Dialect},
	})
	t.Cleanup(func() { r.Close(context.Background()) })
	if errs := r.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	return r
}

func (r *run) call(ctx context.Context, args string) {
	r.result = r.Call(ctx, tooltest.Invocation("t.run", args), r.log.Add)
}

// gone sees that nothing is left of the tool.
func (r *run) gone(t *testing.T) {
	t.Helper()
	r.Close(context.Background())
	tooltest.NoChildren(t)
}

func (r *run) fails(t *testing.T, code string, texts ...string) {
	t.Helper()
	if r.result.OK || r.result.Error == nil || r.result.Error.Code != code {
		t.Fatalf("got %+v, want %s", r.result, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.result.Text, text) {
			t.Errorf("got text %q, want %q in it", r.result.Text, text)
		}
	}
}

func TestAnAbortEndsTheToolAndWhatItSaysThenIsNotHeard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := mount(t, script(t, "!term", `{"version":"0","type":"state_patch","patch":{"late":true}}`, done))
	r.log.On = func(model.ToolUpdate) { cancel() }
	r.call(ctx, "{}")
	r.fails(t, tool.Aborted)
	if got := r.log.Deltas(); len(got) != 1 {
		t.Errorf("got %q, want nothing after the abort", got)
	}
	r.gone(t)
}

func TestStoppingTheDaemonEndsTheTool(t *testing.T) {
	r := mount(t, script(t, hello, "!blocks"))
	closed := make(chan struct{})
	r.log.On = func(model.ToolUpdate) {
		go func() {
			r.Close(context.Background())
			close(closed)
		}()
	}
	r.call(t.Context(), "{}")
	<-closed
	r.fails(t, tool.Aborted, "the daemon is stopping")
	r.gone(t)
}

func TestAFloodIsHeardUntilTheAbort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	r := mount(t, script(t, "!floods").Set("timeout", "10m"))
	r.log.On = func(model.ToolUpdate) {
		if heard++; heard == 10_000 {
			cancel()
		}
	}
	r.call(ctx, "{}")
	r.fails(t, tool.Aborted)
	if heard != 10_000 {
		t.Errorf("heard %d lines, want none after the abort", heard)
	}
	r.gone(t)
}

func TestAPanicOfTheListenerLeavesNoChild(t *testing.T) {
	r := mount(t, script(t, hello, "!blocks"))
	r.log.On = func(model.ToolUpdate) { panic("ouch") }
	r.call(t.Context(), "{}")
	r.fails(t, tool.Internal)
	r.gone(t)
}

func TestAToolThatIsNotThereIsUnhealthy(t *testing.T) {
	r := mount(t, script(t).Set("transport", map[string]any{"type": "stdio", "command": []string{"./none"}}))
	list := r.List(t.Context(), model.Scope{})
	if len(list) != 1 || list[0].Name != "t.run" || list[0].Healthy || !strings.Contains(list[0].Problem, "no such file") {
		t.Errorf("got %+v, want t.run, unhealthy", list)
	}
	r.call(t.Context(), "{}")
	r.fails(t, tool.Unreachable, "no such file")
	r = mount(t, script(t, done).Set("workdir", "nowhere"))
	r.call(t.Context(), "{}")
	r.fails(t, tool.Unreachable, "nowhere is not a directory")
}

func TestTheDaemonsSecretsReachNeitherTheToolNorTheLog(t *testing.T) {
	r := mount(t, script(t, "!env", `!stderr "noise"`, "!exit 3").Env("KUBECONFIG", "{env.HOME}/.kube"))
	r.call(t.Context(), "{}")
	r.fails(t, tool.ProtocolError)
	env := r.log.Deltas()[0]
	for _, want := range []string{"PATH=/usr/bin:/bin", "HOME=/home/me", "LC_TIME=C", "KUBECONFIG=/home/me/.kube"} {
		if !strings.Contains(env, want) {
			t.Errorf("got %q, want %s in it", env, want)
		}
	}
	entries := r.logged.All()
	if len(entries) == 0 {
		t.Error("want the failure in the log")
	}
	said := env + r.result.Text + string(r.result.Error.Details)
	for _, e := range entries {
		said += e.Message + fmt.Sprint(e.ContextMap())
	}
	for _, secret := range []string{
		"sk-secret", "OPENAI", "ANTHROPIC", "MY_TOKEN", "NOTIFY_SOCKET", "LISTEN_FDS",
		"WATCHDOG_USEC", "LD_PRELOAD",
	} {
		if strings.Contains(said, secret) {
			t.Errorf("%s got out: %s", secret, said)
		}
	}
}

func TestErrorEventsAreInTheDaemonsLog(t *testing.T) {
	r := mount(t, script(t, `{"version":"0","type":"error","errorCode":"E1","errorMessage":"a scratch"}`, done))
	r.call(t.Context(), "{}")
	entries := r.logged.FilterMessage("tool reported errors").All()
	if !r.result.OK || len(entries) != 1 || fmt.Sprint(entries[0].ContextMap()["errors"]) != "[E1: a scratch]" {
		t.Errorf("got %+v with log %v", r.result, r.logged.All())
	}
}

func TestAFailureHasTheEndOfStderr(t *testing.T) {
	r := mount(t, script(t, "!noise 20000", `!stderr "the end\n"`, "!exit 4"))
	r.call(t.Context(), "{}")
	r.fails(t, tool.ProtocolError, "the tool ended with exit status 4", "the end")
	var details struct{ Exit, Stderr string }
	if err := json.Unmarshal(r.result.Error.Details, &details); err != nil {
		t.Fatal(err)
	}
	if details.Exit != "exit status 4" || len(details.Stderr) > 64<<10 || len(details.Stderr) < 60<<10 ||
		!strings.HasSuffix(details.Stderr, "the end") {
		t.Errorf("got exit %q and %d bytes of stderr, want the last 64 KiB", details.Exit, len(details.Stderr))
	}
	if len(r.result.Text) > 5<<10 {
		t.Errorf("got a text of %d bytes, want a little of stderr only", len(r.result.Text))
	}
}

func TestManyCallsRunAtOnce(t *testing.T) {
	r := mount(t, script(t, hello, done))
	const calls = 20
	results := make(chan model.ToolResult, calls)
	for range calls {
		go func() { results <- r.Call(t.Context(), tooltest.Invocation("t.run", "{}"), nil) }()
	}
	for range calls {
		if got := <-results; !got.OK {
			t.Errorf("got %+v, want ok", got)
		}
	}
	r.gone(t)
}

func TestTheExampleTool(t *testing.T) {
	workdir := t.TempDir()
	reg := registry.New(registry.Options{
		Dirs: []string{"../../../examples/tools"}, Workdir: workdir, OutputDir: t.TempDir(),
		Dialects: map[string]tool.Dialect{tool.Narratoria: Dialect},
	})
	defer reg.Close(context.Background())
	if errs := reg.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	for op, patch := range map[string]string{
		"light": `{"torches": {"hall": true}}`,
		"douse": `{"torches": {"hall": null}}`,
	} {
		var log tooltest.Log
		result := reg.Call(t.Context(), tooltest.Invocation("torch."+op, `{}`), log.Add)
		updates := log.Updates()
		if !result.OK || len(updates) != 5 || string(updates[2].Patch) != patch || updates[1].Asset == nil ||
			!updates[1].Asset.Supported {
			t.Errorf("%s: got %+v after %q", op, result, log.Deltas())
		}
	}
}
