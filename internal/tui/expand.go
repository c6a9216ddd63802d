package tui

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

// isCall reports a text that begins with a slash and is for the daemon to expand.
func isCall(written string) bool {
	name := strings.TrimPrefix(written, "/")
	return promptCall().MatchString(written) && skillOf(written) == "" &&
		commandNamed(strings.ToLower(name[:len(name)-len(behind(name))])) == nil
}

// written makes of a text what the user means by it: with what its skill says, and
// what servers have for it.
func (u unsent) written(ctx context.Context, p place) (unsent, error) {
	call := u.call
	named := !strings.HasPrefix(u.text, "/") && resourceWord().MatchString(u.text)
	u, err := u.withSkill(ctx, p)
	if err != nil || !call && !named {
		return u, err
	}
	r, err := ask(ctx, p, protocol.Expand, protocol.ExpandParams{Scope: p.scope(), Text: u.text})
	var wire *protocol.Error
	switch {
	case errors.Is(err, client.ErrUnsupported) && !call: // these are words there
		return u, nil
	case errors.As(err, &wire) && wire.Code == protocol.InvalidPayload:
		return u, errors.New(strings.TrimPrefix(wire.Message, "text: "))
	case err != nil:
		return u, explain(err, "to ask servers for prompts")
	case call && r.Text == u.text && !strings.Contains(strings.Fields(u.text)[0], "."):
		return u, noCommand(strings.Fields(u.text)[0][1:])
	case call && r.Text == u.text:
		return u,
			fmt.Errorf("there is no server with the prompt %s: to send a text that begins with a slash, begin it with two",
				cell.Line(strings.Fields(u.text)[0], 60))
	case r.Text == "":
		return u, errors.New("the server made an empty text of it")
	}
	u.text = r.Text
	for _, a := range r.Attachments {
		data, err := base64.StdEncoding.DecodeString(a.Data)
		if err != nil {
			return u, err
		}
		u.images = append(u.images[:len(u.images):len(u.images)], image{name: a.Name, data: string(data)})
	}
	return u, nil
}

// promptCandidates are the prompts of servers, as they are typed.
func promptCandidates(ctx context.Context, p place) ([]candidate, error) {
	r, err := ask(ctx, p, protocol.ListTools, protocol.ListToolsParams{Scope: p.scope()})
	var all []candidate
	for _, s := range r.Servers {
		for _, one := range s.Prompts {
			about := ""
			for _, a := range one.Arguments {
				about += a.Name + "=… "
			}
			all = append(all, candidate{
				text:  "/" + s.Name + "." + one.Name,
				about: cell.Line(strings.TrimSpace(about+" "+one.Description), 200),
			})
		}
	}
	return all, err
}
