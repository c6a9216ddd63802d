package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/format"
	"noused/internal/model"
)

const (
	// maxOffered bounds what is kept of the values of all options, in bytes, and maxCommands
	// of the commands.
	maxOffered  = 96 << 10
	maxCommands = 32 << 10
	// maxOptions is how many options are kept.
	maxOptions = 64
	maxAbout   = 300 // of a description, in bytes
	// setTime is how long an agent has to take a choice.
	setTime = time.Minute
)

// way is how an option is chosen at the agent.
type way int

const (
	byOption way = iota // session/set_config_option
	byMode              // session/set_mode, of agents that have only that
	byModel             // session/set_model
)

// option is something to choose.
type option struct {
	model.AgentOption
	Way     way
	Boolean bool
}

// offer is what an agent has said that can be chosen.
type offer struct {
	Version  int
	Commands []model.AgentCommand
	Options  []option // as it has told them
	Modes    *option  // of session/new, which options of that category replace
	Models   *option
}

// all are the options of the offer.
func (o *offer) all() []option {
	all := slices.Clone(o.Options)
	for _, old := range []*option{o.Models, o.Modes} {
		if old != nil && !slices.ContainsFunc(o.Options, func(has option) bool {
			return has.ID == old.ID || has.Category == old.Category
		}) {
			all = append(all, *old)
		}
	}
	return all
}

// told is the offer as the run loop has it.
func (o *offer) told() *model.AgentOffer {
	out := &model.AgentOffer{Version: o.Version, Commands: o.Commands}
	for _, option := range o.all() {
		out.Options = append(out.Options, option.AgentOption)
	}
	return out
}

// read takes in what an agent says, and reports whether anything is new.
func (o *offer) read(said acp.Offered) (changed bool) {
	was := o.told()
	if said.Options.Kind() == '[' {
		o.Options = readOptions(said.Options)
	}
	if said.Modes.Kind() == '{' {
		o.Modes = readOld(said.Modes, "mode", "Mode", byMode)
	}
	if said.Models.Kind() == '{' {
		o.Models = readOld(said.Models, "model", "Model", byModel)
	}
	if mode, ok := plain(said.Mode); ok {
		o.choose("mode", mode)
	}
	if said.Commands.Kind() == '[' {
		o.Commands = readCommands(said.Commands)
	}
	return !same(was, o.told())
}

func same(a, b *model.AgentOffer) bool {
	return slices.Equal(a.Commands, b.Commands) && slices.EqualFunc(a.Options, b.Options, sameOption)
}

func sameOption(x, y model.AgentOption) bool {
	return x.ID == y.ID && x.Name == y.Name && x.Description == y.Description && x.Category == y.Category &&
		x.Value == y.Value && x.Truncated == y.Truncated && slices.Equal(x.Values, y.Values)
}

// choose says that the option of that category has another value.
func (o *offer) choose(category, value string) {
	for i := range o.Options {
		if option := &o.Options[i]; option.Category == category && option.has(value) {
			option.Value = value
		}
	}
	for _, old := range []*option{o.Modes, o.Models} {
		if old != nil && old.Category == category {
			old.Value = value
		}
	}
}

// has reports whether an option may have a value.
func (o option) has(value string) bool {
	return o.Truncated || slices.ContainsFunc(o.Values, func(v model.AgentValue) bool { return v.Value == value })
}

// item is one thing of the lists that an agent tells: an option, a value or a group of
// them, a mode, a model, or a command.
type item struct {
	ID          jsontext.Value `json:"id"`
	ModelID     jsontext.Value `json:"modelId"`
	Value       jsontext.Value `json:"value"`
	Name        jsontext.Value `json:"name"`
	Description jsontext.Value `json:"description"`
	Category    jsontext.Value `json:"category"`
	Type        jsontext.Value `json:"type"`
	Current     jsontext.Value `json:"currentValue"`
	Options     jsontext.Value `json:"options"`
	Input       jsontext.Value `json:"input"`
	Hint        jsontext.Value `json:"hint"` // of an input
}

