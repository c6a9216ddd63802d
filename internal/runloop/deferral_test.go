package runloop

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

// hub is what a server of many tools has, and what else there is.
func hub(n int) []model.ToolInfo {
	list := []model.ToolInfo{{
		ToolSpec: model.ToolSpec{Name: "read", Description: "Reads a file."}, Module: "files",
		Protocol: "gevals", Healthy: true,
	}}
	for i := range n {
		list = append(list, model.ToolInfo{
			ToolSpec: model.ToolSpec{
				Name: fmt.Sprintf("hub.op_%03d", i), Description: fmt.Sprintf("Does thing number %d to a widget.", i),
				Params: []byte(`{"type":"object","properties":{"widget":{"type":"string"}}}`),
			},
			Module: "hub", Protocol: mcp, Healthy: true,
		})
	}
	return list
}

func namesOf(tools []model.ToolSpec) (names []string) {
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}

func TestWhenToolsAreDeferred(t *testing.T) {
	long := hub(3)
	long[2].Description = strings.Repeat("word ", 1000)
	all := toolset{all: true, window: 100_000}
	for name, c := range map[string]struct {
		set    toolset
		listed []model.ToolInfo
		want   []string // nil: all that are listed
		silent int      // may be called and are not shown
	}{
		"few":                     {all, hub(3), nil, 0},
		"forty":                   {all, hub(40), nil, 0},
		"one more":                {all, hub(41), []string{"read", "tools.search"}, 41},
		"a tenth of the window":   {toolset{all: true, window: 1_000}, hub(3), nil, 0},
		"more than that":          {toolset{all: true, window: 999}, hub(3), []string{"read", "tools.search"}, 3},
		"long ones":               {toolset{all: true, window: 10_000}, long, []string{"read", "tools.search"}, 3},
		"in a window without end": {toolset{all: true}, long, nil, 0},
		"not those that are not on": {
			toolset{active: []string{"read", "hub.op_001"}, window: 100_000},
			hub(50),
			[]string{"read", "hub.op_001"},
			0,
		},
		"deferred before": {
			toolset{all: true, window: 100_000, deferred: deferred()},
			hub(3),
			[]string{"read", "tools.search"},
			3,
		},
		"and none of them is on": {
			toolset{active: []string{"read"}, window: 100_000, deferred: deferred()},
			hub(3),
			[]string{"read"},
			0,
		},
		"and the server has gone": {
			toolset{all: true, window: 100_000, deferred: deferred()},
			hub(0),
			[]string{"read", "tools.search"},
			0,
		},
		"found, in the order found": {toolset{all: true, window: 100_000, deferred: deferred("hub.op_002", "hub.op_001",
			"hub.gone")}, hub(3), []string{"read", "tools.search", "hub.op_002", "hub.op_001"}, 1},
		"found, and on": {toolset{
			active:   []string{"hub.op_001", "hub.op_002"},
			deferred: deferred("hub.op_001", "hub.op_000"),
		}, hub(3), []string{"tools.search", "hub.op_001"}, 1},
		"the user has a tools.search": {all, append(hub(41), model.ToolInfo{
			ToolSpec: model.ToolSpec{Name: "tools.search"},
			Module:   "tools", Healthy: true,
		}), []string{"read", "tools.search", "tools2.search"}, 41},
	} {
		if c.want == nil {
			for _, i := range c.listed {
				c.want = append(c.want, i.Name)
			}
		}
		slices.Sort(c.set.active)
		if name == "a tenth of the window" { // of exactly what the definitions take
			c.set.window = definitions(c.listed[1:]) * 10
		}
		if name == "more than that" {
			c.set.window = definitions(c.listed[1:])*10 - 1
		}
		o := c.set.offer(c.listed)
		if got := namesOf(o.tools); !slices.Equal(got, c.want) || len(o.deferred) != c.silent {
			t.Errorf("%s: the model learns of %q and not of %d, want %q and %d", name, got, len(o.deferred), c.want, c.silent)
		}
		if o.now.Search != "" {
			again := c.set
			again.deferred = o.now
			if next := again.offer(c.listed); !reflect.DeepEqual(next.tools, o.tools) {
				t.Errorf("%s: the next request has other tools", name)
			}
		}
	}
}

func deferred(offered ...string) session.ToolsDeferred {
	return session.ToolsDeferred{Search: "tools.search", Servers: []string{"hub"}, Offered: offered}
}

