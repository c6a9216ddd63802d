package bridge

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// What belongs to a text reaches the model: other files as text between fences,
// links as paths, images as images.
func TestWhatAPromptMayHold(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	pixel := base64.StdEncoding.EncodeToString(
		[]byte(
			"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"))
	id := e.send(acp.SessionPrompt, `{"sessionId":"`+s+`","prompt":[
		{"type":"text","text":"look at"},
		{"type":"resource_link","name":"a b.go","uri":"file:///src/a%20b.go"},
		{"type":"text","text":", and"},
		{"type":"text","text":"here:"},
		{"type":"resource","resource":{"uri":"file:///src/c.md","text":"`+"```"+`\nfences\n`+"```"+`"}},
		{"type":"image","data":"`+pixel+`","mimeType":"image/gif","uri":"file:///tmp/dot.gif"}]}`)
	if got := e.stop(id); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	all := command(t, d.Socket, protocol.GetMessages, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: s}})
	var first protocol.Message
	e.decode(all.Messages[0], &first)
	want := "look at /src/a b.go, and\nhere:\n````/src/c.md\n```\nfences\n```\n````"
	if first.Text != want {
		t.Errorf("got %q, want %q", first.Text, want)
	}
	if a := first.Attachments; len(a) != 1 || a[0].MediaType != "image/gif" || a[0].Name != "dot.gif" {
		t.Errorf("got the images %+v, want the one", a)
	}
	from := e.mark()
	e.must(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	e.awaitUpdate(s, from, "a link to the image", func(u update) bool {
		return u.Kind == acp.UserChunk && strings.Contains(string(u.Content), `"resource_link"`) &&
			strings.Contains(string(u.Content), "image/gif")
	})
}

// A call says what kind it is, where, what goes in and what comes out.
func TestCallsAsEditorsShowThem(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	d.Write("old.txt", "one\ntwo\n")
	e.say(s, strings.Join([]string{
		`!read {"path":"old.txt","offset":2}`, `!write {"path":"new.txt","content":"x\n"}`,
		`!edit {"path":"old.txt","old_text":"two","new_text":"2"}`, `!grep {"pattern":"one"}`,
		`!bash {"command":"echo out; exit 3"}`,
	}, "\n"))
	kinds, states := map[string]string{}, map[string]update{}
	titles := map[string]string{}
	for _, u := range e.updates(s, 0, -1) {
		switch u.Kind {
		case acp.NewToolCall:
			name, _, _ := strings.Cut(u.Title, " ")
			kinds[name], titles[u.ID], states[name] = u.Tool, name, u
		case acp.ToolCallUpdate:
			last := states[titles[u.ID]]
			last.Status = u.Status
			if u.Content != nil {
				last.Content = u.Content
			}
			if u.RawOutput != nil {
				last.RawOutput = u.RawOutput
			}
			states[titles[u.ID]] = last
		}
	}
	if diff := cmp.Diff(map[string]string{
		"read": "read", "write": "edit", "edit": "edit", "grep": "search",
		"bash": "execute",
	}, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"read": `two`, "write": `"newText":"x\n"`, "edit": `"oldText":"two","newText":"2"`, "grep": `old.txt`, "bash": `out`,
	} {
		if got := states[name]; !strings.Contains(string(got.Content), want) || got.RawInput == nil || got.RawOutput == nil {
			t.Errorf("%s: got %+v, want %s in it", name, got, want)
		}
	}
	if got := states["read"].Locations; len(got) != 1 ||
		got[0] != (acp.Location{Path: filepath.Join(d.Dir, "old.txt"), Line: 2}) {
		t.Errorf("read: got the place %+v", got)
	}
	if states["bash"].Status != acp.Failed || states["edit"].Status != acp.Completed {
		t.Errorf("got bash %s and edit %s, want failed and completed", states["bash"].Status, states["edit"].Status)
	}
}

