package slash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"noused/internal/client/actions"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// AgentList asks for a choice among the agents of a new session.
type AgentList struct{ Agents []protocol.AgentInfo }

// OptionList asks for a choice among the options of a session's agent.
type OptionList struct {
	Agent   string
	Options []protocol.AgentOption
}

// ValueList asks for a choice among the values of one.
type ValueList struct {
	Agent  string
	Option protocol.AgentOption
}

// ChooseAgent has an agent make the turns of the session that is shown as long as nothing was said there, else those of
// a new one, or asks for a choice among the agents.
func ChooseAgent(ctx context.Context, p Place, name string) Outcome {
	r, err := Ask(ctx, p, protocol.ListAgents, protocol.ListAgentsParams{})
	if err != nil {
		return Failed(Explain(err, "to have other agents make a session's turns"))
	}
	if name == "" {
		return Outcome{Show: AgentList{withOwn(r.Agents)}}
	}
	info := ""
	for _, a := range r.Agents {
		if a.Name == name && !a.Found {
			return Failed(errors.New(a.Problem))
		}
		if a.Name == name && a.SignedIn != nil && !*a.SignedIn && a.SignIn != "" {
			info = fmt.Sprintf("%s may not be signed in; in a shell, this signs in: %s", a.Name, a.SignIn)
		}
	}
	_, err = Ask(ctx, p, protocol.SetAgent, protocol.SetAgentParams{Scope: p.Scope(), Agent: name})
	if err == nil {
		return following(p.State.SessionID, "%s", info)
	}
	var refused *protocol.Error
	if !errors.As(err, &refused) || !slices.Contains(elsewhere, refused.Reason()) {
		return Failed(withoutField(err, "agent: "))
	}
	made, err := Ask(ctx, p, protocol.NewSession, protocol.NewSessionParams{
		Agent: name, Workdir: p.State.Workdir, Activate: new(bool),
	})
	if err != nil {
		return Failed(withoutField(err, "agent: "))
	}
	return following(made.SessionID, "%s", info)
}

// elsewhere are the refusals after which another agent makes the turns of a new session: something was said in the one
// that is shown, or an older daemon does not know the command.
var elsewhere = []protocol.Reason{protocol.SessionBegun, protocol.UnknownCommand}

// withOwn are the agents behind the daemon's own loop, which is the default if none of them is;
// first those that are there.
func withOwn(agents []protocol.AgentInfo) []protocol.AgentInfo {
	own := protocol.AgentInfo{Name: protocol.OwnAgent, Found: true}
	own.Default = !slices.ContainsFunc(agents, func(a protocol.AgentInfo) bool { return a.Default })
	missing := func(a protocol.AgentInfo) bool { return !a.Found }
	there := append([]protocol.AgentInfo{own}, slices.DeleteFunc(slices.Clone(agents), missing)...)
	return append(there, slices.DeleteFunc(agents, func(a protocol.AgentInfo) bool { return a.Found })...)
}

// withoutField is an error about what was typed without the name of the wire's field.
func withoutField(err error, field string) error {
	var wire *protocol.Error
	if errors.As(err, &wire) && wire.Code == protocol.InvalidPayload {
		return errors.New(strings.TrimPrefix(wire.Message, field))
	}
	return err
}

// ChooseOption sets an option of the session's agent, or asks for a choice among them, or
// among the values of one.
func ChooseOption(ctx context.Context, p Place, arg string) Outcome {
	word, value, _ := strings.Cut(arg, " ")
	s, err := actions.AgentOptions(ctx, p, p.Scope())
	if err != nil {
		return Failed(Explain(err, "what options an agent has"))
	}
	if word == "" {
		return Outcome{Show: OptionList{s.Agent, s.AgentOptions}}
	}
	o, err := actions.OptionNamed(s, word)
	switch value = strings.TrimSpace(value); {
	case err != nil:
		return Failed(err)
	case value == "":
		return Outcome{Show: ValueList{s.Agent, o}}
	}
	return SetOption(ctx, p, o, value)
}

// SetOption chooses a value of an option.
func SetOption(ctx context.Context, p Place, o protocol.AgentOption, value string) Outcome {
	r, err := Ask(ctx, p, protocol.SetAgentOption, actions.OptionChoice(p.Scope(), o, value))
	if err != nil {
		return Failed(withoutField(err, "value: "))
	}
	return informed("%s is %s now", cell.Line(r.ID, 80), cell.Line(ValueName(o, r.Value), 80))
}

// ValueName is what an agent calls a value of one of its options.
func ValueName(o protocol.AgentOption, value string) string {
	for _, v := range o.Values {
		if v.Value == value && v.Name != "" {
			return v.Name
		}
	}
	return value
}

// agentCandidates are the agent's own commands, as they are typed. What the screen has by that name,
// too, is sent to the agent with two slashes.
func agentCandidates(p Place) (all []Candidate) {
	for _, c := range p.State.AgentCommands {
		text := "/" + c.Name
		if Named(strings.ToLower(c.Name)) != nil {
			text = "/" + text
		}
		about := c.Description
		if c.Hint != "" {
			about += " (" + c.Hint + ")"
		}
		all = append(all, Candidate{Text: text, About: cell.Line(about, 200)})
	}
	return all
}

// CommandCandidates are the commands of a session that are not the screen's, as they are typed:
// those of its agent, and files.
func CommandCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	files, err := fileCandidates(ctx, p)
	for _, c := range agentCandidates(p) {
		if !slices.ContainsFunc(files, func(f Candidate) bool { return f.Text == c.Text }) { // that is what is sent
			files = append(files, c)
		}
	}
	return files, err
}

// AgentCandidates are the agents that a session can be made for.
func AgentCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	r, err := Ask(ctx, p, protocol.ListAgents, protocol.ListAgentsParams{})
	var all []Candidate
	for _, a := range withOwn(r.Agents) {
		about := strings.Join(a.Command, " ")
		if !a.Found {
			about = a.Problem
		}
		all = append(all, Candidate{Text: a.Name, About: cell.Line(about, 200)})
	}
	return all, err
}

// OptionCandidates are the options of the session's agent, as far as it has said them, or the
// values of the one that is named.
func OptionCandidates(p Place, named string) (all []Candidate) {
	if named == "" {
		for _, o := range p.State.AgentOptions {
			all = append(all, Candidate{Text: o.ID, About: cell.Line(o.Name+": "+ValueName(o, o.Value), 200)})
		}
		return all
	}
	o, _ := actions.OptionNamed(p.State, named)
	for _, v := range o.Values {
		all = append(all, Candidate{Text: v.Value, About: cell.Line(strings.TrimSpace(v.Name+"  "+v.Description), 200)})
	}
	return all
}

// hostedID is the session whose agent has to be asked, "" for one of noused's own.
func hostedID(p Place) string {
	if actions.Hosted(p.State) {
		return p.State.SessionID
	}
	return ""
}

// takesCall reports whether the session's agent is given a text as it is that begins with a
// slash and this word. One that has not said which commands it has takes any.
func takesCall(p Place, word string) bool {
	return actions.Hosted(p.State) && (len(p.State.AgentCommands) == 0 ||
		slices.ContainsFunc(p.State.AgentCommands, func(c protocol.AgentCommand) bool { return "/"+c.Name == word }))
}
