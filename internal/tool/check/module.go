package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/jsonschema"
	"noused/internal/tool"
)

// The clauses of amplifier-protocols v1 §2 to §5, and the shapes that the
// daemon expects of each kind.
var (
	mReply = &clause{
		"amplifier §2", "every request has one reply, a JSON object in UTF-8, within its time",
		"over stdio: loop over stdin, one line in, one line out, nothing else on stdout, flush; over http: answer POST " +
			"with status 200",
	}
	mHealth   = &clause{"amplifier §2", `health says {"status":"ok"} within 2s`, "answer health without doing any work"}
	mDescribe = &clause{
		"amplifier §2", "describe has name, version, kind, capabilities, inputs and outputs",
		"name, version and kind are strings, capabilities an array of strings, inputs and outputs objects, {} if there is " +
			"nothing to say",
	}
	mKind = &clause{
		"amplifier §1", "describe has the kind of the descriptor",
		"make the two the same: the daemon goes by the descriptor",
	}
	mSchemas = &clause{
		"amplifier §2",
		"inputs and outputs are JSON Schemas by operation, or one schema where there is one operation",
		"write {\"operation\":{\"type\":\"object\",…}}",
	}
	mUnknown = &clause{
		"amplifier §4", "an unknown op is ok:false with code unsupported_op",
		`answer {"ok":false,"error":{"code":"unsupported_op","message":"…"}}`,
	}
	mInvoke = &clause{
		"amplifier §2", "invoke says ok:true with a result, or ok:false with an error",
		"put what you have to say into result; null is a result",
	}
	mError = &clause{
		"amplifier §4", "an error has a code and a message",
		"both are strings that are not empty; details, if any, an object",
	}
	mTwice = &clause{
		"amplifier §2", "one invoke after another is answered, each within timeout",
		"do not exit after a call",
	}
	mShape = &clause{"tools.md Modules", "the result has the shape of the module's kind", "see the table of kinds"}
	mAck   = &clause{
		"amplifier §2", "on_event is acknowledged within 2s",
		"queue the event, answer, and work on it later",
	}
	mSurplus = &clause{
		"amplifier §2", "nothing is said that was not asked for",
		"one line of stdout for each request; text for people goes to stderr",
	}
	mLeft = &clause{
		"tools.md Limits", "nothing is left running",
		"wait for your children before you exit, and start no daemons",
	}
)

// mRPC are the clauses of framing jsonrpc; what they find is told as mReply.
var mRPC = rpcClauses{mReply, mReply, mReply, mReply, mReply, mReply, mError}

var moduleClauses = []*clause{mDescribe, mKind, mSchemas, mHealth, mUnknown, mReply, mSurplus, mLeft}

// moduleCallClauses are those of one operation of a module of this kind.
func moduleCallClauses(kind string) []*clause {
	clauses := []*clause{mTwice, mInvoke, mError}
	switch kind {
	case "provider", "context", "orchestrator":
		return append(clauses, mShape)
	case "hook":
		return append(clauses, mAck)
	}
	return clauses
}

// samples are the operations of the kinds that the daemon itself calls, with
// arguments as it sends them (tools.md §4).
var samples = map[string]struct {
	op   string
	args string
}{
	"agent":    {"run", `{"goal":"say hello","inputs":{}}`},
	"provider": {"generate", `{"messages":[{"role":"user","text":"hello"}],"tools":[],"system":"be brief"}`},
	"context": {
		"transform",
		`{"messages":[{"role":"user","text":"hello"},{"role":"assistant","text":"hello to you"}]}`,
	},
	"orchestrator": {"before_turn", `{"input":"hello","state":{}}`},
	"hook": {
		"on_event",
		`{"id":"0199d9b0-0000-7000-8000-000000000000","ts":1760000000.5,"event":"session:start","component":"session",` +
			`"module":null,"status":null,"duration_ms":null,"data":{},"error":null,"session_id":"check","request_id":null,"span_id":null}`,
	},
}

// checkHealth reads the reply to health.
func checkHealth(s *sheet, reply jsontext.Value) {
	m := inner(reply, "status")
	status, _ := tool.Text(m["status"])
	s.test(mHealth, ifNot(status == "ok", quote(tool.Shorten(reply))))
}

// inner decodes a reply, which may stand under result (tools.md §4) if the
// field that it must have is not at the top.
func inner(reply jsontext.Value, must string) map[string]jsontext.Value {
	m, _ := object(reply)
	if _, ok := m[must]; !ok {
		if nested, ok := object(m["result"]); ok {
			return nested
		}
	}
	return m
}