// The options are told, taken and, when another client changes them, pushed.
func TestOptions(t *testing.T) {
	d := startDaemon(t, "[providers.here]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodels = [\"coder\"]\n")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	value := func(list []acp.ConfigOption, id string) string {
		i := slices.IndexFunc(list, func(o acp.ConfigOption) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("there is no option %s in %+v", id, list)
		}
		return list[i].Current
	}
	for id, want := range map[string]string{"model": "here/coder", "approvals": "deny", "steering": "all"} {
		var r acp.OptionsResult
		e.decode(e.must(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"`+id+`","value":"`+want+`"}`), &r)
		if got := value(r.Options, id); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
	if got := stateOf(t, d.Socket, s); got.ApprovalMode != "deny" || got.SteeringMode != protocol.ModeAll ||
		got.Model.Name != "coder" {
		t.Errorf("the daemon has %+v", got)
	}
	e.must(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"effort","value":"high"}`)
	if got := stateOf(t, d.Socket, s).Model; got.Name != "coder" || got.Effort != "high" {
		t.Errorf("with an effort the model is %+v", got)
	}
	e.must(acp.SetMode, `{"sessionId":"`+s+`","modeId":"auto"}`)
	from := e.mark()
	command(t, d.Socket, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: protocol.Scope{SessionID: s},
		Mode:  "ask",
	})
	command(t, d.Socket, protocol.SetTitle, protocol.SetTitleParams{
		Scope: protocol.Scope{SessionID: s},
		Title: "tidying up",
	})
	e.awaitUpdate(s, from, "the mode", func(u update) bool { return u.Mode == "ask" })
	e.awaitUpdate(s, from, "the option", func(u update) bool {
		return u.Options != nil && value(u.Options, "approvals") == "ask"
	})
	e.awaitUpdate(s, from, "the title", func(u update) bool {
		return u.Kind == "session_info_update" && u.Title == "tidying up"
	})
}

