package protocol

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestDecodeCommand(t *testing.T) {
	for _, c := range []struct{ name, line, id, typ, payload string }{
		{"whole", `{"v":"1","id":"c1","type":"ping","payload":{"a":1}}`, "c1", "ping", `{"a":1}`},
		{"version as a number", `{"v":1,"id":"c1","type":"ping"}`, "c1", "ping", `{}`},
		{"version as another spelling of one", `{"v":1.0,"id":"c1","type":"ping"}`, "c1", "ping", `{}`},
		{"version escaped", `{"v":"\u0031","id":"c1","type":"ping"}`, "c1", "ping", `{}`},
		{"no version", `{"id":"c1","type":"ping","payload":{}}`, "c1", "ping", `{}`},
		{"no payload", `{"v":"1","id":"c1","type":"ping"}`, "c1", "ping", `{}`},
		{"null payload", `{"v":"1","id":"c1","type":"ping","payload":null}`, "c1", "ping", `{}`},
		{"unknown fields", `{"v":"1","id":"c1","type":"ping","payload":{},"trace":{"a":[1]}}`, "c1", "ping", `{}`},
		{
			"another case is another key", `{"v":"1","id":"c1","ID":"c2","type":"ping","TYPE":7,"Payload":7}`, "c1", "ping",
			`{}`,
		},
		{"any order, any space", " {\t\"payload\" : {} , \"type\":\"ping\",\r\"id\":\"c1\" } ", "c1", "ping", `{}`},
		{"id of any text", `{"id":"ü\n\"\u0000","type":"ping"}`, "ü\n\"\x00", "ping", `{}`},
		{"a type nobody knows", `{"id":"c1","type":"make_tea"}`, "c1", "make_tea", `{}`},
		{
			"nesting the limit allows", `{"id":"c1","type":"ping","payload":{"a":` + nested(9000) + `}}`, "c1", "ping",
			`{"a":` + nested(9000) + `}`,
		},
	} {
		got, err := DecodeCommand([]byte(c.line))
		if err != nil {
			t.Errorf("%s: got error %v", c.name, err)
			continue
		}
		want := Command{ID: c.id, Type: c.typ, Payload: jsontext.Value(c.payload)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, diff)
		}
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestDecodeCommandRefuses(t *testing.T) {
	const json, version, noID, noType = "invalid_json: ", "invalid_version: ", "missing_id: ", "missing_type: "
	for _, c := range []struct{ name, line, id, code, message string }{
		{"no JSON", `hello`, "", "invalid_command", json},
		{"nothing but space", ` `, "", "invalid_command", json},
		{"cut off", `{"v":"1","id":"c1","type":"pi`, "c1", "invalid_command", json},
		{"a list", `["v","1"]`, "", "invalid_command", json + "want an object"},
		{"a string", `"ping"`, "", "invalid_command", json + "want an object"},
		{"null", `null`, "", "invalid_command", json + "want an object"},
		{"something after it", `{"id":"c1","type":"ping"} x`, "c1", "invalid_command", json},
		{"a second object", `{"id":"c1","type":"ping"}{}`, "c1", "invalid_command", json},
		{"a trailing comma", `{"id":"c1","type":"ping",}`, "c1", "invalid_command", json},
		{"a key twice", `{"id":"c1","type":"ping","type":"abort"}`, "c1", "invalid_command", json},
		{"the id twice", `{"id":"c1","id":"c2","type":"ping"}`, "c1", "invalid_command", json},
		{"a key of the payload twice", `{"id":"c1","type":"ping","payload":{"a":1,"a":2}}`, "c1", "invalid_command", json},
		{
			"a key far inside twice", `{"id":"c1","type":"ping","payload":{"a":[{"b":1,"b":2}]}}`, "c1", "invalid_command",
			json,
		},
		{
			"bad UTF-8 in a value", "{\"id\":\"c1\",\"type\":\"ping\",\"payload\":{\"a\":\"\xff\"}}", "c1", "invalid_command",
			json,
		},
		{"bad UTF-8 in a key", "{\"id\":\"c1\",\"\xc3\":1}", "c1", "invalid_command", json},
		{"bad UTF-8 in the id", "{\"id\":\"c\xff\",\"type\":\"ping\"}", "", "invalid_command", json},
		{"half a surrogate pair", `{"id":"c1","type":"ping","payload":{"a":"\ud800"}}`, "c1", "invalid_command", json},
		{"too deep", `{"id":"c1","type":"ping","payload":{"a":` + nested(10_000) + `}}`, "c1", "invalid_command", json},
		{"too deep and never closed", `{"id":"c1","payload":` + strings.Repeat("[", 1<<20), "c1", "invalid_command", json},
		{"version two", `{"v":"2","id":"c1","type":"ping"}`, "c1", "invalid_command", version + `v is "2"`},
		{"version two as a number", `{"v":2,"id":"c1","type":"ping"}`, "c1", "invalid_command", version + "v is 2"},
		{"version null", `{"v":null,"id":"c1","type":"ping"}`, "c1", "invalid_command", version + "v is null"},
		{"version true", `{"v":true,"id":"c1","type":"ping"}`, "c1", "invalid_command", version + "v is true"},
		{"version as a list", `{"v":["1"],"id":"c1","type":"ping"}`, "c1", "invalid_command", version},
		{"version with space", `{"v":"1 ","id":"c1","type":"ping"}`, "c1", "invalid_command", version},
		{
			"a huge version", `{"v":"` + strings.Repeat("9", 1000) + `","id":"c1","type":"ping"}`, "c1", "invalid_command",
			version,
		},
		{"no id", `{"v":"1","type":"ping"}`, "", "invalid_command", noID},
		{"empty id", `{"v":"1","id":"","type":"ping"}`, "", "invalid_command", noID},
		{"null id", `{"v":"1","id":null,"type":"ping"}`, "", "invalid_command", noID},
		{"a number for an id", `{"v":"1","id":7,"type":"ping"}`, "", "invalid_command", noID},
		{"an id under another key", `{"v":"1","Id":"c1","type":"ping"}`, "", "invalid_command", noID},
		{"an empty object", `{}`, "", "invalid_command", noID},
		{"no type", `{"v":"1","id":"c1"}`, "c1", "invalid_command", noType},
		{"empty type", `{"v":"1","id":"c1","type":""}`, "c1", "invalid_command", noType},
		{"a number for a type", `{"v":"1","id":"c1","type":7}`, "c1", "invalid_command", noType},
		{
			"payload a list", `{"v":"1","id":"c1","type":"ping","payload":[]}`, "c1", "invalid_payload",
			"payload: want an object",
		},
		{
			"payload a string", `{"v":"1","id":"c1","type":"ping","payload":"{}"}`, "c1", "invalid_payload",
			"payload: want an object",
		},
		{
			"payload false", `{"v":"1","id":"c1","type":"ping","payload":false}`, "c1", "invalid_payload",
			"payload: want an object",
		},
	} {
		cmd, err := DecodeCommand([]byte(c.line))
		if err == nil {
			t.Errorf("%s: got %v, want an error", c.name, cmd)
			continue
		}
		if cmd.ID != c.id {
			t.Errorf("%s: got id %q, want %q", c.name, cmd.ID, c.id)
		}
		if string(err.Code) != c.code || !strings.HasPrefix(err.Message, c.message) {
			t.Errorf("%s: got %v, want %s: %s…", c.name, err, c.code, c.message)
		}
		if len(err.Message) > 300 {
			t.Errorf("%s: the message has %d bytes, want a short one: %s", c.name, len(err.Message), err.Message)
		}
	}
}

// recorder is a Mux that keeps the payload of the last command it ran.
type recorder struct {
	Mux
	got Params
}

func newRecorder() *recorder {
	r := &recorder{}
	record(r, Ping)
	record(r, Prompt)
	record(r, Steer)
	record(r, FollowUp)
	record(r, Abort)
	record(r, SetActiveTools)
	record(r, SetSteeringMode)
	record(r, SetFollowUpMode)
	record(r, GetState)
	record(r, GetMessages)
	record(r, NewSession)
	record(r, SwitchSession)
	record(r, BranchSession)
	record(r, ExtensionCommand)
	record(r, CompactSession)
	record(r, SetLeaf)
	record(r, GetTree)
	record(r, ListSessions)
	record(r, DeleteSession)
	record(r, Prune)
	record(r, GetChanges)
	record(r, Rewind)
	record(r, UndoRewind)
	record(r, SearchSessions)
	record(r, ListTools)
	record(r, SetModel)
	record(r, SetAgent)
	record(r, SetAgentOption)
	record(r, ReloadTools)
	record(r, ListModels)
	record(r, GetSystem)
	record(r, ListSkills)
	record(r, ListAgents)
	record(r, CallTool)
	record(r, Withdraw)
	record(r, SetTitle)
	record(r, MarkRead)
	record(r, Expand)
	record(r, GetUsage)
	record(r, Approve)
	record(r, SetApprovalMode)
	record(r, Shutdown)
	return r
}

func record[P Params, R Reply](r *recorder, d Def[P, R]) {
	HandleFunc(&r.Mux, d, func(_ context.Context, p P) (reply R, err error) {
		r.got = p
		return reply, nil
	})
}

// run executes a command and returns the payload that its handler was given.
func (r *recorder) run(typ, payload string) (Params, error) {
	r.got = nil
	o := r.Run(context.Background(), Command{ID: "c1", Type: typ, Payload: jsontext.Value(payload)})
	return r.got, o.Err()
}

func TestPayloads(t *testing.T) {
	r := newRecorder()
	if missing := r.Missing(); len(missing) > 0 {
		t.Fatalf("the test forgets %v", missing)
	}
	for _, c := range []struct {
		typ, payload string
		want         Params
	}{
		{"prompt", `{"text":"hi"}`, PromptParams{Text: "hi"}},
		{"prompt", `{"text":"hi","wait":false}`, PromptParams{Text: "hi", Wait: ptr(false)}},
		{"prompt", `{"text":"hi","wait":null,"leaf_id":null}`, PromptParams{Text: "hi"}},
		{"prompt", `{"text":"hi","attachments":[]}`, PromptParams{Text: "hi", Attachments: []AttachmentParams{}}},
		{
			"prompt",
			`{"text":"hi","attachments":[{"path":"a","data":null,"media_type":"image/gif"},{"data":"R0lG","name":"b"}]}`,
			PromptParams{Text: "hi", Attachments: []AttachmentParams{
				{Path: "a", MediaType: "image/gif"}, {Data: "R0lG", Name: "b"},
			}},
		},
		{
			"prompt", `{"text":"hi","session_id":"s","SESSION_ID":"other","Text":7}`,
			PromptParams{Scope: Scope{"s"}, Text: "hi"},
		},
		{"prompt", `{"text":"\u0000 \ud83d\ude00"}`, PromptParams{Text: "\x00 😀"}},
		{"set_active_tools", `{"tools":[]}`, SetActiveToolsParams{Tools: []string{}}},
		{"branch_session", `{"session_id":"s"}`, BranchSessionParams{SessionID: "s"}},
		{"branch_session", `{"parent_id":"s"}`, BranchSessionParams{ParentID: "s"}},
		{
			"extension_command", `{"name":"a.b","payload":{"x":[1.0]}}`,
			ExtensionCommandParams{Name: "a.b", Payload: jsontext.Value(`{"x":[1.0]}`)},
		},
		{
			"extension_command", `{"name":"a.b","payload":null}`,
			ExtensionCommandParams{Name: "a.b", Payload: jsontext.Value(`null`)},
		},
		{
			"call_tool", `{"name":"a.b","arguments":{"x":[1.0]},"token":"t","session_id":"s"}`,
			CallToolParams{
				Scope: Scope{SessionID: "s"}, Name: "a.b", Arguments: jsontext.Value(`{"x":[1.0]}`), Token: "t",
			},
		},
		{"list_sessions", `{"limit":1000}`, ListSessionsParams{Limit: ptr(1000)}},
		{"delete_session", `{"session_id":"s"}`, DeleteSessionParams{SessionID: "s"}},
		{"get_usage", `{"by":"folder"}`, GetUsageParams{By: "folder"}},
		{"search_sessions", `{"text":" \n"}`, SearchSessionsParams{Text: " \n"}},
		{"search_sessions", `{"text":"x","limit":1}`, SearchSessionsParams{Text: "x", Limit: ptr(1)}},
		{"new_session", `{"workdir":"/no/such folder","activate":false}`, NewSessionParams{
			Workdir:  "/no/such folder",
			Activate: ptr(false),
		}},
		{"list_sessions", `{"workdir":"/src"}`, ListSessionsParams{Workdir: "/src"}},
		{"set_title", `{"title":"` + strings.Repeat("ü", 200) + `"}`, SetTitleParams{Title: strings.Repeat("ü", 200)}},
		{"mark_read", `{}`, MarkReadParams{}},
		{"withdraw", `{"input_id":"in-1"}`, WithdrawParams{InputID: "in-1"}},
		{"expand", `{"text":"/a.b"}`, ExpandParams{Text: "/a.b"}},
		{
			"approve", `{"approval_id":"a","option":"accept","content":{"a":1}}`,
			ApproveParams{ApprovalID: "a", Option: "accept", Content: jsontext.Value(`{"a":1}`)},
		},
		{"approve", `{"approval_id":"a","option":"once"}`, ApproveParams{ApprovalID: "a", Option: "once"}},
		{"set_approval_mode", `{"mode":"auto"}`, SetApprovalModeParams{Mode: "auto"}},
		{"shutdown", `{"restart":true}`, ShutdownParams{Restart: true}},
		{"prompt", `{"text":"hi","approvals":"deny"}`, PromptParams{Text: "hi", Approvals: "deny"}},
	} {
		got, err := r.run(c.typ, c.payload)
		if err != nil {
			t.Errorf("%s %s: got error %v", c.typ, c.payload, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s: (-want +got):\n%s", c.typ, c.payload, diff)
		}
	}
	if got := (BranchSessionParams{ParentID: "p"}).Parent(); got != "p" {
		t.Errorf("parent under its alias: got %q, want p", got)
	}
}

func TestPayloadsRefused(t *testing.T) {
	r := newRecorder()
	for _, c := range []struct{ typ, payload, message string }{
		{"prompt", `{}`, "text: want a non-empty string"},
		{"prompt", `{"text":""}`, "text: want a non-empty string"},
		{"prompt", `{"text":null}`, "text: want a non-empty string"},
		{"prompt", `{"TEXT":"hi"}`, "text: want a non-empty string"},
		{"prompt", `{"text":["hi"]}`, "text: got an array, want a string"},
		{"prompt", `{"text":"hi","wait":"false"}`, "wait: got a string, want a boolean"},
		{"prompt", `{"text":"hi","wait":0}`, "wait: got a number, want a boolean"},
		{"prompt", `{"text":"hi","session_id":7}`, "session_id: got a number, want a string"},
		{
			"prompt", `{"text":"hi","streaming_behavior":"queue"}`,
			`streaming_behavior: got "queue", want one of "steer" "follow_up"`,
		},
		{
			"prompt", `{"text":"hi","idempotency_key":"` + strings.Repeat("k", 257) + `"}`,
			"idempotency_key: is 257 bytes long",
		},
		{"steer", `{"text":""}`, "text: want a non-empty string"},
		{"steer", `{"text":"hi","if_idle":"steer"}`, `if_idle: got "steer", want one of "prompt"`},
		{"follow_up", `{"text":{}}`, "text: got an object, want a string"},
		{"follow_up", `{}`, "text: want a non-empty string"},
		{"abort", `{"run_id":true}`, "run_id: got a boolean, want a string"},
		{"set_active_tools", `{}`, "tools: want an array of strings; [] means none"},
		{"set_active_tools", `{"tools":null}`, "tools: want an array of strings; [] means none"},
		{"set_active_tools", `{"tools":"read"}`, "tools: got a string, want an array"},
		{"prompt", `{"text":"hi","attachments":{}}`, "attachments: got an object, want an array"},
		{"prompt", `{"text":"hi","attachments":["a.png"]}`, "attachments[0]: got a string, want an object"},
		{
			"prompt", `{"text":"hi","attachments":[{"path":"a"},{"path":7}]}`,
			"attachments[1].path: got a number, want a string",
		},
		{
			"prompt", `{"text":"hi","attachments":[{"path":"a"},{"data":["x"]}]}`,
			"attachments[1].data: got an array, want a string",
		},
		{
			"prompt", `{"text":"hi","attachments":[{"path":"a"},{"Path":"a"}]}`,
			"attachments[1]: want a path or data, got neither",
		},
		{"prompt", `{"text":"hi","attachments":[{"path":"a"},null]}`, "attachments[1]: want a path or data, got neither"},
		{
			"prompt", `{"text":"hi","attachments":[{"path":"a","data":"iVBORw0KGgo="}]}`,
			"attachments[0]: want a path or data, got both",
		},
		{
			"prompt", `{"text":"hi","attachments":[{"path":"a","media_type":"image/svg+xml"}]}`,
			`attachments[0].media_type: got "image/svg+xml", want one of "image/png" "image/jpeg" "image/gif" "image/webp"`,
		},
		{
			"steer", `{"text":"hi","attachments":[{"path":"a","name":"` + strings.Repeat("n", 256) + `"}]}`,
			"attachments[0].name: is 256 bytes long, at most 255 are kept",
		},
		{
			"follow_up", `{"text":"hi","attachments":[` + strings.Repeat(`{"path":"a"},`, 16) + `{"path":"a"}]}`,
			"attachments: has 17 elements, at most 16 may go with one text",
		},
		{"follow_up", `{"attachments":[{"path":"a"}]}`, "text: want a non-empty string"},
		{"set_active_tools", `{"tools":["read",7]}`, "tools.1: got a number, want a string"},
		{"set_active_tools", `{"tools":["read",null]}`, "tools.1: want a non-empty string"},
		{"set_steering_mode", `{}`, `mode: got "", want one of "one-at-a-time" "all"`},
		{"set_follow_up_mode", `{"mode":"ALL"}`, `mode: got "ALL", want one of "one-at-a-time" "all"`},
		{"get_state", `{"session_id":{}}`, "session_id: got an object, want a string"},
		{"get_messages", `{"leaf_id":3}`, "leaf_id: got a number, want a string"},
		{"new_session", `{"title":[]}`, "title: got an array, want a string"},
		{"switch_session", `{}`, "session_id: want a non-empty string"},
		{"switch_session", `{"SESSION_ID":"s"}`, "session_id: want a non-empty string"},
		{"branch_session", `{"leaf_id":"m"}`, "session_id: want a non-empty string"},
		{"branch_session", `{"parent_id":false}`, "parent_id: got a boolean, want a string"},
		{"extension_command", `{"payload":{}}`, "name: want a non-empty string"},
		{"extension_command", `{"name":"a","payload":[]}`, "payload: want an object"},
		{"extension_command", `{"name":"a","payload":"{}"}`, "payload: want an object"},
		{"extension_command", `{"name":"a","phase":"boot"}`, `phase: got "boot"`},
		{"compact_session", `{"instruction":1}`, "instruction: got a number, want a string"},
		{"set_leaf", `{}`, "leaf_id: want a non-empty string"},
		{"list_sessions", `{"limit":0}`, "limit: want 1 to 1000, got 0"},
		{"list_sessions", `{"limit":1001}`, "limit: want 1 to 1000, got 1001"},
		{"list_sessions", `{"limit":-1}`, "limit: want 1 to 1000, got -1"},
		{"list_sessions", `{"limit":1.5}`, "limit: got a number, want an integer"},
		{"list_sessions", `{"limit":1e99}`, "limit: got a number, want an integer"},
		{"list_sessions", `{"limit":"10"}`, "limit: got a string, want an integer"},
		{"delete_session", `{}`, "session_id: want a non-empty string"},
		{"delete_session", `{"session_id":""}`, "session_id: want a non-empty string"},
		{"delete_session", `{"session_id":null}`, "session_id: want a non-empty string"},
		{"delete_session", `{"session_id":["s"]}`, "session_id: got an array, want a string"},
		{"get_usage", `{"by":"hour"}`, `by: got "hour", want one of "day" "model" "session" "folder"`},
		{"search_sessions", `{}`, "text: want a non-empty string"},
		{"search_sessions", `{"text":""}`, "text: want a non-empty string"},
		{"search_sessions", `{"text":7}`, "text: got a number, want a string"},
		{"search_sessions", `{"text":"x","limit":0}`, "limit: want 1 to 1000, got 0"},
		{"search_sessions", `{"text":"x","limit":1001}`, "limit: want 1 to 1000, got 1001"},
		{"search_sessions", `{"text":"x","limit":"all"}`, "limit: got a string, want an integer"},
		{"new_session", `{"workdir":7}`, "workdir: got a number, want a string"},
		{"new_session", `{"workdir":"src"}`, `workdir: "src" is no absolute path`},
		{"new_session", `{"mcp_servers":[{"command":"x"}]}`, "mcp_servers.0.name: want a non-empty string"},
		{"new_session", `{"mcp_servers":[{"name":"x"}]}`, "mcp_servers.0: want either command or url"},
		{
			"new_session", `{"mcp_servers":[{"name":"x","command":"y","url":"https://h"}]}`,
			"mcp_servers.0: want either command or url",
		},
		{
			"new_session", `{"mcp_servers":[{"name":"x","command":"y"},{"name":"x","url":"https://h"}]}`,
			`mcp_servers.1.name: "x" is there twice`,
		},
		{"new_session", `{"activate":"no"}`, "activate: got a string, want a boolean"},
		{"branch_session", `{"session_id":"s","workdir":"./src"}`, `workdir: "./src" is no absolute path`},
		{"list_sessions", `{"workdir":"~"}`, `workdir: "~" is no absolute path`},
		{"withdraw", `{}`, "input_id: want a non-empty string"},
		{"withdraw", `{"input_id":["in-1"]}`, "input_id: got an array, want a string"},
		{"set_title", `{}`, "title: want some text"},
		{"set_title", `{"title":" "}`, "title: want some text"},
		{"set_title", `{"title":7}`, "title: got a number, want a string"},
		{"set_title", `{"title":"a\nb"}`, `title: "a\nb" has a control character`},
		{"set_title", `{"title":"\u001b[31mred"}`, `title: "\x1b[31mred" has a control character`},
		{"set_title", `{"title":"a\u0085b"}`, `title: "a\u0085b" has a control character`},
		{"set_title", `{"title":"` + strings.Repeat("ü", 201) + `"}`, "title: has 201 characters, at most 200 are allowed"},
		{"expand", `{}`, "text: want a non-empty string"},
		{"approve", `{"approval_id":"a","option":"accept","content":[]}`, "content: "},
		{"approve", `{"option":"once"}`, "approval_id: want a non-empty string"},
		{"approve", `{"approval_id":"a"}`, "option: want a non-empty string"},
		{"approve", `{"approval_id":"a","option":true}`, "option: got a boolean, want a string"},
		{
			"approve", `{"approval_id":"a","option":"deny","reason":"` + strings.Repeat("x", 4097) + `"}`,
			"reason: is 4097 bytes long, at most 4096 are allowed",
		},
		{"set_approval_mode", `{}`, `mode: got "", want one of "ask" "auto" "deny"`},
		{"set_approval_mode", `{"mode":"never"}`, `mode: got "never", want one of "ask" "auto" "deny"`},
		{"prompt", `{"text":"hi","approvals":"auto"}`, `approvals: got "auto", want one of "ask" "deny"`},
		{"mark_read", `{"session_id":[]}`, "session_id: got an array, want a string"},
	} {
		got, err := r.run(c.typ, c.payload)
		var wire *Error
		if !errors.As(err, &wire) {
			t.Errorf("%s %s: got payload %v and error %v, want invalid_payload", c.typ, c.payload, got, err)
			continue
		}
		if wire.Code != InvalidPayload || !strings.HasPrefix(wire.Message, c.message) {
			t.Errorf("%s %s: got %v, want invalid_payload: %s…", c.typ, c.payload, wire, c.message)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	_, err := newRecorder().run("make_tea", `{}`)
	want := &Error{Code: InvalidCommand, Message: `unknown_command: "make_tea"`}
	if diff := cmp.Diff(want, AsError(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeSubscribe(t *testing.T) {
	id, p, err := DecodeSubscribe(
		[]byte(
			`{"v":"1","id":"s1","type":"subscribe","payload":{"epoch":"e","after":17,"session_id":"s","types":["agent_end"]}}`))
	want := SubscribeParams{Epoch: "e", After: ptr(uint64(17)), SessionID: "s", Types: []string{"agent_end"}}
	if diff := cmp.Diff(want, p); diff != "" || id != "s1" || err != nil {
		t.Errorf("got id %q, error %v, (-want +got):\n%s", id, err, diff)
	}
	for _, c := range []struct{ line, id, want string }{
		{`{`, "", "invalid_command: invalid_json: "},
		{`{"id":"s1","type":"prompt","payload":{}}`, "s1", `invalid_command: unknown_command: "prompt"`},
		{
			`{"id":"s1","type":"subscribe","payload":{"after":-1}}`, "s1",
			"invalid_payload: after: got a number, want an integer",
		},
		{
			`{"id":"s1","type":"subscribe","payload":{"after":"17"}}`, "s1",
			"invalid_payload: after: got a string, want an integer",
		},
		{
			`{"id":"s1","type":"subscribe","payload":{"types":["agent_end","tea"]}}`, "s1",
			`invalid_payload: types: "tea" is no event type`,
		},
		{
			`{"id":"s1","type":"subscribe","payload":{"types":"agent_end"}}`, "s1",
			"invalid_payload: types: got a string, want an array",
		},
	} {
		id, _, err := DecodeSubscribe([]byte(c.line))
		if id != c.id || err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got id %q, error %v, want id %q, error %s…", c.line, id, err, c.id, c.want)
		}
	}
}
