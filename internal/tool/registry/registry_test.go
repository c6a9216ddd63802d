package registry

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// What the first signal of a process that is asked for starts must not belong to the
// bubble of a test.
func init() { signal.Notify(make(chan os.Signal, 1), unix.SIGCHLD) }

// fakeHost is a host without processes.
type fakeHost struct {
	describe func(context.Context) (*tool.Manifest, error)
	call     func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult
	asked    atomic.Int64
	closed   atomic.Bool
}

func (h *fakeHost) Describe(ctx context.Context) (*tool.Manifest, error) {
	h.asked.Add(1)
	return h.describe(ctx)
}

func (h *fakeHost) Call(ctx context.Context, op string, inv model.Invocation,
	progress func(model.ToolUpdate),
) model.ToolResult {
	return h.call(ctx, op, inv, progress)
}

func (h *fakeHost) Close(context.Context) { h.closed.Store(true) }

// offers is a host that says which operation was called with what.
func offers(ops ...string) *fakeHost {
	m := &tool.Manifest{}
	for _, op := range ops {
		name, params, _ := strings.Cut(op, " ")
		m.Operations = append(m.Operations, tool.Operation{Name: name, Params: jsontext.Value(params)})
	}
	return &fakeHost{
		describe: func(context.Context) (*tool.Manifest, error) { return m, nil },
		call: func(_ context.Context, op string, inv model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
			return model.ToolResult{OK: true, Text: op + " " + string(inv.Arguments)}
		},
	}
}

