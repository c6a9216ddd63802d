package slash

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

func Withdraw(ctx context.Context, p Place, id string) Outcome {
	r, err := Ask(ctx, p, protocol.Withdraw, protocol.WithdrawParams{Scope: p.Scope(), InputID: id})
	if err != nil {
		return Failed(Explain(err, "to take a queued text back"))
	}
	return Outcome{Back: []string{r.Text}}
}

// newestWaiting is takeBack for the command.
func newestWaiting(ctx context.Context, p Place, _ string) Outcome {
	waits := p.State.Queued.Inputs
	if len(waits) == 0 {
		return Failed(errors.New("no queued text waits that could be taken back"))
	}
	return Withdraw(ctx, p, waits[len(waits)-1].InputID)
}

// editLast goes on in a branch from before the user's last message, whose text
// is in the input.
func editLast(ctx context.Context, p Place, _ string) Outcome {
	branch := protocol.BranchSessionParams{SessionID: p.State.SessionID, LeafID: "of the message"}
	switch err := Refusal(p.Link, protocol.BranchSession, branch); {
	case err != nil:
		return Failed(err)
	case p.Running():
		return Failed(errors.New("a run is active: its messages can be edited when it is over"))
	}
	var last *protocol.Message
	for page, err := range client.Pages(protocol.GetMessagesParams{Scope: p.Scope()},
		func(params protocol.GetMessagesParams) (protocol.Messages, error) {
			return Ask(ctx, p, protocol.GetMessages, params)
		}) {
		if err == nil {
			last, err = lastUser(page.Messages, last)
		}
		if err != nil {
			return Failed(err)
		}
	}
	if last == nil {
		return Failed(errors.New("nothing was said yet"))
	}
	return editFrom(ctx, p, *last)
}

// lastUser is the last message of a user in messages, or before where there is none.
func lastUser(messages []jsontext.Value, before *protocol.Message) (*protocol.Message, error) {
	for _, raw := range slices.Backward(messages) {
		var said protocol.Message
		if err := json.Unmarshal(raw, &said); err != nil {
			return nil, err
		}
		if said.Role == "user" {
			return &said, nil
		}
	}
	return before, nil
}

func editFrom(ctx context.Context, p Place, said protocol.Message) Outcome {
	var out Outcome
	title := nextTitle(ctx, p)
	if said.ParentID == "" { // there is nothing before it
		out = newSession(ctx, p, title)
	} else if out = BranchSession(ctx, p, said.ParentID); out.Err == nil && title != "" {
		_, _ = Ask(ctx, p, protocol.SetTitle, protocol.SetTitleParams{
			Scope: protocol.Scope{SessionID: *out.Follow},
			Title: title,
		})
	}
	if out.Err == nil {
		out.Text = said.Text
		out.Info = "this is a branch of " + p.State.SessionID + ", from before the message that is in the input"
	}
	return out
}

// nextTitle is the session's title with the next number that no session has, "fix
// the parser (2)".
func nextTitle(ctx context.Context, p Place) string {
	title, taken := p.State.Title, map[string]bool{}
	list, _ := ListSessions(ctx, p) // without a list it is the second
	for _, s := range list {
		taken[s.Title] = true
		if s.SessionID == p.State.SessionID { // the list knows a title that the first prompt has given
			title = s.Title
		}
	}
	if title == "" {
		return ""
	}
	base := numbered().ReplaceAllString(title, "")
	base = string([]rune(base)[:min(utf8.RuneCountInString(base), 190)]) // of the 200 that a title may have
	for n := 2; ; n++ {
		if title := fmt.Sprintf("%s (%d)", base, n); !taken[title] {
			return title
		}
	}
}

var numbered = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` \([0-9]{1,4}\)$`) })
