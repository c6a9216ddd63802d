package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// auditLog keeps what it is told, a line an event.
type auditLog struct {
	mu    sync.Mutex
	lines []string
	hooks map[string]func(context.Context, []byte) error
}

func (a *auditLog) Record(ev model.AuditEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := strings.TrimSpace(fmt.Sprint(ev.Event, " ", ev.Module, " ", ev.Status, " ", string(ev.Data)))
	if ev.Error != nil {
		line += " " + ev.Error.Code
	}
	a.lines = append(a.lines, strings.Join(strings.Fields(line), " "))
}

func (a *auditLog) AddHook(name string, deliver func(context.Context, []byte) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hooks == nil {
		a.hooks = map[string]func(context.Context, []byte) error{}
	}
	a.hooks[name] = deliver
}

func (a *auditLog) RemoveHook(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.hooks, name)
}

// takeLines returns what was kept since the last time.
func (a *auditLog) takeLines() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := a.lines
	a.lines = nil
	return lines
}

// rulesOf are the rules of one source.
func rulesOf(t *testing.T, s policy.Source) func() *policy.Set {
	t.Helper()
	rules, err := policy.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return func() *policy.Set { return rules }
}

// What the policy denies is never asked nor started, is a forbidden call, and
// is audited, as is what it allows.
func TestDeniedCallsReachNobody(t *testing.T) {
	var audit auditLog
	m, shut := offers("ls", "rm"), offers("op")
	r := registry(t, Options{Policy: rulesOf(t, policy.Source{Deny: []string{"m.rm", "shut.*"}}), Audit: &audit},
		map[string]*fakeHost{"m": m, "shut": shut})
	audit.takeLines()
	for _, name := range []string{"m.rm", "m__rm", "shut.op"} {
		if got := call(t, r, name, "{}"); got.OK || got.Error.Code != tool.Forbidden {
			t.Errorf("%s: got %+v, want it forbidden", name, got)
		}
	}
	if m.asked.Load()+shut.asked.Load() > 0 {
		t.Error("a module was asked what it can do for a call that is denied")
	}
	if got := call(t, r, "m.ls", "{}"); !got.OK {
		t.Errorf("got %+v", got)
	}
	want := []string{
		`policy:decision error {"tool":"m.rm","decision":"deny","rule":"deny: m.rm","pattern":"m.rm"}`,
		`module:invoke error {"op":"m.rm"} forbidden`,
		`policy:decision error {"tool":"m__rm","decision":"deny","rule":"deny: m.rm","pattern":"m.rm"}`,
		`module:invoke error {"op":"m__rm"} forbidden`,
		`policy:decision error {"tool":"shut.op","decision":"deny","rule":"deny: shut.*","pattern":"shut.*"}`,
		`module:invoke error {"op":"shut.op"} forbidden`,
		`policy:decision ok {"tool":"m.ls","decision":"allow","rule":"allow: the user's own tool"}`,
		`module:invoke m ok {"op":"ls"}`,
	}
	if diff := cmp.Diff(want, audit.takeLines()); diff != "" {
		t.Error(diff)
	}
	health := map[string]bool{}
	for _, i := range r.List(t.Context(), model.Scope{}) {
		health[i.Name] = i.Healthy
	}
	if diff := cmp.Diff(map[string]bool{"m.ls": true, "m.rm": false, "shut": false}, health); diff != "" {
		t.Error(diff)
	}
	if shut.asked.Load() > 0 {
		t.Error("a module was started that may not be called at all")
	}
}

// However a model spells a name, the policy means the operation.
func TestPolicyAndTheSpellingOfNames(t *testing.T) {
	hosts := func() map[string]*fakeHost {
		return map[string]*fakeHost{"zeta": offers("fs.delete", "fs.read", "now"), "bare": offers("read")}
	}
	deny := registry(t, Options{Policy: rulesOf(t, policy.Source{Deny: []string{"zeta.fs.delete"}})}, hosts())
	allow := registry(t, Options{Policy: rulesOf(t, policy.Source{Allow: []string{"zeta.*"}})}, hosts())
	for _, c := range []struct {
		r    *Registry
		name string
		code string
	}{
		{deny, "zeta.fs.delete", tool.Forbidden},
		{deny, "zeta__fs__delete", tool.Forbidden},
		{deny, "zeta.fs__delete", tool.UnsupportedOp},
		{deny, "zeta__fs__read", ""},
		{allow, "zeta.now", ""},
		{allow, "zeta__now", ""},
		{allow, "zeta__fs__read", ""},
		{allow, "read", tool.Forbidden},
	} {
		got := call(t, c.r, c.name, "{}")
		if got.OK != (c.code == "") || !got.OK && got.Error.Code != c.code &&
			!(c.code == tool.UnsupportedOp && got.Error.Code == tool.Forbidden) {
			t.Errorf("%s: got %+v, want %q", c.name, got, c.code)
		}
	}
}