func TestSearchRanks(t *testing.T) {
	one := func(name, description, params string) model.ToolInfo {
		module, _, _ := strings.Cut(name, ".")
		return model.ToolInfo{
			ToolSpec: model.ToolSpec{Name: name, Description: description, Params: []byte(params)},
			Module:   module, Protocol: mcp, Healthy: true,
		}
	}
	tools := []model.ToolInfo{
		one("git.createBranch", "Creates a branch from a commit.", `{"type":"object","properties":{"name":{},"commit":{}}}`),
		one("git.log", "Shows commits.",
			`{"properties":{"author":{"properties":{"nested":{}}},"since":{}},"required":["since"]}`),
		one("hub.create_issue", "Opens an issue in a repository.", `{"type":"object","properties":{"title":{},"labels":{}}}`),
		one("hub.list_issues", "Lists issues of a repository.", ``),
		one("mail.send", "Sends a message to somebody.", `{"properties":{"recipient":{}}}`),
		one("天気.予報", "明日の天気予報を表示します。", `not JSON`),
	}
	for query, want := range map[string]string{
		"create an issue":     "hub.create_issue git.createBranch hub.list_issues",
		"issues":              "hub.list_issues hub.create_issue",
		"branch":              "git.createBranch",
		"labels":              "hub.create_issue",
		"author of a commit":  "git.log git.createBranch",
		"nested":              "",
		"git":                 "git.createBranch git.log",
		"git.log":             "git.log",
		"log":                 "git.log",
		"git__createBranch":   "git.createBranch",
		"send":                "mail.send",
		"email the recipient": "mail.send",
		"天気予報":                "天気.予報",
		"bananas":             "",
	} {
		var got []string
		for range 3 {
			got = nil
			for _, hit := range rank(query, telling(words(query)), tools) {
				got = append(got, hit.Name)
			}
			slices.Reverse(tools) // the order of the list is nothing to it
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
}

func TestSearchRefusesAndBounds(t *testing.T) {
	set := toolset{all: true, window: 8_000, deferred: deferred("hub.op_007", "hub.op_008")}
	for arguments, want := range map[string]string{
		`{}`:                      "query: want a few words",
		`{"query":" … "}`:         "query: want a few words",
		`{"query":"x","limit":9}`: `want {"query":"a few words"}`,
		`["x"]`:                   `want {"query":"a few words"}`,
		`{"query":7}`:             `want {"query":"a few words"}`,
		`{"query":"` + strings.Repeat("x ", 600) + `"}`: "query: 1200 bytes, want at most 1000",
	} {
		if res, found := set.search(hub(50), []byte(arguments)); res.OK || res.Error.Code != model.BadRequest ||
			!strings.Contains(res.Text, want) || found != nil {
			t.Errorf("%.60s: got %+v, %q", arguments, res, found)
		}
	}
	res, found := set.search(hub(50), []byte(`{"query":"bananas"}`))
	if !res.OK || res.Text != "None of 50 tools has these words. Try others." || found != nil {
		t.Errorf("got %+v, %q", res, found)
	}
	large := hub(50)
	for i := range 5 { // three of them fit into a tenth of the window
		large[i+1].Description = "Polishes the chrome. " + strings.Repeat("x", 900)
	}
	res, found = set.search(large, []byte(`{"query":"chrome"}`))
	if want := []string{"hub.op_000", "hub.op_001", "hub.op_002"}; !slices.Equal(found, want) ||
		strings.Count(res.Text, "arguments: {") != 3 || strings.Count(res.Text, "too many to show") != 2 {
		t.Errorf("got %q and\n%s", found, res.Text)
	}
	for _, name := range []string{"hub.op_003", "hub.op_004"} {
		if !strings.Contains(res.Text, "\n"+name+"\n") {
			t.Errorf("%s is not named in\n%s", name, res.Text)
		}
	}
	set.window, set.deferred.Offered = 1_000_000, nil
	for i := range 30 { // what was found long ago makes room
		_, set.deferred.Offered = set.search(hub(200), fmt.Appendf(nil, `{"query":"%d %d %d %d %d"}`, i*5, i*5+1, i*5+2,
			i*5+3, i*5+4))
		if n := len(set.deferred.Offered); n != min(5*i+5, maxOffered) {
			t.Fatalf("after %d searches %d tools are offered", i+1, n)
		}
	}
	if got := set.deferred.Offered; got[0] != "hub.op_110" || got[39] != "hub.op_149" {
		t.Errorf("offered are %q", got)
	}
}

// A search of thousands of tools takes no time that anybody notices.
func TestSearchIsBounded(t *testing.T) {
	tools := hub(2000)
	long := strings.Repeat("One more widget to be turned and turned again. ", 600)
	deep := []byte(`{"properties":{"a":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `}}`)
	for i := range tools {
		tools[i].Description, tools[i].Params = long, deep
	}
	began := worked(t)
	rank("turn every widget again", words("turn every widget again"), tools[1:])
	if took := worked(t) - began; took > 20*time.Second { // less than one without the race detector
		t.Errorf("it took %v", took)
	}
}

// worked is the processor time that the tests have had, whatever else the machine does.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// shelf is a list of tools that changes.
type shelf struct {
	tools
	mu      sync.Mutex
	list    []model.ToolInfo
	servers []model.ServerInfo
}

func (s *shelf) Servers(model.Scope) []model.ServerInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers
}

func (s *shelf) List(context.Context, model.Scope) []model.ToolInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// put has other tools there, and other servers if any are named.
func (s *shelf) put(list []model.ToolInfo, servers ...model.ServerInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.servers = list, servers
}

// listener is the offline model, and what it was asked.
type listener struct {
	mu    sync.Mutex
	asked []model.Request
}

func (l *listener) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	whole, done, err := req.Loaded(0)
	if err == nil {
		done()
	}
	l.mu.Lock()
	l.asked = append(l.asked, whole)
	l.mu.Unlock()
	return offline.Model{}.Stream(ctx, req)
}

func (l *listener) takeRequests() []model.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.asked
	l.asked = nil
	return out
}

// systemOf is what get_system says.
func (f *fixture) systemOf(id string) string {
	f.t.Helper()
	r, err := answered(f.getSystem(context.Background(), protocol.GetSystemParams{Scope: protocol.Scope{SessionID: id}}))
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Text
}

func (f *fixture) say(id, text string) {
	f.t.Helper()
	a, err := f.start(id, text)
	if err != nil {
		f.t.Fatal(err)
	}
	f.events.wait(a.RunID)
}

// The model finds a tool and calls it, and learns of it from then on: with
// the same bytes, after a restart and in a branch too.
func TestAModelFindsATool(t *testing.T) {
	dir, heard, tools := t.TempDir(), &listener{}, &shelf{tools: echoTool, list: hub(60)}
	with := func(o *Options) { o.Tools = tools }
	f := newFixtureWith(t, session.OSDisk{}, dir, heard, nil, newRecorder(), with)
	id := f.session()
	f.say(id, `!tools.search {"query":"thing number 17"}`)
	f.say(id, "!hub.op_017")
	f.say(id, "!hub__op_042") // which it does not know yet
	requests := heard.takeRequests()
	first, last := requests[0], requests[len(requests)-1]
	if got := namesOf(first.Tools); !slices.Equal(got, []string{"read", "tools.search"}) || len(first.Deferred) != 60 {
		t.Errorf("the model learns of %q, and may call %d more", got, len(first.Deferred))
	}
	said := last.Messages[2]
	if said.ToolName != "tools.search" || !said.OK ||
		!strings.Contains(said.Text, "\nhub.op_017\nDoes thing number 17 to a widget.\narguments: {") {
		t.Errorf("the search says %+v", said)
	}
	offered := namesOf(last.Tools)
	if len(offered) < 3 || offered[2] != "hub.op_017" || len(offered)+len(last.Deferred) != 62 {
		t.Fatalf("then the model learns of %q", offered)
	}
	for i := range requests[1:] {
		if !reflect.DeepEqual(requests[i+1].Tools, last.Tools) {
			t.Errorf("request %d has other tools", i+1)
		}
	}
	for _, m := range last.Messages {
		if m.Role == model.Tool && !m.OK {
			t.Errorf("%s failed: %s", m.ToolName, m.Text)
		}
	}
	branch, err := f.branchSession(context.Background(), protocol.BranchSessionParams{SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	f.stop()
	f = newFixtureWith(t, session.OSDisk{}, dir, heard, nil, newRecorder(), with)
	for _, id := range []string{id, branch.SessionID} {
		f.say(id, "again")
		if got := heard.takeRequests(); !reflect.DeepEqual(got[0].Tools, last.Tools) ||
			!slices.Equal(got[0].Deferred, last.Deferred) {
			t.Errorf("after a restart the model learns of %q", namesOf(got[0].Tools))
		}
	}
	state, err := f.getState(context.Background(), protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}})
	if want := (offer{tools: last.Tools}).tokens(); err != nil || state.Context.Tools != want || want == 0 {
		t.Errorf("get_state counts %d tokens of tools, want %d; %v", state.Context.Tools, want, err)
	}
}

// Once tools are deferred they stay so, and what else there is does not change how
// requests begin.
func TestDeferredStaysDeferred(t *testing.T) {
	heard, tools := &listener{}, &shelf{tools: echoTool, list: hub(3)}
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), heard, nil, newRecorder(), func(o *Options) { o.Tools = tools })
	id := f.session()
	f.say(id, "few")
	if got := namesOf(heard.takeRequests()[0].Tools); len(got) != 4 {
		t.Errorf("the model learns of %q", got)
	}
	tools.put(hub(41))
	f.say(id, "many")
	before := heard.takeRequests()[0]
	if got := namesOf(before.Tools); !slices.Equal(got, []string{"read", "tools.search"}) {
		t.Errorf("the model learns of %q", got)
	}
	tools.put(hub(2))
	f.say(id, "few again")
	if got := heard.takeRequests()[0]; !reflect.DeepEqual(got.Tools, before.Tools) {
		t.Errorf("the model learns of %q", namesOf(got.Tools))
	}
	// What is not on, or is denied, is not found.
	list := hub(50)
	list[5].Healthy = false
	tools.put(list)
	if _, err := f.setActiveTools(context.Background(), protocol.SetActiveToolsParams{
		Scope: protocol.Scope{SessionID: id},
		Tools: []string{"hub.op_004", "hub.op_007"},
	}); err != nil {
		t.Fatal(err)
	}
	f.say(id, `!tools.search {"query":"widget"}`)
	got := heard.takeRequests()
	if offered := namesOf(got[1].Tools); !slices.Equal(offered, []string{"tools.search", "hub.op_007"}) {
		t.Errorf("found was %q", offered)
	}
	if _, err := f.setActiveTools(context.Background(), protocol.SetActiveToolsParams{
		Scope: protocol.Scope{SessionID: id},
		Tools: []string{},
	}); err != nil {
		t.Fatal(err)
	}
	f.say(id, "none")
	if got := heard.takeRequests()[0]; len(got.Tools)+len(got.Deferred) > 0 {
		t.Errorf("with no tool on, the model learns of %q", namesOf(got.Tools))
	}
}

// A server that becomes ready in the middle of a turn is offered from the next one
// on.
func TestAServerThatComesInATurn(t *testing.T) {
	heard, tools := &listener{}, &shelf{list: hub(3)}
	tools.tools = func(context.Context, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
		late := hub(4)[4]
		late.Name, late.Module = "late.op", "late"
		tools.put(append(hub(3), late))
		return model.ToolResult{OK: true}
	}
	f := newFixtureWith(t, session.OSDisk{}, t.TempDir(), heard, nil, newRecorder(), func(o *Options) { o.Tools = tools })
	id := f.session()
	f.say(id, "!hub.op_001")
	f.say(id, "next")
	var got []int
	for _, req := range heard.takeRequests() {
		got = append(got, len(req.Tools))
	}
	if !slices.Equal(got, []int{4, 4, 5}) {
		t.Errorf("the requests have %d tools, want 4, 4 and in the next turn 5", got)
	}
}

// BenchmarkOffer is what a request's tools cost to put together, where 500 are
// deferred and where they all would be sent. raw encodes the definitions of 500, as
// a request that has them all does besides.
func BenchmarkOffer(b *testing.B) {
	listed := hub(500)
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			for _, t := range listed {
				if _, err := json.Marshal(map[string]any{
					"name": t.Name, "description": t.Description,
					"parameters": jsontext.Value(t.Params),
				}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("deferred", func(b *testing.B) {
		set := toolset{all: true, window: 128_000, deferred: deferred("hub.op_017")}
		for b.Loop() {
			set.offer(listed)
		}
	})
}

func BenchmarkSearch500(b *testing.B) {
	set, listed := toolset{all: true, window: 128_000, deferred: deferred()}, hub(500)
	for b.Loop() {
		set.search(listed, []byte(`{"query":"thing number 17 of a widget"}`))
	}
}