// list are the things of a list, one at a time; what is no object is left out. Nothing is copied but
// the thing: lists in lists do not take their length at each level.
func list(raw jsontext.Value) iter.Seq[item] {
	return func(yield func(item) bool) {
		dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
		if begin, err := dec.ReadToken(); err != nil || begin.Kind() != '[' {
			return
		}
		for dec.PeekKind() != ']' {
			raw, err := dec.ReadValue()
			if err != nil {
				return
			}
			var s item
			if raw.Kind() == '{' && json.Unmarshal(raw, &s, jsontext.AllowDuplicateNames(true)) == nil && !yield(s) {
				return
			}
		}
	}
}

// plain is a string that may be an id.
func plain(raw jsontext.Value) (string, bool) {
	var text string
	if raw.Kind() != '"' || json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return strings.Clone(text), goodID(text)
}

func shortened(raw jsontext.Value, most int) string {
	text, _ := plain(raw)
	return strings.Clone(format.Clip(format.Line(text), most))
}

func readOptions(raw jsontext.Value) (all []option) {
	room := maxOffered
	for s := range list(raw) {
		id, ok := plain(s.ID)
		if !ok || len(all) == maxOptions || slices.ContainsFunc(all, func(o option) bool { return o.ID == id }) {
			continue
		}
		o := option{AgentOption: model.AgentOption{
			ID: id, Name: shortened(s.Name, maxName), Description: shortened(s.Description, maxAbout),
			Category: shortened(s.Category, maxName),
		}}
		switch kind, _ := plain(s.Type); {
		case kind == "boolean" && (s.Current.Kind() == 't' || s.Current.Kind() == 'f'):
			o.Boolean, o.Value = true, string(s.Current)
			o.Values = []model.AgentValue{{Value: "true", Name: "on"}, {Value: "false", Name: "off"}}
		case kind == "select" || kind == "":
			if o.Value, ok = plain(s.Current); !ok {
				continue
			}
			o.fill(list(s.Options), false, &room)
		default:
			continue
		}
		all = append(all, o)
	}
	return all
}

// fill adds values, and those of groups, as long as there is room for them. A group has no groups.
func (o *option) fill(values iter.Seq[item], inGroup bool, room *int) {
	for s := range values {
		if s.Options != nil && !inGroup {
			o.fill(list(s.Options), true, room)
			continue
		}
		raw := s.Value
		for _, other := range []jsontext.Value{s.ID, s.ModelID} { // of modes and models
			if raw == nil {
				raw = other
			}
		}
		value, ok := plain(raw)
		if !ok {
			continue
		}
		v := model.AgentValue{
			Value: value, Name: shortened(s.Name, maxName), Description: shortened(s.Description, maxAbout),
		}
		if *room < maxOffered/2 { // what can be chosen is more than what is said of it
			v.Description = ""
		}
		if *room -= 50 + len(v.Value) + len(v.Name) + len(v.Description); *room < 0 {
			o.Truncated = true
			return
		}
		o.Values = append(o.Values, v)
	}
}

// readOld reads the modes or the models of an agent that tells them by themselves.
func readOld(raw jsontext.Value, id, name string, how way) *option {
	var old struct {
		Mode   jsontext.Value `json:"currentModeId"`
		Modes  jsontext.Value `json:"availableModes"`
		Model  jsontext.Value `json:"currentModelId"`
		Models jsontext.Value `json:"availableModels"`
	}
	if json.Unmarshal(raw, &old, jsontext.AllowDuplicateNames(true)) != nil {
		return nil
	}
	current, values := old.Mode, old.Modes
	if how == byModel {
		current, values = old.Model, old.Models
	}
	o := &option{AgentOption: model.AgentOption{ID: id, Name: name, Category: id}, Way: how}
	ok := false
	if o.Value, ok = plain(current); !ok {
		return nil
	}
	room := maxOffered / 2
	o.fill(list(values), false, &room)
	return o
}

