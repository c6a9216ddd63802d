package protocol

import (
	"bytes"
	"os"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const published = "../../docs/protocol-openapi-like.json"

// frozenDocument is what clients' contract tests read, as wire-v1 §3 has it. It
// is written by hand: a generated file cannot guard itself.
type frozenDocument struct {
	OpenAPI   string              `json:"openapi"`
	Transport map[string]string   `json:"x-transport"`
	Required  map[string][]string `json:"x-command-payload-requirements"`
	Optional  map[string][]string `json:"x-command-payload-optional"`
	Response  map[string][]string `json:"x-response-payload-requirements"`
}

func TestDocumentHoldsTheFrozenFacts(t *testing.T) {
	doc, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	var got frozenDocument
	if err := json.Unmarshal(doc, &got); err != nil {
		t.Fatal(err)
	}
	want := frozenDocument{
		OpenAPI:   "3.1.0",
		Transport: map[string]string{"type": "uds", "framing": "ndjson", "commands": "PATH", "events": "PATH.events"},
		Required: map[string][]string{
			"ping": {}, "prompt": {"text"}, "steer": {"text"}, "follow_up": {"text"}, "abort": {},
			"set_active_tools": {"tools"}, "set_steering_mode": {"mode"}, "set_follow_up_mode": {"mode"},
			"get_state": {}, "get_messages": {}, "new_session": {}, "switch_session": {"session_id"},
			"branch_session":    {"session_id"},
			"extension_command": {"name"}, "compact_session": {}, "set_leaf": {"leaf_id"}, "get_tree": {},
			"list_sessions": {}, "delete_session": {"session_id"}, "search_sessions": {"text"}, "list_tools": {},
			"set_model": {"model"}, "set_agent": {"agent"}, "set_agent_option": {"id", "value"}, "reload_tools": {},
			"list_models": {}, "get_system": {}, "list_skills": {}, "list_agents": {}, "call_tool": {"name"},
			"withdraw": {"input_id"}, "set_title": {"title"},
			"mark_read":   {},
			"prune":       {},
			"get_changes": {}, "rewind": {"to", "what"}, "undo_rewind": {},
			"expand": {"text"}, "get_usage": {}, "approve": {"approval_id", "option"},
			"set_approval_mode": {"mode"}, "shutdown": {},
		},
		Optional: map[string][]string{
			"ping": {}, "prompt": {"session_id", "wait", "leaf_id"}, "steer": {"session_id"}, "follow_up": {"session_id"},
			"abort":            {"session_id", "run_id"},
			"set_active_tools": {"session_id"}, "set_steering_mode": {"session_id"}, "set_follow_up_mode": {"session_id"},
			"get_state": {"session_id"}, "get_messages": {"session_id", "leaf_id"}, "new_session": {}, "switch_session": {},
			"branch_session":    {"parent_id"},
			"extension_command": {"session_id", "payload"}, "compact_session": {"session_id", "instruction"},
			"set_leaf": {"session_id"}, "get_tree": {"session_id"},
			"prune": {"dry_run"}, "get_changes": {"session_id", "from", "to", "diff", "path", "children"},
			"rewind":        {"session_id", "dry_run", "force"},
			"undo_rewind":   {"session_id", "rewind_id", "dry_run", "force"},
			"list_sessions": {"limit", "before", "workdir"}, "delete_session": {},
			"search_sessions": {"limit"}, "list_tools": {"session_id"},
			"set_model": {"session_id", "base_url", "context_window", "effort"}, "set_agent_option": {"session_id"},
			"set_agent":    {"session_id"},
			"reload_tools": {}, "list_models": {"session_id", "probe"},
			"get_system": {"session_id"}, "list_skills": {"session_id", "name"}, "list_agents": {}, "withdraw": {"session_id"},
			"call_tool": {"session_id", "token", "arguments", "client", "output_id"},
			"set_title": {"session_id"}, "mark_read": {"session_id"},
			"expand": {"session_id"}, "get_usage": {"by", "time_zone"}, "approve": {"reason"},
			"set_approval_mode": {"session_id"}, "shutdown": {"restart"},
		},
		Response: map[string][]string{
			"pong":                        {"message"},
			"accepted:prompt":             {"command", "run_id", "session_id"},
			"result":                      {"output", "events", "session_id", "run_id"},
			"accepted:steer":              {"command", "run_id"},
			"accepted:follow_up":          {"command", "run_id"},
			"accepted:abort":              {"command", "run_id"},
			"accepted:set_active_tools":   {"command", "count"},
			"accepted:set_steering_mode":  {"command", "mode"},
			"accepted:set_follow_up_mode": {"command", "mode"},
			"accepted:set_model":          {"command", "model"},
			"accepted:set_agent":          {"command", "agent"},
			"accepted:set_agent_option":   {"command", "id", "value"},
			"accepted:withdraw":           {"command", "input_id", "kind", "text", "session_id"},
			"accepted:set_title":          {"command", "title"},
			"accepted:mark_read":          {"command"},
			"accepted:approve":            {"command", "approval_id", "outcome"},
			"accepted:set_approval_mode":  {"command", "mode"},
			"accepted:shutdown":           {"command", "pid", "drain_ms"},
			"state": {
				"run_state", "run_id", "session_id", "steering_mode", "follow_up_mode",
				"pending_counts",
			},
			"messages":         {"session_id", "messages"},
			"session":          {"session_id", "active"},
			"extension_result": {}, "tool_result": {"tool_call_id", "ok", "result"},
			"expanded":        {"text"},
			"compaction":      {"session_id", "summary", "first_kept_entry_id", "tokens_before", "trigger"},
			"leaf":            {"session_id", "leaf_id"},
			"tree":            {"session_id", "leaf_id", "nodes"},
			"sessions":        {"sessions"},
			"session_deleted": {"session_id"},
			"changes":         {"session_id", "folder", "files"},
			"rewind":          {"session_id", "rewind_id", "files", "conflicts", "leaf_id"},
			"pruned": {
				"dry_run", "limits", "config", "sessions", "tool_output", "audit", "truncated",
				"sums", "problems",
			},
			"search_results": {"matches", "truncated"},
			"tools":          {"tools"},
			"tools_reloaded": {"added", "changed", "removed", "errors"},
			"models":         {"models", "truncated"},
			"system":         {"session_id", "text", "files", "left_out"},
			"skills":         {"skills", "left_out"},
			"agents":         {"agents"},
			"usage":          {"by", "rows", "total", "truncated", "left_out"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frozen facts (-want +got):\n%s", diff)
	}
}

func TestDocumentEnvelopesNameEveryType(t *testing.T) {
	doc, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	type envelope struct {
		AllOf []struct {
			Properties struct {
				Type struct {
					Enum []string `json:"enum"`
				} `json:"type"`
				Error struct {
					Properties map[string]any `json:"properties"`
				} `json:"error"`
			} `json:"properties"`
		} `json:"allOf"`
	}
	var got struct {
		Components struct {
			Schemas struct{ EnvelopeBase, CommandEnvelope, ResponseEnvelope, EventEnvelope envelope } `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(doc, &got); err != nil {
		t.Fatal(err)
	}
	commands := []string{
		"ping", "prompt", "steer", "follow_up", "abort", "set_active_tools", "set_steering_mode", "set_follow_up_mode",
		"get_state",
		"get_messages", "new_session", "switch_session", "branch_session", "extension_command",
		"call_tool", "compact_session", "set_leaf",
		"get_tree", "list_sessions", "delete_session", "search_sessions", "list_tools", "set_model",
		"set_agent", "set_agent_option", "reload_tools",
		"list_models",
		"get_system", "list_skills", "list_agents", "withdraw", "set_title", "mark_read", "expand", "get_usage", "approve",
		"set_approval_mode", "get_changes", "rewind", "undo_rewind", "prune", "shutdown",
	}
	schemas := got.Components.Schemas
	if diff := cmp.Diff(commands, schemas.CommandEnvelope.AllOf[1].Properties.Type.Enum); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	events := []string{
		"agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update", "message_end",
		"tool_execution_start", "tool_execution_update", "tool_execution_end", "status", "warning", "error",
	}
	if diff := cmp.Diff(events, schemas.EventEnvelope.AllOf[1].Properties.Type.Enum); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if _, ok := schemas.ResponseEnvelope.AllOf[1].Properties.Error.Properties["cause"]; !ok {
		t.Error("the response envelope's error has no cause")
	}
}

func TestPublishedDocumentIsCurrent(t *testing.T) {
	want, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(published)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want)+"\n", string(got)); diff != "" {
		t.Errorf("docs/protocol-openapi-like.json is not what the code says; run `make generate` (-want +got):\n%s", diff)
	}
}

// schemas compiles every schema of the document.
func schemas(t testing.TB) func(name string) *jsonschema.Schema {
	t.Helper()
	text, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("nous.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled := map[string]*jsonschema.Schema{}
	for name := range doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
		if compiled[name], err = c.Compile("nous.json#/components/schemas/" + name); err != nil {
			t.Fatalf("schema %s: %v", name, err)
		}
	}
	return func(name string) *jsonschema.Schema {
		if compiled[name] == nil {
			panic("the document has no schema " + name)
		}
		return compiled[name]
	}
}

func parse(t testing.TB, text []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestSchemasAcceptWhatIsSent(t *testing.T) {
	schema := schemas(t)
	check := func(name string, text []byte) {
		t.Helper()
		v := parse(t, text)
		if err := schema(name).Validate(v); err != nil {
			t.Errorf("%s %s: %v", name, text, err)
		}
	}
	for _, p := range sampleParams() {
		payload, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		check(reflect.TypeOf(p).Name(), payload)
	}
	for _, row := range Table() {
		check("CommandEnvelope", []byte(`{"v":"1","id":"c1","type":"`+row.Name+`","payload":{}}`))
	}
	for _, r := range sampleReplies() {
		line, err := AppendResponse(nil, "c1", r.replyType(), r)
		if err != nil {
			t.Fatal(err)
		}
		check("ResponseEnvelope", line)
		payload, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		check(reflect.TypeOf(r).Name(), payload)
	}
	check("ResponseEnvelope", AppendError(nil, "c1", &Error{Code: Timeout, Message: "m", Cause: "c"}))
	check("ResponseEnvelope", AppendError(nil, "", Errorf(Timeout, "m")))
	for _, ev := range sampleEvents() {
		payload, err := EncodePayload(ev)
		if err != nil {
			t.Fatal(err)
		}
		check(reflect.TypeOf(ev).Name(), payload)
		check("EventEnvelope", AppendEvent(nil, ev.Type(), payload, sampleTime, 17))
	}
	check("BranchSessionParams", []byte(`{"session_id":"ses-1"}`))
	check("BranchSessionParams", []byte(`{"parent_id":"ses-1"}`))
}

func TestSchemasRefuseWhatIsWrong(t *testing.T) {
	schema := schemas(t)
	for _, c := range []struct{ name, text string }{
		{"CommandEnvelope", `{"v":"2","id":"c1","type":"ping","payload":{}}`},
		{"CommandEnvelope", `{"v":"1","id":"","type":"ping","payload":{}}`},
		{"CommandEnvelope", `{"v":"1","id":"c1","type":"pong","payload":{}}`},
		{"CommandEnvelope", `{"v":"1","id":"c1","type":"ping","payload":[]}`},
		{"ResponseEnvelope", `{"v":"1","id":"c1","type":"pong","payload":{}}`},
		{"ResponseEnvelope", `{"v":"1","id":"c1","type":"error","payload":{},"ok":false}`},
		{"ResponseEnvelope", `{"v":"1","id":"c1","type":"error","payload":{},"ok":false,"error":{"code":"timeout"}}`},
		{"EventEnvelope", `{"v":"1","id":"evt-1","type":"agent_start","payload":{}}`},
		{"EventEnvelope", `{"v":"1","id":"evt-1","type":"agent_start","payload":{},"ts":"yesterday"}`},
		{"EventEnvelope", `{"v":"1","id":"evt-1","type":"agent_pause","payload":{},"ts":"2026-02-12T00:00:00Z"}`},
		{"PromptParams", `{}`},
		{"PromptParams", `{"text":""}`},
		{"PromptParams", `{"text":"hi","wait":"no"}`},
		{"PromptParams", `{"text":"hi","streaming_behavior":"queue"}`},
		{"SetModeParams", `{"mode":"some"}`},
		{"SetActiveToolsParams", `{"tools":"read"}`},
		{"BranchSessionParams", `{"leaf_id":"msg-1"}`},
		{"ExtensionCommandParams", `{"name":"x","payload":[]}`},
		{"ListSessionsParams", `{"limit":0}`},
		{"ListSessionsParams", `{"limit":1001}`},
		{"DeleteSessionParams", `{"session_id":""}`},
		{"SearchSessionsParams", `{"text":""}`},
		{"SearchSessionsParams", `{"text":"x","limit":1001}`},
		{"AgentStart", `{"session_id":"ses-1"}`},
		{"TurnStart", `{"run_id":"run-1","session_id":"ses-1","kind":"prompt","input_ids":[]}`},
		{"MessageStart", `{"run_id":"run-1","session_id":"ses-1","turn_id":"1","message_id":"m","role":"user"}`},
		{"MessageUpdate", `{"run_id":"run-1","session_id":"ses-1","turn_id":"1","message_id":"m"}`},
		{
			"MessageUpdate",
			`{"run_id":"run-1","session_id":"ses-1","turn_id":"1","message_id":"m","delta":"a","thinking_delta":"b"}`,
		},
		{"Messages", `{"session_id":"ses-1","messages":[{"type":"note"}]}`},
	} {
		if schema(c.name).Validate(parse(t, []byte(c.text))) == nil {
			t.Errorf("%s accepts %s", c.name, c.text)
		}
	}
}

// A schema that forgets a required field would tell clients that they may, too.
func TestSchemasMissNoRequiredField(t *testing.T) {
	schema := schemas(t)
	check := func(v any) {
		t.Helper()
		typ := reflect.TypeOf(v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range wireFields(typ) {
			if isOptional(f) {
				continue
			}
			payload := parse(t, text).(map[string]any)
			delete(payload, name)
			if schema(typ.Name()).Validate(payload) == nil {
				t.Errorf("%s accepts a payload without %s", typ.Name(), name)
			}
		}
	}
	for _, p := range sampleParams() {
		check(p)
	}
	for _, r := range sampleReplies() {
		check(r)
	}
	for _, ev := range sampleEvents() {
		check(ev)
	}
}