func registry(t *testing.T, o Options, hosts map[string]*fakeHost) *Registry {
	t.Helper()
	for name := range hosts {
		d := &tool.Descriptor{
			Name: name, Kind: "tool", Protocol: "fake", Sandbox: tool.SandboxNone, Workdir: o.Workdir,
			Bare: strings.HasPrefix(name, "bare"),
		}
		o.Descriptors = append(o.Descriptors, d)
	}
	o.Dialects = map[string]tool.Dialect{"fake": func(d *tool.Descriptor, _ *proc.Supervisor, _ *zap.Logger) tool.Host {
		return hosts[d.Name]
	}}
	o.OutputDir = t.TempDir()
	r := New(o)
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

func call(t *testing.T, r *Registry, name, args string) model.ToolResult {
	t.Helper()
	return r.Call(t.Context(), tooltest.Invocation(name, args), nil)
}

func TestNamesLeadToTheirOperation(t *testing.T) {
	r := registry(t, Options{}, map[string]*fakeHost{
		"a": offers("x", "b.y", "only__a"), "a.b": offers("x", "c"), "a__b": offers("z"), "bare": offers("read", "a.x"),
	})
	for name, want := range map[string]string{
		"a.x": "x {}", "a.b.y": "b.y {}", "a.b.x": "x {}", "a.b.c": "c {}", "a__x": "x {}", "a__b.z": "z {}",
		"a__b__c": "c {}", "a__b__z": "z {}", "a__only__a": "only__a {}", "read": "read {}",
		"a": tool.UnsupportedOp, "a.": tool.UnsupportedOp, "a.z": tool.UnsupportedOp, "": tool.UnsupportedOp,
		".x":  tool.UnsupportedOp,
		"b.x": tool.UnsupportedOp, "bare.read": tool.UnsupportedOp, "x": tool.UnsupportedOp,
	} {
		got := call(t, r, name, "{}")
		if got.OK && got.Text != want || !got.OK && got.Error.Code != want {
			t.Errorf("%q: got %+v, want %s", name, got, want)
		}
	}
}

func TestArgumentsAreCheckedBeforeTheToolSeesThem(t *testing.T) {
	schema := `{"type":"object","required":["city"],"properties":{
		"city":{"type":"string","pattern":"^(?!x)"},
		"days":{"type":"integer","minimum":1,"default":12345678901234567890},
		"opts":{"$ref":"#/$defs/o"},
		"list":{"type":"array","items":{"$ref":"#/$defs/o"}}},
		"$defs":{"o":{"type":"object","properties":{"deep":{"default":{"a":"<&>"}}},"additionalProperties":false}},
		"additionalProperties":false}`
	r := registry(t, Options{}, map[string]*fakeHost{"m": offers("op "+schema, "any", `bad {"type":"strng"}`)})
	for _, c := range []struct{ op, args, code, text string }{
		{"m.op", `{"city":"x","days":2}`, "", `op {"city":"x","days":2}`},
		{"m.op", `{"city":"x"}`, "", `op {"city":"x","days":12345678901234567890}`},
		{"m.op", `{"city":"x","days":1,"opts":{}}`, "", `op {"city":"x","days":1,"opts":{"deep":{"a":"<&>"}}}`},
		{"m.op", `{"city":"x","days":1,"list":[{}]}`, "", `op {"city":"x","days":1,"list":[{"deep":{"a":"<&>"}}]}`},
		{"m.op", `{"city":"x", "days":1e0}`, "", `op {"city":"x", "days":1e0}`},
		{"m.op", `{}`, tool.BadRequest, "missing property 'city'"},
		{"m.op", ``, tool.BadRequest, "missing property 'city'"},
		{"m.op", `{"city":7}`, tool.BadRequest, "/city: got number, want string"},
		{"m.op", `{"city":"x","days":0}`, tool.BadRequest, "/days: "},
		{"m.op", `{"city":"x","list":[{"a/b":1}]}`, tool.BadRequest, "/list/0: additional properties 'a/b'"},
		{"m.op", `{"city":"x","typo":1}`, tool.BadRequest, "'typo'"},
		{"m.op", `{"city":"x","city":"y"}`, tool.BadRequest, "not a JSON object"},
		{"m.op", `{"city":"x"`, tool.BadRequest, "not a JSON object"},
		{"m.op", "{\"city\":\"\xff\"}", tool.BadRequest, "not a JSON object"},
		{"m.op", `[]`, tool.BadRequest, "not a JSON object but a JSON array"},
		{"m.op", `"x"`, tool.BadRequest, "not a JSON object but a JSON string"},
		{"m.op", `null`, tool.BadRequest, "not a JSON object but a JSON null"},
		{"m.any", `{"whatever":[1]}`, "", `any {"whatever":[1]}`},
		{"m.any", ``, "", `any {}`},
		{"m.bad", `{}`, tool.ProtocolError, "params of bad: not a JSON Schema"},
	} {
		got := call(t, r, c.op, c.args)
		switch {
		case c.code == "" && got.Text != c.text:
			t.Errorf("%s %s: got %+v, want %s", c.op, c.args, got, c.text)
		case c.code != "" && (got.Error == nil || got.Error.Code != c.code || !strings.Contains(got.Text, c.text)):
			t.Errorf("%s %s: got %+v, want %s with %q", c.op, c.args, got, c.code, c.text)
		}
	}
	for _, i := range r.List(t.Context(), model.Scope{}) {
		if i.Name == "m.bad" && (i.Healthy || i.Problem == "") {
			t.Errorf("got %+v, want it unhealthy", i)
		}
	}
}

func TestAListIsSortedAndSaysWhatIsWrong(t *testing.T) {
	broken := &fakeHost{describe: func(context.Context) (*tool.Manifest, error) {
		return nil, tool.Faultf(tool.Unreachable, "no such program")
	}}
	half := offers("op")
	whole := half.describe
	half.describe = func(ctx context.Context) (*tool.Manifest, error) {
		m, _ := whole(ctx)
		return m, errors.New("kubectl is missing")
	}
	r := registry(t, Options{}, map[string]*fakeHost{
		"b": offers(`z {"properties":{}}`, "y"), "c": broken, "a": half, "bare": offers("x"),
		"d": {describe: func(context.Context) (*tool.Manifest, error) { panic("ouch") }},
	})
	type row struct{ Name, Params, Problem string }
	var got []row
	for _, i := range r.List(t.Context(), model.Scope{}) {
		if i.Healthy != (i.Problem == "") {
			t.Errorf("got %+v", i)
		}
		got = append(got, row{i.Name, string(i.Params), i.Problem})
	}
	object := `{"type":"object"}`
	if diff := cmp.Diff([]row{
		{"a.op", object, "kubectl is missing"},
		{"b.y", object, ""},
		{"b.z", `{"properties":{},"type":"object"}`, ""},
		{"c", object, "no such program"},
		{"d", object, "describe d: panic: ouch"},
		{"x", object, ""},
	}, got); diff != "" {
		t.Error(diff)
	}
	if got := call(t, r, "c.op", "{}"); got.Error == nil || got.Error.Code != tool.Unreachable {
		t.Errorf("got %+v, want unreachable", got)
	}
	if got := call(t, r, "a.op", "{}"); !got.OK {
		t.Errorf("got %+v, want the host itself to decide", got)
	}
}

func TestAModuleThatFailedIsLeftAloneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := true
		h := offers("op")
		well := h.describe
		h.describe = func(ctx context.Context) (*tool.Manifest, error) {
			if sick {
				return nil, errors.New("not yet")
			}
			return well(ctx)
		}
		r := registry(t, Options{}, map[string]*fakeHost{"m": h})
		for range 100 {
			r.List(t.Context(), model.Scope{})
			time.Sleep(100 * time.Millisecond)
		}
		if got := h.asked.Load(); got != 4 { // after 0, 1, 3, 7 s
			t.Errorf("asked %d times in 10 s, want 4", got)
		}
		sick = false
		if list := r.List(t.Context(), model.Scope{}); list[0].Healthy {
			t.Errorf("got %+v, want it still left alone", list)
		}
		if got := call(t, r, "m.op", "{}"); !got.OK {
			t.Errorf("got %+v, want a call to try at once", got)
		}
		if list := r.List(t.Context(), model.Scope{}); !list[0].Healthy {
			t.Errorf("got %+v, want it healthy", list)
		}
		r.Close(t.Context())
	})
}

