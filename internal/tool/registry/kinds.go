package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool"
)

// What the daemon itself asks of modules that are no tools (tools.md §4).

// Rejection is why an orchestrator does not let a text in.
type Rejection struct {
	Module string
	Reason string
}

func (r *Rejection) Error() string { return r.Module + ": " + r.Reason }

// BeforeTurn shows a text that somebody wants to give to a session to every
// orchestrator, in the order of their names, and returns what they make of it.
// An error is a *[Rejection]; an orchestrator that fails rejects, since it may
// be a guard. state is the object that tools have patched together.
func (r *Registry) BeforeTurn(ctx context.Context, sessionID, workdir, input string, state []byte) (string, error) {
	for _, m := range r.all() {
		if m.desc.Kind != tool.KindOrchestrator {
			continue
		}
		var answer struct {
			Input  *string `json:"input"`
			Reject *string `json:"reject"`
		}
		args := struct {
			Input string         `json:"input"`
			State jsontext.Value `json:"state"`
		}{input, jsontext.Value(state)}
		if err := r.invoke(ctx, m, "before_turn", args, &answer, caller{sessionID, workdir}); err != nil {
			return "", &Rejection{m.desc.Name, err.Error()}
		}
		switch {
		case answer.Reject != nil:
			return "", &Rejection{m.desc.Name, *answer.Reject}
		case answer.Input == nil:
			return "", &Rejection{m.desc.Name, "the result of before_turn has neither input nor reject"}
		case *answer.Input == "":
			return "", &Rejection{m.desc.Name, "nothing is left of the text"}
		}
		input = *answer.Input
	}
	return input, nil
}

// Operations of modules that have a say in runs; one that has it names it among its
// capabilities.
const (
	onPrompt  = "on_prompt"
	afterTool = "after_tool"
	onStop    = "on_stop"
	onEvent   = "on_event"
)

// hooks are the modules that have such an operation.
func (r *Registry) hooks(op string) []*module {
	return slices.DeleteFunc(slices.Clone(r.all()), func(m *module) bool {
		return m.desc.Kind != tool.KindHook && m.desc.Kind != tool.KindOrchestrator ||
			!slices.Contains(m.desc.Capabilities, op)
	})
}

// hears reports a module that gets events: a hook, unless it says that it does other
// things alone.
func hears(d *tool.Descriptor) bool {
	others := slices.ContainsFunc(d.Capabilities, func(op string) bool {
		return op == onPrompt || op == afterTool || op == onStop
	})
	return d.Kind == tool.KindHook && (!others || slices.Contains(d.Capabilities, onEvent))
}

// OnPrompt shows a text to every module of on_prompt, and returns it with what they add. An
// error is a *[Rejection]; a module that fails rejects, since it may be a guard.
func (r *Registry) OnPrompt(ctx context.Context, sessionID, workdir, text string) (string, error) {
	for _, m := range r.hooks(onPrompt) {
		var answer struct {
			Text   string  `json:"text"`
			Reject *string `json:"reject"`
		}
		args := struct {
			Prompt string `json:"prompt"`
		}{text}
		if err := r.invoke(ctx, m, onPrompt, args, &answer, caller{sessionID, workdir}); err != nil {
			return "", &Rejection{m.desc.Name, err.Error()}
		}
		if answer.Reject != nil {
			return "", &Rejection{m.desc.Name, *answer.Reject}
		}
		text = withSaid(text, m, answer.Text)
	}
	return text, nil
}

// withSaid is a text with what a module says behind it.
func withSaid(text string, m *module, said string) string {
	if strings.TrimSpace(said) == "" {
		return text
	}
	return strings.TrimLeft(fmt.Sprintf("%s\n\n[hook %s]\n%s", text, m.desc.Name, format.Clip(said, maxHookText)), "\n")
}

// maxHookText is how much a module may add to a text, in bytes.
const maxHookText = 64 << 10

// AfterTool adds to a call's result what modules of after_tool say of it. It returns why modules
// failed: the result is as it is without them.
func (r *Registry) AfterTool(ctx context.Context, inv model.Invocation, res model.ToolResult) (model.ToolResult,
	[]string,
) {
	var problems []string
	for _, m := range r.hooks(afterTool) {
		var answer struct {
			Text string `json:"text"`
		}
		args := struct {
			Tool      string         `json:"tool"`
			Arguments jsontext.Value `json:"arguments"`
			OK        bool           `json:"ok"`
			Result    string         `json:"result"`
		}{inv.Name, jsontext.Value(inv.Arguments), res.OK, res.Text}
		if err := r.invoke(ctx, m, afterTool, args, &answer, caller{inv.SessionID, inv.Workdir}); err != nil {
			problems = append(problems, hookFailed(m, afterTool, err))
			continue
		}
		res.Text = withSaid(res.Text, m, answer.Text)
	}
	return res, problems
}

