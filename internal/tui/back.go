package tui

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"

	"noused/internal/protocol"
)

// newestQueued is the id of the text that waits and was sent last, as far as
// this screen knows: of its own, else the one that is delivered last. It is ""
// where none waits, or the core does not name them.
func (m *model) newestQueued() string {
	waits := m.state.Queued.Inputs
	for _, id := range slices.Backward(m.ours) {
		if slices.ContainsFunc(waits, func(in protocol.QueuedInput) bool { return in.InputID == id }) {
			return id
		}
	}
	if len(waits) == 0 {
		return ""
	}
	return waits[len(waits)-1].InputID
}

// takeBack takes the newest text that waits back into the input, which is empty,
// and tells whether there is one.
func (m *model) takeBack() bool {
	id := m.newestQueued()
	switch {
	case slices.Contains(m.working, "take-back"):
	case id != "":
		m.do("take-back", func(ctx context.Context, p place) outcome { return withdraw(ctx, p, id) })
	case m.state.PendingCounts.Steer+m.state.PendingCounts.FollowUp > 0 && m.lacks(protocol.Withdraw.Name()):
		m.talk.Notice("info", "this core is an older one and does not know how to take a queued text back; "+m.keyed("stop", "ends the run and gives back all"))
		return false
	default:
		return false
	}
	return true
}

func withdraw(ctx context.Context, p place, id string) outcome {
	r, err := ask(ctx, p, protocol.Withdraw, protocol.WithdrawParams{Scope: p.scope(), InputID: id})
	if err != nil {
		return failed(explain(err, "to take a queued text back"))
	}
	return outcome{back: []string{r.Text}}
}

// newestWaiting is takeBack for the command.
func newestWaiting(ctx context.Context, p place, _ string) outcome {
	waits := p.state.Queued.Inputs
	if len(waits) == 0 {
		return failed(errors.New("no queued text waits that could be taken back"))
	}
	return withdraw(ctx, p, waits[len(waits)-1].InputID)
}

// editLast goes on in a branch from before the user's last message, whose text
// is in the input.
func editLast(ctx context.Context, p place, _ string) outcome {
	switch {
	case len(p.missing) > 0:
		return failed(errors.New("this core is an older one and branches at the end only: /branch works"))
	case p.running():
		return failed(errors.New("a run is active: its messages can be edited when it is over"))
	}
	all, err := ask(ctx, p, protocol.GetMessages, protocol.GetMessagesParams{Scope: p.scope()})
	if err != nil {
		return failed(err)
	}
	for _, raw := range slices.Backward(all.Messages) {
		var said protocol.Message
		if err := json.Unmarshal(raw, &said); err != nil {
			return failed(err)
		}
		if said.Role == "user" {
			return editFrom(ctx, p, said)
		}
	}
	return failed(errors.New("nothing was said yet"))
}

func editFrom(ctx context.Context, p place, said protocol.Message) outcome {
	var out outcome
	if said.ParentID == "" { // there is nothing before it
		out = newSession(ctx, p, p.state.Title)
	} else {
		out = branchSession(ctx, p, said.ParentID)
	}
	if out.err == nil {
		out.text = said.Text
		out.info = "this is a branch of " + p.state.SessionID + ", from before the message that is in the input"
	}
	return out
}