func TestModulesAreAskedAllAtOnceAndOncePerQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := make(map[string]*fakeHost)
		for _, name := range []string{"a", "b", "c"} {
			h := offers("op")
			well := h.describe
			h.describe = func(ctx context.Context) (*tool.Manifest, error) {
				if h.asked.Load() == 1 {
					time.Sleep(9 * time.Second)
				}
				return well(ctx)
			}
			hosts[name] = h
		}
		r := registry(t, Options{}, hosts)
		start := time.Now()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if list := r.List(impatient, model.Scope{}); time.Since(start) != time.Second || list[0].Healthy {
			t.Errorf("got %+v after %v, want three unhealthy entries after 1s", list, time.Since(start))
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { r.List(t.Context(), model.Scope{}) })
		}
		wg.Wait()
		if took := time.Since(start); took != 9*time.Second {
			t.Errorf("three modules took %v, want 9s", took)
		}
		if got := hosts["a"].asked.Load(); got != 1 {
			t.Errorf("asked %d times, want once", got)
		}
		r.Close(t.Context())
	})
}

func TestAPanicIsAResult(t *testing.T) {
	h := offers("op")
	h.call = func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
		panic("ouch")
	}
	r := registry(t, Options{}, map[string]*fakeHost{"m": h})
	if got := call(t, r, "m.op", "{}"); got.OK || got.Error.Code != tool.Internal || got.Text == "" {
		t.Errorf("got %+v, want an internal error", got)
	}
}

