package bridge

import (
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// told is what the editor was told last, so that only what is new is told.
type told struct {
	title    string
	mode     string
	options  []acp.ConfigOption
	usage    acp.Usage
	plan     []acp.PlanEntry
	commands []acp.Command
	limits   map[string]bool // approvals that are shown as calls
}

// The ids of the options.
const (
	optionAgent     = "agent"
	optionModel     = "model"
	optionEffort    = "effort"
	optionApprovals = "approvals"
	optionSteering  = "steering"
)

var modes = []acp.Mode{
	{ID: "ask", Name: "Ask", Description: "a person is asked what the rules leave open"},
	{ID: "auto", Name: "Auto", Description: "what would be asked is allowed; what a rule denies is not"},
	{ID: "deny", Name: "Deny", Description: "what would be asked is denied"},
}

// options are what can be chosen, and what is.
func (w *window) options() []acp.ConfigOption {
	s := w.state
	model := modelName(s.Model)
	var approvals []acp.ConfigValue
	for _, m := range w.modes() {
		approvals = append(approvals, acp.ConfigValue{Value: m.ID, Name: m.Name, Description: m.Description})
	}
	effort := s.Model.Effort
	if effort == "" {
		effort = "default"
	}
	own := []acp.ConfigOption{
		{ID: optionModel, Name: "Model", Category: "model", Type: "select", Current: model, Options: w.modelValues(model)},
		{
			ID: optionEffort, Name: "Effort", Description: "how hard the model thinks", Category: "thought_level",
			Type: "select", Current: effort, Options: efforts,
		},
	}
	if w.hosted() {
		own = w.agentOptions()
	}
	return slices.Concat(w.agentOption(), own, []acp.ConfigOption{
		{
			ID: optionApprovals, Name: "Approvals", Description: "ask, allow or deny approvals", Category: "mode",
			Type: "select", Current: w.mode(), Options: approvals,
		},
		{
			ID: optionSteering, Name: "Steering", Description: "how many waiting texts are delivered at once", Type: "select",
			Current: string(s.SteeringMode), Options: steering,
		},
	})
}

var efforts = values("default", "none", "minimal", "low", "medium", "high", "xhigh", "max")

var steering = values(string(protocol.ModeOneAtATime), string(protocol.ModeAll))

func values(names ...string) (list []acp.ConfigValue) {
	for _, name := range names {
		list = append(list, acp.ConfigValue{Value: name, Name: name})
	}
	return list
}

func modelName(m protocol.ModelInfo) string {
	if m.Provider == "offline" || m.Name == "" {
		return m.Provider
	}
	return m.Provider + "/" + m.Name
}

// modelValues are the models that are known, the one that is chosen among them.
func (w *window) modelValues(current string) (list []acp.ConfigValue) {
	for _, m := range w.models {
		if m.Model != "" && (m.Name != "" || m.Model == "offline") &&
			!slices.ContainsFunc(list, func(v acp.ConfigValue) bool {
				return v.Value == m.Model
			}) {
			list = append(list, acp.ConfigValue{Value: m.Model, Name: m.Model})
		}
	}
	if !slices.ContainsFunc(list, func(v acp.ConfigValue) bool { return v.Value == current }) {
		list = append([]acp.ConfigValue{{Value: current, Name: current}}, list...)
	}
	return list
}

// findModels asks which models there are, once. For a session of another agent that starts the
// agent, which then says what it has.
func (w *window) findModels() {
	if w.models != nil {
		return
	}
	var p protocol.ListModelsParams
	agent := w.state.Agent
	if w.hosted() {
		p.SessionID = w.id
	}
	away(w, func() (protocol.Models, error) {
		return follow.Do(w.ctx, w.link, protocol.ListModels, p)
	}, func(m protocol.Models, err error) {
		switch {
		case agent != w.state.Agent: // another one was asked since
		case err == nil:
			w.models = m.Models
			w.tellState()
		case w.hosted():
			w.notice("warning", w.b.explain(err).Message)
		}
	})
}

// tellState tells what has changed of the session's state.
func (w *window) tellState() {
	if w.muted() {
		return
	}
	w.tellTitle()
	if mode := w.mode(); mode != w.told.mode {
		w.told.mode = mode
		w.update(acp.ModeUpdate{Update: "current_mode_update", Current: mode})
	}
	if options := w.options(); !reflect.DeepEqual(options, w.told.options) {
		w.told.options = options
		w.update(acp.OptionsUpdate{Update: "config_option_update", Options: options})
	}
	w.tellCommands()
	w.tellUsage()
	w.tellPlan()
}

func (w *window) tellTitle() {
	if title := w.state.Title; title != "" && title != w.told.title {
		w.told.title = title
		w.update(acp.Info{Update: "session_info_update", Title: title})
	}
}

// tellUsage tells how full the window is, where its size is known.
func (w *window) tellUsage() {
	c := w.state.Context
	if c.Window <= 0 {
		return
	}
	u := acp.Usage{Update: "usage_update", Used: c.Tokens, Size: c.Window}
	if cost := w.state.Usage.Cost; cost != nil {
		u.Cost = &acp.Cost{Amount: cost.Amount, Currency: cost.Currency}
	}
	if !reflect.DeepEqual(u, w.told.usage) {
		w.told.usage = u
		w.update(u)
	}
}

// tellPlan tells the plan of the session's state.
func (w *window) tellPlan() {
	var s struct {
		Plan jsontext.Value `json:"plan"`
	}
	if json.Unmarshal(w.state.SessionState, &s) == nil {
		w.showPlan(s.Plan)
	}
}

// planOf tells the plan that a tool's event brings.
func (w *window) planOf(update jsontext.Value) {
	var event struct {
		Type  string `json:"type"`
		Patch struct {
			Plan jsontext.Value `json:"plan"`
		} `json:"patch"`
	}
	if len(update) > 0 && json.Unmarshal(update, &event) == nil && event.Type == "state_patch" && event.Patch.Plan != nil {
		w.showPlan(event.Patch.Plan)
	}
}

// showPlan shows a plan; one that is no list of steps is none.
func (w *window) showPlan(raw jsontext.Value) {
	entries := []acp.PlanEntry{}
	if raw != nil {
		_ = json.Unmarshal(raw, &entries)
	}
	entries = slices.DeleteFunc(entries, func(e acp.PlanEntry) bool { return e.Content == "" })
	for i := range entries {
		e := &entries[i]
		if !slices.Contains([]string{"high", "medium", "low"}, e.Priority) {
			e.Priority = "medium"
		}
		if !slices.Contains([]string{acp.Pending, acp.InProgress, acp.Completed}, e.Status) {
			e.Status = acp.Pending
		}
	}
	if !slices.Equal(entries, w.told.plan) {
		w.told.plan = entries
		w.update(acp.Plan{Update: "plan", Entries: entries})
	}
}

func (w *window) setMode(r *acp.Request) {
	p, err := acp.Decode[acp.SetModeParams](r.Params)
	if err != nil {
		r.Fail(err)
		return
	}
	w.setApprovals(r, "modeId", *p.ModeID, func() any { return struct{}{} })
}

func (w *window) setOption(r *acp.Request) {
	p, err := acp.Decode[acp.SetConfigOptionParams](r.Params)
	if err != nil {
		r.Fail(err)
		return
	}
	answer := func() any { return acp.OptionsResult{Options: w.options()} }
	scope, m := protocol.Scope{SessionID: w.id}, w.state.Model
	if w.hosted() && w.setAgentOption(r, *p.ConfigID, *p.Value, answer) {
		return
	}
	switch *p.ConfigID {
	case optionAgent:
		choose(w, r, protocol.SetAgent, protocol.SetAgentParams{Scope: scope, Agent: *p.Value}, "value", func() any {
			next := w.state
			next.Agent = *p.Value
			w.learn(next)
			return answer()
		})
	case optionModel:
		choose(w, r, protocol.SetModel, protocol.SetModelParams{Scope: scope, Model: *p.Value}, "value", answer)
	case optionEffort:
		set := protocol.SetModelParams{Scope: scope, Model: modelName(m), BaseURL: m.BaseURL, Effort: *p.Value}
		if set.Effort == "default" {
			set.Effort = ""
		}
		choose(w, r, protocol.SetModel, set, "value", answer)
	case optionApprovals:
		w.setApprovals(r, "value", *p.Value, answer)
	case optionSteering:
		choose(w, r, protocol.SetSteeringMode, protocol.SetModeParams{Scope: scope, Mode: protocol.Mode(*p.Value)}, "value",
			answer)
	default:
		r.Fail(acp.Errorf(acp.InvalidParams, "configId: there is no option %.80q", *p.ConfigID))
	}
}

func (w *window) setApprovals(r *acp.Request, field, mode string, answer func() any) {
	if mode == modePlan {
		w.setPlan(r, field, answer)
		return
	}
	choose(w, r, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: protocol.Scope{SessionID: w.id}, Mode: protocol.ApprovalMode(mode),
	}, field, func() any {
		w.planning = false
		return answer()
	})
}

// choose sends a choice and answers with the state that came of it. What is wrong
// with it names the field as the client calls it.
func choose[P protocol.Params, R protocol.Reply](w *window, r *acp.Request, def protocol.Def[P, R], p P, field string,
	answer func() any,
) {
	answeringInLine(w, r, func() (s protocol.State, err error) {
		if _, err = insist(w.ctx, w, def, p); err == nil {
			s, err = insist(w.ctx, w, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: w.id}})
		}
		return s, err
	}, func(s protocol.State, err error) {
		if err != nil {
			wrong := w.b.explain(err)
			if wrong.Code == acp.InvalidParams {
				_, what, _ := strings.Cut(wrong.Message, ": ")
				wrong.Message = field + ": " + what
			}
			r.Fail(wrong)
			return
		}
		w.b.keep(w.id)
		w.state.Model, w.state.ApprovalMode, w.state.SteeringMode = s.Model, s.ApprovalMode, s.SteeringMode
		w.state.AgentOptions, w.state.AgentCommands = s.AgentOptions, s.AgentCommands
		w.state.Context.Window = s.Context.Window
		r.Reply(answer())
		w.tellState()
	})
}