// checkDescribe reads the reply to describe and returns the operations.
func checkDescribe(s *sheet, reply jsontext.Value, kind string) []tool.Operation {
	m := inner(reply, "name")
	var capabilities []string
	reason := first(needText(m, "name"), needText(m, "version"), needText(m, "kind"),
		needObject(m, "inputs"), needObject(m, "outputs"))
	if reason == "" && (m["capabilities"].Kind() != '[' || jsonx.Unmarshal(m["capabilities"], &capabilities) != nil) {
		reason = "capabilities is " + quote(tool.Shorten(m["capabilities"])) + ", want an array of strings"
	}
	if !s.test(mDescribe, reason) {
		_ = jsonx.Unmarshal(m["capabilities"], &capabilities) // as far as it goes
	}
	if said, ok := tool.Text(m["kind"]); ok {
		s.test(mKind, ifNot(said == kind, fmt.Sprintf("%q here, %q in the descriptor", quote(said), kind)))
	}
	inputs := checkSchemas(s, "inputs", m["inputs"], capabilities)
	checkSchemas(s, "outputs", m["outputs"], capabilities)
	ops := make([]tool.Operation, 0, len(capabilities))
	for _, name := range capabilities {
		ops = append(ops, tool.Operation{Name: name, Params: inputs[name]})
	}
	return ops
}

// checkSchemas reads inputs or outputs: a schema for each operation by its
// name, or one schema where there is one operation.
func checkSchemas(s *sheet, field string, v jsontext.Value, ops []string) map[string]jsontext.Value {
	m, ok := object(v)
	if !ok || len(m) == 0 {
		return nil
	}
	schemas := make(map[string]jsontext.Value)
	for _, op := range ops {
		if schema, ok := m[op]; ok {
			schemas[op] = jsontext.Value(schema)
		}
	}
	if len(schemas) == 0 && len(ops) == 1 {
		schemas[ops[0]] = jsontext.Value(v)
	}
	if len(schemas) == 0 {
		s.fail(mSchemas, "%s names none of the capabilities: %s", field, quote(tool.Shorten(v)))
	}
	for op, schema := range schemas {
		if _, err := jsonschema.Compile(schema); err != nil {
			s.fail(mSchemas, "%s of %s: %s", field, quote(op), quote(err.Error()))
			delete(schemas, op)
			continue
		}
		s.hold(mSchemas)
	}
	return schemas
}

// outcome is an invoke's reply: a result, or a code.
type outcome struct {
	result jsontext.Value
	code   string
}

// checkInvoke reads the reply to invoke.
func checkInvoke(s *sheet, reply jsontext.Value) outcome {
	m := inner(reply, "ok")
	result, hasResult := m["result"]
	switch {
	case needBool(m, "ok") != "":
		s.fail(mInvoke, "%s", needBool(m, "ok"))
	case m["ok"].Kind() == 't':
		s.test(mInvoke, first(ifNot(hasResult, "ok is true and there is no result"),
			ifNot(!given(m["error"]), "ok is true and there is an error")))
	default:
		e, ok := object(m["error"])
		s.test(mInvoke, first(ifNot(ok, "ok is false and error is "+quote(tool.Shorten(m["error"]))),
			ifNot(!given(result), "ok is false and there is a result")))
		if ok {
			s.test(mError, first(needText(e, "code"), needText(e, "message"), mayDetails(e)))
		}
		code, _ := tool.Text(e["code"])
		return outcome{code: code}
	}
	return outcome{result: result}
}

// mayDetails accepts null as absent, as the descriptor of an event does.
func mayDetails(e map[string]jsontext.Value) string {
	if !given(e["details"]) {
		return ""
	}
	return needObject(e, "details")
}

// checkShape reads a result as the daemon does for the kinds that it calls
// itself (tools.md §4).
func checkShape(s *sheet, kind string, result jsontext.Value) {
	m, ok := object(result)
	reason := ifNot(ok, "the result is "+quote(tool.Shorten(result)))
	switch {
	case kind == "tool" || kind == "agent" || kind == "hook": // what they like
		return
	case reason != "":
	case kind == "provider":
		_, calls := m["tool_calls"]
		reason = first(mayText(m, "text"), checkStop(m["stop_reason"]), mayObject(m, "usage"),
			ifNot(m["text"] != nil || calls, "there is neither text nor tool_calls"))
		if reason == "" && calls {
			reason = checkToolCalls(m["tool_calls"])
		}
	case kind == "context":
		reason = checkMessages(m["messages"])
	case kind == "orchestrator":
		_, input := m["input"]
		_, reject := m["reject"]
		reason = first(ifNot(input != reject, "want either input or reject: "+quote(tool.Shorten(result))),
			mayText(m, "reject"))
		if reason == "" && input {
			reason = needText(m, "input")
		}
	}
	s.test(mShape, reason)
}

func checkStop(v jsontext.Value) string {
	switch reason, _ := tool.Text(v); {
	case v == nil, reason == "end", reason == "tool_calls", reason == "length":
		return ""
	}
	return "stop_reason is " + quote(tool.Shorten(v)) + ", want end, tool_calls or length"
}