func hookFailed(m *module, op string, err error) string {
	return fmt.Sprintf("the hook %s of %s failed: %s", m.desc.Name, op, format.Clip(err.Error(), maxAudited))
}

// Stops reports whether there is a module of on_stop.
func (r *Registry) Stops() bool { return len(r.hooks(onStop)) > 0 }

// OnStop returns what modules that object to the end of a run say, "" where none does, and why
// modules failed.
func (r *Registry) OnStop(ctx context.Context, sessionID, workdir, output string) (text string, problems []string) {
	for _, m := range r.hooks(onStop) {
		var answer struct {
			Text string `json:"text"`
		}
		args := struct {
			Output string `json:"output"`
		}{output}
		if err := r.invoke(ctx, m, onStop, args, &answer, caller{sessionID, workdir}); err != nil {
			problems = append(problems, hookFailed(m, onStop, err))
			continue
		}
		text = withSaid(text, m, answer.Text)
	}
	return text, problems
}

// beforeTool is the operation of orchestrators that have a say in calls; one that
// has it names it among its capabilities.
const beforeTool = "before_tool"

// guarded reports whether an orchestrator has a say in calls.
func (r *Registry) guarded() bool {
	return slices.ContainsFunc(r.all(), (*module).guards)
}

func (m *module) guards() bool {
	return m.desc.Kind == tool.KindOrchestrator && slices.Contains(m.desc.Capabilities, beforeTool)
}

// Guard shows a call to every orchestrator that has a say in calls, and returns the
// strictest answer, whatever the approval mode is; the zero Verdict where all allow it. One
// that fails denies, since it may be a guard. It blocks until all have answered, or
// ctx ends.
func (r *Registry) Guard(ctx context.Context, inv model.Invocation) (v model.Verdict) {
	for _, m := range r.all() {
		if !m.guards() {
			continue
		}
		d := r.beforeTool(ctx, m, inv)
		if next := verdict(inv.Name, d, d); strictness(next) > strictness(v) {
			v = next
			if d.Verdict == policy.Deny {
				v.Why = d.Rule + ": " + d.Why
			}
		}
	}
	if v.Decision == model.Allow {
		v = model.Verdict{}
	}
	return v
}

func (r *Registry) beforeTool(ctx context.Context, m *module, inv model.Invocation) policy.Decision {
	var answer struct {
		Decision policy.Verdict `json:"decision"`
		Reason   string         `json:"reason"`
	}
	args := struct {
		Tool      string         `json:"tool"`
		Arguments jsontext.Value `json:"arguments"`
	}{inv.Name, jsontext.Value(inv.Arguments)}
	err := r.invoke(ctx, m, beforeTool, args, &answer, caller{inv.SessionID, inv.Workdir})
	switch answer.Decision {
	case policy.Allow, policy.Ask, policy.Deny:
	default:
		if err == nil {
			err = tool.Faultf(tool.ProtocolError, "the result of %s has the decision %.40q, want allow, ask or deny", beforeTool,
				answer.Decision)
		}
	}
	if err != nil {
		answer.Decision, answer.Reason = policy.Deny, err.Error()
	}
	return policy.Decision{
		Verdict: answer.Decision, Rule: string(answer.Decision) + ": orchestrator " + m.desc.Name,
		Why: answer.Reason,
	}
}

// Orchestrated reports whether there is an orchestrator to ask.
func (r *Registry) Orchestrated() bool {
	return r.mounts(tool.KindOrchestrator) || len(r.hooks(onPrompt)) > 0
}

// Transforms reports whether there is a context module to ask.
func (r *Registry) Transforms() bool { return r.mounts(tool.KindContext) }