func TestCallsAreAudited(t *testing.T) {
	var audit auditLog
	m := offers("op")
	m.call = func(_ context.Context, _ string, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
		progress(model.ToolUpdate{Asset: &model.Asset{ID: "a", MediaType: "image/png", Path: "/x.png"}})
		return model.Failed(tool.ToolFailed, "no")
	}
	r := registry(t, Options{Audit: &audit}, map[string]*fakeHost{"m": m})
	call(t, r, "m.op", `{"password":"hunter2"}`)
	want := []string{
		`mount:add m {"kind":"tool","protocol":"fake"}`,
		`policy:decision ok {"tool":"m.op","decision":"allow","rule":"allow: the user's own tool"}`,
		`artifact:write m {"path":"/x.png","media_type":"image/png","asset_id":"a"}`,
		`module:invoke m error {"op":"op"} tool_failed`,
	}
	if diff := cmp.Diff(want, audit.takeLines()); diff != "" {
		t.Error(diff)
	}
	r.Close(t.Context())
	if got := audit.takeLines(); !slices.Equal(got, []string{"mount:remove m"}) {
		t.Errorf("got %q", got)
	}
	r = registry(t, Options{Audit: &audit}, map[string]*fakeHost{"bare": offers("read", "write")})
	call(t, r, "read", `{"path":"a.txt"}`)
	call(t, r, "write", `{"path":"b.txt","content":"secret"}`)
	got := audit.takeLines()
	for _, want := range []string{`artifact:read bare {"path":"a.txt"}`, `artifact:write bare {"path":"b.txt"}`} {
		if !slices.Contains(got, want) {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// What is reloaded while a call runs ends after that call, not with it.
func TestReloadLeavesRunningCallsAlone(t *testing.T) {
	dir := t.TempDir()
	write := func(name, version string) {
		tooltest.New(t, name, "gevals", "early").Set("version", version).Write(t, dir)
	}
	write("stays", "1")
	write("changes", "1")
	write("goes", "1")
	var audit auditLog
	var mu sync.Mutex
	hosts := map[string]*fakeHost{}
	enter, leave := make(chan struct{}), make(chan struct{})
	dialect := func(d *tool.Descriptor, _ *proc.Supervisor, _ *zap.Logger) tool.Host {
		h := offers("op")
		h.call = func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			if d.Version == "1" && d.Name != "stays" {
				enter <- struct{}{}
				<-leave
			}
			return model.ToolResult{OK: true, Text: d.Version}
		}
		mu.Lock()
		defer mu.Unlock()
		hosts[d.Name+d.Version] = h
		return h
	}
	r := New(Options{
		Dirs: []string{dir}, Dialects: map[string]tool.Dialect{tool.Gevals: dialect}, Audit: &audit,
		OutputDir: t.TempDir(),
	})
	defer r.Close(t.Context())
	var running sync.WaitGroup
	for _, name := range []string{"changes.op", "goes.op"} {
		running.Go(func() {
			if got := call(t, r, name, "{}"); got.Text != "1" {
				t.Errorf("%s: got %+v, want the call to end as it began", name, got)
			}
		})
		<-enter
	}
	audit.takeLines()
	write("changes", "2")
	write("new", "1")
	remove(t, dir, "goes.json")
	put(t, dir, "stays.json", "{broken")
	c := r.Reload()
	if got := fmt.Sprint(c.Added, c.Changed, c.Removed, len(c.Errors)); got != "[new] [changes] [goes] 1" ||
		!strings.Contains(c.Errors[0].Error(), "stays.json") {
		t.Errorf("got %s %v", got, c.Errors)
	}
	slices.Sort(audit.lines)
	if diff := cmp.Diff([]string{
		`mount:add changes {"kind":"tool","protocol":"gevals","version":"2"}`,
		`mount:add new {"kind":"tool","protocol":"gevals","version":"1"}`,
		"mount:remove changes", "mount:remove goes",
	}, audit.takeLines()); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"changes.op": "2", "stays.op": "1", "goes.op": tool.UnsupportedOp} {
		got := call(t, r, name, "{}")
		if got.OK && got.Text != want || !got.OK && got.Error.Code != want {
			t.Errorf("%s after the reload: got %+v, want %s", name, got, want)
		}
	}
	if c := r.Reload(); len(c.Added)+len(c.Changed)+len(c.Removed) > 0 || len(c.Errors) != 1 {
		t.Errorf("a reload of the same: got %+v", c)
	}
	mu.Lock()
	old := []*fakeHost{hosts["changes1"], hosts["goes1"]}
	mu.Unlock()
	for _, h := range old {
		if h.closed.Load() {
			t.Error("a module was ended in the middle of its call")
		}
	}
	close(leave)
	running.Wait()
	r.retiring.Wait()
	for _, h := range old {
		if !h.closed.Load() {
			t.Error("a module was left running")
		}
	}
}