func TestACallThatIsAbortedBeforeItStartsDoesNotStart(t *testing.T) {
	r := registry(t, Options{}, map[string]*fakeHost{"m": offers("op")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.Call(ctx, tooltest.Invocation("m.op", "{}"), nil); got.OK || got.Error.Code != tool.Aborted {
		t.Errorf("got %+v, want aborted", got)
	}
}

func TestALongResultIsCutAndKept(t *testing.T) {
	h := offers("op")
	r := registry(t, Options{MaxText: 1000, MaxLines: 10}, map[string]*fakeHost{"m": h})
	for _, c := range []struct{ name, text, cut string }{
		{"short", "hello", ""},
		{"just fits", strings.Repeat("x", 1000), ""},
		{"ten lines", strings.Repeat("x\n", 10), ""},
		{"many lines", strings.Repeat("x\n", 11), "2 of 22 bytes, 1 of 11 lines"},
		{"long lines", strings.Repeat(strings.Repeat("x", 599)+"\n", 2), "266 of 1200 bytes"},
		{"lines", strings.Repeat(strings.Repeat("x", 99)+"\n", 11), "200 of 1100 bytes, 2 of 11 lines"},
		{"one long line", strings.Repeat("ä", 600), "200 of 1200 bytes"},
		{"cut characters", "x" + strings.Repeat("ä", 600), "202 of 1201 bytes"},
		{"not UTF-8", "a\xff", ""},
	} {
		h.call = func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
			return model.ToolResult{OK: true, Text: c.text}
		}
		want := strings.ToValidUTF8(c.text, "\uFFFD")
		got := call(t, r, "m.op", "{}").Text
		if c.cut == "" {
			if got != want {
				t.Errorf("%s: got %q, want %q", c.name, got, want)
			}
			continue
		}
		m := regexp.MustCompile(`(?s)^(.*?)\n+\[… (.*) left out here; the whole text is in (.*) …\]\n\n(.*)$`).
			FindStringSubmatch(got)
		if m == nil || m[1] == "" || !strings.HasPrefix(want, m[1]) || m[2] != c.cut || m[4] == "" ||
			!strings.HasSuffix(want, m[4]) || !utf8.ValidString(got) {
			t.Errorf("%s: got %q, want %s left out", c.name, got, c.cut)
			continue
		}
		if kept, err := os.ReadFile(m[3]); err != nil || string(kept) != want {
			t.Errorf("%s: the file has %d bytes, %v, want all %d", c.name, len(kept), err, len(want))
		}
	}
}

// One result does not take more of a small window than was given, and a window
// that is larger than need be lets no more through.
func TestAResultFitsTheModel(t *testing.T) {
	text := strings.Repeat(strings.Repeat("x", 79)+"\n", 1000) // of 80,000 bytes
	h := offers("op")
	r := registry(t, Options{}, map[string]*fakeHost{"m": h})
	for most, want := range map[int]int{0: tool.DefaultMaxText, 8192: 8192, 1 << 20: tool.DefaultMaxText, 1: minText} {
		for _, failed := range []bool{false, true} {
			h.call = func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
				if failed {
					return model.Failed("tool_failed", text)
				}
				return model.ToolResult{OK: true, Text: text}
			}
			inv := tooltest.Invocation("m.op", "{}")
			inv.MaxResult = most
			got := r.Call(t.Context(), inv, nil)
			if n := len(got.Text); n > want+500 || n < want-500 {
				t.Errorf("with at most %d: got %d bytes, want about %d", most, n, want)
			}
			if failed && len(got.Error.Message) > want+100 {
				t.Errorf("with at most %d: got an error of %d bytes, want at most %d", most, len(got.Error.Message), want)
			}
		}
	}
}

// Whatever is said, what is shown of it is within the bounds, valid, and its
// beginning and its end.
func FuzzEnds(f *testing.F) {
	f.Add("one\ntwo\nthree\n", 7, 2)
	f.Add("ääääää", 4, 3)
	f.Fuzz(func(t *testing.T, text string, size, rows int) {
		text = strings.ToValidUTF8(text, "")
		k := keeper{maxText: max(size%1000, 12), maxRow: max(rows%100, 3)}
		if k.fits(text) {
			t.Skip()
		}
		head, tail := k.ends(text)
		if len(head)+len(tail) > k.maxText || lines(head)+lines(tail) > k.maxRow {
			t.Errorf("got %d and %d bytes, %d and %d lines, within %+v", len(head), len(tail), lines(head), lines(tail), k)
		}
		if len(head)+len(tail) > len(text) || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) ||
			!utf8.ValidString(head+tail) {
			t.Errorf("got %q and %q of %q", head, tail, text)
		}
	})
}

