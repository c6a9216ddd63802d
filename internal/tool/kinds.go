package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
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
func (r *Registry) BeforeTurn(ctx context.Context, sessionID, input string, state []byte) (string, error) {
	for _, m := range r.all() {
		if m.desc.Kind != KindOrchestrator {
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
		if err := r.invoke(ctx, m, "before_turn", args, &answer, sessionID); err != nil {
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

// Orchestrated reports whether there is an orchestrator to ask.
func (r *Registry) Orchestrated() bool { return r.mounts(KindOrchestrator) }

// Transforms reports whether there is a context module to ask.
func (r *Registry) Transforms() bool { return r.mounts(KindContext) }

// Transform hands the messages that a model is to read to every context module,
// in the order of their names. One that fails is passed over; the error says so
// and comes with the messages as they are without it.
func (r *Registry) Transform(ctx context.Context, sessionID string, messages []model.Message) ([]model.Message, error) {
	var failed error
	for _, m := range r.all() {
		if m.desc.Kind != KindContext {
			continue
		}
		type conversation struct {
			Messages []model.Message `json:"messages"`
		}
		r.o.Audit.Record(model.AuditEvent{Event: "context:get", Component: "context", Module: m.desc.Name, SessionID: sessionID})
		var answer conversation
		err := r.invoke(ctx, m, "transform", conversation{messages}, &answer, sessionID)
		if err == nil {
			err = checkMessages(answer.Messages)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("context module %s: %w", m.desc.Name, err))
			continue
		}
		r.o.Audit.Record(model.AuditEvent{Event: "context:set", Component: "context", Module: m.desc.Name, SessionID: sessionID})
		messages = answer.Messages
	}
	return messages, failed
}

// checkMessages refuses what no model could be asked with.
func checkMessages(messages []model.Message) error {
	if len(messages) == 0 {
		return Faultf(ProtocolError, "it left no messages")
	}
	for i, msg := range messages {
		switch msg.Role {
		case model.User, model.Assistant, model.Tool:
		default:
			return Faultf(ProtocolError, "messages.%d.role: got %.40q, want user, assistant or tool", i, msg.Role)
		}
	}
	return nil
}

// Invoke asks the provider module of that name (tools.md §4). Errors are
// Faults.
func (r *Registry) Invoke(ctx context.Context, name, op string, args json.RawMessage) (json.RawMessage, error) {
	for _, m := range r.all() {
		if m.desc.Kind == KindProvider && m.desc.Name == name {
			var answer jsontext.Value
			err := r.invoke(ctx, m, op, jsontext.Value(args), &answer, "")
			return json.RawMessage(answer), err
		}
	}
	return nil, Faultf(Unreachable, "there is no provider module %q; see the tools directories", name)
}

// Provides reports whether there is a provider module of that name.
func (r *Registry) Provides(name string) bool {
	return slices.ContainsFunc(r.all(), func(m *module) bool { return m.desc.Kind == KindProvider && m.desc.Name == name })
}

// Providers are the names of all provider modules, sorted.
func (r *Registry) Providers() (names []string) {
	for _, m := range r.all() {
		if m.desc.Kind == KindProvider {
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

// invoke has one module do something for the daemon.
func (r *Registry) invoke(ctx context.Context, m *module, op string, args, answer any, sessionID string) error {
	host, ok := m.host.(Invoker)
	if !ok { // it was refused at mount
		_, err := m.host.Describe(ctx)
		return err
	}
	if !m.enter() {
		return r.invokeSuccessor(ctx, m, op, args, answer, sessionID)
	}
	defer m.leave()
	request, err := jsonx.Marshal(args, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	start := time.Now()
	reply, err := host.Invoke(ctx, op, json.RawMessage(request), sessionID)
	if err == nil {
		if err = jsonx.Unmarshal(reply, answer); err != nil {
			err = Faultf(ProtocolError, "the result of %s is not what it should be: %v", op, readable(err))
		}
	}
	var failure *model.ToolError
	if err != nil {
		failure = Failure(err).Error
	}
	r.invoked(m.desc.Name, op, sessionID, "", time.Since(start), failure)
	return err
}

// invokeSuccessor asks the module that a reload has just put in a module's
// place.
func (r *Registry) invokeSuccessor(ctx context.Context, old *module, op string, args, answer any, sessionID string) error {
	for _, m := range r.all() {
		if m != old && m.desc.Name == old.desc.Name && m.desc.Kind == old.desc.Kind {
			return r.invoke(ctx, m, op, args, answer, sessionID)
		}
	}
	return Faultf(Unreachable, "%s was removed", old.desc.Name)
}
