package bridge

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// What can be written behind a slash, beside skills and the prompts of servers.
const (
	commandCompact = "compact"
	commandModel   = "model"
	skillPrefix    = "skill:"
)

// written is what a session knows that can be written behind a slash.
type written struct {
	skills  []protocol.Skill
	files   []protocol.FileCommand
	servers []protocol.ServerInfo
}

// findCommands tells the editor what can be written behind a slash.
func (w *window) findCommands() {
	w.found++
	mine, scope := w.found, protocol.Scope{SessionID: w.id}
	away(w, func() (written, error) {
		skills, err := follow.Do(w.ctx, w.link, protocol.ListSkills, protocol.ListSkillsParams{Scope: scope})
		tools, wrong := follow.Do(w.ctx, w.link, protocol.ListTools, protocol.ListToolsParams{Scope: scope})
		return written{skills.Skills, skills.Commands, tools.Servers}, errors.Join(err, wrong)
	}, func(found written, err error) {
		if mine != w.found || err != nil && w.told.commands != nil { // those that were told are more than what is left
			return
		}
		w.written = &found
		w.tellCommands()
	})
}

// tellCommands tells what can be written behind a slash, once that is known, where it has changed.
func (w *window) tellCommands() {
	if w.written == nil {
		return
	}
	list := w.written.commands()
	list = append(list, w.agentCommands(list)...)
	if !reflect.DeepEqual(list, w.told.commands) {
		w.told.commands = list
		w.update(acp.Commands{Update: "available_commands_update", List: list})
	}
}

func (f written) commands() []acp.Command {
	list := []acp.Command{
		{
			Name: commandCompact, Description: "summarise the older part of the conversation",
			Input: &acp.Hint{Hint: "what the summary should mind"},
		},
		{
			Name: commandModel, Description: "choose the model; without a name, say which there are",
			Input: &acp.Hint{Hint: "PROVIDER/NAME"},
		},
	}
	for _, skill := range f.skills {
		list = append(list, acp.Command{
			Name: skillPrefix + skill.Name, Description: line(skill.Description),
			Input: &acp.Hint{Hint: "what to do with it"},
		})
	}
	for _, c := range f.files {
		if c.Name != commandCompact && c.Name != commandModel { // those are the bridge's
			list = append(list, acp.Command{Name: c.Name, Description: line(c.Description), Input: &acp.Hint{Hint: "arguments"}})
		}
	}
	for _, s := range f.servers {
		for _, p := range s.Prompts {
			list = append(list, acp.Command{
				Name: s.Name + "." + p.Name, Description: line(p.Description),
				Input: argumentsOf(p),
			})
		}
	}
	return list
}

// argumentsOf says what stands behind a prompt of a server's: nil is nothing.
func argumentsOf(p protocol.ServerPrompt) *acp.Hint {
	var names []string
	for _, a := range p.Arguments {
		name := a.Name + "=…"
		if !a.Required {
			name = "[" + name + "]"
		}
		names = append(names, name)
	}
	if names == nil {
		return nil
	}
	return &acp.Hint{Hint: line(strings.Join(names, " "))}
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
func (w *window) local(r *acp.Request) (*prompt, context.Context) {
	ctx, giveUp := context.WithCancel(w.ctx)
	p := &prompt{request: r, giveUp: giveUp}
	w.prompts = append(w.prompts, p)
	return p, ctx
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
	p, ctx := w.local(r)
	turn := inLine(ctx, w, w.payAbort) // what comes behind does not wait for the summary
	away(w, func() (protocol.Compaction, error) {
		if _, err := turn(); err != nil {
			return protocol.Compaction{}, err
		}
		return once(w.ctx, w, protocol.CompactSession, protocol.CompactSessionParams{
			Scope:       protocol.Scope{SessionID: w.id},
			Instruction: instruction,
		})
	}, func(c protocol.Compaction, err error) {
		w.finish(p, fmt.Sprintf("The conversation of %d tokens was summarised.", c.TokensBefore), err)
	})
}

func (w *window) listModels(r *acp.Request) {
	said := "Model: " + modelName(w.state.Model) + "\n"
	for _, v := range w.modelValues(modelName(w.state.Model)) {
		said += "\n- " + v.Value
	}
	p, _ := w.local(r)
	w.finish(p, said, nil)
}

func (w *window) chooseModel(r *acp.Request, name string) {
	p, _ := w.local(r)
	away(w, inLine(w.ctx, w, func() (protocol.ModelAccepted, error) {
		return insist(w.ctx, w, protocol.SetModel, protocol.SetModelParams{
			Scope: protocol.Scope{SessionID: w.id},
			Model: name,
		})
	}), func(m protocol.ModelAccepted, err error) {
		if err == nil {
			w.b.keep(w.id)
			w.state.Model = m.Model
			w.tellState()
		}
		w.finish(p, "Model: "+modelName(m.Model), err)
	})
}

// calledPrompt is how a text begins that a command's file or a server may make,
// namedResource how a word looks that may be what a server has.
var (
	calledPrompt  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[^\s/]+(\.\S|\s|$)`) })
	namedResource = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|\s)@[^\s:@/]+:\S`) })
)

// meant is what a person means by a text: with what its skill says, and with what
// servers have for it. What names no server stays as it is.
func meant(ctx context.Context, w *window, text string, images []protocol.AttachmentParams) (string,
	[]protocol.AttachmentParams, error,
) {
	text, err := withSkill(ctx, w, text)
	if err != nil || !calledPrompt().MatchString(text) && !namedResource().MatchString(text) {
		return text, images, err
	}
	r, err := insist(ctx, w, protocol.Expand, protocol.ExpandParams{Scope: protocol.Scope{SessionID: w.id}, Text: text})
	switch {
	case err != nil:
		return "", nil, err
	case strings.TrimSpace(r.Text) == "":
		return "", nil, acp.Errorf(acp.InvalidParams, "prompt: the server made an empty text of it")
	}
	return r.Text, slices.Concat(images, r.Attachments), nil
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
	r, err := insist(ctx, w, protocol.ListSkills, protocol.ListSkillsParams{
		Scope: protocol.Scope{SessionID: w.id},
		Name:  name,
	})
	if err != nil {
		return "", err
	}
	if len(r.Skills) != 1 {
		return "", errors.New("the daemon did not say what the skill is")
	}
	s := r.Skills[0]
	return strings.TrimSpace(fmt.Sprintf("Use the skill %s. Its folder is %s, and it says:\n\n%s\n\n%s", s.Name,
		filepath.Dir(s.Path), s.Text, rest)), nil
}