func TestKeptResultsAreBounded(t *testing.T) {
	k := newKeeper(filepath.Join(t.TempDir(), "new", "dir"), 10, 10)
	for range maxKeptFiles + 20 {
		if _, err := k.write("x", "ses-1"); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(k.files.Of("ses-1")); err != nil || len(files) != maxKeptFiles {
		t.Errorf("got %d files, %v, want the latest %d", len(files), err, maxKeptFiles)
	}
	got := k.bound(model.ToolResult{Text: strings.Repeat("x", maxKept+1)}, "ses-1", 0)
	if !strings.Contains(got.Text, "the first 16777216 bytes are in ") {
		t.Errorf("got %q", got.Text[:200])
	}
}

func TestUpdatesCanBePutOnTheWire(t *testing.T) {
	h := offers("op")
	h.call = func(_ context.Context, _ string, _ model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
		progress(model.ToolUpdate{Delta: "a\xff", Update: []byte(`{"x":`)})
		return model.ToolResult{OK: true}
	}
	r := registry(t, Options{}, map[string]*fakeHost{"m": h})
	var log tooltest.Log
	r.Call(t.Context(), tooltest.Invocation("m.op", "{}"), log.Add)
	if diff := cmp.Diff([]model.ToolUpdate{{Delta: "a\uFFFD"}}, log.Updates()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatCannotBeRunAsAskedForIsRefused(t *testing.T) {
	dir := t.TempDir()
	tooltest.New(t, "caged", "narratoria", "early").Set("sandbox", "workdir").Write(t, dir)
	tooltest.New(t, "modular", "module", "early").Write(t, dir)
	tooltest.New(t, "hooked", "module", "early").Set("kind", "hook").Set("operations", nil).Write(t, dir)
	fake := func(*tool.Descriptor, *proc.Supervisor, *zap.Logger) tool.Host {
		t.Error("a host was made")
		return offers()
	}
	r := New(Options{Dirs: []string{dir}, Dialects: map[string]tool.Dialect{tool.Narratoria: fake, tool.Gevals: fake}})
	defer r.Close(t.Context())
	var got []string
	for _, i := range r.List(t.Context(), model.Scope{}) {
		got = append(got, i.Name+": "+i.Problem)
	}
	if diff := cmp.Diff([]string{
		"caged.run: sandbox workdir is not supported by this version",
		"modular.run: protocol module is not supported by this version",
	}, got); diff != "" {
		t.Error(diff)
	}
	if got := call(t, r, "caged.run", "{}"); got.OK || got.Error.Code != tool.Forbidden {
		t.Errorf("got %+v, want it refused", got)
	}
	if got := call(t, r, "hooked.run", "{}"); got.OK || got.Error.Code != tool.UnsupportedOp {
		t.Errorf("got %+v, want it refused", got)
	}
}

func TestCloseEndsEveryHost(t *testing.T) {
	a, b := offers("op"), offers("op")
	r := registry(t, Options{}, map[string]*fakeHost{"a": a, "b": b})
	r.List(t.Context(), model.Scope{})
	r.Close(t.Context())
	if !a.closed.Load() || !b.closed.Load() {
		t.Error("a host was left open")
	}
	if list := r.List(t.Context(), model.Scope{}); list[0].Healthy {
		t.Errorf("got %+v after the end", list)
	}
}

// A tool that hangs holds up its own calls only.
func TestWhetherThereIsANameWaitsForNoOtherTool(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	silent := offers("x")
	silent.describe = func(ctx context.Context) (*tool.Manifest, error) {
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return nil, errors.New("hangs")
	}
	failing := offers("x")
	failing.describe = func(context.Context) (*tool.Manifest, error) { return nil, errors.New("does not start") }
	r := registry(t, Options{Policy: rulesOf(t, policy.Source{Deny: []string{"a.z"}})}, map[string]*fakeHost{
		"a": offers("x", "y.z"), "silent": silent, "failing": failing, "bare": offers("read"),
	})
	for name, want := range map[string]bool{
		"a.x": true, "a__x": true, "a__y__z": true, "read": true, "failing.any": true, "a.z": true,
		"a.y": false, "nobody.x": false, "write": false, "": false,
	} {
		if got := r.Has(t.Context(), model.Scope{}, name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
	if n := silent.asked.Load(); n != 0 {
		t.Errorf("the silent one was asked %d times", n)
	}
}

// Closing aborts a call, says why, and ends its host only then: a host need not
// count its calls itself.
func TestAHostIsClosedOnceItsLastCallHasEnded(t *testing.T) {
	h := offers("op")
	began := make(chan struct{})
	h.call = func(ctx context.Context, _ string, _ model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
		close(began)
		<-ctx.Done()
		if h.closed.Load() {
			t.Error("the host was closed while it had a call")
		}
		return tool.Failure(tool.Interrupted(ctx))
	}
	r := registry(t, Options{}, map[string]*fakeHost{"m": h})
	go func() {
		<-began
		r.Close(context.Background())
	}()
	if got := call(t, r, "m.op", "{}"); got.OK || got.Error.Code != tool.Aborted ||
		got.Error.Message != "the daemon is stopping" {
		t.Errorf("got %+v, want it aborted", got)
	}
	r.Close(t.Context())
	if got := call(t, r, "m.op", "{}"); got.OK || got.Error.Code != tool.Aborted {
		t.Errorf("after the end: got %+v, want it aborted", got)
	}
}