func checkToolCalls(v jsontext.Value) string {
	var calls []map[string]jsontext.Value
	if jsonx.Unmarshal(v, &calls) != nil {
		return "tool_calls is " + quote(tool.Shorten(v)) + ", want an array of objects"
	}
	for _, c := range calls {
		if reason := first(needText(c, "name"), needObject(c, "arguments")); reason != "" {
			return "tool_calls: " + reason
		}
	}
	return ""
}

func checkMessages(v jsontext.Value) string {
	var messages []map[string]jsontext.Value
	if v.Kind() != '[' || jsonx.Unmarshal(v, &messages) != nil {
		return "messages is " + quote(tool.Shorten(v)) + ", want an array of objects"
	}
	if len(messages) == 0 {
		return "messages is empty, and no model can be asked with nothing"
	}
	for _, m := range messages {
		switch role, _ := tool.Text(m["role"]); role {
		case "user", "assistant", "tool":
		default:
			return "messages: role is " + quote(tool.Shorten(m["role"])) + ", want user, assistant or tool"
		}
	}
	return ""
}

// moduleRun checks one module.
type moduleRun struct {
	*runner
	*sheet
	link link
}

func (r *runner) module(ctx context.Context) ([]Finding, error) {
	m := &moduleRun{runner: r, sheet: newSheet(moduleClauses)}
	link, err := r.dial(ctx, m.sheet)
	if err != nil {
		return nil, err
	}
	m.link = link
	called, err := m.converse(ctx)
	surplus, left := m.link.close()
	if err != nil {
		return nil, err
	}
	m.test(mSurplus, surplus)
	m.test(mLeft, strings.Join(left, ", "))
	return slices.Concat(m.findings("", "the module did not get that far"), called), nil
}

// converse asks everything there is to ask. An error means that nothing can be
// checked; a module that stops answering is a finding.
func (m *moduleRun) converse(ctx context.Context) ([]Finding, error) {
	reply, err := m.link.request(ctx, "describe", nil, startTime)
	var unreachable *tool.Fault
	switch {
	case errors.As(err, &unreachable) && unreachable.Code == tool.Unreachable:
		return nil, err
	case err != nil:
		m.fail(mReply, "describe: %v", err)
		return nil, nil
	}
	ops := checkDescribe(m.sheet, reply, m.desc.Kind)
	m.health(ctx)
	m.unknown(ctx)
	sample, ok := samples[m.desc.Kind]
	var args jsontext.Value
	switch {
	case ok: // the daemon knows what it asks of these kinds
		ops, args = []tool.Operation{{Name: sample.op}}, jsontext.Value(sample.args)
	case len(ops) == 0:
		ops = m.desc.Operations
	}
	targets, err := m.targets(ops, args)
	if err != nil {
		return nil, err
	}
	if targets == nil {
		return newSheet(moduleCallClauses(m.desc.Kind)).findings("", uncalled), nil
	}
	var called []Finding
	for _, t := range targets {
		s := newSheet(moduleCallClauses(m.desc.Kind))
		if t.args != nil {
			m.call(ctx, t, s)
		}
		called = append(called, s.findings(t.name, first(t.reason, "nothing of the kind came"))...)
	}
	return called, nil
}

func (m *moduleRun) health(ctx context.Context) {
	reply, err := m.link.request(ctx, "health", nil, healthTime)
	if err != nil {
		m.fail(mHealth, "%v", err)
		return
	}
	checkHealth(m.sheet, reply)
}

// unknown invokes an operation that does not exist.
func (m *moduleRun) unknown(ctx context.Context) {
	reply, err := m.link.request(ctx, "invoke", invocation(unknownName, jsontext.Value("{}")), startTime)
	if err != nil {
		m.fail(mUnknown, "%v", err)
		return
	}
	m.hold(mReply)
	got := checkInvoke(newSheet(nil), reply)
	m.test(mUnknown, ifNot(got.code == tool.UnsupportedOp, quote(tool.Shorten(reply))))
}

// call invokes an operation twice.
func (m *moduleRun) call(ctx context.Context, t target, s *sheet) {
	limit, late := m.desc.Timeout, mTwice
	if m.desc.Kind == "hook" {
		limit, late = min(limit, healthTime), mAck
	}
	for range 2 {
		reply, err := m.link.request(ctx, "invoke", invocation(t.name, t.args), limit)
		if err != nil {
			s.fail(late, "%v", err)
			return
		}
		s.hold(mTwice)
		if late == mAck {
			s.hold(mAck)
		}
		if got := checkInvoke(s, reply); got.result != nil {
			checkShape(s, m.desc.Kind, got.result)
		}
	}
}

// invoke is the request of amplifier §2.
type invoke struct {
	Op        string         `json:"op"`
	Args      jsontext.Value `json:"args"`
	SessionID string         `json:"session_id"`
}

func invocation(op string, args jsontext.Value) *invoke {
	return &invoke{op, jsontext.Value(args), "check"}
}