// Transform hands the messages that a model is to read to every context module,
// in the order of their names. One that fails is passed over; the error says so
// and comes with the messages as they are without it.
func (r *Registry) Transform(ctx context.Context, sessionID, workdir string, messages []model.Message) ([]model.Message,
	error,
) {
	var failed error
	for _, m := range r.all() {
		if m.desc.Kind != tool.KindContext {
			continue
		}
		type conversation struct {
			Messages []model.Message `json:"messages"`
		}
		r.o.Audit.Record(model.AuditEvent{
			Event: "context:get", Component: "context", Module: m.desc.Name,
			SessionID: sessionID,
		})
		var answer conversation
		err := r.invoke(ctx, m, "transform", conversation{messages}, &answer, caller{sessionID, workdir})
		if err == nil {
			err = checkMessages(answer.Messages)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("context module %s: %w", m.desc.Name, err))
			continue
		}
		r.o.Audit.Record(model.AuditEvent{
			Event: "context:set", Component: "context", Module: m.desc.Name,
			SessionID: sessionID,
		})
		messages = answer.Messages
	}
	return messages, failed
}

// checkMessages refuses what no model could be asked with.
func checkMessages(messages []model.Message) error {
	if len(messages) == 0 {
		return tool.Faultf(tool.ProtocolError, "it left no messages")
	}
	for i, msg := range messages {
		switch msg.Role {
		case model.User, model.Assistant, model.Tool:
		default:
			return tool.Faultf(tool.ProtocolError, "messages.%d.role: got %.40q, want user, assistant or tool", i, msg.Role)
		}
	}
	return nil
}

// Invoke asks the provider module of that name (tools.md §4). Errors are
// Faults.
func (r *Registry) Invoke(ctx context.Context, name, op string, args jsontext.Value) (jsontext.Value, error) {
	for _, m := range r.all() {
		if m.desc.Kind == tool.KindProvider && m.desc.Name == name {
			var answer jsontext.Value
			err := r.invoke(ctx, m, op, jsontext.Value(args), &answer, caller{})
			return jsontext.Value(answer), err
		}
	}
	return nil, tool.Faultf(tool.Unreachable, "there is no provider module %q; see the tools directories", name)
}

// Provides reports whether there is a provider module of that name.
func (r *Registry) Provides(name string) bool {
	return slices.ContainsFunc(r.all(), func(m *module) bool {
		return m.desc.Kind == tool.KindProvider && m.desc.Name == name
	})
}

// Providers are the names of all provider modules, sorted.
func (r *Registry) Providers() (names []string) {
	for _, m := range r.all() {
		if m.desc.Kind == tool.KindProvider {
			names = append(names, m.desc.Name)
		}
	}
	return names
}

func (r *Registry) mounts(kind string) bool {
	for _, m := range r.all() {
		if m.desc.Kind == kind {
			return true
		}
	}
	return false
}

// caller is the session that a module is asked for, and its folder; the zero
// caller is the daemon itself.
type caller struct{ sessionID, workdir string }

// invoke has one module do something for the daemon, in a session's folder.
func (r *Registry) invoke(ctx context.Context, m *module, op string, args, answer any, by caller) error {
	switch err := m.enter(); {
	case err == errRetired:
		return r.invokeSuccessor(ctx, m, op, args, answer, by)
	case err != nil:
		return err
	}
	defer m.leave()
	ctx, unbind := m.bind(ctx)
	defer unbind()
	p, gone, err := m.at(by.workdir, "")
	if err != nil { // the session's folder is missing, and it goes on all the same
		p, gone, err = m.at("", "")
	}
	if err != nil {
		return err
	}
	defer gone()
	host, ok := p.host.(tool.Invoker)
	if !ok { // it was refused at mount
		_, err := p.host.Describe(ctx)
		return err
	}
	request, err := jsonx.Marshal(args, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	start := time.Now()
	reply, err := host.Invoke(ctx, op, jsontext.Value(request), by.sessionID)
	if err == nil {
		if err = jsonx.Unmarshal(reply, answer); err != nil {
			err = tool.Faultf(tool.ProtocolError, "the result of %s is not what it should be: %v", op, tool.Readable(err))
		}
	}
	var failure *model.ToolError
	if err != nil {
		failure = tool.Failure(err).Error
	}
	r.invoked(m.desc.Name, op, by.sessionID, "", time.Since(start), failure)
	return err
}

// invokeSuccessor asks the module that a reload has just put in a module's
// place.
func (r *Registry) invokeSuccessor(ctx context.Context, old *module, op string, args, answer any, by caller) error {
	for _, m := range r.all() {
		if m != old && m.desc.Name == old.desc.Name && m.desc.Kind == old.desc.Kind {
			return r.invoke(ctx, m, op, args, answer, by)
		}
	}
	return tool.Faultf(tool.Unreachable, "%s was removed", old.desc.Name)
}
