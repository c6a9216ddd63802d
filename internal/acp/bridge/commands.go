package bridge

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// What can be written behind a slash, beside skills.
const (
	commandCompact = "compact"
	commandModel   = "model"
	skillPrefix    = "skill:"
)

// findCommands tells the editor what can be written behind a slash.
func (w *window) findCommands() {
	away(w, func() (protocol.Skills, error) {
		return follow.Do(w.ctx, w.link, protocol.ListSkills, protocol.ListSkillsParams{Scope: protocol.Scope{SessionID: w.id}})
	}, func(s protocol.Skills, err error) {
		list := []acp.Command{
			{Name: commandCompact, Description: "summarise the older part of the conversation", Input: &acp.Hint{Hint: "what the summary should mind"}},
			{Name: commandModel, Description: "choose the model; without a name, say which there are", Input: &acp.Hint{Hint: "PROVIDER/NAME"}},
		}
		for _, skill := range s.Skills {
			list = append(list, acp.Command{Name: skillPrefix + skill.Name, Description: line(skill.Description), Input: &acp.Hint{Hint: "what to do with it"}})
		}
		if !reflect.DeepEqual(list, w.told.commands) {
			w.told.commands = list
			w.update(acp.Commands{Update: "available_commands_update", List: list})
		}
	})
}

// command does what a text asks for that begins with a slash. False: it is a text
// for the model.
func (w *window) command(r *acp.Request, text string) bool {
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case name == "/"+commandCompact:
		w.compact(r, rest)
	case name == "/"+commandModel && rest == "":
		w.listModels(r)
	case name == "/"+commandModel:
		w.chooseModel(r, rest)
	default:
		return false
	}
	return true
}

// local is a prompt that is answered without a turn.
func (w *window) local(r *acp.Request) *prompt {
	_, giveUp := context.WithCancel(w.ctx)
	p := &prompt{request: r, giveUp: giveUp}
	w.prompts = append(w.prompts, p)
	return p
}

// finish says what came of a command. What the daemon refuses is said, too.
func (w *window) finish(p *prompt, said string, err error) {
	var wire *protocol.Error
	if errors.As(err, &wire) && !p.cancelled {
		said, err = wire.Message, nil
	}
	if err != nil {
		w.failed(p, w.b.explain(err))
		return
	}
	if !p.cancelled {
		w.say("command-"+strings.Trim(string(p.request.ID), `"`), said)
	}
	w.answer(p, acp.EndTurn)
}

func (w *window) compact(r *acp.Request, instruction string) {
	p := w.local(r)
	away(w, func() (protocol.Compaction, error) {
		return follow.Do(w.ctx, w.link, protocol.CompactSession, protocol.CompactSessionParams{Scope: protocol.Scope{SessionID: w.id}, Instruction: instruction})
	}, func(c protocol.Compaction, err error) {
		w.finish(p, fmt.Sprintf("The conversation of %d tokens was summarised.", c.TokensBefore), err)
	})
}

func (w *window) listModels(r *acp.Request) {
	said := "Model: " + modelName(w.state.Model) + "\n"
	for _, v := range w.modelValues(modelName(w.state.Model)) {
		said += "\n- " + v.Value
	}
	w.finish(w.local(r), said, nil)
}

func (w *window) chooseModel(r *acp.Request, name string) {
	p := w.local(r)
	away(w, func() (protocol.ModelAccepted, error) {
		return follow.Do(w.ctx, w.link, protocol.SetModel, protocol.SetModelParams{Scope: protocol.Scope{SessionID: w.id}, Model: name})
	}, func(m protocol.ModelAccepted, err error) {
		if err == nil {
			w.state.Model = m.Model
			w.tellState()
		}
		w.finish(p, "Model: "+modelName(m.Model), err)
	})
}

// withSkill is a text with what the skill says that it asks for.
func withSkill(ctx context.Context, w *window, text string) (string, error) {
	name, ok := strings.CutPrefix(text, "/"+skillPrefix)
	if !ok {
		return text, nil
	}
	rest := ""
	if i := strings.IndexAny(name, " \t\n"); i >= 0 {
		name, rest = name[:i], strings.TrimSpace(name[i:])
	}
	r, err := follow.Do(ctx, w.link, protocol.ListSkills, protocol.ListSkillsParams{Scope: protocol.Scope{SessionID: w.id}, Name: name})
	if err != nil {
		return "", err
	}
	if len(r.Skills) != 1 {
		return "", errors.New("the daemon did not say what the skill is")
	}
	s := r.Skills[0]
	return strings.TrimSpace(fmt.Sprintf("Use the skill %s. Its folder is %s, and it says:\n\n%s\n\n%s", s.Name, filepath.Dir(s.Path), s.Text, rest)), nil
}