func readCommands(raw jsontext.Value) (all []model.AgentCommand) {
	room := maxCommands
	for s := range list(raw) {
		name, ok := plain(s.Name)
		if name = strings.TrimPrefix(name, "/"); !ok || name == "" || strings.ContainsFunc(name, isSpace) {
			continue
		}
		c := model.AgentCommand{Name: name, Description: shortened(s.Description, maxAbout)}
		for input := range list(append(append(jsontext.Value("["), s.Input...), ']')) {
			c.Hint = shortened(input.Hint, maxName)
		}
		if room -= 50 + len(c.Name) + len(c.Description) + len(c.Hint); room < 0 {
			break
		}
		all = append(all, c)
	}
	return all
}

func isSpace(r rune) bool { return r <= ' ' || r == 0x7f }

// learn takes in what an agent says that can be chosen, and tells it.
func (s *Session) learn(ctx context.Context, said acp.Offered) {
	s.mu.Lock()
	changed := s.offer.read(said)
	told := s.newOffer()
	s.mu.Unlock()
	if changed {
		_ = s.report(ctx, model.AgentNews{Offer: told})
	}
}

// newOffer is the offer as it is told next. It is called under the session's lock.
func (s *Session) newOffer() *model.AgentOffer {
	s.offer.Version++
	told := s.offer.told()
	told.Settled = s.link != nil && s.link.chosen
	return told
}

// learnFrom learns from an answer, before anything is read that comes behind it.
func (s *Session) learnFrom(p *link) func(jsontext.Value, *acp.Error) {
	return func(raw jsontext.Value, refused *acp.Error) {
		if refused == nil {
			s.learn(s.ctx, offeredIn(raw))
		}
	}
}

// find returns the option that is meant, and refuses a value that it cannot have.
func (s *Session) find(id, value string) (option, error) {
	s.mu.Lock()
	all := s.offer.all()
	s.mu.Unlock()
	var names []string
	for _, o := range all {
		if o.ID != id {
			names = append(names, o.ID)
			continue
		}
		if o.has(value) {
			return o, nil
		}
		values := make([]string, len(o.Values))
		for i, v := range o.Values {
			values[i] = v.Value
		}
		return o, wrongf("value", "%s of %s cannot be %.80q, only %s", id, s.name, value, listed(values))
	}
	if len(names) == 0 {
		return option{}, wrongf("id", "%s has no options", s.name)
	}
	return option{}, wrongf("id", "%s has no option %.80q, only %s", s.name, id, listed(names))
}

func wrongf(field, format string, args ...any) error {
	return &model.AgentOptionError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// listed are names with commas between them, as far as they fit into a message.
func listed(names []string) string { return format.Clip(strings.Join(names, ", "), 1000) }

// Offer returns what can be chosen, and starts the agent for it where it does not run. at is
// where the session stands. It waits for the start of a turn that is under way, where
// running says that there is one, and for 2 minutes at most.
func (s *Session) Offer(ctx context.Context, at model.AgentTurn, running bool) (*model.AgentOffer, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	_, err := s.opened(ctx, at, running)
	if ended := new(endedError); errors.As(err, &ended) {
		err = failedf("%s has ended: %s", s.name, ended.how)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer.told(), nil
}

// Choose has the agent take a value of one of its options, and starts it as Offer does. The
// error is a *[model.AgentOptionError] where no such choice exists. The value that it returns
// is the one that the agent has then.
func (s *Session) Choose(ctx context.Context, at model.AgentTurn, running bool, id, value string) (string, error) {
	if _, err := s.Offer(ctx, at, running); err != nil {
		return "", err
	}
	s.mu.Lock()
	p := s.link
	s.mu.Unlock()
	if p == nil {
		return "", failedf("%s has ended", s.name)
	}
	if err := s.set(ctx, p, id, value); err != nil {
		return "", err
	}
	o, err := s.find(id, value)
	if err != nil { // it has other options now
		return value, nil
	}
	return o.Value, nil
}

// set has the agent take a value.
func (s *Session) set(ctx context.Context, p *link, id, value string) error {
	o, err := s.find(id, value)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, setTime)
	defer cancel()
	method, choice := acp.SetConfigOption, acp.Choice{SessionID: p.session}
	switch {
	case o.Way == byMode:
		method, choice.ModeID = acp.SetMode, value
	case o.Way == byModel:
		method, choice.ModelID = acp.SetModel, value
	case o.Boolean:
		choice.OptionID, choice.Type, choice.Value = id, "boolean", jsontext.Value(value)
	default:
		quoted, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return err
		}
		choice.OptionID, choice.Value = id, quoted
	}
	err = p.askThen(ctx, method, choice, nil, func(raw jsontext.Value, refused *acp.Error) {
		if refused != nil {
			return
		}
		said := offeredIn(raw)
		if said.Options.Kind() != '[' { // it says nothing of what came of it
			s.mark(s.ctx, id, value)
		}
		s.learn(s.ctx, said)
	})
	if err != nil {
		spec, _ := s.agents.spec(s.name)
		err = spec.problem(err)
	}
	return err
}

