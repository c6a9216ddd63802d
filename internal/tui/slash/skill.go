package slash

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// SkillPrefix begins a text that is sent with what a skill says.
const SkillPrefix = "/skill:"

// SkillOf is the name of the skill that a written text asks for, "" for none.
func SkillOf(written string) string {
	name, ok := strings.CutPrefix(written, SkillPrefix)
	if !ok {
		return ""
	}
	return strings.TrimSpace(name[:len(name)-len(behind(name))])
}

// behind is a text from its first space on.
func behind(text string) string {
	if i := strings.IndexAny(text, " \t\n"); i >= 0 {
		return text[i:]
	}
	return ""
}

// withSkill returns the text with what its skill says before it.
func (u Unsent) withSkill(ctx context.Context, p Place) (Unsent, error) {
	if u.Skill == "" {
		return u, nil
	}
	r, err := Ask(ctx, p, protocol.ListSkills, protocol.ListSkillsParams{Name: u.Skill})
	if err == nil && len(r.Skills) != 1 {
		err = errors.New("the daemon did not say what the skill is")
	}
	var wire *protocol.Error
	switch {
	case errors.As(err, &wire) && wire.Code == protocol.InvalidPayload:
		return u, errors.New(strings.TrimPrefix(wire.Message, "name: "))
	case err != nil:
		return u, Explain(err, "to use skills")
	}
	s := r.Skills[0]
	rest := strings.TrimSpace(behind(u.Text))
	u.Text = strings.TrimSpace(fmt.Sprintf("Use the skill %s. Its folder is %s, and it says:\n\n%s\n\n%s", s.Name,
		filepath.Dir(s.Path), s.Text, rest))
	return u, nil
}

// fileCandidates are the commands that are files, as they are typed.
func fileCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	r, err := Ask(ctx, p, protocol.ListSkills, protocol.ListSkillsParams{Scope: p.Scope()})
	var all []Candidate
	for _, c := range r.Commands {
		if Named(strings.ToLower(c.Name)) == nil { // those are the screen's
			all = append(all, Candidate{Text: "/" + c.Name, About: cell.Line(c.Description, 200)})
		}
	}
	return all, err
}

func SkillCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	r, err := Ask(ctx, p, protocol.ListSkills, protocol.ListSkillsParams{})
	all := make([]Candidate, len(r.Skills))
	for i, s := range r.Skills {
		all[i] = Candidate{Text: SkillPrefix + s.Name, About: cell.Line(s.Description, 200)}
	}
	return all, err
}
