package slash

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/format"
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

// editLast puts the user's last message into the input. What is sent then goes to a branch
// from before it: see Edit.
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
	return Outcome{Text: last.Text, Edit: &Edit{Session: p.State.SessionID, Parent: last.ParentID}}
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

// Edit is a message that is being written anew: nothing is made until that is sent.
type Edit struct {
	Session string
	Parent  string // the entry before the message; "": it is the first
}

// maxTitle is how much of a text a branch is called by, in characters.
const maxTitle = 60

// Branch makes the session that goes on from before the message, and calls it by the text
// that is said there.
func (e Edit) Branch(ctx context.Context, p Place, text string) Outcome {
	if e.Parent == "" { // there is nothing before it
		return newSession(ctx, p, "")
	}
	out := BranchSession(ctx, p, e.Parent)
	if title := format.Fit(strings.Join(strings.Fields(text), " "), maxTitle); out.Err == nil && title != "" {
		// Without it the branch is called as its parent is.
		_, _ = Ask(ctx, p, protocol.SetTitle, protocol.SetTitleParams{
			Scope: protocol.Scope{SessionID: *out.Follow}, Title: title,
		})
	}
	return out
}