// The plan is what a tool has put into the session's state.
func TestPlan(t *testing.T) {
	d := startDaemon(t, "")
	d.Tool("plan",
		`echo '{"version":"0","type":"state_patch","patch":{"plan":[{"content":"look","status":"completed","priority":"high"},{"content":"leap","status":"odd"}]}}'
echo '{"version":"0","type":"done","ok":true}'`)
	d.Stop()
	d.Start()
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	e.say(s, "!plan.run")
	want := []acp.PlanEntry{
		{Content: "look", Priority: "high", Status: "completed"},
		{Content: "leap", Priority: "medium", Status: "pending"},
	}
	u, _ := e.awaitUpdate(s, 0, "the plan", func(u update) bool { return u.Kind == "plan" })
	if diff := cmp.Diff(want, u.Entries); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	from := e.mark()
	id := e.send(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	_, at := e.await(from, "the answer", func(m message) bool { return m.Method == "" && string(m.ID) == id })
	if !slices.ContainsFunc(e.updates(s, from, at), func(u update) bool {
		return u.Kind == "plan" && len(u.Entries) == 2
	}) {
		t.Error("a replay has no plan")
	}
}

// Commands behind a slash, and what they do.
func TestCommands(t *testing.T) {
	d := startDaemon(t, "[providers.here]\nbase_url = \"http://127.0.0.1:9/v1\"\n")
	if err := os.MkdirAll(filepath.Join(d.Dir, ".agents", "skills", "greet"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.Write(".agents/skills/greet/SKILL.md", "---\nname: greet\ndescription: How one greets.\n---\nSay hello.\n")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	u, _ := e.awaitUpdate(s, 0, "the commands", func(u update) bool { return u.Commands != nil })
	var got []string
	for _, c := range u.Commands {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"compact", "model", "skill:greet"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	e.say(s, "/skill:greet the world")
	for _, one := range [][2]string{
		{"/compact", "summarised"},
		{"/model", "offline"},
		{"/model here/coder", "Model: here/coder"},
		{"/model nonsense", "model: "},
	} {
		command, want := one[0], one[1]
		from := e.mark()
		if got := e.say(s, command); got != acp.EndTurn {
			t.Errorf("%s: got %s, want end_turn", command, got)
		}
		e.awaitUpdate(s, from, want, func(u update) bool {
			return u.Kind == acp.AgentChunk && strings.Contains(u.text(), want)
		})
	}
	all := command(t, d.Socket, protocol.SearchSessions, protocol.SearchSessionsParams{Text: "Say hello."})
	if len(all.Matches) == 0 {
		t.Error("the model was not told what the skill says")
	}
}

// An editor lists the commands that are files of the session's folder, and the model reads what
// such a file says.
func TestCommandsOfFiles(t *testing.T) {
	d, folder := startDaemon(t, ""), t.TempDir()
	file := filepath.Join(folder, ".claude", "commands", "fix.md")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "---\ndescription: fix an issue\n---\nFix issue $1, all of it: $ARGUMENTS.\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, d.Socket)
	s := e.open(folder)
	u, _ := e.awaitUpdate(s, 0, "the commands", func(u update) bool { return u.Commands != nil })
	i := slices.IndexFunc(u.Commands, func(c acp.Command) bool { return c.Name == "fix" })
	if i < 0 || u.Commands[i].Description != "fix an issue" || u.Commands[i].Input == nil {
		t.Fatalf("the editor is told %+v", u.Commands)
	}
	if got := e.say(s, "/fix 12 now"); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	all := command(t, d.Socket, protocol.SearchSessions, protocol.SearchSessionsParams{
		Text: "Fix issue 12, all of it: 12 now.",
	})
	if len(all.Matches) == 0 {
		t.Error("the model was not told what the file says")
	}
}

func TestSessionsAreListedAndDeleted(t *testing.T) {
	d := startDaemon(t, "")
	e := newEditor(t, d.Socket)
	elsewhere := t.TempDir()
	mine := e.open(d.Dir)
	for range listed + 1 {
		command(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Workdir: elsewhere})
	}
	var page acp.ListResult
	e.decode(e.must(acp.SessionList, `{"cwd":`+quote(d.Dir)+`}`), &page)
	if len(page.Sessions) != 1 || page.Sessions[0].SessionID != mine || page.NextCursor != "" {
		t.Errorf("of one folder: got %+v", page)
	}
	seen := map[string]bool{}
	for cursor := ""; ; cursor = page.NextCursor {
		params := `{}`
		if cursor != "" {
			params = `{"cursor":"` + cursor + `"}`
		}
		page = acp.ListResult{}
		e.decode(e.must(acp.SessionList, params), &page)
		for _, s := range page.Sessions {
			if seen[s.SessionID] {
				t.Fatalf("%s is listed twice", s.SessionID)
			}
			seen[s.SessionID] = true
		}
		if page.NextCursor == "" {
			break
		}
	}
	if len(seen) != listed+2 {
		t.Errorf("got %d sessions, want %d", len(seen), listed+2)
	}
	e.must(acp.SessionDelete, `{"sessionId":"`+mine+`"}`)
	if m := e.reply(e.prompt(mine, "hello?")); m.Error == nil || m.Error.Code != acp.ResourceNotFound {
		t.Errorf("a prompt to it: got %+v, want -32002", m)
	}
	if m := e.reply(e.send(acp.SessionDelete, `{"sessionId":"`+mine+`"}`)); m.Error == nil ||
		m.Error.Code != acp.ResourceNotFound {
		t.Errorf("deleted once more: got %+v, want -32002", m)
	}
}

// permission is what the editor is asked.
func permission(t *testing.T, m message) (p acp.PermissionParams) {
	t.Helper()
	if err := json.Unmarshal(m.Params, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestApprovals(t *testing.T) {
	d := startDaemon(t, "[policy]\nask = [\"edit\"]\n")
	d.Write("old.txt", "one\n")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	edit := func(was, is string) string {
		return `!edit {"path":"old.txt","old_text":"` + was + `","new_text":"` + is + `"}`
	}
	asked := func(from int) (message, acp.PermissionParams) {
		m, _ := e.await(from, "the approval", func(m message) bool { return m.Method == acp.RequestPermission })
		return m, permission(t, m)
	}
	has := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(d.Dir, "old.txt")); err != nil || string(text) != want {
			t.Errorf("the file has %q, want %q", text, want)
		}
	}

	from := e.mark()
	id := e.prompt(s, edit("one", "two"))
	m, p := asked(from)
	kinds := map[string]string{}
	for _, o := range p.Options {
		kinds[o.ID] = o.Kind
	}
	if kinds["once"] != acp.AllowOnce || kinds["deny"] != acp.RejectOnce || p.ToolCall.Content[0].Type != "diff" {
		t.Errorf("got %+v", p)
	}
	e.answer(m.ID, "once")
	e.stop(id)
	has("two\n")

	from = e.mark()
	id = e.prompt(s, edit("two", "three"))
	m, _ = asked(from)
	e.answer(m.ID, "deny")
	e.stop(id)
	has("two\n")

	from = e.mark()
	id = e.prompt(s, edit("two", "four"))
	m, _ = asked(from)
	late := newEditor(t, d.Socket) // finds the approval that waits
	late.must(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	late.await(0, "the approval", func(m message) bool { return m.Method == acp.RequestPermission })
	open := stateOf(t, d.Socket, s).PendingApprovals
	command(t, d.Socket, protocol.Approve, protocol.ApproveParams{ApprovalID: open[0].ApprovalID, Option: "once"})
	for _, each := range []*editor{e, late} {
		each.await(0, "that the approval is taken back", func(m message) bool { return m.Method == acp.CancelRequest })
	}
	e.stop(id)
	has("four\n")
	e.answer(m.ID, "deny") // late

	from = e.mark()
	id = e.prompt(s, edit("four", "five"))
	m, _ = asked(from)
	e.notify(acp.SessionCancel, `{"sessionId":"`+s+`"}`)
	e.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"outcome":{"outcome":"cancelled"}}}`)
	if got := e.stop(id); got != acp.StopCancelled {
		t.Errorf("got %s, want cancelled", got)
	}
	has("four\n")
}

// formServer is an MCP server that asks for a name while its tool runs.
const formServer = `
import json, sys
def say(m): print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)
for line in sys.stdin:
    r = json.loads(line)
    m = r.get("method")
    if m == "initialize":
        say({"id": r["id"], "result": {"protocolVersion": r["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "greeter", "version": "1"}}})
    elif m == "tools/list":
        say({"id": r["id"], "result": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}})
    elif m == "tools/call":
        call = r["id"]
        say({"id": "q1", "method": "elicitation/create", "params": {"message": "Who are you?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}}})
    elif r.get("id") == "q1":
        say({"id": call, "result": {"content": [{"type": "text", "text": json.dumps(r.get("result"))}]}})
    elif m == "ping":
        say({"id": r["id"], "result": {}})
`

// A form of a tool is filled in by an editor that shows forms. One that shows none
// can decline.
func TestForms(t *testing.T) {
	d := daemontest.New(t, noused, "[[policy.rule]]\ntool = \"greeter.greet\"\ndecision = \"allow\"\n")
	d.Write("server.py", formServer)
	d.Write("tools/greeter.json",
		`{"name":"greeter","kind":"tool","protocol":"mcp","version":"1","capabilities":["greet"],"transport":{"type":"stdio","command":["python3",`+quote(filepath.Join(d.Dir, "server.py"))+`]}}`)
	d.Start()

	e := openEditor(t, d.Socket)
	e.must(acp.Initialize, `{"protocolVersion":1,"clientCapabilities":{"elicitation":{"form":{}}}}`)
	s := e.open(d.Dir)
	id := e.prompt(s, "!greeter.greet {}")
	m, at := e.await(0, "the form", func(m message) bool { return m.Method == acp.CreateElicitation })
	e.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"accept","content":{"name":"A"}}}`) // too short
	m, _ = e.await(at+1, "the form once more", func(m message) bool { return m.Method == acp.CreateElicitation })
	e.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"action":"accept","content":{"name":"Ann"}}}`)
	e.stop(id)
	e.awaitUpdate(s, 0, "what was filled in", func(u update) bool {
		return u.Status == acp.Completed && strings.Contains(string(u.RawOutput), "Ann")
	})

	none := newEditor(t, d.Socket)
	s = none.open(d.Dir)
	id = none.prompt(s, "!greeter.greet {}")
	m, _ = none.await(0, "the approval", func(m message) bool { return m.Method == acp.RequestPermission })
	for _, o := range permission(t, m).Options {
		if o.Kind != acp.RejectOnce {
			t.Errorf("the editor is offered %+v, which it cannot do", o)
		}
	}
	none.answer(m.ID, "decline")
	none.stop(id)
	none.awaitUpdate(s, 0, "that it was declined", func(u update) bool {
		return strings.Contains(string(u.RawOutput), "decline")
	})
}

// The editor's servers become the session's own.
func TestServersOfTheEditor(t *testing.T) {
	text := func(s string) *string { return &s }
	got := serversOf([]acp.MCPServer{
		{Name: text("files"), Command: text("/bin/files"), Args: []string{"-v"}, Env: []acp.Pair{{Name: "A", Value: "b"}}},
		{
			Type: "http", Name: text("far"), URL: text("https://example.org/mcp"),
			Headers: []acp.Pair{{Name: "X-Key", Value: "k"}},
		},
	})
	want := []protocol.MCPServer{
		{Name: "files", Command: "/bin/files", Args: []string{"-v"}, Env: map[string]string{"A": "b"}},
		{Name: "far", URL: "https://example.org/mcp", Headers: map[string]string{"X-Key": "k"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
