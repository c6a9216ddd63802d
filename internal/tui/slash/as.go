package slash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Plan is the built-in agent that only reads, and ends with a plan.
const Plan = "plan"

// NamedList asks for a choice among the named agents.
type NamedList struct{ Agents []protocol.NamedAgent }

var errNoNamed = &client.OlderError{What: "has no named agents"}

// TakesNamed is why no named agent can make a run in the session, as far as that is known
// without asking, or nil.
func TakesNamed(p Place) error {
	if actions.Hosted(p.State) {
		return fmt.Errorf("%s makes the turns of this session: noused's named agents cannot make one", p.State.Agent)
	}
	return nil
}

// UnsentAs is a text, as it was written behind a command, that a named agent is to take.
func UnsentAs(name, written string) Unsent {
	u := Unsent{Text: written, Skill: SkillOf(written), Call: IsCall(written), As: name}
	if strings.HasPrefix(written, "//") {
		u.Text = written[1:]
	}
	return u
}

// AsWritten is the command that sends texts as they were to be sent: as the first named
// agent among them, so that none is sent with more tools than it was meant for. It is "" where
// there is none.
func AsWritten(texts []Unsent) string {
	at := slices.IndexFunc(texts, func(u Unsent) bool { return u.As != "" })
	if at < 0 {
		return ""
	}
	var said []string
	for _, u := range texts {
		text := u.Text
		if strings.HasPrefix(text, "/") && u.Skill == "" && !u.Call {
			text = "/" + text
		}
		if text != "" {
			said = append(said, text)
		}
	}
	command := "/as " + texts[at].As
	if texts[at].As == Plan {
		command = "/plan"
	}
	return command + " " + strings.Join(said, "\n\n")
}

// chooseNamed asks for a choice among the named agents, or says that a text is wanted. With one, /as is a
// text that is sent, not a command that is done.
func chooseNamed(ctx context.Context, p Place, arg string) Outcome {
	name, _ := CutAs(arg)
	if name == "" {
		agents, err := namedAgents(ctx, p)
		if err != nil {
			return Failed(err)
		}
		return Outcome{Show: NamedList{agents}}
	}
	if err := hasNamed(ctx, p, name); err != nil {
		return Failed(err)
	}
	return Failed(fmt.Errorf("want a text: /as %s TEXT", name))
}

// SaysAs tells whether a command is a text for a named agent, which UnsentAs of CutAs makes of it.
func SaysAs(c *Command, arg string) bool {
	_, text := CutAs(arg)
	return c.Name == "as" && text != ""
}

// CutAs takes the argument of /as apart.
func CutAs(arg string) (name, text string) {
	name = arg[:len(arg)-len(behind(arg))]
	return name, strings.TrimSpace(behind(arg))
}

// NamedCandidates are the named agents that a text can be sent as.
func NamedCandidates(ctx context.Context, p Place) (all []Candidate, err error) {
	agents, err := namedAgents(ctx, p)
	for _, a := range agents {
		all = append(all, Candidate{Text: a.Name, About: cell.Line(a.Description, 200)})
	}
	return all, err
}

// namedAgents are those that a prompt of the session can be made by.
func namedAgents(ctx context.Context, p Place) ([]protocol.NamedAgent, error) {
	if err := TakesNamed(p); err != nil {
		return nil, err
	}
	r, err := Ask(ctx, p, protocol.ListSkills, protocol.ListSkillsParams{Scope: p.Scope()})
	switch {
	case errors.Is(err, client.ErrUnsupported), err == nil && len(r.Named) == 0:
		return nil, errNoNamed
	case err != nil:
		return nil, err
	}
	return slices.DeleteFunc(r.Named, func(a protocol.NamedAgent) bool { return a.Agent != "" }), nil
}

// hasNamed is an error where the daemon would not have the named agent make a run: an older one
// makes it with all tools.
func hasNamed(ctx context.Context, p Place, name string) error {
	agents, err := namedAgents(ctx, p)
	if err != nil {
		return err
	}
	names := make([]string, len(agents))
	for i, a := range agents {
		if a.Name == name {
			return nil
		}
		names[i] = a.Name
	}
	return fmt.Errorf("there is no agent %s to send a text as: want one of %s", cell.Line(name, 60),
		cell.Line(strings.Join(names, ", "), 300))
}

// sayAs sends a text for a named agent: into its run where that goes on, else as a prompt. It never
// becomes a text for a run that has more tools.
func sayAs(ctx context.Context, p Place, u Unsent) Outcome {
	sent, err := deliverAs(ctx, p, u)
	return Outcome{Sent: sent, Err: err, Text: textIf(err, AsWritten([]Unsent{u}))}
}

func deliverAs(ctx context.Context, p Place, u Unsent) (inputID string, err error) {
	queue := protocol.SteerParams{
		Scope: p.Scope(), Text: u.Text, IdempotencyKey: u.Key, Attachments: u.attachments(),
	}
	joins := p.Running() && p.RunAs == u.As
	switch {
	case joins && u.FollowUp:
		r, err := Ask(ctx, p, protocol.FollowUp, protocol.FollowUpParams(queue))
		return r.InputID, err
	case joins:
		r, err := Ask(ctx, p, protocol.Steer, queue)
		return r.InputID, err
	}
	if err := hasNamed(ctx, p, u.As); err != nil {
		return "", err
	}
	r, err := Ask(ctx, p, protocol.Prompt, protocol.PromptParams{
		Scope: p.Scope(), Text: u.Text, As: u.As, Wait: new(bool), IdempotencyKey: u.Key, Attachments: queue.Attachments,
	})
	if r.Accepted != nil {
		inputID = r.Accepted.InputID
	}
	return inputID, err
}