// mark says that an option has a value, and tells it.
func (s *Session) mark(ctx context.Context, id, value string) {
	s.mu.Lock()
	s.offer.mark(id, value)
	told := s.newOffer()
	s.mu.Unlock()
	_ = s.report(ctx, model.AgentNews{Offer: told})
}

// mark says that an option has a value.
func (o *offer) mark(id, value string) {
	for i := range o.Options {
		if o.Options[i].ID == id {
			o.Options[i].Value = value
			return
		}
	}
	for _, old := range []*option{o.Modes, o.Models} {
		if old != nil && old.ID == id {
			old.Value = value
		}
	}
}

// offeredIn reads what an answer says that can be chosen; one of another shape says nothing.
func offeredIn(raw jsontext.Value) (said acp.Offered) {
	if raw.Kind() != '{' || json.Unmarshal(raw, &said, jsontext.AllowDuplicateNames(true)) != nil {
		return acp.Offered{}
	}
	return said
}

// chooseAgain has an agent that was started take what people have chosen before. What it
// does not take they are told.
func (s *Session) chooseAgain(ctx context.Context, p *link, choices []model.AgentChoice) error {
	for _, c := range choices {
		s.mu.Lock()
		has := slices.ContainsFunc(s.offer.all(), func(o option) bool { return o.ID == c.ID && o.Value == c.Value })
		s.mu.Unlock()
		if has {
			continue
		}
		err := s.set(ctx, p, c.ID, c.Value)
		if errors.As(err, new(*endedError)) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			_ = s.report(ctx, model.AgentNews{
				Code:    "agent_option_refused",
				Warning: fmt.Sprintf("%s goes on without the chosen %s = %s: %v", s.name, c.ID, c.Value, err),
			})
		}
	}
	return nil
}

// opened returns the process that has the session open. With running a turn is under way,
// which opens it: it knows what else there is to do then.
func (s *Session) opened(ctx context.Context, at model.AgentTurn, running bool) (*link, error) {
	for {
		s.mu.Lock()
		p, wait := s.link, s.ready
		if p != nil && p.ctx.Err() == nil && p.chosen {
			s.mu.Unlock()
			return p, nil
		}
		if wait == nil {
			wait = make(chan struct{})
			s.ready = wait
		}
		s.mu.Unlock()
		turnstile := s.turnstile
		if running {
			turnstile = nil
		}
		select {
		case turnstile <- struct{}{}:
			p, lost, err := s.started(ctx, &at)
			if err == nil { // the next prompt tells it
				p.lost = p.lost || lost
			}
			s.leave()
			if err != nil {
				return nil, err
			}
		case <-wait:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, failedf("%s does not run, and was not started for %v", s.name, startTime)
			}
			return nil, context.Cause(ctx)
		}
	}
}
