package slash

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// promptCall is how a text begins that a command's file or a server is to make,
// resourceWord how a word looks that may name what a server has.
var (
	promptCall   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[^\s/]+(\.\S|\s|$)`) })
	resourceWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|\s)@[^\s:@/]+:\S`) })
)

// IsCall reports a text that begins with a slash and is for the daemon to expand.
func IsCall(written string) bool {
	name := strings.TrimPrefix(written, "/")
	return promptCall().MatchString(written) && SkillOf(written) == "" &&
		Named(strings.ToLower(name[:len(name)-len(behind(name))])) == nil
}

// Written makes of a text what the user means by it: with what its skill says, and
// what servers have for it.
func (u Unsent) Written(ctx context.Context, p Place) (Unsent, error) {
	call := u.Call
	named := !strings.HasPrefix(u.Text, "/") && resourceWord().MatchString(u.Text)
	u, err := u.withSkill(ctx, p)
	if err != nil || !call && !named {
		return u, err
	}
	r, err := Ask(ctx, p, protocol.Expand, protocol.ExpandParams{Scope: p.Scope(), Text: u.Text})
	var wire *protocol.Error
	switch {
	case errors.Is(err, client.ErrUnsupported) && !call: // these are words there
		return u, nil
	case errors.As(err, &wire) && wire.Code == protocol.InvalidPayload:
		return u, errors.New(strings.TrimPrefix(wire.Message, "text: "))
	case err != nil:
		return u, Explain(err, "to ask servers for prompts")
	case call && r.Text == u.Text && takesCall(p, strings.Fields(u.Text)[0]):
		return u, nil
	case call && r.Text == u.Text && !strings.Contains(strings.Fields(u.Text)[0], "."):
		return u, noCommand(strings.Fields(u.Text)[0][1:])
	case call && r.Text == u.Text:
		return u,
			fmt.Errorf("there is no server with the prompt %s: to send a text that begins with a slash, begin it with two",
				cell.Line(strings.Fields(u.Text)[0], 60))
	case r.Text == "":
		return u, errors.New("the server made an empty text of it")
	}
	u.Text = r.Text
	for _, a := range r.Attachments {
		data, err := base64.StdEncoding.DecodeString(a.Data)
		if err != nil {
			return u, err
		}
		u.Images = append(u.Images[:len(u.Images):len(u.Images)], Image{Name: a.Name, Data: string(data)})
	}
	return u, nil
}

// PromptCandidates are the prompts of servers, as they are typed.
func PromptCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	r, err := Ask(ctx, p, protocol.ListTools, protocol.ListToolsParams{Scope: p.Scope()})
	var all []Candidate
	for _, s := range r.Servers {
		for _, one := range s.Prompts {
			about := ""
			for _, a := range one.Arguments {
				about += a.Name + "=… "
			}
			all = append(all, Candidate{
				Text:  "/" + s.Name + "." + one.Name,
				About: cell.Line(strings.TrimSpace(about+" "+one.Description), 200),
			})
		}
	}
	return all, err
}
